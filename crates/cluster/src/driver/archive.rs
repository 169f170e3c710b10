//! The streams of a command that packs or unpacks an archive on a host.

use std::io::Read;

use remote::channel::{Event, Stream};
use remote::wire::PIECE;
use remote::wire::messages::Ended;

use super::Task;
use super::hosts::report;
use crate::error::{Error, Result};

/// So much of an archive tells what its first entry is.
pub(super) const HEAD: usize = 1 << 16;

/// Gives an archive to a command that unpacks it in a container, and waits for its end.
pub(super) fn feed(
    task: &dyn Task,
    container: &str,
    archive: &mut (dyn Read + Send),
) -> Result<()> {
    std::thread::scope(|scope| {
        let ended = scope.spawn(|| result(task, container, &mut |_| Ok(())));
        let mut piece = vec![0; PIECE];
        let moved = loop {
            match archive.read(&mut piece) {
                Ok(0) => break Ok(()),
                // A command that reads no more says why.
                Ok(count) if task.input(&piece[..count]).is_err() => break Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let _ = task.signal(15);
                    break Err(Error::new(format!("cannot read the archive: {error}")));
                }
            }
        };
        let _ = task.close_input();
        let ended = ended.join().unwrap_or_else(|_| Err(Error::new("the copy was given up")));
        moved.and(ended)
    })
}

/// Takes a command's output to its end.
pub(super) fn result(
    task: &dyn Task,
    container: &str,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut said = Vec::new();
    loop {
        let failed = |why: String| Error::new(format!("a copy of {container}: {why}"));
        match task.event() {
            Some(Event::Output(Stream::Output, bytes)) => take(&bytes)?,
            Some(Event::Output(Stream::Errors, bytes)) => {
                said.extend_from_slice(&bytes);
                let over = said.len().saturating_sub(HEAD);
                said.drain(..over);
            }
            Some(Event::Ended(Ended::Code(0))) => return Ok(()),
            Some(Event::Ended(ended)) => {
                let said = String::from_utf8_lossy(&said);
                return Err(match report(&said) {
                    "" => failed(format!("it ended with {}", ended.exit_status())),
                    said => Error::new(said.replace("\n  cause: ", ": ")),
                });
            }
            Some(Event::Failed(why)) => return Err(failed(why)),
            Some(Event::Lost(why)) => return Err(failed(why.to_string())),
            None => return Err(failed("its end is not known".to_owned())),
        }
    }
}
