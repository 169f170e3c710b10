//! The boot block: how a backend tells the loader which program to load, and the protocol around
//! it.
//!
//! The kernel never executes a guest's program itself, because it would look for the interpreter in
//! the host's root. Instead it executes the loader (crate `stage`), a small static program that
//! maps program and interpreter as the kernel would. An `execve` has these steps:
//!
//! 1. The guest's `execve` or `execveat` is caught. `view::exec` resolves the path, reads `#!`
//!    lines and ELF headers, answers every error that the kernel finds before its point of no
//!    return, and leaves an `ExecPlan`.
//! 2. The backend turns the call into `execve(LOADER, plan.arguments, plan.environment)`. LOADER is
//!    the host path of the loader (a file, or `/proc/PID/fd/N` of a memory file that the backend
//!    holds). The other two are the guest's own vectors, or one in scratch memory if a script
//!    changed them. So `EFAULT`, `E2BIG`, threads, timers, close-on-exec, `/proc/PID/cmdline` and
//!    `AT_RANDOM` are handled by the kernel. If this call fails, the guest gets its error and the
//!    plan's files are closed.
//! 3. If it succeeds, the process has the loader's image and has not run yet (a tracer sees
//!    `PTRACE_EVENT_EXEC`). The backend writes a boot block to [`BOOT_AT`] (memory that the loader
//!    may write to, zeroed by the kernel), and lets the process run. It changes no register and no
//!    other memory.
//! 4. The loader opens the files that the block names, maps them, corrects the auxiliary vector on
//!    its stack, sets `comm`, tells the kernel the new auxiliary vector and heap (`PR_SET_MM_MAP`,
//!    if that is allowed), clears its registers and jumps. It does not allocate and keeps no
//!    descriptor. All its system calls are made between [`LOADER_START`] and [`LOADER_END`]; a
//!    backend lets them pass by their instruction pointer.
//! 5. An error after this point ends the process by `SIGSEGV`, as the kernel does behind its point
//!    of no return.
//!
//! The loader's first calls open the files that the block names. A backend that named its own
//! descriptors (`/proc/PID/fd/N`) keeps them until it next hears of the process: the first call
//! that is not the loader's, or its end.
//!
//! The loader stays mapped, and `/proc/PID/exe` names it. The view hides both from the guest.
//!
//! A backend inside the process passes its state to the same program (`stage`) by a string on the
//! stack instead: `view::handover`. Then the stage stays active, with memory of its own:
//!
//! ```text
//!   LOADER_START  headers and code, read-only and executable
//!   BOOT_AT       the boot block, BOOT_ROOM bytes, then the loader's own variables
//!   + SHARED      the file that all processes of the container map
//!   + SLOTS       stacks and buffers of calls that are being decided
//!   + STUBS       trampolines that need not be near the code that they belong to
//!   + SPARE       large scratch memory for a call
//!   LOADER_END
//! ```
//!
//! Containers may be nested. Then the memory of every program already contains the loader of the
//! outer container. So the image can be moved by whole steps of [`BASE_STEP`], to one of `BASES`
//! places; the engine that starts a container takes the first place where nothing is mapped. The
//! upper half of an address alone shows if it belongs to a loader.
//!
//! All numbers are little-endian. A string is named by its offset from the start of the block, and
//! ends with a NUL.

/// Start of the loader's image. It lies below the place of position-independent programs
/// (`0x5555_5555_4000` and up), where the kernel puts nothing by itself with 47 bits of addresses.
/// It lies in the range that thread and memory sanitizers take for a program's own (they refuse to
/// start if something is mapped between the ranges they know).
pub const LOADER_START: u64 = 0x5501_0000_0000;
/// Address of the boot block.
pub const BOOT_AT: u64 = LOADER_START + 0x10_0000;
/// Size of the boot block's memory: room for three paths and the header.
pub const BOOT_ROOM: usize = 0x4000;
/// End (exclusive) of the range that contains the loader and all its memory.
pub const LOADER_END: u64 = LOADER_START + RANGE;
/// Size of that range in bytes.
pub const RANGE: u64 = 0x8000_0000;
/// Distance between two places of the loader.
pub const BASE_STEP: u64 = 1 << 32;
/// Number of places: `LOADER_START`, and others behind it.
pub const BASES: u64 = 4;

