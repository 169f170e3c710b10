//! The kernel's name of the working directory, remembered from one relative path to the next.
//!
//! The name changes when the process goes elsewhere (`chdir`, `fchdir`: [`moves`]) and when a directory of the container gets another name, which
//! the shared generation tells. Only names in the container's own tree are of use to the view, so what the host renames does not matter.
//!
//! The memory is one for all threads, which nearly always share their working directory as well. It is given up for good ([`give_up`]) where
//! that may not be so: after `unshare(CLONE_FS)`, and when a child of `vfork`, whose memory this is too, goes elsewhere. (A thread that was made
//! without `CLONE_FS` in the first place is not noticed.)
//!
//! [`STAMP`] is odd while there is a name. It is written only while there is none, by one thread at a time, and a reader looks at the stamp
//! before and after: like a sequence lock, whose reader takes the slow road instead of trying again.

use crate::kernel::calls;
use crate::{shared, tasks};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use view::Text;

/// Longest name that is remembered, in words.
const WORDS: usize = 64;

static STAMP: AtomicU64 = AtomicU64::new(0);
/// The generation from before the name was asked for.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
static NAME: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// A hash of the name, and of the world that it is seen in.
static DIGEST: AtomicU64 = AtomicU64::new(0);
/// Somebody writes the name.
static BUSY: AtomicBool = AtomicBool::new(false);
/// Never again.
static LOST: AtomicBool = AtomicBool::new(false);

/// The name, if it can be told for at most one quick call.
pub(crate) fn name(into: &mut Text) -> bool {
    if LOST.load(Ordering::Relaxed) {
        return false;
    }
    remembered(into) || ask(into)
}

fn remembered(into: &mut Text) -> bool {
    let stamp = STAMP.load(Ordering::Acquire);
    if stamp & 1 == 0 {
        return false;
    }
    let current = GENERATION.load(Ordering::Relaxed) == shared::shared().plain().generation();
    let length = LENGTH.load(Ordering::Relaxed);
    let copied = into.fill(|bytes| {
        for (chunk, word) in bytes.chunks_mut(8).zip(&NAME).take(length.div_ceil(8)) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        Ok(length.min(WORDS * 8))
    });
    fence(Ordering::Acquire);
    let same = STAMP.load(Ordering::Relaxed) == stamp;
    if same && !current {
        forget();
    }
    copied.is_ok() && same && current
}

/// What tells the remembered name from others; `None` where none is remembered.
pub(crate) fn digest() -> Option<u64> {
    let stamp = STAMP.load(Ordering::Acquire);
    if stamp & 1 == 0 || LOST.load(Ordering::Relaxed) {
        return None;
    }
    let current = GENERATION.load(Ordering::Relaxed) == shared::shared().plain().generation();
    let digest = DIGEST.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    (current && STAMP.load(Ordering::Relaxed) == stamp).then_some(digest)
}

/// Asks the kernel, and remembers what it says.
fn ask(into: &mut Text) -> bool {
    let generation = shared::shared().plain().generation();
    let stamp = STAMP.load(Ordering::Acquire);
    let asked = into.fill(|bytes| calls::getcwd(bytes).map(|length| length - 1));
    if asked.is_err() || into.as_bytes().first() != Some(&b'/') {
        return false;
    }
    let name = into.as_bytes();
    if stamp & 1 == 0 && name.len() <= WORDS * 8 && !BUSY.swap(true, Ordering::Acquire) {
        for (word, chunk) in NAME.iter().zip(name.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
        let digest = abi::shared::hash(name, u64::from(shared::world_number()));
        DIGEST.store(digest, Ordering::Relaxed);
        LENGTH.store(name.len(), Ordering::Relaxed);
        GENERATION.store(generation, Ordering::Relaxed);
        let (had, has) = (Ordering::Release, Ordering::Relaxed);
        // Unless somebody went elsewhere meanwhile.
        let _ = STAMP.compare_exchange(stamp, stamp | 1, had, has);
        BUSY.store(false, Ordering::Release);
    }
    true
}

fn forget() {
    let next = |stamp: u64| Some((stamp | 1).wrapping_add(1));
    let _ = STAMP.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
}

/// The process has gone elsewhere: what somebody asked for meanwhile may be of before.
pub(crate) fn moved() {
    forget();
}

/// The process is about to go elsewhere.
pub(crate) fn moves() {
    if tasks::is_borrower() {
        give_up();
    }
    forget();
}

/// Threads may differ in it from now on.
pub(crate) fn give_up() {
    LOST.store(true, Ordering::Relaxed);
}
