//! Makes an upper directory one that the kernel can mount above the image's tree, and that programs
//! may write to.
//!
//! Engines without mounts leave things there that the kernel does not know ([`crate::redirects`]):
//! files that are the image's, which it would write to, and directories of the image under other
//! names. The files become copies; such a directory becomes an opaque one, with links to all that
//! was seen in it, which are copied with the rest.
//!
//! It can be interrupted at any point and started again: until the end both forms show the same
//! tree to engines without mounts, and the log that tells of it goes last.

use crate::error::Error;
use crate::image::ImageTrees;
use crate::linked;
use crate::owners::Owners;
use crate::redirects::{self, MOVED, REDIRECT};
use crate::union::{IdMap, Stack, UPPER_OWNERS, is_special, open_tree, shared_owners, walk_from};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::Path;
use sys::fs::resolve::{self, Method, join};
use sys::fs::{Kind, read_dir};

/// Name of a directory that is being made, in the container's directory.
const NEW: &str = "unshare.new";

/// Unshares the upper directory of a container's directory. No process may run in the container.
/// Records of inodes that cannot have attributes are added to the table [`UPPER_OWNERS`].
pub fn unshare(container: &Path, image: &ImageTrees) -> Result<(), Error> {
    let upper = container.join("upper");
    let (Some(names), [layer]) = (redirects::names(&upper)?, &image.layers[..]) else {
        return Ok(());
    };
    let place = open_tree(container)?;
    // By path: the inodes are about to become others.
    let records = records(&upper, image)?;
    if !records.is_empty() {
        let mut owners = Owners::read(&container.join(UPPER_OWNERS))?;
        records.iter().for_each(|(path, record)| owners.insert(path, record.clone()));
        owners.save(&place, UPPER_OWNERS)?;
    }
    let (top, lower) = (open_tree(&upper)?, open_tree(&layer.tree())?);
    let work = Work { place: &place, top: &top, lower: &lower };
    names.iter().try_for_each(|name| work.directory(name))?;
    let list = linked::read_list(&open_tree(&layer.directory)?)?;
    linked::copy_shared_below(top, &list, true)?;
    match rustix::fs::unlinkat(&place, MOVED, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(Error::disk("remove", MOVED.as_bytes(), errno)),
    }
}

/// The owners of links, pipes and sockets that are the image's.
fn records(upper: &Path, image: &ImageTrees) -> Result<Owners, Error> {
    let mut owners = shared_owners(upper, image)?;
    let stack = Stack::upper(upper, Some(image), &IdMap::default())?;
    for path in stack.redirected() {
        let names = stack.list(&path, &stack.all())?;
        walk_from(path, names, &stack, &mut |path, merged| {
            if merged.tree > 0 && is_special(merged.kind) {
                let (parent, name) = resolve::split(path);
                let dir = stack.open_dir(merged.tree, parent)?;
                let (facts, _) = stack.open(merged.tree, &dir, path, name)?;
                if (facts.record.uid, facts.record.gid) != (0, 0) {
                    owners.insert(path, facts.record);
                }
            }
            Ok(true)
        })?;
    }
    Ok(owners)
}

struct Work<'a> {
    /// The container's directory.
    place: &'a OwnedFd,
    /// The upper directory.
    top: &'a OwnedFd,
    /// The image's tree.
    lower: &'a OwnedFd,
}

