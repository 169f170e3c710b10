//! The host's end of a copy, whose other end may be a container of another machine.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rootfs::copy;
use rootfs::union::IdMap;

use super::super::export::note_skipped;
use super::super::spool;
use crate::error::{Error, Result};
use crate::session::Session;

/// The last part of a path; an archive's entries begin with it.
pub(super) fn base(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    let trimmed = trimmed.strip_suffix("/.").unwrap_or(trimmed);
    trimmed.rsplit('/').next().filter(|name| !name.is_empty() && *name != "..").unwrap_or(".")
}

/// A file for an archive, without a name.
pub fn spool(session: &Session) -> Result<File> {
    spool::file(session)
}

/// Whether the first entry of an archive is a directory. The archive is read from its beginning.
pub fn is_directory(archive: &File) -> Result<bool> {
    Ok(spool::rewound(archive)?.is_directory)
}

/// Where on the host something of a container goes.
#[derive(Debug)]
pub struct Landing {
    directory: PathBuf,
    /// What the archive's first entry has to be called.
    pub entry: String,
}

impl Landing {
    /// Finds the place for `path` of a container under Docker's rules: in a directory that is
    /// there, else as the new name.
    ///
    /// # Errors
    /// If the directory is not there.
    pub fn of(path: &str, target: &Path) -> Result<Self> {
        let contents_only = path.ends_with("/.");
        if target.is_dir() {
            let entry = if contents_only { "." } else { base(path) }.to_owned();
            return Ok(Self { directory: target.to_owned(), entry });
        }
        let wants_directory = target.as_os_str().as_bytes().ends_with(b"/");
        let parent = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let name = target.file_name().and_then(OsStr::to_str);
        let Some(name) = name.filter(|_| parent.is_dir()) else {
            return Err(Error::invalid(format!("{} is not a directory", parent.display()))
                .with_hint("make it first"));
        };
        if wants_directory && !contents_only {
            return Err(Error::invalid(format!("{} is not a directory", target.display()))
                .with_hint("make it first, or leave the '/' away"));
        }
        Ok(Self { directory: parent.to_owned(), entry: name.to_owned() })
    }

    /// Unpacks an archive there.
    ///
    /// # Errors
    /// If it cannot be read, or the files cannot be written.
    pub fn unpack(&self, archive: File) -> Result<()> {
        spool::rewind(&archive)?;
        let top = spool::open_directory(&self.directory)?;
        // Owners of the container mean nothing on the host: what is copied belongs to the caller.
        // So a program of an image that runs as its owner would run as the caller, whoever starts
        // it.
        let into = copy::Into { owner: Some((0, 0)), no_set_id: true, ..copy::Into::default() };
        copy::copy_in(&top, b".", io::BufReader::with_capacity(1 << 18, archive), &into).map_err(
            |error| {
                let place = self.directory.display();
                Error::from(error).within(format!("cannot write to {place}"))
            },
        )?;
        Ok(())
    }
}

/// What is at a path in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A directory.
    Directory,
    /// A file of any other kind.
    File,
    /// Nothing.
    Nothing,
}

/// A file or directory of the host that goes into a container.
#[derive(Debug)]
pub struct Packing {
    path: PathBuf,
    is_directory: bool,
    /// `SOURCE/.` means what is in the directory.
    contents_only: bool,
}

impl Packing {
    /// Looks at it; `follow` for what a link stands for.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(source: &Path, follow: bool) -> Result<Self> {
        let unreadable =
            |error| Error::failed(format!("cannot read {}", source.display())).cause(error);
        let meta = if follow { source.metadata() } else { source.symlink_metadata() };
        let meta = meta.map_err(unreadable)?;
        let path =
            if follow { source.canonicalize().map_err(unreadable)? } else { source.to_owned() };
        let contents_only = path.as_os_str().as_bytes().ends_with(b"/.") && meta.is_dir();
        Ok(Self { path, is_directory: meta.is_dir(), contents_only })
    }

    /// Where in a container it goes; see [`Source::place`].
    ///
    /// # Errors
    /// As there.
    pub fn place(&self, name: &str, path: &str, found: Found) -> Result<(String, PathBuf)> {
        let source = Source {
            shown: &self.path.display().to_string(),
            base: self.path.file_name().unwrap_or(OsStr::new(".")),
            is_directory: self.is_directory,
            contents_only: self.contents_only,
        };
        source.place(name, path, found)
    }

    /// Packs it into an archive whose first entry is `entry`.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn pack(&self, session: &Session, entry: &Path, keep_owners: bool) -> Result<File> {
        let spool = spool::file(session)?;
        let source = &self.path;
        let parent = source
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let (directory, path) = match source.file_name() {
            Some(name) if !source.as_os_str().as_bytes().ends_with(b"/.") => {
                (parent.to_owned(), name.as_bytes())
            }
            _ => (source.clone(), &b"."[..]),
        };
        let source = copy::Source { path, name: entry.as_os_str().as_bytes(), follow: false };
        let ids = if keep_owners { IdMap::identity() } else { IdMap::default() };
        let top = spool::open_directory(&directory)?;
        let writer = io::BufWriter::with_capacity(1 << 18, &spool);
        let packed = copy::copy_out(&top, rootfs::Owners::default(), &ids, source, writer)?;
        note_skipped(session, &packed.skipped.join(&0), "");
        spool::rewind(&spool)?;
        Ok(spool)
    }
}

/// What is known of something that goes into a container.
#[derive(Debug, Clone, Copy)]
pub struct Source<'s> {
    /// How it is called in errors.
    pub shown: &'s str,
    /// The last part of its path.
    pub base: &'s OsStr,
    /// It is a directory.
    pub is_directory: bool,
    /// What is in the directory is meant.
    pub contents_only: bool,
}

impl<'s> Source<'s> {
    /// Something at a path of a container.
    pub fn in_container(shown: &'s str, path: &'s str, is_directory: bool) -> Self {
        let contents_only = path.ends_with("/.") && is_directory;
        Self { shown, base: OsStr::new(base(path)), is_directory, contents_only }
    }

    /// The directory of the container `name` that its archive is unpacked in, and what the first
    /// entry of the archive has to be called, for the target `path`, at which something was found.
    ///
    /// # Errors
    /// If a file is where a directory has to be.
    pub fn place(&self, name: &str, path: &str, found: Found) -> Result<(String, PathBuf)> {
        match found {
            Found::Directory if self.contents_only => return Ok((path.to_owned(), ".".into())),
            Found::Directory => return Ok((path.to_owned(), self.base.into())),
            Found::File if self.is_directory => {
                let fact = format!("{name}:{path} is a file, and {} a directory", self.shown);
                return Err(Error::conflict(fact));
            }
            Found::File | Found::Nothing => {}
        }
        if path.ends_with('/') && !self.is_directory {
            return Err(Error::conflict(format!("{name}:{path} is not a directory"))
                .with_hint("make it first, or leave the '/' away"));
        }
        let trimmed = path.trim_end_matches('/');
        let (parent, last) = trimmed.rsplit_once('/').unwrap_or(("/", trimmed));
        let parent = if parent.is_empty() { "/" } else { parent };
        Ok((parent.to_owned(), last.into()))
    }
}
