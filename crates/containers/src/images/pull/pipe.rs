//! A pipe between the thread that fetches a layer and the one that unpacks it.
//!
//! It is a bounded queue of large buffers, which go back to be filled again.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Bytes per buffer. Large enough that a wake-up per buffer does not count.
const BUFFER: usize = 256 << 10;
/// Buffers in the queue: how far the network may be ahead of the disk.
const DEPTH: usize = 16;

/// The end that is written to.
pub(super) struct Input {
    full: Option<SyncSender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
}

/// The end that is read from. It gives an error if the other end was dropped without
/// [`Input::finish`].
pub(super) struct Output {
    full: Receiver<Vec<u8>>,
    empty: SyncSender<Vec<u8>>,
    current: Vec<u8>,
    at: usize,
    finished: bool,
}

/// A pipe.
pub(super) fn pipe() -> (Input, Output) {
    let (full_in, full_out) = sync_channel(DEPTH);
    let (empty_in, empty_out) = sync_channel(DEPTH + 2);
    (
        Input { full: Some(full_in), empty: empty_out },
        Output { full: full_out, empty: empty_in, current: Vec::new(), at: 0, finished: false },
    )
}

/// A buffer to be filled, if there is no pipe.
pub(super) fn buffer() -> Vec<u8> {
    vec![0; BUFFER]
}

impl Input {
    /// A buffer to be filled; its length is its capacity.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.empty.try_recv().map_or_else(
            |_| buffer(),
            |mut used| {
                used.resize(BUFFER, 0);
                used
            },
        )
    }

    /// Sends a filled buffer and gives an empty one. If the reader is gone it gives the same one
    /// back: the reader had enough, or failed and reports that itself.
    pub(super) fn send(&mut self, mut filled: Vec<u8>, length: usize) -> Vec<u8> {
        let Some(full) = &self.full else { return filled };
        filled.truncate(length);
        if let Err(error) = full.send(filled) {
            self.full = None;
            let mut back = error.0;
            back.resize(BUFFER, 0);
            return back;
        }
        self.buffer()
    }

    /// Tells that all was sent, by an empty buffer.
    pub(super) fn finish(self) {
        if let Some(full) = &self.full {
            let _ = full.send(Vec::new());
        }
    }
}

impl Read for Output {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.current.len() {
            if self.finished {
                return Ok(0);
            }
            let used = std::mem::take(&mut self.current);
            if used.capacity() > 0 {
                let _ = self.empty.try_send(used);
            }
            self.at = 0;
            match self.full.recv() {
                Ok(next) if next.is_empty() => self.finished = true,
                Ok(next) => self.current = next,
                Err(_) => {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionAborted,
                        "the download ended early",
                    ));
                }
            }
        }
        let count = out.len().min(self.current.len() - self.at);
        out[..count].copy_from_slice(&self.current[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_arrives_in_order() {
        let (mut input, mut output) = pipe();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let received = std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut all = Vec::new();
                output.read_to_end(&mut all).map(|_| all)
            });
            let mut buffer = input.buffer();
            for chunk in sent.chunks(100_000) {
                buffer[..chunk.len()].copy_from_slice(chunk);
                buffer = input.send(buffer, chunk.len());
                assert_eq!(buffer.len(), BUFFER);
            }
            input.finish();
            reader.join().unwrap().unwrap()
        });
        assert!(received == sent);
    }

    #[test]
    fn an_early_end_is_an_error() {
        let (mut input, mut output) = pipe();
        let buffer = input.buffer();
        input.send(buffer, 3);
        drop(input);
        let mut all = Vec::new();
        assert!(output.read_to_end(&mut all).is_err());
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn a_reader_that_left_does_not_stop_the_writer() {
        let (mut input, output) = pipe();
        drop(output);
        let mut buffer = input.buffer();
        for _ in 0..50 {
            buffer = input.send(buffer, 10);
            assert_eq!(buffer.len(), BUFFER);
        }
    }
}
