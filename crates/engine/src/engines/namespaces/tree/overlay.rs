//! Mounts an overlay, of as many layers as the kernel takes.

use crate::error::{Error, Result};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use sys::mount::Attributes;

/// Longest option string that `mount(2)` takes: one page with its end.
const OPTIONS_LIMIT: usize = 4095;

/// Mounts an overlay on `place`.
///
/// A volatile overlay leaves a mark in its work directory that forbids the next mount: it means
/// "what was written may not have reached the disk when the machine crashed". Our containers accept
/// that, as Docker's do, and remove the mark.
pub(in crate::engines) fn mount_overlay(
    place: &Path,
    lowers: &[PathBuf],
    upper: &Path,
    work: &Path,
    volatile: bool,
) -> Result<()> {
    if volatile {
        let mark = work.join("work/incompat/volatile");
        let _ = rustix::fs::unlink(mark.join("dirty"));
        let _ = rustix::fs::rmdir(mark);
    }
    let failed = |errno: Errno| Error::Mount {
        what: format!("overlay of {} layers", lowers.len()),
        target: "/".into(),
        errno: errno.into(),
    };
    let mut tail = String::new();
    for (key, path) in [("upperdir", upper), ("workdir", work)] {
        tail.extend([",", key, "=", &escaped(path, &[',', '\\'])]);
    }
    tail.push_str(",userxattr");
    if volatile {
        tail.push_str(",volatile");
    }
    let names = |base: Option<&Path>| {
        let shorten = |path: &PathBuf| {
            let path = base.and_then(|base| path.strip_prefix(base).ok()).unwrap_or(path);
            escaped(path, &[',', ':', '\\'])
        };
        lowers.iter().map(shorten).collect::<Vec<_>>().join(":")
    };
    let mut options = format!("lowerdir={}{tail}", names(None));
    if options.len() > OPTIONS_LIMIT
        && let Some(base) = common_directory(lowers)
    {
        // Relative names are resolved from the working directory.
        rustix::process::chdir(&base).map_err(failed)?;
        options = format!("lowerdir={}{tail}", names(Some(&base)));
    }
    if options.len() > OPTIONS_LIMIT {
        return long_overlay(place, lowers, upper, work, volatile);
    }
    let text = CString::new(options).map_err(|_| failed(Errno::INVAL))?;
    let mount = |text: &CString| {
        rustix::mount::mount(
            "overlay",
            place,
            "overlay",
            MountFlags::empty(),
            Some(text.as_c_str()),
        )
    };
    match mount(&text) {
        // `volatile` came with 5.10, distributions' backports of `userxattr` may lack it.
        Err(Errno::INVAL) if volatile => {
            let plain = text.to_string_lossy().replace(",volatile", "");
            CString::new(plain).map_err(|_| Errno::INVAL).and_then(|text| mount(&text))
        }
        result => result,
    }
    .map_err(failed)
}

/// An overlay of more layers than fit into one page of options: one option per layer (6.5).
fn long_overlay(
    place: &Path,
    lowers: &[PathBuf],
    upper: &Path,
    work: &Path,
    volatile: bool,
) -> Result<()> {
    let failed = |errno: Errno| Error::Mount {
        what: format!("overlay of {} layers (more than fit without Linux 6.5)", lowers.len()),
        target: "/".into(),
        errno: errno.into(),
    };
    let text = |path: &Path| path.to_str().map(str::to_owned).ok_or(failed(Errno::ILSEQ));
    let mut options = Vec::new();
    for lower in lowers {
        options.push(("lowerdir+", text(lower)?));
    }
    options.push(("upperdir", text(upper)?));
    options.push(("workdir", text(work)?));
    options.push(("userxattr", String::new()));
    if volatile {
        options.push(("volatile", String::new()));
    }
    let options: Vec<_> = options.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let tree = sys::mount::new_filesystem("overlay", &options, Attributes::NONE).map_err(failed)?;
    sys::mount::attach(tree.as_fd(), place).map_err(failed)
}

fn escaped(path: &Path, special: &[char]) -> String {
    let mut text = String::new();
    for character in path.to_string_lossy().chars() {
        if special.contains(&character) {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

fn common_directory(paths: &[PathBuf]) -> Option<PathBuf> {
    let mut common = paths.first()?.parent()?.to_path_buf();
    while !paths.iter().all(|path| path.starts_with(&common)) {
        common = common.parent()?.to_path_buf();
    }
    Some(common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_for_the_option_string() {
        assert_eq!(escaped(Path::new("/a,b:c\\d"), &[',', ':', '\\']), "/a\\,b\\:c\\\\d");
    }

    #[test]
    fn the_common_directory_of_layers() {
        let paths = ["/s/layers/a/tree", "/s/layers/b/tree"].map(PathBuf::from);
        assert_eq!(common_directory(&paths).unwrap(), PathBuf::from("/s/layers"));
        assert_eq!(common_directory(&paths[..1]).unwrap(), PathBuf::from("/s/layers/a"));
    }
}
