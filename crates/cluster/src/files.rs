//! What is at a path, with digests, so that both ends of a copy can be compared.
//!
//! The container's end is `cluster files` in it, which sees the files as the program does. A list
//! has regular files, directories and symbolic links; other kinds are left out. Owners, times and
//! permissions are not compared, but for whether a file's owner may execute it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use remote::digest::digest;

use crate::error::{Error, Result};

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// SHA-256 of its bytes, in hexadecimal digits.
        digest: String,
        /// Its owner may execute it.
        executable: bool,
    },
    /// A symbolic link, with its target.
    Link(Vec<u8>),
}

/// What is at a path and below, by the paths from there on. It has the empty path itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files(BTreeMap<Vec<u8>, What>);

impl Files {
    /// Lists all that is at a path and below; nothing where nothing is there. A link at the path
    /// itself is followed.
    ///
    /// # Errors
    /// If something cannot be read.
    pub fn at(top: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        let Some(meta) = present(fs::metadata(top))? else { return Ok(found) };
        let mut left = Vec::new();
        found.add(top, Vec::new(), &meta, &mut left)?;
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(full(top, &directory))? {
                let name = entry?.file_name().into_vec();
                let path = if directory.is_empty() {
                    name
                } else {
                    [&directory[..], b"/", &name].concat()
                };
                let place = full(top, &path);
                let Some(meta) = present(fs::symlink_metadata(&place))? else { continue };
                found.add(&place, path, &meta, &mut left)?;
            }
        }
        Ok(found)
    }

    /// Lists what of `wanted` is at a path and below.
    ///
    /// # Errors
    /// If something cannot be read.
    pub fn some_at(top: &Path, wanted: &[Vec<u8>]) -> io::Result<Self> {
        let mut found = Self::default();
        for path in wanted {
            let place = full(top, path);
            let look =
                if path.is_empty() { fs::metadata(&place) } else { place.symlink_metadata() };
            if let Some(meta) = present(look)? {
                found.add(&place, path.clone(), &meta, &mut Vec::new())?;
            }
        }
        Ok(found)
    }

    fn add(
        &mut self,
        place: &Path,
        path: Vec<u8>,
        meta: &Metadata,
        directories: &mut Vec<Vec<u8>>,
    ) -> io::Result<()> {
        let what = if meta.is_dir() {
            directories.push(path.clone());
            What::Directory
        } else if meta.is_symlink() {
            What::Link(fs::read_link(place)?.into_os_string().into_vec())
        } else if meta.is_file() {
            let executable = meta.permissions().mode() & 0o100 != 0;
            let digest =
                File::open(place).and_then(|mut file| digest(&mut file)).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", place.display()))
                })?;
            What::File { digest, executable }
        } else {
            return Ok(());
        };
        self.0.insert(path, what);
        Ok(())
    }

    /// What is at the path itself.
    pub fn top(&self) -> Option<&What> {
        self.0.get(&b""[..])
    }

    /// Everything, a directory before what is in it.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &What)> {
        self.0.iter().map(|(path, what)| (&**path, what))
    }

    /// The paths.
    pub fn paths(&self) -> Vec<Vec<u8>> {
        self.0.keys().cloned().collect()
    }

    /// The first path of these that is missing in others, or something else there.
    pub fn differs_from(&self, others: &Self) -> Option<&[u8]> {
        let differs = |(path, what): &(&Vec<u8>, &What)| others.0.get(*path) != Some(what);
        self.0.iter().find(differs).map(|(path, _)| &**path)
    }

    /// As bytes: for each path three fields, each with a NUL behind.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (path, what) in &self.0 {
            let (kind, of): (&[u8], &[u8]) = match what {
                What::Directory => (b"d", b""),
                What::File { digest, executable: false } => (b"f", digest.as_bytes()),
                What::File { digest, executable: true } => (b"x", digest.as_bytes()),
                What::Link(target) => (b"l", target),
            };
            for field in [path, kind, of] {
                bytes.extend_from_slice(field);
                bytes.push(0);
            }
        }
        bytes
    }

    /// From bytes; `None` if they are cut or no list.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = fields(bytes)?.into_iter();
        let mut found = Self::default();
        while let Some(path) = fields.next() {
            let (kind, of) = (fields.next()?, fields.next()?);
            let what = match &*kind {
                b"d" => What::Directory,
                b"l" => What::Link(of),
                b"f" | b"x" => {
                    What::File { digest: String::from_utf8(of).ok()?, executable: kind == b"x" }
                }
                _ => return None,
            };
            found.0.insert(path, what);
        }
        Some(found)
    }
}