impl Work<'_> {
    /// Has a directory show by itself what is seen in it.
    fn directory(&self, name: &[u8]) -> Result<(), Error> {
        let fail = |step, errno| Error::disk(step, name, errno);
        let directory = match open(self.top, name) {
            Ok(directory) => directory,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(fail("open directory", errno)),
        };
        if let Some(target) = redirects::target(&directory, name)? {
            let mut pending = vec![(name.to_vec(), target)];
            while let Some((path, image)) = pending.pop() {
                for name in self.fill(&path, &image)? {
                    pending.push((join(&path, &name), join(&image, &name)));
                }
            }
            sys::fs::whiteout::set_opaque(&directory)
                .and_then(|()| sys::fs::xattr::remove(&directory, REDIRECT))
                .map_err(|errno| fail("set an attribute of", errno))?;
        }
        // Of an interruption after that nothing else tells.
        if sys::fs::whiteout::is_opaque(&directory)
            .map_err(|errno| fail("read an attribute of", errno))?
        {
            self.clear(name)?;
        }
        Ok(())
    }

    /// Removes the whiteouts in a directory that hide nothing: the kernel would list them.
    fn clear(&self, name: &[u8]) -> Result<(), Error> {
        let mut pending = vec![name.to_vec()];
        while let Some(path) = pending.pop() {
            let fail = |step, errno| Error::disk(step, &path, errno);
            let fd = open(self.top, &path).map_err(|errno| fail("open directory", errno))?;
            let entries = read_dir(&fd).map_err(|errno| fail("read directory", errno))?;
            for entry in entries {
                let full = join(&path, &entry.name);
                if entry.kind == Kind::Directory {
                    let below = open(&fd, &entry.name)
                        .map_err(|errno| Error::disk("open directory", &full, errno))?;
                    if redirects::target(&below, &full)?.is_none() {
                        pending.push(full);
                    }
                } else if entry.kind == Kind::CharacterDevice
                    && sys::fs::stat(&fd, &entry.name)
                        .is_ok_and(|stat| sys::fs::whiteout::is(&stat))
                {
                    let name = &entry.name[..];
                    sys::fs::keep_time(&fd, || rustix::fs::unlinkat(&fd, name, AtFlags::empty()))
                        .map_err(|errno| fail("remove a whiteout in", errno))?;
                }
            }
        }
        Ok(())
    }

    /// Links what a directory has of the image's; returns the names of directories that both have.
    fn fill(&self, path: &[u8], image: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        let fail = |step, path: &[u8], errno| Error::disk(step, path, errno);
        let opened =
            |top, path: &[u8]| open(top, path).map_err(|errno| fail("open directory", path, errno));
        let listed = |fd: &OwnedFd, path: &[u8]| {
            read_dir(fd).map_err(|errno| fail("read directory", path, errno))
        };
        let (to, from) = (opened(self.top, path)?, opened(self.lower, image)?);
        let there: HashMap<Vec<u8>, Kind> =
            listed(&to, path)?.into_iter().map(|entry| (entry.name, entry.kind)).collect();
        let mut both = Vec::new();
        for entry in listed(&from, image)? {
            let (name, full) = (&entry.name, join(path, &entry.name));
            match (there.get(name), entry.kind) {
                (None, Kind::Directory) => self.link_tree(&from, &to, name)?,
                (None, _) => {
                    sys::fs::keep_time(&to, || {
                        rustix::fs::linkat(&from, &name[..], &to, &name[..], AtFlags::empty())
                    })
                    .map_err(|errno| fail("link", &full, errno))?;
                }
                (Some(Kind::Directory), Kind::Directory) if is_merged(&to, name, &full)? => {
                    both.push(entry.name);
                }
                _ => {}
            }
        }
        Ok(both)
    }

    /// Makes a directory like one of the image's, with links in it.
    fn link_tree(&self, from: &OwnedFd, to: &OwnedFd, name: &[u8]) -> Result<(), Error> {
        let fail = |step, errno| Error::disk(step, name, errno);
        sys::fs::remove_tree(self.place, NEW.as_bytes())?;
        let source = sys::fs::open_read(from, name, rustix::fs::OFlags::DIRECTORY)
            .map_err(|errno| fail("open directory", errno))?;
        linked::link_tree(&source, self.place, NEW)?;
        sys::fs::keep_time(to, || rustix::fs::renameat(self.place, NEW, to, name))
            .map_err(|errno| fail("rename", errno))
    }
}

fn open(top: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    resolve::strict(top, path, sys::fs::DIRECTORY, Method::Best)
}

/// Whether a directory shows what the image's of its name has, too.
fn is_merged(to: &OwnedFd, name: &[u8], path: &[u8]) -> Result<bool, Error> {
    let fail = |errno| Error::disk("open directory", path, errno);
    let fd = sys::fs::open_read(to, name, rustix::fs::OFlags::DIRECTORY).map_err(fail)?;
    Ok(!sys::fs::whiteout::is_opaque(&fd).map_err(fail)? && redirects::target(&fd, path)?.is_none())
}

/// Whether the upper directory of a container's directory has to be unshared first.
#[must_use]
pub fn is_shared(container: &Path) -> bool {
    container.join(MOVED).symlink_metadata().is_ok()
}
