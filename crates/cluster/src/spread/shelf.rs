//! The blobs of this host, for the threads that write them and those that read them meanwhile.

use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use containers::size;
use oci::Descriptor;
use store::{BeginBlob, Ingest, Store};

use crate::error::{Error, Result};

/// Bytes are passed on in pieces of at most so many.
pub(super) const PIECE: usize = 64 << 10;

/// The blobs, in the order of [`containers::images::parts::Parts::blobs`].
pub(super) struct Shelf {
    pub(super) store: Store,
    items: Mutex<Vec<Item>>,
    changed: Condvar,
}

struct Item {
    blob: Descriptor,
    file: Option<Arc<File>>,
    /// How many bytes of it are there.
    length: u64,
    /// All of it is there, and has its digest.
    is_whole: bool,
    /// Counts how often it was begun.
    turn: u32,
}

/// Bytes of a blob that are there.
pub(super) struct Part {
    pub(super) file: Arc<File>,
    /// How many there are from the first one.
    pub(super) length: u64,
    pub(super) is_whole: bool,
    pub(super) turn: u32,
}

impl Shelf {
    /// One of blobs that are not known yet.
    pub(super) fn new(store: Store) -> Self {
        Self { store, items: Mutex::default(), changed: Condvar::new() }
    }

    fn items(&self) -> MutexGuard<'_, Vec<Item>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These are the blobs.
    pub(super) fn expect(&self, blobs: Vec<Descriptor>) {
        let item = |blob| Item { blob, file: None, length: 0, is_whole: false, turn: 0 };
        *self.items() = blobs.into_iter().map(item).collect();
        self.changed.notify_all();
    }

    pub(super) fn count(&self) -> usize {
        self.items().len()
    }

    /// The blob of a number.
    pub(super) fn blob(&self, number: usize) -> Option<Descriptor> {
        self.items().get(number).map(|item| item.blob.clone())
    }

    /// Begins a blob; `None` if it is there.
    pub(super) fn begin(&self, number: usize, blob: &Descriptor) -> Result<Option<Ingest>> {
        let began = self.store.blobs().begin(blob).map_err(containers::Error::from)?;
        let (file, length, ingest) = match began {
            BeginBlob::Have(have) => (have.file, have.size, None),
            BeginBlob::Ingest(ingest) => {
                let path = ingest.path();
                let file = File::open(&path).map_err(|error| {
                    Error::new(format!("cannot read {}: {error}", path.display()))
                })?;
                (file, ingest.offset(), Some(ingest))
            }
        };
        if let Some(item) = self.items().get_mut(number) {
            item.file = Some(Arc::new(file));
            item.length = length;
            item.is_whole = ingest.is_none();
            item.turn += 1;
        }
        self.changed.notify_all();
        Ok(ingest)
    }

    /// So many bytes of a blob are there.
    pub(super) fn grown(&self, number: usize, length: u64) {
        if let Some(item) = self.items().get_mut(number) {
            item.length = length;
        }
        self.changed.notify_all();
    }

    /// All of a blob is there, and has its digest.
    pub(super) fn whole(&self, number: usize) {
        if let Some(item) = self.items().get_mut(number) {
            item.is_whole = true;
        }
        self.changed.notify_all();
    }

    /// How many bytes of all blobs are there.
    pub(super) fn total(&self) -> u64 {
        self.items().iter().map(|item| item.length).sum()
    }

    /// Waits until a blob has more bytes than so many, or with `whole` until it has all. `None` if
    /// that takes longer than `patience`.
    pub(super) fn wait(
        &self,
        number: usize,
        offset: u64,
        whole: bool,
        patience: Duration,
    ) -> Option<Part> {
        let is_less = |items: &mut Vec<Item>| {
            items.get(number).is_none_or(|item| {
                !item.is_whole && (whole || item.length <= offset) || item.file.is_none()
            })
        };
        let waited = self.changed.wait_timeout_while(self.items(), patience, is_less);
        let (items, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        let item = items.get(number).filter(|_| !waited.timed_out())?;
        let file = Arc::clone(item.file.as_ref()?);
        Some(Part { file, length: item.length, is_whole: item.is_whole, turn: item.turn })
    }

    /// For a host that has the image.
    pub(super) fn all_are_there(&self) -> Result<()> {
        for number in 0..self.count() {
            let blob = self.blob(number);
            if let Some(blob) = blob
                && self.begin(number, &blob)?.is_some()
            {
                let fact = format!("the blob {} of the image is missing in the store", blob.digest);
                return Err(Error::new(fact).with_hint("pull the image again: coracle pull NAME"));
            }
        }
        Ok(())
    }

    /// Before anything is received: whether there is room for all of it.
    pub(super) fn check_room(&self, image: &str) -> Result<()> {
        let mut missing = 0;
        for number in 0..self.count() {
            let Some(blob) = self.blob(number) else { continue };
            let blobs = self.store.blobs();
            let has = blobs.contains(&blob.digest, Some(blob.size));
            if !has.map_err(containers::Error::from)? {
                let received = blobs.received(&blob.digest).map_err(containers::Error::from)?;
                missing += blob.size.saturating_sub(received);
            }
        }
        match self.room() {
            Some(free) if free < missing => {
                Err(self.full(&format!("{image} needs {}", size::human(missing)), free))
            }
            _ => Ok(()),
        }
    }

    /// Free bytes where the store is.
    fn room(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(self.store.path()).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn full(&self, what: &str, free: u64) -> Error {
        let (path, free) = (self.store.path().display(), size::human(free));
        Error::new(format!("{what}, and {path} has {free} free"))
            .with_hint("make room there (coracle system prune), and call up again: it goes on")
    }

    /// Why bytes of a blob could not be written.
    pub(super) fn not_written(&self, blob: &Descriptor, error: &std::io::Error) -> Error {
        let what = format!("the blob {} needs {}", blob.digest.short(), size::human(blob.size));
        match (error.kind(), self.room()) {
            (std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded, Some(free)) => {
                self.full(&format!("{what}: {error}"), free)
            }
            _ => Error::new(format!("cannot write the blob {}: {error}", blob.digest.short())),
        }
    }
}
