//! Runs two threads: one reads and hashes the stream, the other consumes the bytes.
//!
//! A fixed number of buffers circulates between them, so that memory is bounded and no page is
//! touched for the first time more than once. When the consumer stops early, the reader's next send
//! fails and it ends.

use crate::error::Error;
use crate::frame::{Blocks, read_full};
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Bytes per buffer, a multiple of tar's block.
const CHUNK: usize = 256 * 1024;
/// Number of buffers between reader and consumer.
const DEPTH: usize = 4;

type Chunk = io::Result<Vec<u8>>;

/// The consumer's end of the pipeline, as blocks.
pub(crate) struct Chunks<'a> {
    full: Receiver<Chunk>,
    empty: Sender<Vec<u8>>,
    current: Vec<u8>,
    start: usize,
    ended: bool,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl Blocks for Chunks<'_> {
    fn fill(&mut self) -> io::Result<&[u8]> {
        if self.start == self.current.len() && !self.ended {
            let used = std::mem::take(&mut self.current);
            if !used.is_empty() {
                (self.progress)(used.len() as u64);
                // Fails if the reader has ended, which then needs no buffer.
                let _ = self.empty.send(used);
            }
            self.start = 0;
            match self.full.recv() {
                Ok(chunk) => self.current = chunk?,
                Err(_) => self.ended = true,
            }
        }
        Ok(&self.current[self.start..])
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
    }
}

/// Reads `tar` to its end on a thread of its own and returns its digest together with the result of
/// `using`.
pub(crate) fn run<T>(
    tar: impl Read + Send,
    progress: &(dyn Fn(u64) + Sync),
    using: impl FnOnce(Chunks<'_>) -> Result<T, Error>,
) -> Result<(oci::Digest, T), Error> {
    let (full_sender, full) = sync_channel::<Chunk>(DEPTH);
    let (empty, empty_receiver) = channel::<Vec<u8>>();
    std::thread::scope(|scope| {
        let reader = std::thread::Builder::new()
            .name("layer-read".into())
            .spawn_scoped(scope, move || read(tar, &full_sender, &empty_receiver))
            .map_err(|source| Error::Read { offset: 0, source })?;
        let chunks = Chunks { full, empty, current: Vec::new(), start: 0, ended: false, progress };
        let used = using(chunks);
        let digest = reader.join().map_err(|_| Error::Thread("layer reading"));
        Ok((digest?, used?))
    })
}

fn read(mut tar: impl Read, full: &SyncSender<Chunk>, empty: &Receiver<Vec<u8>>) -> oci::Digest {
    let mut digester = oci::Digester::sha256();
    let mut made = 0;
    loop {
        let recycled = if made > DEPTH { empty.recv().ok() } else { empty.try_recv().ok() };
        let mut buffer = recycled.unwrap_or_else(|| {
            made += 1;
            Vec::new()
        });
        buffer.resize(CHUNK, 0);
        let chunk = read_full(&mut tar, &mut buffer).map(|length| {
            buffer.truncate(length);
            buffer
        });
        let (last, failed) = match &chunk {
            Ok(bytes) => {
                digester.update(bytes);
                (bytes.len() < CHUNK, false)
            }
            Err(_) => (false, true),
        };
        let empty_end = matches!(&chunk, Ok(bytes) if bytes.is_empty());
        if !empty_end && full.send(chunk).is_err() {
            break;
        }
        if last || failed {
            break;
        }
    }
    digester.finish()
}
