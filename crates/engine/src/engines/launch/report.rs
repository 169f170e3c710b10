//! The pipe over which a process that sets a container up tells how it goes.
//!
//! One JSON message per line. The writing end is closed by `execve`, so the end of the pipe after no failure means "the program runs".

use crate::error::{Error, Result};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What is told.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The program will be this process.
    Process(u32),
    /// It will not run.
    Failed(Error),
}

/// The telling end.
#[derive(Debug)]
pub(in crate::engines) struct Teller(std::fs::File);

/// The listening end.
#[derive(Debug)]
pub(in crate::engines) struct Hearer(BufReader<std::fs::File>);

/// A new pipe.
pub(in crate::engines) fn pipe() -> Result<(Teller, Hearer)> {
    let (reader, writer) = raw_pipe()?;
    Ok((Teller(writer.into()), Hearer(BufReader::with_capacity(512, reader.into()))))
}

/// A plain pipe, both ends closed by `execve`.
pub(in crate::engines) fn raw_pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
        .map_err(|errno: Errno| Error::Call { doing: "make a pipe".into(), errno: errno.into() })
}

impl From<Teller> for OwnedFd {
    fn from(teller: Teller) -> Self {
        teller.0.into()
    }
}

impl AsFd for Teller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Teller {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }
}

impl Teller {
    fn send(&mut self, message: &Message) {
        if let Ok(mut line) = serde_json::to_vec(message) {
            line.push(b'\n');
            // Nobody listens any more: nobody to tell.
            let _ = self.0.write_all(&line);
        }
    }

    /// Tells the number of the program's process.
    pub(in crate::engines) fn process(&mut self, pid: u32) {
        self.send(&Message::Process(pid));
    }

    /// Tells a failure.
    pub(in crate::engines) fn failed(&mut self, error: Error) {
        self.send(&Message::Failed(error));
    }
}

impl Hearer {
    /// Listens until a number is told; none where nobody is left who could.
    pub(in crate::engines) fn process(&mut self) -> Result<Option<u32>> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(Error::Vanished(error.to_string())),
        }
        match serde_json::from_str(&line) {
            Ok(Message::Process(number)) => Ok(Some(number)),
            Ok(Message::Failed(error)) => Err(error),
            Err(_) => Err(Error::Vanished("an unreadable report".into())),
        }
    }

    /// Listens until the program runs. Gives the number that was told, if one was.
    pub(in crate::engines) fn outcome(&mut self) -> Result<Option<u32>> {
        let mut pid = None;
        while let Some(number) = self.process()? {
            pid = Some(number);
        }
        Ok(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_arrive_whole() {
        let (mut teller, mut hearer) = pipe().unwrap();
        let error = Error::NotFound { program: "x\ny".into(), searched: String::new() };
        teller.process(7);
        teller.failed(error.clone());
        drop(teller);
        assert_eq!(hearer.outcome(), Err(error));
    }

    #[test]
    fn silence_means_success() {
        let (mut teller, mut hearer) = pipe().unwrap();
        teller.process(7);
        drop(teller);
        assert_eq!(hearer.outcome(), Ok(Some(7)));
    }
}
