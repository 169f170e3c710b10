//! Brings one layer in: its blob into the store and its tree onto the disk, both at once.
//!
//! Three threads share a layer's work: this one reads from the network, hashes and writes the blob;
//! one decodes and hashes the content; one writes files (`rootfs::apply` has the latter two). Locks
//! are taken in the store's order, the blob's first and the layer's second.

use std::fs::File;
use std::io::{Read, Write};

use oci::{Descriptor, Digest, Reference};
use registry::Client;
use rustix::fs::{CWD, Mode, OFlags};
use store::{BeginBlob, BeginTree, Ingest, Staging, Store};

use super::{Road, broken, pipe};
use crate::error::{Error, Result};
use crate::events::Moving;

/// The work on one layer.
pub struct Work<'a> {
    /// The blob.
    pub descriptor: Descriptor,
    /// The digest of its content, uncompressed.
    pub diff_id: Digest,
    /// Where to fetch it; `None` if the blob is in the store.
    pub source: Option<(&'a Client, &'a Reference)>,
    /// Whether its tree is unpacked too.
    pub unpack: bool,
}

impl Work<'_> {
    /// Whether all of it is in the store.
    pub fn is_done(&self, store: &Store) -> Result<bool> {
        let blob = || store.blobs().contains(&self.descriptor.digest, Some(self.descriptor.size));
        Ok((!self.unpack || store.layers().contains(&self.diff_id)?) && blob()?)
    }

    /// The name that progress shows.
    fn name(&self) -> &str {
        self.descriptor.digest.short()
    }
}

/// Brings one layer in.
pub(super) fn bring(road: &Road<'_>, work: &Work<'_>) -> Result<()> {
    let brought = match work.source {
        None => stored(road, work, None),
        Some(source) => match road.store.blobs().begin(&work.descriptor)? {
            BeginBlob::Have(blob) => stored(road, work, Some(blob.file)),
            BeginBlob::Ingest(ingest) => fetched(road, work, source, ingest),
        },
    };
    brought.map_err(|report| report.within(format!("layer {}", work.descriptor.digest)))
}

/// Unpacks a blob that is in the store.
fn stored(road: &Road<'_>, work: &Work<'_>, blob: Option<File>) -> Result<()> {
    if !work.unpack {
        return Ok(());
    }
    let BeginTree::Build(staging) = road.store.layers().begin(&work.diff_id)? else {
        return Ok(());
    };
    let file = match blob {
        Some(file) => file,
        None => road.store.blobs().open(&work.descriptor)?.file,
    };
    let part = road.progress.part(work.name(), "unpacking", work.descriptor.size, 0);
    let counted = Watched { reader: file, part: &part, road };
    unpack(road, work, staging, counted)?;
    part.done();
    Ok(())
}

/// Fetches a blob, and unpacks it meanwhile.
fn fetched(
    road: &Road<'_>,
    work: &Work<'_>,
    source: (&Client, &Reference),
    mut ingest: Ingest,
) -> Result<()> {
    let staging = match work.unpack.then(|| road.store.layers().begin(&work.diff_id)).transpose()? {
        Some(BeginTree::Build(staging)) => Some(staging),
        _ => None,
    };
    let part = road.progress.part(work.name(), "fetching", work.descriptor.size, ingest.offset());
    let Some(staging) = staging else {
        fetch(road, work, source, &mut ingest, None, &part)?;
        ingest.commit()?;
        part.done();
        return Ok(());
    };
    let existing = ingest.existing()?;
    let (input, output) = pipe::pipe();
    let (fetched, unpacked) = std::thread::scope(|scope| {
        let unpacking = scope.spawn(|| unpack(road, work, staging, existing.chain(output)));
        let fetched = fetch(road, work, source, &mut ingest, Some(input), &part);
        let unpacked =
            unpacking.join().unwrap_or_else(|_| Err(Error::failed("the unpacking thread failed")));
        (fetched, unpacked)
    });
    // A failure of the network, or a wrong digest, explains what the unpacker says, and not the
    // other way round. A good blob stays even if it cannot be unpacked.
    fetched?;
    ingest.commit()?;
    unpacked?;
    part.done();
    Ok(())
}

/// Reads the rest of a blob from the registry into the store, and into the pipe if there is one.
fn fetch(
    road: &Road<'_>,
    work: &Work<'_>,
    (client, reference): (&Client, &Reference),
    ingest: &mut Ingest,
    mut pipe: Option<pipe::Input>,
    part: &Moving<'_>,
) -> Result<()> {
    if !ingest.is_complete() {
        let mut reader = client.blob(reference, &work.descriptor, ingest.offset())?;
        let mut buffer = pipe.as_ref().map_or_else(pipe::buffer, pipe::Input::buffer);
        loop {
            if road.stopped() {
                return Err(road.why_stopped());
            }
            let (count, failure) = fill(&mut reader, &mut buffer);
            ingest
                .write_all(&buffer[..count])
                .map_err(|error| Error::failed("cannot write to the store").cause(error))?;
            part.advance(count as u64);
            if let Some(report) = failure {
                return Err(report);
            }
            if count == 0 {
                break;
            }
            if let Some(pipe) = &mut pipe {
                buffer = pipe.send(buffer, count);
            }
        }
    }
    if let Some(pipe) = pipe {
        pipe.finish();
    }
    Ok(())
}

/// Fills a buffer as far as the stream goes. Bytes that came before a failure are returned with it,
/// and kept for the next pull.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<Error>) {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => {
                return (filled, Some(broken(error)));
            }
        }
    }
    (filled, None)
}

/// Unpacks a blob's bytes into a staging directory and commits that.
fn unpack(
    road: &Road<'_>,
    work: &Work<'_>,
    staging: Staging,
    blob: impl Read + Send,
) -> Result<()> {
    let plain = rootfs::decode::open(blob, &road.limits)?;
    // `apply` makes the tree itself, so that it is empty.
    let _ = std::fs::remove_dir(staging.tree());
    let directory = rustix::fs::openat(
        CWD,
        staging.dir(),
        OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| {
        Error::failed(format!("cannot open {}", staging.dir().display())).cause(error)
    })?;
    let applied = rootfs::apply(plain, &directory, &road.limits, &|_| {})?;
    if applied.diff_id != work.diff_id {
        return Err(Error::failed(
            "the layer's content is not what the image's configuration says",
        )
        .because(format!("expected {}, found {}", work.diff_id, applied.diff_id)));
    }
    staging.commit(&applied.meta)?;
    Ok(())
}

/// Counts what is read; ends when another layer has failed or the operation was cancelled.
struct Watched<'a, R> {
    reader: R,
    part: &'a Moving<'a>,
    road: &'a Road<'a>,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.road.stopped() {
            return Err(std::io::Error::other(self.road.why_stopped().to_string()));
        }
        let count = self.reader.read(buffer)?;
        self.part.advance(count as u64);
        Ok(count)
    }
}
