//! Follows a job from the queue to its end: its state, and what it prints.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use super::slurm::UNSEEN;
use super::state::verdict;
use super::{Job, Row, System};
use crate::error::{Error, Result};

/// How often output is looked for.
const LOOK: Duration = Duration::from_millis(200);
/// How often the batch system is asked at first, and at last: its controller serves everybody.
const FIRST: Duration = Duration::from_secs(1);
const LAST: Duration = Duration::from_secs(10);
/// Output is moved in pieces of so many bytes.
const PIECE: usize = 64 << 10;

/// What follows a job.
pub trait Follower {
    /// The state has changed.
    fn state(&mut self, words: &str);
    /// The job has printed something.
    ///
    /// # Errors
    /// If that cannot be passed on.
    fn output(&mut self, bytes: &[u8]) -> std::io::Result<()>;
    /// Waits for so long. Returns true as soon as the job is to be cancelled.
    fn pause(&mut self, time: Duration) -> bool;
}

/// How following has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The job has ended with this exit status.
    Job(u8),
    /// The follower did not want it any more.
    Cancelled,
}

impl Job {
    /// Follows the job to its end, which the follower may bring about. A batch system that does not
    /// answer for a while is asked again.
    ///
    /// # Errors
    /// If the job was ended from outside, or its output cannot be passed on.
    pub fn follow(&self, follower: &mut dyn Follower) -> Result<End> {
        let path = self.output();
        let mut output = Output { path: &path, at: 0 };
        let (mut next, mut interval, mut said) = (Instant::now(), FIRST, String::new());
        loop {
            output.copy(follower)?;
            if Instant::now() >= next {
                let (words, end) = match self.rows() {
                    Ok(rows) => (in_words(&rows), verdict(&rows)),
                    Err(error) => (error.to_string(), Ok(None)),
                };
                interval = if words == said { LAST.min(interval * 3 / 2) } else { FIRST };
                if words != said {
                    follower.state(&words);
                    said = words;
                }
                next = Instant::now() + interval;
                match end {
                    Ok(None) => {}
                    Ok(Some(status)) => {
                        output.copy(follower)?;
                        if status != 0 && !path.exists() {
                            return Err(self.unseen(&path, status));
                        }
                        return Ok(End::Job(status));
                    }
                    Err(error) => {
                        output.copy(follower)?;
                        return Err(error);
                    }
                }
            }
            if follower.pause(LOOK) {
                follower.state("is being cancelled");
                self.end(|| output.copy(follower))?;
                return Ok(End::Cancelled);
            }
        }
    }
}

impl Job {
    /// A job that could not write its output.
    fn unseen(&self, path: &Path, status: u8) -> Error {
        let directory = path.parent().unwrap_or(path).display();
        let fact = format!(
            "job {} has ended with status {status} and has written nothing: its host may not see \
             {directory}",
            self.id
        );
        Error::new(fact).with_hint(match self.record.system {
            System::Slurm => UNSEEN,
            _ => "put program, file and store where all hosts see them",
        })
    }
}

/// The state of a job in one line.
fn in_words(rows: &[Row]) -> String {
    match rows {
        [row] => row.words(),
        rows => {
            let all: Vec<String> =
                rows.iter().map(|row| format!("{} {}", row.id, row.words())).collect();
            all.join("; ")
        }
    }
}

/// A file that another host appends to.
struct Output<'o> {
    path: &'o Path,
    at: u64,
}

impl Output<'_> {
    /// Passes on what is new.
    fn copy(&mut self, follower: &mut dyn Follower) -> Result<()> {
        // Opened each time: on NFS, that is when what others have written is seen.
        let mut file = match File::open(self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.failed("read", &error)),
        };
        file.seek(SeekFrom::Start(self.at)).map_err(|error| self.failed("read", &error))?;
        let mut piece = vec![0; PIECE];
        loop {
            let count = file.read(&mut piece).map_err(|error| self.failed("read", &error))?;
            if count == 0 {
                return Ok(());
            }
            self.at += count as u64;
            follower.output(&piece[..count]).map_err(|error| self.failed("pass on", &error))?;
        }
    }

    fn failed(&self, what: &str, error: &std::io::Error) -> Error {
        let path = self.path.display();
        Error::new(format!("cannot {what} the output of the job, {path}: {error}"))
    }
}
