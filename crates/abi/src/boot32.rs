//! The boot block of the loader for i386: [`crate::boot`] for 32-bit programs.
//!
//! No Rust target makes 32-bit programs without more tools than a build should need, and a 64-bit
//! process cannot become a 32-bit one without `execve`. So the loader for i386 consists of a few
//! hundred bytes of machine code that do not parse ELF. The view reads the headers of both files
//! and writes down the *operations* that the loader executes one after the other. Addresses that
//! are not known in advance are relative to a base: the result of the first mapping of an image.
//!
//! The protocol is that of [`crate::boot`], with another block at another address.
//!
//! ```text
//!   START       code                      one page
//!   BLOCK_AT    base, saved, stack, ...   64 bytes, zero
//!               operations                8 words each, the last of kind END
//!               strings
//!   END
//! ```

use crate::boot::Boot;
use crate::elf::{self, Extent, Header, Mapping, Segment};

/// Start of the stub's image: above every usual place of programs, so that the heap behind it can
/// grow.
pub const START: u64 = 0x6000_0000;
/// Address of the block.
pub const BLOCK_AT: u64 = START + 0x1000;
/// End (exclusive) of the image.
pub const END: u64 = BLOCK_AT + crate::boot::BOOT_ROOM as u64;

/// The greatest number of operations.
const OPERATIONS_MAX: usize = 96;
const FIRST: usize = 64;
const SIZE: usize = 32;

const KIND_END: u32 = 0;
const KIND_CALL: u32 = 1;
const KIND_ZERO: u32 = 2;
const KIND_VECTOR: u32 = 3;
const KIND_STACK: u32 = 4;

/// The first value is relative to the base.
const BASED: u32 = 0x100;
/// The first argument is the saved result.
const SAVED_FIRST: u32 = 0x200;
/// The fifth argument is the saved result.
const SAVED_FIFTH: u32 = 0x400;
/// The result is saved.
const SAVE: u32 = 0x800;
/// An error ends the process.
const MUST: u32 = 0x1000;
/// The base becomes the result minus the first argument.
const SET_BASE: u32 = 0x2000;

const OPEN: u32 = 5;
const CLOSE: u32 = 6;
const MUNMAP: u32 = 91;
const MPROTECT: u32 = 125;
const PERSONALITY: u32 = 136;
const PRCTL: u32 = 172;
const MMAP2: u32 = 192;

const MAP_PRIVATE: u32 = 2;
const MAP_FIXED: u32 = 0x10;
const MAP_ANONYMOUS: u32 = 0x20;
const MAP_FIXED_NOREPLACE: u32 = 0x10_0000;
const O_CLOEXEC: u32 = 0o2_000_000;
const PR_SET_NAME: u32 = 15;
const READ_IMPLIES_EXEC: u32 = 0x40_0000;
const PROT_ALL: u32 = 7;
const PROT_GROWSDOWN: u32 = 0x0100_0000;

const AT_PHDR: u32 = 3;
const AT_PHNUM: u32 = 5;
const AT_BASE: u32 = 7;
const AT_ENTRY: u32 = 9;
const AT_IDS: [u32; 4] = [11, 12, 13, 14];
const AT_SECURE: u32 = 23;
const AT_EXECFN: u32 = 31;

/// A string of the block, by its purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Name {
    Program = 1,
    Interpreter,
    Executed,
    Thread,
}

/// The operations of the stub. [`Operations::image`] adds to them, [`Operations::write`] writes the
/// block.
#[derive(Debug, Clone)]
pub struct Operations {
    words: [[u32; 8]; OPERATIONS_MAX],
    count: usize,
}

impl Operations {
    /// No operations.
    pub const NONE: Self = Self { words: [[0; 8]; OPERATIONS_MAX], count: 0 };

    fn add(&mut self, words: [u32; 8]) -> Option<()> {
        *self.words.get_mut(self.count)? = words;
        self.count += 1;
        Some(())
    }

