//! Remembers the kernel's name of the working directory from one relative path to the next.
//!
//! The name changes when the process changes its directory (`chdir`, `fchdir`: [`before_change`])
//! and when a directory of the container is renamed, which the shared generation shows. The view
//! uses only names in the container's own tree, so renames by the host do not matter.
//!
//! All threads share the remembered name, because they nearly always share the working directory
//! too. If that may no longer hold, it is disabled for good ([`disable`]): after
//! `unshare(CLONE_FS)`, and when a child of `vfork`, which shares this memory, changes its
//! directory. (A thread that was made without `CLONE_FS` by other means is not noticed.)
//!
//! [`STAMP`] is odd while a name is remembered. The name is written only while there is none, by
//! one thread at a time. A reader checks the stamp before and after, as with a sequence lock, but
//! asks the kernel instead of trying again.

use crate::kernel::{LINUX, calls};
use crate::{shared, tasks};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use view::Text;

/// Length of the longest name that is remembered, in words.
const WORDS: usize = 64;

static STAMP: AtomicU64 = AtomicU64::new(0);
/// The generation before the kernel was asked for the name.
static GENERATION: AtomicU64 = AtomicU64::new(0);
static LENGTH: AtomicUsize = AtomicUsize::new(0);
static NAME: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
/// A hash of the name and of the world.
static DIGEST: AtomicU64 = AtomicU64::new(0);
/// Set while a thread writes the name.
static BUSY: AtomicBool = AtomicBool::new(false);
/// Set when the name is never to be remembered again.
static DISABLED: AtomicBool = AtomicBool::new(false);

/// Puts the name into `into`, if that costs at most one quick call.
pub(crate) fn name(into: &mut Text) -> bool {
    if DISABLED.load(Ordering::Relaxed) {
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

/// A number that distinguishes the remembered name from others; `None` if none is remembered.
pub(crate) fn digest() -> Option<u64> {
    let stamp = STAMP.load(Ordering::Acquire);
    if stamp & 1 == 0 || DISABLED.load(Ordering::Relaxed) {
        return None;
    }
    let current = GENERATION.load(Ordering::Relaxed) == shared::shared().plain().generation();
    let digest = DIGEST.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    (current && STAMP.load(Ordering::Relaxed) == stamp).then_some(digest)
}

/// Asks the kernel, and remembers the answer.
fn ask(into: &mut Text) -> bool {
    let generation = shared::shared().plain().generation();
    let stamp = STAMP.load(Ordering::Acquire);
    let asked = into.fill(|bytes| calls::getcwd(bytes).map(|length| length - 1));
    if asked.is_err()
        || into.as_bytes().first() != Some(&b'/')
        || hostfs::overlay::to_place(&LINUX, into).is_err()
    {
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
        // Has no effect if another thread has changed the directory meanwhile.
        let _ = STAMP.compare_exchange(stamp, stamp | 1, had, has);
        BUSY.store(false, Ordering::Release);
    }
    true
}

fn forget() {
    let next = |stamp: u64| Some((stamp | 1).wrapping_add(1));
    let _ = STAMP.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
}

/// The process has changed its directory: a name that was asked for meanwhile may be the old one.
pub(crate) fn after_change() {
    forget();
}

/// The process is about to change its directory.
pub(crate) fn before_change() {
    if tasks::is_vfork_child() {
        disable();
    }
    forget();
}

/// Threads may have different directories from now on.
pub(crate) fn disable() {
    DISABLED.store(true, Ordering::Relaxed);
}
