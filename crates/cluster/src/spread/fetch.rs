//! Gets the blobs: from the registry, or from the hosts before this one.

use std::collections::HashSet;
use std::io::{Read, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use containers::Cancel;
use containers::images::parts::Origin;
use containers::images::pull::broken;
use net::peers::secure::{Secure, SecureStream, explain};
use oci::Descriptor;
use store::Ingest;

use super::route::{Route, WINDOW};
use super::serve::{Ask, OVER, TOTAL};
use super::shelf::{PIECE, Shelf};
use super::words::Place;
use crate::error::{Error, Result};

/// So many blobs are received at once.
const AT_ONCE: usize = 4;
/// A host is connected within so long,
const CONNECT: Duration = Duration::from_secs(2);
/// and shows its key within so long: it may not have heard of this host yet.
const GREETING: Duration = Duration::from_secs(12);
/// One that says nothing for so long is lost.
const SILENT: Duration = Duration::from_secs(5);
/// Every host is asked so often without a new byte before a blob is given up,
const ROUNDS: usize = 4;
/// with this pause between.
const PAUSE: Duration = Duration::from_secs(1);

/// Where blobs come from.
pub(super) enum Upstream {
    Registry(Origin),
    /// The first one that has what is asked for is enough.
    Hosts(Vec<Place>),
}

/// Gets the blobs of a shelf.
pub(super) struct Fetch<'a> {
    shelf: &'a Shelf,
    secure: &'a Secure,
    upstream: Upstream,
    /// The number of the host that is asked now.
    current: AtomicUsize,
    /// Those that have sent what has not the blob's digest.
    blamed: Mutex<HashSet<usize>>,
    /// A blob has failed.
    stopped: AtomicBool,
    cancel: &'a Cancel,
}

/// Why a blob does not come.
enum Trouble {
    /// This host has it.
    Own(Error),
    /// The other host has it.
    Other(String),
}

/// A connection to the host of a number.
type Line = Option<(usize, SecureStream)>;

impl<'a> Fetch<'a> {
    pub(super) fn new(
        shelf: &'a Shelf,
        secure: &'a Secure,
        upstream: Upstream,
        cancel: &'a Cancel,
    ) -> Self {
        Self {
            shelf,
            secure,
            upstream,
            current: AtomicUsize::new(0),
            blamed: Mutex::default(),
            stopped: AtomicBool::new(false),
            cancel,
        }
    }

    fn hosts(&self) -> &[Place] {
        match &self.upstream {
            Upstream::Registry(_) => &[],
            Upstream::Hosts(hosts) => hosts,
        }
    }

    /// Whether at least one host is reached; if not, why the first one is not.
    pub(super) fn is_reached(&self) -> Result<(), String> {
        let mut first = None;
        for number in 0..self.hosts().len() {
            match self.dial(number) {
                Ok(_) => {
                    self.current.store(number, Ordering::Relaxed);
                    return Ok(());
                }
                Err(why) => {
                    first.get_or_insert(why);
                }
            }
        }
        Err(first.unwrap_or_else(|| "it was told of no host to ask".to_owned()))
    }