    fn call(&mut self, flags: u32, number: u32, arguments: [u32; 6]) -> Option<()> {
        let mut words = [KIND_CALL | flags, number, 0, 0, 0, 0, 0, 0];
        words[2..].copy_from_slice(&arguments);
        self.add(words)
    }

    fn vector(&mut self, flags: u32, kind: u32, value: u32) -> Option<()> {
        self.add([KIND_VECTOR | flags, kind, value, 0, 0, 0, 0, 0])
    }

    /// Adds the operations that map one image: the program (`interpreter` false), then its
    /// interpreter. `None` if it cannot be mapped, or has too many segments.
    ///
    /// `segments` are all of the file's program headers; they are iterated over twice.
    pub fn image(
        &mut self,
        header: &Header,
        segments: impl Iterator<Item = Segment> + Clone,
        interpreter: bool,
    ) -> Option<()> {
        let extent = elf::extent(header, segments.clone())?;
        if extent.high > 0xffff_e000 {
            return None;
        }
        if !interpreter {
            self.stack(segments.clone().find(|segment| segment.kind == elf::STACK))?;
        }
        let name = if interpreter { Name::Interpreter } else { Name::Program };
        self.call(SAVE | MUST, OPEN, [name as u32, O_CLOEXEC, 0, 0, 0, 0])?;
        let mut first = true;
        for segment in segments.filter(|segment| segment.kind == elf::LOAD) {
            let mapping = segment.mapping()?;
            let covers = first && mapping.start == extent.low && mapping.length != 0;
            if first {
                self.reserve(header, &extent, &mapping, covers)?;
            }
            self.map(&mapping, first && covers)?;
            first = false;
        }
        self.call(SAVED_FIRST, CLOSE, [0; 6])?;
        if interpreter {
            self.vector(BASED, AT_BASE, 0)
        } else {
            self.vector(BASED, AT_PHDR, extent.table as u32)?;
            self.vector(0, AT_PHNUM, u32::from(header.entries))?;
            self.vector(BASED, AT_ENTRY, header.entry as u32)?;
            self.vector(0, AT_BASE, 0)
        }
    }

    /// Adds the final jump, to `e_entry` of the image mapped last.
    pub fn entry(&mut self, header: &Header) -> Option<()> {
        self.add([KIND_END, header.entry as u32, 0, 0, 0, 0, 0, 0])
    }

    /// Adds what the kernel does for `PT_GNU_STACK` on i386: without it, all readable memory is
    /// executable.
    fn stack(&mut self, segment: Option<Segment>) -> Option<()> {
        if segment.is_none() {
            self.call(0, PERSONALITY, [READ_IMPLIES_EXEC, 0, 0, 0, 0, 0])?;
        }
        if segment.is_none_or(|segment| segment.flags & 1 != 0) {
            let next = BLOCK_AT as usize + FIRST + (self.count + 1) * SIZE;
            self.add([KIND_STACK, (next + 8) as u32, 0, 0, 0, 0, 0, 0])?;
            self.call(0, MPROTECT, [0, 4096, PROT_ALL | PROT_GROWSDOWN, 0, 0, 0])?;
        }
        Some(())
    }

    fn reserve(
        &mut self,
        header: &Header,
        extent: &Extent,
        first: &Mapping,
        covers: bool,
    ) -> Option<()> {
        let low = extent.low as u32;
        let length = (extent.high - extent.low) as u32;
        let fixed = if header.kind == elf::SHARED { 0 } else { MAP_FIXED_NOREPLACE };
        let flags = MUST | SET_BASE;
        if !covers {
            let mode = MAP_PRIVATE | MAP_ANONYMOUS | fixed;
            return self.call(flags, MMAP2, [low, length, 0, mode, u32::MAX, 0]);
        }
        let page = page_of(first)?;
        let arguments = [low, length, first.protection, MAP_PRIVATE | fixed, 0, page];
        self.call(flags | SAVED_FIFTH, MMAP2, arguments)?;
        let rest = length - first.length as u32;
        if rest == 0 {
            return Some(());
        }
        self.call(BASED, MUNMAP, [low + first.length as u32, rest, 0, 0, 0, 0])
    }