/// Offset of the shared file's mapping from the loader's start. It begins where the loader's memory
/// ends, so that the memory that every program touches needs only one page of page tables.
pub const SHARED: u64 = 0x1b_0000;
/// Room for the shared file: 510 MiB.
pub const SHARED_ROOM: u64 = SLOTS - SHARED;
/// Offset of the slots from the loader's start.
pub const SLOTS: u64 = 0x2000_0000;
/// Room for the slots: 512 MiB.
pub const SLOTS_ROOM: u64 = STUBS - SLOTS;
/// Offset of trampolines from the loader's start.
pub const STUBS: u64 = 0x4000_0000;
/// Room for trampolines: 512 MiB.
pub const STUBS_ROOM: u64 = SPARE - STUBS;
/// Offset of large scratch memory from the loader's start.
pub const SPARE: u64 = 0x6000_0000;
/// Room for scratch memory: 512 MiB.
pub const SPARE_ROOM: u64 = RANGE - SPARE;

/// Start of the loader at one of its places; `base` counts from 0.
pub const fn start(base: u64) -> u64 {
    LOADER_START + base * BASE_STEP
}

/// Returns true if an address belongs to a loader, at whichever place.
pub const fn is_loaders(address: u64) -> bool {
    let far = address.wrapping_sub(LOADER_START);
    far < BASES * BASE_STEP && far % BASE_STEP < RANGE
}

/// Number of the descriptor by which a process of the guest may hold the root of its tree open. It
/// is below the usual limit of open files (1024), and above the numbers that most programs use.
/// Programs that look through all numbers (Python's tests do) do not find it, because `fstat` hides
/// it.
pub const TREE_DESCRIPTOR: i32 = 1000;

/// The same for the upper directory of a tree with two layers.
pub const UPPER_DESCRIPTOR: i32 = TREE_DESCRIPTOR + 1;

/// First bytes of a boot block.
pub const MAGIC: u64 = u64::from_le_bytes(*b"CorBoot1");

/// The program runs with privileges that its caller does not have: `AT_SECURE` is 1.
const SECURE: u32 = 1;
/// The ids of the block replace `AT_UID`, `AT_EUID`, `AT_GID`, `AT_EGID`.
const IDS: u32 = 2;

const HEADER: usize = 64;

/// Real and effective ids, as getauxval(3) shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// `AT_UID`.
    pub uid: u32,
    /// `AT_EUID`.
    pub euid: u32,
    /// `AT_GID`.
    pub gid: u32,
    /// `AT_EGID`.
    pub egid: u32,
}

/// A boot block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boot<'a> {
    /// Host path under which the loader opens the program, without NUL.
    pub program: &'a [u8],
    /// Host path under which the loader opens the program's interpreter (`PT_INTERP`), if it has
    /// one.
    pub interpreter: Option<&'a [u8]>,
    /// `AT_EXECFN`: the name that was executed, as the guest gave it.
    pub name: &'a [u8],
    /// Name of the thread (`PR_SET_NAME`), padded with NUL.
    pub comm: [u8; 16],
    /// `AT_SECURE`.
    pub secure: bool,
    /// Ids for the auxiliary vector; with `None` the kernel's stay.
    pub ids: Option<Ids>,
}