    /// Has all blobs, each with its digest.
    pub(super) fn all(&self) -> Result<()> {
        let (next, count) = (AtomicUsize::new(0), self.shelf.count());
        let failure = Mutex::new(None);
        let (working, over) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || self.watch(&over));
            for _ in 0..AT_ONCE.min(count) {
                let working = working.clone();
                let (next, failure) = (&next, &failure);
                scope.spawn(move || {
                    let _working = working;
                    let mut line = None;
                    while !self.stopped.load(Ordering::Relaxed) {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(blob) = self.shelf.blob(number) else { return };
                        if let Err(error) = self.blob(number, &blob, &mut line) {
                            let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                            // What others fail with because of this comes after it.
                            self.stopped.store(true, Ordering::Relaxed);
                            first.get_or_insert(error);
                        }
                    }
                });
            }
            drop(working);
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Until the others have ended: asks another host when the one that is asked is slow.
    fn watch(&self, over: &Receiver<()>) {
        let mut route = Route::default();
        let mut line: Line = None;
        let mut before = self.shelf.total();
        while over.recv_timeout(WINDOW) == Err(RecvTimeoutError::Timeout) {
            let (asked, total) = (self.current(), self.shelf.total());
            let received = total.saturating_sub(std::mem::replace(&mut before, total));
            let next = asked + 1;
            if next >= self.hosts().len() || self.blamed().contains(&next) {
                continue;
            }
            let there = self.total(next, &mut line);
            if there.is_none() {
                line = None;
            }
            let ahead = there.unwrap_or(0).saturating_sub(total);
            if let Some(to) = route.turn(asked, received, next, ahead) {
                let _ =
                    self.current.compare_exchange(asked, to, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// How many bytes of all blobs another host has.
    fn total(&self, number: usize, line: &mut Line) -> Option<u64> {
        let stream = self.line(number, line).ok()?;
        let mut bytes = [0; 8];
        let ask = Ask { number: TOTAL, offset: 0, whole: false };
        stream.write_all(&ask.bytes()).and_then(|()| stream.read_exact(&mut bytes)).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Has one blob.
    fn blob(&self, number: usize, blob: &Descriptor, line: &mut Line) -> Result<()> {
        let Some(mut ingest) = self.shelf.begin(number, blob)? else { return Ok(()) };
        let (mut whole, mut failures) = (false, 0);
        loop {
            self.goes_on()?;
            let before = ingest.offset();
            let asked = self.current();
            let got = match &self.upstream {
                Upstream::Registry(origin) => self.download(number, blob, origin, &mut ingest),
                Upstream::Hosts(_) => self.receive(asked, number, blob, whole, line, &mut ingest),
            };
            match got {
                Ok(()) => {}
                Err(Trouble::Own(error)) => return Err(error),
                Err(Trouble::Other(why)) => {
                    *line = None;
                    self.leave(asked);
                    failures = if ingest.offset() > before { 0 } else { failures + 1 };
                    if failures >= ROUNDS * self.hosts().len() {
                        return Err(self.given_up(blob, &why));
                    }
                    if failures > 0 && failures % self.hosts().len() == 0 {
                        std::thread::sleep(PAUSE);
                    }
                    continue;
                }
            }
            match ingest.commit() {
                Ok(_) => {
                    self.shelf.whole(number);
                    return Ok(());
                }
                // The file is gone. Somebody before this host has passed on what is wrong: from now
                // on only what has been checked is taken.
                Err(store::Error::WrongDigest { .. }) if !self.is_last(asked) => {
                    whole = true;
                    *line = None;
                    self.blame(asked);
                    self.leave(asked);
                    match self.shelf.begin(number, blob)? {
                        Some(again) => ingest = again,
                        None => return Ok(()),
                    }
                }
                Err(error) => return Err(containers::Error::from(error).into()),
            }
        }
    }

    fn given_up(&self, blob: &Descriptor, why: &str) -> Error {
        let count = self.hosts().len();
        Error::new(format!("none of {count} hosts gives the blob {}: {why}", blob.digest.short()))
            .with_hint("call up again: it goes on where it was")
    }

    fn blamed(&self) -> std::sync::MutexGuard<'_, HashSet<usize>> {
        self.blamed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host that is to be asked.
    fn current(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    /// Asks another one from now on, unless another thread has said so already.
    fn leave(&self, asked: usize) {
        let (blamed, count) = (self.blamed(), self.hosts().len());
        let others = (1..=count).map(|far| (asked + far) % count.max(1));
        let next = others.into_iter().find(|next| !blamed.contains(next)).unwrap_or(asked);
        let _ = self.current.compare_exchange(asked, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn blame(&self, asked: usize) {
        self.blamed().insert(asked);
    }

    /// Whether no other host may be asked.
    fn is_last(&self, asked: usize) -> bool {
        let blamed = self.blamed();
        (0..self.hosts().len()).all(|other| other == asked || blamed.contains(&other))
    }

    fn dial(&self, asked: usize) -> Result<SecureStream, String> {
        let place = self.hosts().get(asked).ok_or("all hosts that are known were asked")?;
        let mut first = None;
        for &at in &place.at {
            let dialled = self.secure.dial(place.key, at, CONNECT, GREETING);
            match dialled.and_then(|stream| stream.wait_at_most(SILENT).map(|()| stream)) {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    first.get_or_insert(format!("{at}: {}", explain(&error)));
                }
            }
        }
        Err(first.unwrap_or_else(|| "the host has no address".to_owned()))
    }

    fn goes_on(&self) -> Result<()> {
        self.cancel.check()?;
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Error::new("stopped, because another blob failed"));
        }
        Ok(())
    }

    /// The connection to a host, which is made if it is not there.
    fn line<'l>(&self, asked: usize, line: &'l mut Line) -> Result<&'l mut SecureStream, String> {
        if line.as_ref().is_none_or(|(at, _)| *at != asked) {
            *line = Some((asked, self.dial(asked)?));
        }
        line.as_mut().map(|(_, stream)| stream).ok_or_else(String::new)
    }

    /// Takes bytes of a blob that have come.
    fn take(
        &self,
        number: usize,
        blob: &Descriptor,
        bytes: &[u8],
        ingest: &mut Ingest,
    ) -> Result<(), Trouble> {
        self.goes_on().map_err(Trouble::Own)?;
        let written = ingest.write_all(bytes);
        self.shelf.grown(number, ingest.offset());
        written.map_err(|error| Trouble::Own(self.shelf.not_written(blob, &error)))
    }

    fn download(
        &self,
        number: usize,
        blob: &Descriptor,
        origin: &Origin,
        ingest: &mut Ingest,
    ) -> Result<(), Trouble> {
        let own = |error: containers::Error| Trouble::Own(error.into());
        let mut reader = origin.open(blob, ingest.offset()).map_err(own)?;
        let mut piece = vec![0; PIECE];
        loop {
            match reader.read(&mut piece) {
                Ok(0) => return Ok(()),
                Ok(count) => self.take(number, blob, &piece[..count], ingest)?,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(own(broken(error))),
            }
        }
    }

    fn receive(
        &self,
        asked: usize,
        number: usize,
        blob: &Descriptor,
        whole: bool,
        line: &mut Line,
        ingest: &mut Ingest,
    ) -> Result<(), Trouble> {
        if ingest.is_complete() {
            return Ok(());
        }
        let stream = self.line(asked, line).map_err(Trouble::Other)?;
        let other = |error: std::io::Error| Trouble::Other(explain(&error));
        let ask = Ask { number: number as u32, offset: ingest.offset(), whole };
        stream.write_all(&ask.bytes()).map_err(other)?;
        let mut piece = vec![0; PIECE];
        while !ingest.is_complete() {
            let mut length = [0; 4];
            stream.read_exact(&mut length).map_err(other)?;
            let length = u32::from_le_bytes(length);
            let left = usize::try_from(ingest.size() - ingest.offset()).unwrap_or(PIECE).min(PIECE);
            if length == OVER || length as usize > left {
                return Err(Trouble::Other("it has begun the blob anew".to_owned()));
            }
            let bytes = &mut piece[..length as usize];
            stream.read_exact(bytes).map_err(other)?;
            self.take(number, blob, bytes, ingest)?;
            if !ingest.is_complete() && self.current() != asked {
                return Err(Trouble::Other("another host is asked".to_owned()));
            }
        }
        Ok(())
    }
}