    fn map(&mut self, mapping: &Mapping, mapped: bool) -> Option<()> {
        let fixed = MAP_PRIVATE | MAP_FIXED;
        if mapping.length != 0 && !mapped {
            let (start, length) = (mapping.start as u32, mapping.length as u32);
            let arguments = [start, length, mapping.protection, fixed, 0, page_of(mapping)?];
            self.call(BASED | SAVED_FIFTH | MUST, MMAP2, arguments)?;
        }
        if let Some(zero) = mapping.zero
            && mapping.protection & 2 != 0
        {
            let length = elf::PAGE - zero % elf::PAGE;
            self.add([KIND_ZERO, zero as u32, length as u32, 0, 0, 0, 0, 0])?;
        }
        if mapping.bare_length != 0 {
            let (start, length) = (mapping.bare_start as u32, mapping.bare_length as u32);
            let arguments =
                [start, length, mapping.bare_protection, fixed | MAP_ANONYMOUS, u32::MAX, 0];
            self.call(BASED | MUST, MMAP2, arguments)?;
        }
        Some(())
    }

    /// Writes the block and returns its length, `None` if something is too long. The operations
    /// that follow from [`Boot`] come first.
    pub fn write(&self, boot: &Boot<'_>, into: &mut [u8]) -> Option<usize> {
        let mut all = Self::NONE;
        all.vector(0, AT_EXECFN, Name::Executed as u32)?;
        all.vector(0, AT_SECURE, u32::from(boot.secure))?;
        if let Some(ids) = boot.ids {
            for (kind, id) in AT_IDS.into_iter().zip([ids.uid, ids.euid, ids.gid, ids.egid]) {
                all.vector(0, kind, id)?;
            }
        }
        all.call(0, PRCTL, [PR_SET_NAME, Name::Thread as u32, 0, 0, 0, 0])?;
        let before = all.count;
        for words in &self.words[..self.count] {
            let mut words = *words;
            if words[0] == KIND_STACK {
                words[1] += (before * SIZE) as u32;
            }
            all.add(words)?;
        }
        let mut end = FIRST + all.count * SIZE;
        let texts = [boot.program, boot.interpreter.unwrap_or_default(), boot.name, &boot.comm];
        let mut places = [0_u32; 4];
        for (text, place) in texts.into_iter().zip(&mut places) {
            let room = into.get_mut(end..end + text.len() + 1)?;
            room[..text.len()].copy_from_slice(text);
            room[text.len()] = 0;
            *place = BLOCK_AT as u32 + end as u32;
            end += text.len() + 1;
        }
        let place = |name: u32| places.get((name as usize).wrapping_sub(1)).copied();
        for (index, words) in all.words[..all.count].iter().enumerate() {
            let mut words = *words;
            match (words[0] & 0xff, words[1]) {
                (KIND_CALL, OPEN) | (KIND_VECTOR, AT_EXECFN) => words[2] = place(words[2])?,
                (KIND_CALL, PRCTL) => words[3] = place(words[3])?,
                _ => {}
            }
            let at = FIRST + index * SIZE;
            for (word, slot) in words.iter().zip(into.get_mut(at..at + SIZE)?.chunks_exact_mut(4)) {
                slot.copy_from_slice(&word.to_le_bytes());
            }
        }
        into[..FIRST].fill(0);
        Some(end)
    }
}

/// Offset in pages. A file whose segments are not aligned to pages cannot be mapped.
fn page_of(mapping: &Mapping) -> Option<u32> {
    mapping.offset.is_multiple_of(elf::PAGE).then_some((mapping.offset / elf::PAGE) as u32)
}
