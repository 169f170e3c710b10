//! The pipe over which a process that sets a container up reports how that goes.
//!
//! One JSON message per line. `execve` closes the writing end, so the end of the pipe without a
//! failure before means "the program runs".

use crate::error::{Error, Result};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What is reported.
#[derive(Debug, Serialize, Deserialize)]
enum Message {
    /// The program will be this process.
    Process(u32),
    /// It will not run.
    Failed(Error),
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct StatusSender(std::fs::File);

/// The reading end.
#[derive(Debug)]
pub(crate) struct StatusReceiver(BufReader<std::fs::File>);

/// A new pipe.
pub(crate) fn pipe() -> Result<(StatusSender, StatusReceiver)> {
    let (reader, writer) = raw_pipe()?;
    Ok((StatusSender(writer.into()), StatusReceiver(BufReader::with_capacity(512, reader.into()))))
}

/// A plain pipe, both ends closed by `execve`.
pub(crate) fn raw_pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
        .map_err(|errno: Errno| Error::call("make a pipe", errno))
}

impl From<StatusSender> for OwnedFd {
    fn from(sender: StatusSender) -> Self {
        sender.0.into()
    }
}

impl AsFd for StatusSender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for StatusSender {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into())
    }
}

impl StatusSender {
    fn send(&mut self, message: &Message) {
        if let Ok(mut line) = serde_json::to_vec(message) {
            line.push(b'\n');
            // Without a reader nothing is lost.
            let _ = self.0.write_all(&line);
        }
    }

    /// Reports the number of the program's process.
    pub(crate) fn process(&mut self, pid: u32) {
        self.send(&Message::Process(pid));
    }

    /// Reports a failure; returns the exit code for it.
    pub(crate) fn failed(&mut self, error: &Error) -> i32 {
        self.send(&Message::Failed(error.clone()));
        i32::from(error.exit_code())
    }
}

impl StatusReceiver {
    /// Reads until a number is reported; `None` at the end of the pipe.
    pub(crate) fn process(&mut self) -> Result<Option<u32>> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(Error::Vanished(error.to_string())),
        }
        // From bytes, as the assistant's answers: the code that reads errors is in the binary once.
        match serde_json::from_slice(line.as_bytes()) {
            Ok(Message::Process(number)) => Ok(Some(number)),
            Ok(Message::Failed(error)) => Err(error),
            Err(_) => Err(Error::Vanished("an unreadable report".into())),
        }
    }

    /// Reads until the program runs. Returns the number that was reported, if one was.
    pub(crate) fn outcome(&mut self) -> Result<Option<u32>> {
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
        let (mut sender, mut receiver) = pipe().unwrap();
        let error = Error::NotFound { program: "x\ny".into(), searched: String::new() };
        sender.process(7);
        sender.failed(&error);
        drop(sender);
        assert_eq!(receiver.outcome(), Err(error));
    }

    #[test]
    fn silence_means_success() {
        let (mut sender, mut receiver) = pipe().unwrap();
        sender.process(7);
        drop(sender);
        assert_eq!(receiver.outcome(), Ok(Some(7)));
    }
}
