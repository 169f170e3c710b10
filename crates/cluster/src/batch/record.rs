//! What is kept of a cluster's job: `clusters/NAME/job/` in the store, with a lock.
//!
//! | file | what it is |
//! |---|---|
//! | `record` | the tag that the job carries, and its id as soon as that is known |
//! | `output` | what the job prints |
//! | `template`, `script`, `status` | PBS and LSF: the template, the batch script, how it ended |
//!
//! The record is written with the tag before the job is submitted, and with the id afterwards. So
//! the next process after a killed one asks the batch system for a job with this tag. The
//! submitting command holds the lock, too: nobody asks before it has ended.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::allocation::System;
use crate::error::{Error, Result};
use crate::place;

/// How long a submission of another process is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// What is known of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Who runs it.
    pub system: System,
    /// What it carries so that it is found again.
    pub tag: String,
    /// Its name in the batch system.
    pub job_name: String,
    /// Its id; `None` if it is not known whether it was submitted.
    pub id: Option<String>,
    /// Slurm's name of the cluster that has it, if `sbatch` told one.
    pub slurm_cluster: Option<String>,
    /// Whether the user's options say where it prints to.
    pub own_output: bool,
}

/// The directory, held by this process.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    lock: File,
}

/// The directory of a cluster's job beneath `store`.
pub(super) fn directory(store: &Path, cluster: &str) -> PathBuf {
    place::directory(store, cluster).join(place::JOB)
}

/// Reads the record of a directory.
pub(super) fn read(directory: &Path) -> Result<Option<Record>> {
    let path = directory.join("record");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot("read", &path, &error)),
    };
    let record = serde_json::from_slice(&text).map_err(|error| {
        Error::new(format!("{} is damaged: {error}", path.display()))
            .with_hint("look for the job by hand, and remove that file")
    })?;
    Ok(Some(record))
}

fn cannot(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(format!("cannot {what} {}: {error}", path.display()))
}

impl Folder {
    /// Makes the directory of a cluster's job, and takes its lock.
    ///
    /// # Errors
    /// If another process holds it for too long, or it cannot be made.
    pub(super) fn take(store: &Path, cluster: &str) -> Result<Self> {
        let path = directory(store, cluster);
        let lock = place::locked(&path.join(place::LOCK), PATIENCE)
            .map_err(|error| cannot("lock", &path, &error))?;
        let lock = lock.ok_or_else(|| {
            Error::new(format!("another process submits or cancels the job of {cluster}"))
                .with_hint("try again when that has ended")
        })?;
        Ok(Self { path, lock })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What a submitting command is to hold.
    pub(super) fn lock(&self) -> &File {
        &self.lock
    }

    /// The record.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(&self) -> Result<Option<Record>> {
        read(&self.path)
    }

    /// Writes the record so that it is on the disk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write(&self, record: &Record) -> Result<()> {
        let text = serde_json::to_vec(record).map_err(|error| Error::new(error.to_string()))?;
        self.write_file("record", &text)
    }

    /// Writes a file of the directory whole, so that it is on the disk.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (new, path) = (self.path.join("new"), self.path.join(name));
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|error| cannot("write", &path, &error))
    }

    /// Removes all but the lock, for another job.
    ///
    /// # Errors
    /// If something stays.
    pub(super) fn clear(&self) -> Result<()> {
        // The record first: without it the rest has no meaning.
        for name in ["record", "new", "output", "template", "script", "status"] {
            let path = self.path.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(cannot("remove", &path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes it, and the cluster's directory if there is nothing else in it.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub(super) fn remove(self) -> Result<()> {
        fs::remove_dir_all(&self.path).map_err(|error| cannot("remove", &self.path, &error))?;
        let _ = self.path.parent().map(fs::remove_dir);
        Ok(())
    }
}
