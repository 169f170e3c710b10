//! Short names in `/tmp` for directories of containers whose own paths are too long for sockets.
//!
//! Each container has a directory of symbolic links in its `run/`, and up to 16 links in `/tmp` may
//! lead to it. They are made by the backend inside processes, which nobody stays beside; so they
//! are removed by the next start, or with the container.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use view::stored;

/// Removes what those who lived in a container left outside of its directory, which is `place`. For
/// when it is removed.
pub fn forget(place: &Path) {
    remove_aliases(&place.join("run"));
}

/// The directory of links in `run`, if it is there, and the links to it. Links that are somebody
/// else's stay.
pub(in crate::engines) fn remove_aliases(run: &Path) {
    let directory = run.join(OsStr::from_bytes(stored::LINKS));
    let Ok(found) = directory.symlink_metadata() else { return };
    let leads_there = |link: &Path| {
        let is_ours = link
            .symlink_metadata()
            .is_ok_and(|link| link.is_symlink() && link.uid() == found.uid());
        is_ours
            && link.metadata().is_ok_and(|to| (to.dev(), to.ino()) == (found.dev(), found.ino()))
    };
    for digit in 0..16 {
        let link = aliases(run).map(|aliases| PathBuf::from(format!("{aliases}{digit:x}")));
        if let Some(link) = link.filter(|link| leads_there(link)) {
            let _ = std::fs::remove_file(link);
        }
    }
    let _ = std::fs::remove_dir_all(directory);
}

/// How a container's directory of links is reached, if it needs one, but for the last digit
/// ([`Places::aliases`]): from `/tmp`, because that has to have a short path.
pub(in crate::engines) fn aliases(run: &Path) -> Option<String> {
    let uid = rustix::process::geteuid().as_raw();
    let found = run.symlink_metadata().ok()?;
    let words = [u64::from(uid), found.dev(), found.ino()];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let hash = abi::shared::hash(&bytes, 0);
    let digits = &format!("{hash:016x}")[..stored::ALIASES_DIGITS - 1];
    Some(format!("{}{digits}", String::from_utf8_lossy(stored::ALIASES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_left_is_forgotten() {
        let place = tempfile::tempdir().unwrap();
        forget(place.path());
        let run = place.path().join("run");
        std::fs::create_dir(&run).unwrap();
        let [other, ours] = ["0", "1"].map(|digit| aliases(&run).unwrap() + digit);
        std::os::unix::fs::symlink(place.path(), &other).unwrap();
        std::os::unix::fs::symlink(run.join("aliases"), &ours).unwrap();
        std::fs::create_dir(run.join("aliases")).unwrap();
        std::os::unix::fs::symlink(place.path(), Path::new(&ours).join("one")).unwrap();
        forget(place.path());
        assert!(Path::new(&ours).symlink_metadata().is_err() && run.exists());
        assert!(run.join("aliases").symlink_metadata().is_err());
        assert!(Path::new(&other).symlink_metadata().is_ok(), "it leads elsewhere");
        std::fs::remove_file(other).unwrap();
    }

    #[test]
    fn each_container_has_its_aliases() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, other] = dirs.each_ref().map(|dir| aliases(dir.path()).unwrap());
        assert!(one != other && aliases(dirs[0].path()) == Some(one.clone()));
        assert_eq!(one.len() + 1, stored::ALIASES.len() + stored::ALIASES_DIGITS);
        assert_eq!(aliases(Path::new("/no/such/directory")), None);
    }
}
