//! Files that the driver writes to the node and reads from it.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A file that is being written beside its place. Dropped before [`Incoming::finish`], it is
/// removed.
#[derive(Debug)]
pub(super) struct Incoming {
    file: File,
    beside: PathBuf,
    place: PathBuf,
    /// Why a piece was not written: told when the file is complete.
    failed: Option<String>,
}

/// Puts a step and the path before the kernel's reason.
fn step<'a>(step: &'a str, path: &'a Path) -> impl Fn(io::Error) -> String + 'a {
    move |error| format!("cannot {step} {}: {error}", path.display())
}

impl Incoming {
    /// Begins a file.
    pub(super) fn begin(path: &Path, mode: u32) -> Result<Self, String> {
        if !path.is_absolute() {
            return Err(format!("{} is not an absolute path", path.display()));
        }
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(format!("{} is not a file's path", path.display()));
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(step("make the directory", directory))?;
        let suffix = sys::random::suffix().map_err(step("choose a name beside", path))?;
        let beside = directory.join(format!(".{}.{suffix}", name.display()));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)
            .map_err(step("create", &beside))?;
        let this = Self { file, beside, place: path.to_owned(), failed: None };
        let permissions = Permissions::from_mode(mode & 0o7777);
        this.file.set_permissions(permissions).map_err(step("set the mode of", path))?;
        Ok(this)
    }

    /// Writes a piece. After a failure the rest is passed over.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(bytes).map_err(step("write", &self.place)).err();
        }
    }

    /// Gives the file its name.
    pub(super) fn finish(mut self) -> Result<(), String> {
        if let Some(why) = self.failed.take() {
            return Err(why);
        }
        std::fs::rename(&self.beside, &self.place)
            .map_err(step("give its name to", &self.place))?;
        self.beside = PathBuf::new();
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.beside.as_os_str().is_empty() {
            let _ = std::fs::remove_file(&self.beside);
        }
    }
}

/// A file that is being read.
#[derive(Debug)]
pub(super) struct Outgoing {
    file: File,
    path: PathBuf,
}

impl Outgoing {
    /// Opens a file. A pipe or device is refused: it could block the agent.
    pub(super) fn begin(path: &Path) -> Result<Self, String> {
        let no_wait = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(no_wait).open(path);
        let file = file.map_err(step("open", path))?;
        if !file.metadata().is_ok_and(|found| found.is_file()) {
            return Err(format!("{} is not a regular file", path.display()));
        }
        Ok(Self { file, path: path.to_owned() })
    }

    /// Reads a piece; 0 at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map_err(step("read", &self.path)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_with_its_mode_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/key");
        let mut file = Incoming::begin(&path, 0o600).unwrap();
        file.write(b"sec");
        assert!(!path.exists());
        file.write(b"ret");
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"secret");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&dir.path().join("a"))), (0o600, 0o700));
        let mut again = Incoming::begin(&path, 0o700).unwrap();
        again.write(b"other");
        drop(again);
        assert_eq!(std::fs::read(&path).unwrap(), b"secret");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(Incoming::begin(Path::new("key"), 0o600).unwrap_err().contains("absolute"));
        let blocked = Incoming::begin(&path.join("below"), 0o600).unwrap_err();
        assert!(blocked.contains("cannot make the directory"), "{blocked}");
    }

    #[test]
    fn only_files_are_read() {
        assert!(Outgoing::begin(Path::new("/dev/zero")).unwrap_err().contains("regular"));
        assert!(Outgoing::begin(Path::new("/no-such")).unwrap_err().contains("No such file"));
    }
}
