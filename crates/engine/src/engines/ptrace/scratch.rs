//! Memory in the guest for host paths and changed arguments, which its calls read instead of its
//! own.
//!
//! The stack below the red zone would do, as debuggers use it, but for programs with many small
//! stacks (goroutines, coroutines), which have other data below theirs. So what is left of the
//! loader's boot block serves: 16 KiB that nobody uses once the program runs, at the same place in
//! every process. It is dealt out in chunks, to calls that are under way in any thread of any
//! process: processes can share their memory (`vfork`, threads), and a call keeps its chunks until
//! it ends. Only where none is left, or the process has no loader yet, is it the stack.

use abi::boot::BOOT_ROOM;

/// A set of chunks: one bit each.
pub(super) type Chunks = u16;

/// Bytes in a chunk.
const CHUNK: u64 = BOOT_ROOM as u64 / Chunks::BITS as u64;
/// Most that one call gets on the stack (bytes).
const STACK: u64 = 128 << 10;

/// A process's own chunks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Room {
    /// Address of the first chunk.
    base: u64,
    /// Those that can be used.
    chunks: Chunks,
}

impl Room {
    /// What a block of so many bytes leaves.
    pub(super) fn behind(block_at: u64, length: usize) -> Self {
        let used = (length as u64).div_ceil(CHUNK).min(u64::from(Chunks::BITS));
        let chunks = Chunks::MAX.checked_shl(used as u32).unwrap_or(0);
        Self { base: block_at, chunks }
    }

    /// Whether 32-bit calls cannot reach it.
    pub(super) fn is_high(self) -> bool {
        self.base + BOOT_ROOM as u64 > 1 << 32
    }
}

/// Scratch memory of one call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scratch {
    /// Only what a 32-bit call reaches will do.
    pub(super) narrow: bool,
    /// Where the stack ends that must not be written to.
    pub(super) stack: u64,
    /// Bytes used below it.
    used: u64,
    /// Chunks taken.
    pub(super) chunks: Chunks,
    /// What is left of the last one.
    left: (u64, u64),
    /// What the thread has mapped for calls like this, as far as it is not used: from, to.
    pub(super) many: (u64, u64),
    /// Something did not fit.
    pub(super) short: bool,
}

/// Where bytes are to be put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    /// In the process's room.
    Room(u64),
    /// Below its stack, which may have to grow.
    Stack(u64),
}

impl Scratch {
    /// For a call that was made with this stack pointer and red zone.
    pub(super) fn below(stack: u64, narrow: bool) -> Self {
        Self { narrow, stack, ..Self::default() }
    }

    /// A place for so many bytes; `free` are the chunks that no other call uses. `None`: too many.
    /// `align` is a power of two.
    pub(super) fn take(
        &mut self,
        room: Room,
        free: Chunks,
        length: u64,
        align: u64,
    ) -> Option<Spot> {
        let up = |at: u64| (at + align - 1) & !(align - 1);
        let (at, end) = self.left;
        if at != 0 && up(at) + length <= end {
            self.left.0 = up(at) + length;
            return Some(Spot::Room(up(at)));
        }
        let count = length.div_ceil(CHUNK).max(1);
        if count < u64::from(Chunks::BITS) {
            let free = free & room.chunks & !self.chunks;
            let wanted: Chunks = (1 << count) - 1;
            let first = (0..=Chunks::BITS - count as u32).find(|&first| {
                let wanted = wanted << first;
                free & wanted == wanted
            });
            if let Some(first) = first {
                self.chunks |= wanted << first;
                let at = room.base + u64::from(first) * CHUNK;
                self.left = (at + length, at + count * CHUNK);
                return Some(Spot::Room(at));
            }
        }
        let (at, end) = self.many;
        if at != 0 && length <= end - at && up(at) + length <= end {
            self.many.0 = up(at) + length;
            return Some(Spot::Room(up(at)));
        }
        let end = self.stack.checked_sub(self.used)?;
        let below = end.checked_sub(length).map(|at| at & !(align - 1));
        let Some(at) = below.filter(|at| self.stack - at <= STACK) else {
            self.short = true;
            return None;
        };
        self.used = self.stack - at;
        Some(Spot::Stack(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_dealt_out_once() {
        let room = Room::behind(0x10_0000, 300);
        let mut one = Scratch::below(0x7000, false);
        assert_eq!(one.take(room, Chunks::MAX, 100, 1), Some(Spot::Room(0x10_0400)));
        assert_eq!(one.take(room, Chunks::MAX, 10, 8), Some(Spot::Room(0x10_0468)));
        assert_eq!(one.take(room, Chunks::MAX, 4096, 1), Some(Spot::Room(0x10_0800)));
        let mut two = Scratch::below(0x7000, false);
        let free = !one.chunks;
        assert_eq!(two.take(room, free, 1, 1), Some(Spot::Room(0x10_1800)));
        assert_eq!(two.take(room, free, 20_000, 16), Some(Spot::Stack(0x7000 - 20_000)));
        assert_eq!(two.chunks & one.chunks, 0);
        assert_eq!((two.take(room, free, 200_000, 16), two.short), (None, true));
        two.many = (0x10_0000_0000, 0x10_0080_0000);
        assert_eq!(two.take(room, free, 200_001, 16), Some(Spot::Room(0x10_0000_0000)));
        assert_eq!(two.take(room, free, 20_000, 16), Some(Spot::Room(0x10_0003_0d50)));
        assert_eq!(two.take(room, free, 8 << 20, 16), None);
    }

    #[test]
    fn without_a_room_it_is_the_stack() {
        let mut scratch = Scratch::below(0x7ff8, false);
        assert_eq!(scratch.take(Room::default(), Chunks::MAX, 9, 16), Some(Spot::Stack(0x7fe0)));
        assert_eq!(scratch.take(Room::default(), Chunks::MAX, 1, 1), Some(Spot::Stack(0x7fdf)));
        assert_eq!(Room::behind(0, BOOT_ROOM).chunks, 0);
    }
}
