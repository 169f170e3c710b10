//! Names the source of an archive or a tree: a path, or a stream that the front end has opened.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::session::Cancel;

/// Where an archive or a tree comes from.
pub enum Source {
    /// A file or a directory.
    Path(PathBuf),
    /// A stream.
    Stream {
        /// What is read.
        reader: Box<dyn Read + Send>,
        /// Its name in errors, as "standard input".
        name: String,
    },
}

impl Source {
    /// The name in errors.
    pub fn title(&self) -> String {
        match self {
            Self::Path(path) => path.display().to_string(),
            Self::Stream { name, .. } => name.clone(),
        }
    }

    /// The directory, if it is one.
    pub(crate) fn directory(&self) -> Option<&Path> {
        match self {
            Self::Path(path) if path.is_dir() => Some(path),
            _ => None,
        }
    }

    /// Opens the archive.
    pub(crate) fn open(self) -> Result<Box<dyn Read + Send>> {
        match self {
            Self::Stream { reader, .. } => Ok(reader),
            Self::Path(path) => {
                let file = File::open(&path).map_err(|error| {
                    Error::failed(format!("cannot read {}", path.display())).cause(error)
                })?;
                Ok(Box::new(file))
            }
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Source").field(&self.title()).finish()
    }
}

/// A reader that ends with an error once the operation is cancelled.
pub(crate) struct Watched<R> {
    reader: R,
    cancel: Cancel,
}

impl<R: Read> Watched<R> {
    pub(crate) fn new(reader: R, cancel: &Cancel) -> Self {
        Self { reader, cancel: cancel.clone() }
    }
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.cancel.check().map_err(io::Error::other)?;
        self.reader.read(buffer)
    }
}