impl<'a> Boot<'a> {
    /// Writes the block and returns the number of bytes used. `None` if a string is too long (over
    /// 4095 bytes) or contains a NUL.
    pub fn write(&self, into: &mut [u8; BOOT_ROOM]) -> Option<usize> {
        let mut end = HEADER;
        let mut add = |text: &[u8]| -> Option<u32> {
            if text.len() > 4095 || text.contains(&0) {
                return None;
            }
            let at = end;
            into[at..at + text.len()].copy_from_slice(text);
            into[at + text.len()] = 0;
            end += text.len() + 1;
            u32::try_from(at).ok()
        };
        let program = add(self.program)?;
        let interpreter = match self.interpreter {
            Some(path) => add(path)?,
            None => 0,
        };
        let name = add(self.name)?;
        let flags = if self.secure { SECURE } else { 0 } | if self.ids.is_some() { IDS } else { 0 };
        let ids = self.ids.unwrap_or(Ids { uid: 0, euid: 0, gid: 0, egid: 0 });
        into[..8].copy_from_slice(&MAGIC.to_le_bytes());
        let words = [u32::try_from(end).ok()?, flags, ids.uid, ids.euid, ids.gid, ids.egid];
        for (index, word) in words.into_iter().enumerate() {
            put(into, 8 + 4 * index, word);
        }
        into[32..48].copy_from_slice(&self.comm);
        for (index, word) in [program, interpreter, name, 0].into_iter().enumerate() {
            put(into, 48 + 4 * index, word);
        }
        Some(end)
    }

    /// Reads a block; `None` if the bytes are not one.
    pub fn read(block: &'a [u8; BOOT_ROOM]) -> Option<Self> {
        if get(block, 0) != MAGIC as u32 || get(block, 4) != (MAGIC >> 32) as u32 {
            return None;
        }
        let flags = get(block, 12);
        let text = |field: usize| -> Option<&'a [u8]> {
            let rest = block.get(get(block, field) as usize..)?;
            rest.get(..rest.iter().position(|byte| *byte == 0)?)
        };
        let mut comm = [0; 16];
        comm.copy_from_slice(&block[32..48]);
        Some(Self {
            program: text(48)?,
            interpreter: if get(block, 52) == 0 { None } else { Some(text(52)?) },
            name: text(56)?,
            comm,
            secure: flags & SECURE != 0,
            ids: (flags & IDS != 0).then(|| Ids {
                uid: get(block, 16),
                euid: get(block, 20),
                gid: get(block, 24),
                egid: get(block, 28),
            }),
        })
    }
}

fn put(block: &mut [u8], at: usize, word: u32) {
    block[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

fn get(block: &[u8; BOOT_ROOM], at: usize) -> u32 {
    u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_block_is_read_back() {
        let mut block = [0; BOOT_ROOM];
        let boot = Boot {
            program: b"/proc/7/fd/9",
            interpreter: Some(b"/lib64/ld.so"),
            name: b"./a",
            comm: *b"a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            secure: true,
            ids: Some(Ids { uid: 1, euid: 0, gid: 2, egid: 3 }),
        };
        assert_eq!(Boot::read(&block), None);
        assert_eq!(boot.write(&mut block), Some(64 + 13 + 13 + 4));
        assert_eq!(Boot::read(&block), Some(boot));
        let plain = Boot { interpreter: None, ids: None, secure: false, ..boot };
        plain.write(&mut block).unwrap();
        assert_eq!(Boot::read(&block), Some(plain));
    }

    #[test]
    fn three_of_the_longest_paths_fit() {
        let long = [b'x'; 4095];
        let boot = Boot {
            program: &long,
            interpreter: Some(&long),
            name: &long,
            comm: [0; 16],
            secure: false,
            ids: None,
        };
        let mut block = [0; BOOT_ROOM];
        assert!(boot.write(&mut block).is_some());
        assert_eq!(Boot::read(&block), Some(boot));
        assert_eq!(Boot { name: &[b'x'; 4096], ..boot }.write(&mut block), None);
        assert_eq!(Boot { name: b"a\0b", ..boot }.write(&mut block), None);
    }
}
