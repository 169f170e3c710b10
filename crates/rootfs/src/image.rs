//! Chooses from an image's layers the trees that a container's root is made of.
//!
//! Usually the layers are overlay's lower directories, unchanged. They are flattened into one tree
//! first if overlay would show another tree than the image defines:
//! - more layers than overlay or one mount call takes;
//! - deletions that the file system could not hold;
//! - a directory without its own entry over a lower link, file, or directory of another mode or
//!   owner;
//! - a hard link to a file of a lower layer.
//!
//! A layer that hides everything beneath it needs no flattening: the layers below are left out.

use crate::error::Error;
use crate::layer::Layer;
use crate::owners::Owners;
use rustix::fs::{FileType, OFlags};
use std::path::PathBuf;

/// From this many lower directories on, layers are flattened. The kernel takes 500, but one `mount`
/// call only a page of options, and each lookup of a missing name searches every layer.
pub const LOWERS_MAX: usize = 64;

/// The trees that the roots of an image's containers are made of.
#[derive(Debug, Clone)]
pub struct ImageTrees {
    /// Trees from the top down.
    pub layers: Vec<Layer>,
    /// An extra tree above all others that holds the files of other owners than root, with their
    /// true owners on disk (see [`crate::owner_layer`]).
    pub owner_layer: Option<PathBuf>,
}

impl ImageTrees {
    /// The lower directories, topmost first.
    #[must_use]
    pub fn lowers(&self) -> Vec<PathBuf> {
        let mut lowers: Vec<PathBuf> = self.owner_layer.iter().cloned().collect();
        lowers.extend(self.layers.iter().map(Layer::tree));
        lowers
    }

    /// A flattened image.
    #[must_use]
    pub fn flat(tree: Layer) -> Self {
        Self { layers: vec![tree], owner_layer: None }
    }
}

/// Work to be done before an image's layers can be used.
#[derive(Debug)]
pub enum Plan {
    /// Nothing.
    Ready(ImageTrees),
    /// These layers (topmost first) must be flattened first, by [`crate::flatten::flatten`] into a
    /// directory that is kept under the image's chain ID.
    Flatten {
        /// Topmost first.
        layers: Vec<Layer>,
        /// The reason.
        why: String,
    },
}

/// Decides how a stacking driver uses an image's layers (base first, as its config lists them).
///
/// A driver that copies flattens by itself and uses [`topmost_first`].
pub fn plan(base_first: Vec<Layer>) -> Result<Plan, Error> {
    let trees = topmost_first(base_first);
    if trees.layers.len() > LOWERS_MAX {
        let why = format!("{} layers exceed the limit of {LOWERS_MAX}", trees.layers.len());
        return Ok(Plan::Flatten { layers: trees.layers, why });
    }
    for (index, layer) in trees.layers.iter().enumerate() {
        let lowers = &trees.layers[index + 1..];
        let why = if layer.meta.marks_in_table {
            Some("the file system cannot hold a layer's whiteouts".to_owned())
        } else if !layer.meta.links.is_empty() {
            Some("a hard link points into a lower layer".to_owned())
        } else {
            conflict(layer, lowers)?
        };
        if let Some(why) = why {
            return Ok(Plan::Flatten { layers: trees.layers, why });
        }
    }
    Ok(Plan::Ready(trees))
}

/// The layers (base first) from the top down, without those that a layer hides entirely.
///
/// An image may list a layer more than once: two steps of a build that change nothing give the
/// same empty one. It counts where it is topmost. What it holds or deletes at a path, it does
/// there above all that was between, so where it is listed further down it shows nothing. Overlay
/// refuses a directory that it is given twice.
#[must_use]
pub fn topmost_first(base_first: Vec<Layer>) -> ImageTrees {
    let mut layers: Vec<Layer> = Vec::new();
    for layer in base_first.into_iter().rev() {
        if layers.iter().any(|above| above.directory == layer.directory) {
            continue;
        }
        let last = layer.meta.root_opaque;
        layers.push(layer);
        if last {
            break;
        }
    }
    ImageTrees { layers, owner_layer: None }
}

/// Checks that each hard link into lower layers (base first) has a target in one of them. Where a
/// symbolic link leads to it, only a flattened tree shows that.
///
/// # Errors
/// [`Error::LinkTarget`], and those of the disk.
pub fn links_have_targets(base_first: &[Layer]) -> Result<(), Error> {
    for (index, layer) in base_first.iter().enumerate() {
        for (link, target) in layer.meta.link_paths() {
            let path = crate::apply::clean(&target)?;
            let mut found = false;
            for lower in &base_first[..index] {
                found = found || may_have(lower, &path)?;
            }
            if !found {
                return Err(Error::LinkTarget { entry: link, target });
            }
        }
    }
    Ok(())
}

/// Whether a layer has a path, or a symbolic link on the way to it.
fn may_have(layer: &Layer, path: &[u8]) -> Result<bool, Error> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    for (end, _) in slashes {
        match lookup(layer, &path[..end])?.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Some(FileType::Symlink) => return Ok(true),
            Some(FileType::Directory) => {}
            _ => return Ok(false),
        }
    }
    Ok(lookup(layer, path)?.is_some_and(|stat| !sys::fs::whiteout::is(&stat)))
}

/// Returns the conflict if a directory without entry is over something else than a plain 0755
/// directory of root.
fn conflict(layer: &Layer, lowers: &[Layer]) -> Result<Option<String>, Error> {
    if layer.meta.implicit.is_empty() || lowers.is_empty() {
        return Ok(None);
    }
    let mut tables: Vec<Option<Owners>> = lowers.iter().map(|_| None).collect();
    for path in layer.meta.implicit_paths() {
        for (lower, table) in lowers.iter().zip(&mut tables) {
            if lower.meta.implicit_paths().contains(&path) {
                continue;
            }
            let Some(stat) = lookup(lower, &path)? else { continue };
            if sys::fs::whiteout::is(&stat) {
                break;
            }
            let owners = match table {
                Some(owners) => owners,
                None => table.insert(lower.owners()?),
            };
            let plain = owners.get(&path).is_none();
            let mode = stat.st_mode & 0o7777;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory
                || mode != 0o755
                || !plain
            {
                return Ok(Some(format!(
                    "{:?} has no entry in one layer and is not a plain directory in another",
                    String::from_utf8_lossy(&path)
                )));
            }
            break;
        }
    }
    Ok(None)
}

/// Stats a path in a layer; `None` if it is missing or a parent is not a directory.
fn lookup(layer: &Layer, path: &[u8]) -> Result<Option<rustix::fs::Stat>, Error> {
    use rustix::io::Errno;
    let root = crate::union::open_tree(&layer.tree())?;
    let (parent, name) = sys::fs::resolve::split(path);
    let flags = sys::fs::NAME_ONLY | OFlags::DIRECTORY;
    match sys::fs::resolve::strict(&root, parent, flags, sys::fs::resolve::Method::Best) {
        Ok(dir) => match sys::fs::stat(&dir, name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::disk("stat", path, errno)),
        },
        // A parent that is a symbolic link here is checked by its own entry in the list of implicit
        // directories.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(Error::disk("stat", path, errno)),
    }
}
