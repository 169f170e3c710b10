//! Walks two trees at once.

use super::mtime;
use crate::error::Error;
use crate::owner_xattrs::copy_attributes;
use rustix::fd::OwnedFd;
use rustix::fs::Mode;
use sys::fs::{DirStack, Entry, Kind, read_dir};

/// The same directory in the image's tree and in the new one.
pub(super) struct Pair {
    pub(super) from: DirStack,
    pub(super) to: DirStack,
}

impl Pair {
    pub(super) fn new(source: &OwnedFd, target: &OwnedFd) -> Result<Self, Error> {
        let start = |top| Ok::<_, Error>(DirStack::new(crate::copy::reopen(top)?)?);
        Ok(Self { from: start(source)?, to: start(target)? })
    }

    /// Lists the image's directory: names of directories, and all other entries.
    pub(super) fn list(&self) -> Result<(Vec<Vec<u8>>, Vec<Entry>), Error> {
        let entries = read_dir(self.from.fd())
            .map_err(|errno| Error::disk("read directory", &self.from.path(), errno))?;
        let (directories, files): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.kind == Kind::Directory);
        Ok((directories.into_iter().map(|entry| entry.name).collect(), files))
    }

    /// Makes a directory of the image's name, and enters both.
    pub(super) fn make(&mut self, name: &[u8]) -> Result<(), Error> {
        rustix::fs::mkdirat(self.to.fd(), name, Mode::from_raw_mode(0o700))
            .map_err(|errno| Error::disk("make directory", &self.to.path_of(name), errno))?;
        self.enter(name)
    }

    pub(super) fn enter(&mut self, name: &[u8]) -> Result<(), Error> {
        self.from.enter(name)?;
        Ok(self.to.enter(name)?)
    }

    /// Calls a function in an existing directory, and returns to the top.
    pub(super) fn at(
        &mut self,
        way: &[Vec<u8>],
        what: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        way.iter().try_for_each(|name| self.enter(name))?;
        what(self)?;
        way.iter().try_for_each(|_| self.leave())
    }

    pub(super) fn leave(&mut self) -> Result<(), Error> {
        self.from.leave()?;
        self.to.leave()?;
        Ok(())
    }

    /// Sets mode, attributes and time of a directory, after all its contents are there.
    pub(super) fn finish(&self) -> Result<(), Error> {
        let Self { from, to } = self;
        let fail = |step, errno| Error::disk(step, &to.path(), errno);
        let stat = rustix::fs::fstat(from.fd()).map_err(|errno| fail("stat", errno))?;
        copy_attributes(from.fd(), to.fd(), &to.path(), |name| name.starts_with(b"user."))?;
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        rustix::fs::fchmod(to.fd(), mode).map_err(|errno| fail("set the mode of", errno))?;
        rustix::fs::futimens(to.fd(), &mtime(&stat)).map_err(|errno| fail("set the time of", errno))
    }
}
