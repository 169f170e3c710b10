//! Changes a container's tree that has two layers from outside, for commands that copy files into
//! it. Programs may live in the container: they see each change, as they see those of each other.
//!
//! New files are made elsewhere on the same file system, in the form that files of an upper
//! directory have, and are then moved in.

use super::common::Perhaps;
use super::inode_log::InodeLog;
use super::layers::{LayerPaths, Mapped};
use super::points::{Found, Points, TreeCalls, with_name};
use super::world::Bound;
use super::{by_path, run};
use crate::error::{Error, Result};
use crate::records::{Records, Turn};
use hostfs::layout;
use linux_raw_sys::general::{S_ISVTX, UTIME_OMIT, timespec};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use sys::fs::xattr;
use view::Dir;
use view::identity::record::{HIDDEN_ATTRIBUTES, ORIGIN, OWN_ATTRIBUTES, OWNER};
use view::world::Kind;

/// Prefix of the attributes that control overlay.
const OVERLAY: &[u8] = b"user.overlay.";

/// A container's tree, while nothing starts in the container.
#[derive(Debug)]
pub struct ChangingTree {
    place: PathBuf,
    points: Points,
    calls: TreeCalls,
    layers: Rc<Mapped>,
    turn: Option<Turn>,
}

/// What a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reached {
    /// Absolute, without links.
    pub path: Vec<u8>,
    /// What is there.
    pub kind: Option<FileType>,
}

impl ChangingTree {
    /// Opens the tree of the container whose directory is `place`: `lower` is the image's tree.
    /// Waits until no program is just starting.
    pub fn open(place: &Path, index: &Path, lower: &Path) -> Result<Self> {
        let failed = |path: &Path, error: std::io::Error| Error::File {
            doing: "open".into(),
            path: path.into(),
            errno: error.into(),
        };
        let real = |path: &Path| path.canonicalize().map_err(|error| failed(path, error));
        let (place, lower) = (real(place)?, real(lower)?);
        let upper = real(&place.join(layout::UPPER))?;
        let records = Records::open(&place)?;
        let turn = records.begin()?;
        let fresh = run::is_empty(&place, &records);
        let paths = LayerPaths::new(index, &lower, &upper, &place)
            .map_err(|errno| failed(&lower, errno.into()))?;
        let layers = Mapped::open(&paths, &place.join(layout::INODE_LOG), fresh)
            .map_err(|error| failed(index, error))?;
        let layers = Rc::new(layers);
        let points = Points::new(Bound {
            guest: b"/".to_vec(),
            host: upper.as_os_str().as_bytes().to_vec(),
            read_only: false,
            kind: Kind::Tree,
        });
        Ok(Self {
            points: points.with_layers(Some(Rc::clone(&layers))),
            calls: TreeCalls::new(Rc::clone(&layers)),
            layers,
            place,
            turn: Some(turn),
        })
    }

    /// Follows a path inside the container, links included. What is missing is taken as it is
    /// written.
    pub fn find(&self, path: &[u8]) -> Result<Reached, Errno> {
        let Found { guest, kind, .. } = self.points.find(Path::new(OsStr::from_bytes(path)))?;
        Ok(Reached { path: guest, kind })
    }

    /// What is at a path whose directory [`ChangingTree::find`] has found; a link is not followed.
    pub fn kind(&self, path: &[u8]) -> Result<Option<FileType>, Errno> {
        match self.calls.status(&self.host(path)) {
            Ok(mode) => Ok(Some(FileType::from_raw_mode(mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Moves a file there. `EXIST` for a directory whose name is taken, `ISDIR` for another file in
    /// the place of a directory.
    pub fn put(&self, from: &Path, path: &[u8]) -> Result<(), Errno> {
        with_name(from, |from| {
            with_name(&self.host(path), |path| {
                hostfs::overlay::adopt(&self.calls.files.process, from, path)
            })
            .map_err(|errno| view::Errno(errno.raw_os_error() as u16))
        })
    }

    /// Gives a directory the mode, owner, attributes and time of another one outside the tree.
    pub fn set_like(&self, from: impl AsFd, path: &[u8]) -> Result<(), Errno> {
        let from = from.as_fd();
        let stat = rustix::fs::fstat(from)?;
        let mode = stat.st_mode & 0o7777;
        let (files, host) = (&self.calls.files, self.host(path));
        with_name(&host, |path| files.chmod(Dir::Root, path, mode & 0o777 | 0o700))?;
        for name in xattr::list(from)? {
            let is_wanted = name.starts_with(HIDDEN_ATTRIBUTES)
                || !name.starts_with(OWN_ATTRIBUTES) && !name.starts_with(OVERLAY);
            if is_wanted && let Some(value) = xattr::get(from, &name)? {
                let name = CString::new(name).map_err(|_| Errno::INVAL)?;
                with_name(&host, |path| files.setxattr(Dir::Root, path, true, &name, &value, 0))?;
            }
        }
        let record = xattr::get(from, OWNER.to_bytes())?.filter(|_| mode & S_ISVTX != 0);
        if record.is_some() || self.has_mark(&host)? {
            let plain = || format!("0:0:{mode:o}:d:0:0").into_bytes();
            let record = record.unwrap_or_else(plain);
            with_name(&host, |path| files.setxattr(Dir::Root, path, true, OWNER, &record, 0))?;
            with_name(&host, |path| files.chmod(Dir::Root, path, mode & 0o777 | S_ISVTX))?;
        } else {
            with_name(&host, |path| files.chmod(Dir::Root, path, mode))?;
        }
        let written = timespec { tv_sec: stat.st_mtime, tv_nsec: stat.st_mtime_nsec as i64 };
        let times = [timespec { tv_sec: 0, tv_nsec: UTIME_OMIT.into() }, written];
        with_name(&host, |path| files.utimens(Dir::Root, path, Some(&times), 0))
    }

    /// Whether an inode needs its mark, whatever its owner and mode are.
    fn has_mark(&self, host: &Path) -> Result<bool, Errno> {
        let real = self.calls.real_path(host)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let real = rustix::fs::open(&real, flags, rustix::fs::Mode::empty())?;
        let names = xattr::list(&real)?;
        let marks = |name: &Vec<u8>| {
            name.starts_with(HIDDEN_ATTRIBUTES) || name.as_slice() == ORIGIN.to_bytes()
        };
        Ok(names.iter().any(marks))
    }

    /// Writes records of files that cannot carry them, which lie in `root` for now: paths relative
    /// to that, and texts as in [`by_path::note`].
    pub fn note<'a>(
        &self,
        root: &Path,
        records: impl IntoIterator<Item = (&'a [u8], String)>,
    ) -> Result<()> {
        let common = Perhaps::in_directory(&self.place.join(layout::RUN));
        let log = InodeLog::new(self.place.join(layout::INODE_LOG)).indexed(common);
        by_path::note_in(root, log, records)
    }

    fn host(&self, path: &[u8]) -> PathBuf {
        let upper = self.layers.paths().upper.as_os_str().as_bytes();
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
        PathBuf::from(OsStr::from_bytes(&[upper, slash, path].concat()))
    }
}

impl Drop for ChangingTree {
    fn drop(&mut self) {
        self.layers.changed();
        // Only who has the turn removes what was made for programs that do not run.
        self.turn = None;
        run::tidy(&self.place);
    }
}