/// Fields that have a NUL behind each; `None` if the last one has none.
pub fn fields(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let whole = bytes.strip_suffix(b"\0")?;
    Some(whole.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect())
}

/// A path of a list, below its top.
pub fn full(top: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() { top.to_owned() } else { top.join(OsStr::from_bytes(path)) }
}

/// `None` for what is not there.
fn present(meta: io::Result<Metadata>) -> io::Result<Option<Metadata>> {
    match meta {
        Ok(meta) => Ok(Some(meta)),
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What `cluster files` is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// All that is at the path and below.
    All,
    /// The same of the paths that are read from standard input, with a directory made at the path.
    InDirectory,
    /// The same, with the directories above the path made.
    Beside,
}

/// The container's end: lists what is at a path, and makes directories before.
///
/// # Errors
/// If something cannot be read or made.
pub fn answer(ask: Ask, path: &Path, input: &mut dyn io::Read) -> Result<Vec<u8>> {
    let failed = |error: io::Error| Error::new(format!("{}: {error}", path.display()));
    let found = match ask {
        Ask::All => Files::at(path),
        Ask::InDirectory | Ask::Beside => {
            let make = if ask == Ask::Beside { path.parent() } else { Some(path) };
            make.map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
            let mut wanted = Vec::new();
            input.read_to_end(&mut wanted).map_err(failed)?;
            let wanted = fields(&wanted).ok_or_else(|| Error::new("the list of paths is cut"))?;
            Files::some_at(path, &wanted)
        }
    };
    found.map(|found| found.to_bytes()).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let top = place.path();
        fs::create_dir_all(top.join("a/b")).unwrap();
        fs::write(top.join("a/b/one"), "1").unwrap();
        fs::write(top.join("a/run"), "2").unwrap();
        fs::set_permissions(top.join("a/run"), fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("../nowhere", top.join("a/link")).unwrap();
        place
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let place = tree();
        let found = Files::at(&place.path().join("a")).unwrap();
        assert_eq!(found.paths(), ["", "b", "b/one", "link", "run"].map(str::as_bytes));
        assert_eq!(found.top(), Some(&What::Directory));
        let one = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
        let file = What::File { digest: one.to_owned(), executable: false };
        assert_eq!(found.iter().nth(2), Some((&b"b/one"[..], &file)));
        let bytes = found.to_bytes();
        assert_eq!(Files::from_bytes(&bytes), Some(found));
        assert_eq!(Files::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Files::from_bytes(b""), Some(Files::default()));
    }

    #[test]
    fn what_differs() {
        let place = tree();
        let top = place.path().join("a");
        let before = Files::at(&top).unwrap();
        fs::write(top.join("more"), "").unwrap();
        let after = Files::some_at(&top, &before.paths()).unwrap();
        assert_eq!(before.differs_from(&after), None, "what is there besides does not matter");
        fs::write(top.join("b/one"), "3").unwrap();
        let after = Files::some_at(&top, &before.paths()).unwrap();
        assert_eq!(before.differs_from(&after), Some(&b"b/one"[..]));
        fs::remove_dir_all(top.join("b")).unwrap();
        fs::write(top.join("b"), "").unwrap();
        let after = Files::some_at(&top, &before.paths()).unwrap();
        assert_eq!(before.differs_from(&after), Some(&b"b"[..]));
        assert_eq!(Files::at(&top.join("none")).unwrap(), Files::default());
    }

    #[test]
    fn directories_are_made_before_an_answer() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x/y/z");
        let ask = |ask| answer(ask, &path, &mut &b"\0"[..]).unwrap();
        assert_eq!(ask(Ask::All), b"");
        assert_eq!(ask(Ask::Beside), b"");
        assert!(place.path().join("x/y").is_dir() && !path.exists());
        assert_eq!(ask(Ask::InDirectory), b"\0d\0\0");
        assert!(answer(Ask::Beside, &path, &mut &b"cut"[..]).is_err());
    }
}
