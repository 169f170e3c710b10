//! Writes the small files of one container that every engine shows under `/etc`.
//!
//! The container's root may write to them, and change their owners and modes. They are written anew
//! when the container starts, as Docker does.

use crate::error::{Error, Result};
use crate::plan::{EtcFile, Plan};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use view::identity::Truth;
use view::identity::record::OWNER;

/// The mode that they have in every container.
const MODE: u32 = 0o644;
/// `S_IFREG`.
const REGULAR: u32 = 0o100_000;
/// The bit of a mode on disk that says that there is a record.
const MARK: u32 = 0o1000;

/// Writes the `/etc` files of a container that starts.
pub(crate) fn write_all(plan: &Plan) -> Result<()> {
    plan.files.iter().try_for_each(|file| write_file(plan, file))
}

/// Writes one of them; none where the host has none and nothing is to be added.
pub(crate) fn write_file(plan: &Plan, file: &EtcFile) -> Result<()> {
    // Where owners are emulated, the caller's files belong to the container's user.
    write(file, plan.emulate_root && plan.user != (0, 0))
}

/// `recorded`: that root owns it must be recorded.
fn write(file: &EtcFile, recorded: bool) -> Result<()> {
    let path = &file.path;
    let failed = |doing: &'static str| {
        move |error: std::io::Error| Error::File {
            doing: doing.into(),
            path: path.clone(),
            errno: error.into(),
        }
    };
    let Some(text) = content(file) else {
        return match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove")(error)),
            _ => Ok(()),
        };
    };
    // What a record says may have been changed too.
    if !recorded && is_written(path, &text) {
        return Ok(());
    }
    let mut file = match open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = path.parent().unwrap_or(path);
            std::fs::create_dir_all(directory).map_err(failed("make the directory of"))?;
            open(path)
        }
        // The container has closed it, or given it to another of its users.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            std::fs::remove_file(path).map_err(failed("remove"))?;
            open(path)
        }
        opened => opened,
    }
    .map_err(failed("write"))?;
    file.write_all(&text).map_err(failed("write"))?;
    let marked = recorded && record(&file).map_err(failed("set the owner of"))?;
    let mode = if marked { MODE | MARK } else { MODE };
    file.set_permissions(Permissions::from_mode(mode)).map_err(failed("set the mode of"))
}

/// Records that root owns it, and says whether it could.
fn record(file: &File) -> std::io::Result<bool> {
    let truth = Truth { mode: REGULAR | MODE, uid: 0, gid: 0, ..Truth::default() };
    match sys::fs::xattr::set(file, OWNER.to_bytes(), truth.to_text().as_bytes()) {
        Ok(()) => Ok(true),
        // Then it belongs to the container's user.
        Err(Errno::OPNOTSUPP | Errno::NOSPC) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the files to root inside. The caller is another user of a user namespace, with all
/// capabilities there.
pub(crate) fn give_to_root(files: &[EtcFile]) {
    if rustix::process::geteuid().is_root() {
        return;
    }
    for file in files {
        // Where root is not mapped, they stay the caller's.
        let _ = rustix::fs::chown(&file.path, Some(Uid::ROOT), Some(Gid::ROOT));
    }
}

/// Written where it is, because it may be mounted already.
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).open(path)
}

fn content(file: &EtcFile) -> Option<Vec<u8>> {
    let read = |base| sys::fs::read_rest(File::open(base).ok()?).ok();
    let base = file.base.as_ref().and_then(read);
    if base.is_none() && file.text.is_empty() {
        return None;
    }
    let mut text = Vec::new();
    for line in base.as_deref().unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
        let words = line.split(u8::is_ascii_whitespace);
        let word = words.into_iter().find(|word| !word.is_empty()).unwrap_or_default();
        if !file.without.iter().any(|left_out| left_out.as_bytes() == word) {
            text.extend_from_slice(line);
        }
    }
    if text.last().is_some_and(|byte| *byte != b'\n') {
        text.push(b'\n');
    }
    text.extend_from_slice(file.text.as_bytes());
    Some(text)
}

/// Whether the file is as the last start wrote it, and the next would.
fn is_written(path: &Path, text: &[u8]) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let Ok(found) = file.metadata() else { return false };
    found.is_file()
        && found.mode() & 0o7777 == MODE
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.len() == text.len() as u64
        && sys::fs::read_rest(file).is_ok_and(|there| there == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn file(path: PathBuf, base: Option<PathBuf>, text: &str) -> EtcFile {
        EtcFile { path, base, without: vec!["nameserver".into()], text: text.into() }
    }

    #[test]
    fn what_a_container_changed_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (base, path) = (dir.path().join("base"), dir.path().join("etc/file"));
        std::fs::write(&base, b"search a\n nameserver 1\n# \xff").unwrap();
        let wanted = file(path.clone(), Some(base), "nameserver 2\n");
        let change: [fn(&Path); 4] = [
            |_| {},
            |path| std::fs::write(path, "other").unwrap(),
            |path| std::fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap(),
            |path| std::fs::set_permissions(path, Permissions::from_mode(0o1666)).unwrap(),
        ];
        for change in change {
            write(&wanted, false).unwrap();
            change(&path);
            write(&wanted, false).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"search a\n# \xff\nnameserver 2\n");
            assert_eq!(path.metadata().unwrap().mode() & 0o7777, MODE);
        }
        write(&file(path.clone(), Some("/nonexistent".into()), ""), false).unwrap();
        assert!(!path.exists());
    }
}
