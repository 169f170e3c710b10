//! The file that all processes of a container share ([`abi::shared`]), seen from outside the
//! container.
//!
//! It exists from the start of a program with the backend inside until no process lives in the
//! container. A tracer, or an `exec` by another engine, notes in it what it changes in the
//! container's tree meanwhile.

use super::inode_log::InodeLog;
use abi::shared::{Shared, image};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use sys::shared::SharedWords;

/// Its name in the container's directory for what is needed while it runs.
pub const NAME: &str = hostfs::layout::SHARED;

/// The file, mapped.
#[derive(Debug)]
pub struct Common {
    words: SharedWords,
}

impl Common {
    /// Makes the file anew, with the image's list of `inodes` (a file that need not exist) and an
    /// index of the log `notes`. The caller holds the container's lock, and no process lives there
    /// with an older file; `fresh` says that none lives there without, either.
    pub fn create(path: &Path, inodes: &Path, notes: &Path, fresh: bool) -> std::io::Result<Self> {
        let inodes = match std::fs::read(inodes) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            result => result?,
        };
        let (file, unfinished) = unfinished(path)?;
        let count = image::count(inodes.len());
        sys::shared::write(&file, Shared::TABLE, &mut image::table(&inodes))?;
        let words = SharedWords::create(&file, Shared::size(count))?;
        let shared = Shared::create_over(words.words(), count).ok_or(ErrorKind::InvalidData)?;
        publish(&shared, (&unfinished, path), notes, fresh)?;
        Ok(Self { words })
    }

    /// The same for an image whose index has this many records.
    pub fn create_with_index(
        path: &Path,
        records: usize,
        notes: &Path,
        fresh: bool,
    ) -> std::io::Result<Self> {
        let (file, unfinished) = unfinished(path)?;
        let words = SharedWords::create(&file, Shared::size_with_index(records))?;
        let shared =
            Shared::create_with_index(words.words(), records).ok_or(ErrorKind::InvalidData)?;
        publish(&shared, (&unfinished, path), notes, fresh)?;
        Ok(Self { words })
    }

    /// Maps the file, if there is one, of this version.
    pub fn open(path: &Path) -> Option<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let words = SharedWords::map(&file).ok()?;
        Shared::open(words.words())?;
        Some(Self { words })
    }

    /// What is in it.
    pub fn shared(&self) -> Shared<'_> {
        // It was complete when it was mapped, and stays so.
        Shared::open(self.words.words())
            .unwrap_or_else(|| unreachable!("a shared file does not change its kind"))
    }
}

/// Puts a complete file to its place, with an index of the log `notes`.
fn publish(
    shared: &Shared<'_>,
    (unfinished, path): (&Path, &Path),
    notes: &Path,
    fresh: bool,
) -> std::io::Result<()> {
    if !fresh {
        // A tracer's guest may have set the name, or does before the tracer sees the file.
        shared.set_renamed();
    }
    let mut notes = InodeLog::new(notes.to_path_buf());
    let mut index = || {
        let failed = |errno: view::Errno| std::io::Error::from_raw_os_error(errno.0.into());
        notes.index(&shared.notes()).map_err(failed)
    };
    index()?;
    std::fs::rename(unfinished, path)?;
    // Records that a tracer wrote before it could see the file.
    index()
}

/// A new file under another name: a tracer that looks for it sees all of it or nothing.
fn unfinished(path: &Path) -> std::io::Result<(OwnedFd, PathBuf)> {
    let unfinished = path.with_extension("new");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::open(&unfinished, flags, Mode::from_raw_mode(0o600))?;
    Ok((file, unfinished))
}

/// The file of a container, as it comes and goes while a tracer runs.
#[derive(Debug)]
pub struct Perhaps {
    path: std::path::PathBuf,
    /// Mapped, and which file that is.
    common: Option<(Common, (u64, u64))>,
}

impl Perhaps {
    /// In the container's directory for what is needed while it runs.
    pub fn in_directory(run: &Path) -> Self {
        Self { path: run.join(NAME), common: None }
    }

    /// The file as it was at the last look.
    pub fn mapped(&self) -> Option<&Common> {
        self.common.as_ref().map(|(common, _)| common)
    }

    /// The file as it is now.
    pub fn get(&mut self) -> Option<&Common> {
        let now = match rustix::fs::lstat(&self.path) {
            Ok(stat) => Some((stat.st_dev, stat.st_ino)),
            Err(Errno::NOENT) => None,
            // Not readable at the moment: what is mapped is as good as anything.
            Err(_) => self.common.as_ref().map(|(_, file)| *file),
        };
        if self.common.as_ref().map(|(_, file)| *file) != now {
            self.common = now.and_then(|file| Some((Common::open(&self.path)?, file)));
        }
        self.common.as_ref().map(|(common, _)| common)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut perhaps = Perhaps::in_directory(dir.path());
        assert!(perhaps.get().is_none());
        let mut inodes = 7_u64.to_le_bytes().to_vec();
        inodes.extend(2_u32.to_le_bytes());
        std::fs::write(at("inodes"), inodes).unwrap();
        let mut log = InodeLog::new(at("notes"));
        log.set(b"key", Some(b"value")).unwrap();
        let one = Common::create(&at(NAME), &at("inodes"), &at("notes"), true).unwrap();
        assert_eq!(one.shared().image().links(7), Some(2));
        assert_eq!(one.shared().notes().covered(), 1);
        let generation = one.shared().plain().generation();
        perhaps.get().unwrap().shared().plain().changed();
        assert_eq!(one.shared().plain().generation(), generation + 1);
        let other = Common::create(&at(NAME), &at("none"), &at("none"), false).unwrap();
        assert!(!one.shared().is_renamed() && other.shared().is_renamed());
        assert_eq!(perhaps.get().unwrap().shared().image().links(7), None);
        perhaps.get().unwrap().shared().plain().changed();
        assert_eq!(other.shared().plain().generation(), generation + 1);
        std::fs::remove_file(at(NAME)).unwrap();
        assert!(perhaps.get().is_none());
        std::fs::write(at(NAME), "nonsense").unwrap();
        assert!(perhaps.get().is_none());
    }
}
