//! The records of a container's inode log by path: for programs that make a tree, and for those
//! that read one while no process lives in it.

use super::inode_log::InodeLog;
use crate::error::{Error, Result};
use linux_raw_sys::general::AT_SYMLINK_NOFOLLOW;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::path::Path;
use sys::fs::resolve::{self, Method};
use sys::fs::{DirStack, Kind, calls};
use view::identity::record::NOTE_KEY;

fn failed(doing: &str, path: &Path) -> impl Fn(Errno) -> Error {
    let (doing, path) = (doing.to_owned(), path.to_path_buf());
    move |errno| Error::File { doing: doing.clone(), path: path.clone(), errno: errno.into() }
}

/// Writes records of files of a tree into its log: paths relative to its top, texts as
/// [`view::identity::Truth::to_text`] makes them. Files that are not there are passed over.
pub fn note<'a>(
    root: &Path,
    log_path: &Path,
    records: impl IntoIterator<Item = (&'a [u8], String)>,
) -> Result<()> {
    note_in(root, InodeLog::new(log_path.to_path_buf()), records)
}

/// The same with a log that is open.
pub(super) fn note_in<'a>(
    root: &Path,
    mut log: InodeLog,
    records: impl IntoIterator<Item = (&'a [u8], String)>,
) -> Result<()> {
    let top =
        rustix::fs::open(root, sys::fs::DIRECTORY, Mode::empty()).map_err(failed("open", root))?;
    let log_path = log.path().to_path_buf();
    let written = failed("write", &log_path);
    for (path, text) in records {
        let (parent, name) = resolve::split(path);
        let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
        let Ok(parent) = resolve::strict(&top, parent, flags, Method::Best) else { continue };
        let Ok(key) = key(&parent, name) else { continue };
        log.set(&key, Some(text.as_bytes()))
            .map_err(|errno| written(Errno::from_raw_os_error(errno.0.into())))?;
    }
    Ok(())
}

/// The records that are in the log, by path.
pub fn noted(root: &Path, log_path: &Path) -> Result<Vec<(Vec<u8>, String)>> {
    let mut found = Vec::new();
    if log_path.metadata().map_or(0, |meta| meta.len()) == 0 {
        return Ok(found);
    }
    let mut log = InodeLog::new(log_path.to_path_buf());
    let top =
        rustix::fs::open(root, sys::fs::DIRECTORY, Mode::empty()).map_err(failed("open", root))?;
    let walk =
        |error: sys::fs::Error| Error::Call { doing: error.to_string(), errno: Errno::IO.into() };
    let read = failed("read", root);
    let mut stack = DirStack::new(top).map_err(walk)?;
    let mut pending = vec![sys::fs::read_dir(stack.fd()).map_err(&read)?];
    while let Some(entries) = pending.last_mut() {
        let Some(entry) = entries.pop() else {
            pending.pop();
            stack.leave().map_err(walk)?;
            continue;
        };
        if let Ok(key) = key(stack.fd(), &entry.name)
            && let Some(text) = log.get(&key)
        {
            let text = String::from_utf8_lossy(text).into_owned();
            found.push((stack.path_of(&entry.name), text));
        }
        if entry.kind == Kind::Directory {
            stack.enter(&entry.name).map_err(walk)?;
            pending.push(sys::fs::read_dir(stack.fd()).map_err(&read)?);
        }
    }
    Ok(found)
}

/// The key of a name's record.
fn key(parent: impl AsFd, name: &[u8]) -> std::result::Result<[u8; NOTE_KEY], Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let facts = match calls::statx(&parent, &name, AT_SYMLINK_NOFOLLOW) {
        Err(Errno::NOSYS) => {
            let stat = calls::fstatat(parent, &name, AT_SYMLINK_NOFOLLOW)?;
            let mut facts = view::identity::NO_FACTS;
            facts.stx_ino = stat.st_ino;
            facts.stx_dev_major = rustix::fs::major(stat.st_dev);
            facts.stx_dev_minor = rustix::fs::minor(stat.st_dev);
            facts
        }
        result => result?,
    };
    Ok(view::identity::note_key(&facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_found_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let (root, notes) = (dir.path().join("ROOT"), dir.path().join("notes"));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::os::unix::fs::symlink("x", root.join("a/b/link")).unwrap();
        std::fs::write(root.join("plain"), "").unwrap();
        assert!(noted(&root, &notes).unwrap().is_empty());
        let text = || "1:2:777:l:0:0".to_owned();
        note(&root, &notes, [(&b"a/b/link"[..], text()), (b"gone/link", text())]).unwrap();
        assert_eq!(noted(&root, &notes).unwrap(), [(b"a/b/link".to_vec(), text())]);
    }
}
