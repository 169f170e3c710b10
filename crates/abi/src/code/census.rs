//! Finds all `syscall` instructions of an ELF file with certainty, so that an engine without a
//! filter can change every one.
//!
//! The bytes `0f 05` may be an instruction, a part of one, or data. These criteria decide:
//!
//! 1. Sections: bytes that are in no executable section are data. (A file without sections: the
//!    segment.)
//! 2. Functions, from the unwinding tables (`.eh_frame`): a chain of instructions that begins at a
//!    function's start and contains no unknown ones is the true one.
//! 3. The start of a program, from its header: the code that is executed from there on, one
//!    instruction after the other.
//! 4. All ways of decoding the bytes before agree ([`super::boundary`]), either on an instruction
//!    here, or on one that begins before and reaches over. That proves what the bytes are if they
//!    are code. That they are code follows from a function around them, or from the code around a
//!    call: the number is set before it, or the result is tested behind it.
//!
//! If no criterion decides, the verdict is [`Verdict::Unknown`]: an engine that depends on the
//! census must not run the file.

use super::boundary::{before, is_proven};
use super::form::SYSCALL;
use super::length::{Decoded, Kind, LONGEST, decode};
use core::ops::Range;

/// What the bytes of a `syscall` are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The instruction.
    Call,
    /// Data, or part of another instruction.
    Other,
    /// Undecided.
    Unknown,
}

/// The contents of a whole file.
#[derive(Debug, Clone, Copy)]
pub struct Census<'a> {
    file: &'a [u8],
    /// Offset and number of program headers, and of sections.
    segments: (usize, usize),
    sections: (usize, usize),
    /// Offset in the file of the sorted table of functions (`.eh_frame_hdr`), and range of the
    /// unwinding data that it describes.
    table: Option<usize>,
    frames: Option<(usize, usize)>,
    /// Offset in the file of the program's start.
    entry: Option<usize>,
}

const LOAD: u32 = 1;
const INTERPRETER: u32 = 3;
/// `ET_EXEC`.
const PROGRAM: u16 = 2;
const EH_FRAME: u32 = 0x6474_e550;
/// `SHF_EXECINSTR`, `SHT_NOBITS`, `SHT_X86_64_UNWIND`.
const EXECUTABLE: u64 = 4;
const NO_BITS: u32 = 8;
const UNWIND: u32 = 0x7000_0001;

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    word(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    word(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    word(bytes, at).map(u64::from_le_bytes)
}

fn offset_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64_at(bytes, at)?).ok()
}

impl<'a> Census<'a> {
    /// Reads the headers of a 64-bit file; `None` for any other file.
    pub fn new(file: &'a [u8]) -> Option<Self> {
        if file.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let segments = (offset_at(file, 32)?, usize::from(u16_at(file, 56)?));
        let (start, count) = (offset_at(file, 40)?, usize::from(u16_at(file, 60)?));
        let whole = start != 0 && count != 0 && file.len() >= start.checked_add(count * 64)?;
        let sections = if whole { (start, count) } else { (0, 0) };
        let mut census = Self { file, segments, sections, table: None, frames: None, entry: None };
        let header =
            census.segments().find(|segment| segment.kind == EH_FRAME).map(|found| found.offset);
        // Version 1; the count is a word of four bytes; entries are pairs of distances from the
        // table, of four bytes each.
        census.table = header.filter(|at| {
            file.get(*at..*at + 4).is_some_and(|head| head[0] == 1 && head[2..] == [3, 0x3b])
        });
        census.frames = census.unwinding();
        // The entry of a library may be anything.
        let starts = u16_at(file, 16) == Some(PROGRAM)
            || census.segments().any(|segment| segment.kind == INTERPRETER);
        census.entry =
            u64_at(file, 24).filter(|_| starts).and_then(|entry| census.offset_of(entry));
        Some(census)
    }

    fn segments(&self) -> impl Iterator<Item = Segment> + 'a {
        let (file, (start, count)) = (self.file, self.segments);
        (0..count).map_while(move |index| {
            let at = start.checked_add(index * 56)?;
            Some(Segment {
                kind: u32_at(file, at)?,
                offset: offset_at(file, at + 8)?,
                address: u64_at(file, at + 16)?,
                length: offset_at(file, at + 32)?,
            })
        })
    }

    /// Type, flags, and range in the file.
    fn sections(&self) -> impl Iterator<Item = (u32, u64, Range<usize>)> + 'a {
        let (file, (start, count)) = (self.file, self.sections);
        (0..count).map_while(move |index| {
            let at = start + index * 64;
            let (kind, flags) = (u32_at(file, at + 4)?, u64_at(file, at + 8)?);
            let from = offset_at(file, at + 24)?;
            Some((kind, flags, from..from.checked_add(offset_at(file, at + 32)?)?))
        })
    }

    /// Finds `.eh_frame`, by its beginning: a CIE with an augmentation that starts with `z`.
    fn unwinding(&self) -> Option<(usize, usize)> {
        if let Some(table) = self.table {
            // Its address, as a distance of four bytes from that word itself.
            let distance = u32_at(self.file, table + 4)?.cast_signed();
            if self.file.get(table + 1) == Some(&0x1b) {
                let at = self
                    .offset_of(self.address_of(table + 4)?.wrapping_add_signed(distance.into()))?;
                return Some((at, self.file.len()));
            }
        }
        let looks_so = |range: &Range<usize>| {
            u32_at(self.file, range.start + 4) == Some(0)
                && self.file.get(range.start + 8..range.start + 10) == Some(&[1, b'z'])
        };
        let found = self.sections().find(|(kind, flags, range)| {
            matches!(*kind, 1 | UNWIND) && *flags == 2 && looks_so(range)
        })?;
        Some((found.2.start, found.2.end.min(self.file.len())))
    }

    fn address_of(&self, offset: usize) -> Option<u64> {
        let inside = |one: &Segment| {
            one.kind == LOAD
                && (one.offset..one.offset.saturating_add(one.length)).contains(&offset)
        };
        self.segments().find(inside).map(|one| one.address + (offset - one.offset) as u64)
    }

    fn offset_of(&self, address: u64) -> Option<usize> {
        let far = |one: &Segment| usize::try_from(address.wrapping_sub(one.address)).ok();
        let inside =
            |one: &Segment| one.kind == LOAD && far(one).is_some_and(|far| far < one.length);
        let found = self.segments().find(inside)?;
        Some(found.offset + far(&found)?)
    }

    /// The code around an offset: the executable section that contains it; `None` if it is data.
    pub fn code(&self, at: usize) -> Option<Range<usize>> {
        if self.sections.1 == 0 {
            let inside = |one: &Segment| {
                one.kind == LOAD && (one.offset..one.offset + one.length).contains(&at)
            };
            let found = self.segments().find(inside)?;
            return Some(found.offset..(found.offset + found.length).min(self.file.len()));
        }
        let (_, _, range) = self.sections().find(|(kind, flags, range)| {
            *kind != NO_BITS && flags & EXECUTABLE != 0 && range.contains(&at)
        })?;
        (range.end <= self.file.len()).then_some(range)
    }

    /// The function that contains an offset, according to the unwinding tables.
    fn function(&self, at: usize) -> Option<Range<usize>> {
        let address = self.address_of(at)?;
        if let Some(table) = self.table {
            let base = self.address_of(table)?;
            let count = u32_at(self.file, table + 8)? as usize;
            let entry = |index: usize, second: usize| {
                let distance = u32_at(self.file, table + 12 + 8 * index + second)?.cast_signed();
                Some(base.wrapping_add_signed(distance.into()))
            };
            let (mut low, mut high) = (0, count);
            while low < high {
                let middle = usize::midpoint(low, high);
                if entry(middle, 0)? <= address { low = middle + 1 } else { high = middle }
            }
            let frame = self.frame(self.offset_of(entry(low.checked_sub(1)?, 4)?)?)?;
            return self.part(&frame.0, address);
        }
        let (mut next, end) = self.frames?;
        while next < end {
            let length = u32_at(self.file, next)? as usize;
            if length == 0 || length == 0xffff_ffff {
                break;
            }
            if u32_at(self.file, next + 4)? != 0
                && let Some((range, _)) = self.frame(next)
                && range.contains(&address)
            {
                return self.part(&range, address);
            }
            next = next.checked_add(4 + length)?;
        }
        None
    }

    /// The range in the file of a range of addresses, if that contains `address`.
    fn part(&self, addresses: &Range<u64>, address: u64) -> Option<Range<usize>> {
        let start = addresses.contains(&address).then(|| self.offset_of(addresses.start))??;
        let length = usize::try_from(addresses.end - addresses.start).ok()?;
        Some(start..start.checked_add(length)?)
    }

    /// The addresses that an FDE describes.
    fn frame(&self, at: usize) -> Option<(Range<u64>, usize)> {
        let length = u32_at(self.file, at)? as usize;
        let common = (at + 4).checked_sub(u32_at(self.file, at + 4)? as usize)?;
        let encoding = self.encoding(common)?;
        let field = at + 8;
        let (start, size, width) = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => (u64_at(self.file, field)?, u64_at(self.file, field + 8)?, 8),
            0x03 => (u32_at(self.file, field)?.into(), u32_at(self.file, field + 4)?.into(), 4),
            0x0b => {
                let start = i64::from(u32_at(self.file, field)?.cast_signed());
                (start.cast_unsigned(), u32_at(self.file, field + 4)?.into(), 4)
            }
            _ => return None,
        };
        let start = match encoding & 0xf0 {
            0 => start,
            0x10 => self.address_of(field)?.wrapping_add(start),
            _ => return None,
        };
        (length > 4 + 2 * width).then(|| (start..start.wrapping_add(size), field))
    }

    /// The encoding of addresses according to a CIE.
    fn encoding(&self, at: usize) -> Option<u8> {
        let augmentation = self.file.get(at + 9..)?;
        let end = augmentation.iter().take(16).position(|byte| *byte == 0)?;
        let letters = &augmentation[..end];
        let Some((b'z', letters)) = letters.split_first() else { return Some(0) };
        let mut next = at + 9 + end + 1;
        // Both alignments, the register (of one byte in version 1), the length of what follows: all
        // of them are numbers with seven bits in each byte.
        for _ in 0..4 {
            while self.file.get(next)? & 0x80 != 0 {
                next += 1;
            }
            next += 1;
        }
        for letter in letters {
            match letter {
                b'R' => return self.file.get(next).copied(),
                b'L' => next += 1,
                b'P' => {
                    next += 1 + match self.file.get(next)? & 0x0f {
                        0x02 | 0x0a => 2,
                        0x03 | 0x0b => 4,
                        _ => 8,
                    };
                }
                b'S' | b'B' => {}
                _ => return None,
            }
        }
        Some(0)
    }

    /// Decides what the bytes `0f 05` at an offset of the file are.
    pub fn verdict(&self, at: usize) -> Verdict {
        let Some(range) = self.code(at) else { return Verdict::Other };
        let function = self.function(at);
        let function = function.filter(|one| range.contains(&one.start) && one.end <= range.end);
        if let Some(one) = &function
            && let Some(verdict) = by_chain(&self.file[one.clone()], at - one.start)
        {
            return verdict;
        }
        if let Some(verdict) = self
            .entry
            .and_then(|entry| from_entry(self.file.get(entry..range.end)?, at.checked_sub(entry)?))
        {
            return verdict;
        }
        let (code, at) = (&self.file[range.clone()], at - range.start);
        match by_anchors(code, at, function.is_some())
            .unwrap_or_else(|| by_agreement(code, at, function.is_some()))
        {
            // Hand-written constants between the functions, in a file that lists its functions.
            Verdict::Unknown
                if function.is_none() && self.frames.is_some() && !is_near_a_call(code, at) =>
            {
                Verdict::Other
            }
            Verdict::Unknown if is_senseless(&code[at + SYSCALL.len()..]) => Verdict::Other,
            verdict => verdict,
        }
    }
}

/// One program header.
#[derive(Debug, Clone, Copy)]
struct Segment {
    kind: u32,
    offset: usize,
    address: u64,
    length: usize,
}

/// Follows the instructions from the beginning of a function. Some compilers (GHC) put tables into
/// functions, behind jumps: so an instruction that nothing leads to must also look like a call.
fn by_chain(function: &[u8], at: usize) -> Option<Verdict> {
    let (mut next, mut start) = (0, 0);
    while next < at {
        let Decoded::Instruction(found) = decode(&function[next..]) else { return None };
        next += found.length;
        if found.kind == Kind::End {
            start = next;
        }
    }
    if next != at {
        return Some(Verdict::Other);
    }
    let is_reached =
        start == 0 || jumps_to(function, start..at + 1) || sets_a_number(function, start..at);
    Some(match (is_reached, is_near_a_call(function, at)) {
        (true, _) => Verdict::Call,
        (false, true) => Verdict::Unknown,
        (false, false) => Verdict::Other,
    })
}

/// `exit` and `exit_group`.
const EXITS: [u8; 2] = [60, 231];

/// Follows the instructions from the program's start, until control may not come back: a jump, a
/// call of a function, or the end of the program, behind which there may be data. So one of the
/// instructions before a call has to set its number.
fn from_entry(code: &[u8], at: usize) -> Option<Verdict> {
    let (mut next, mut set, mut exits) = (0, false, false);
    while next < at {
        let Decoded::Instruction(found) = decode(&code[next..]) else { return None };
        let one = &code[next..next + found.length];
        if found.kind == Kind::End || is_call(one) || found.kind == Kind::Syscall && (exits || !set)
        {
            return None;
        }
        if found.kind == Kind::Syscall {
            set = false;
        } else if sets_number(one) {
            set = true;
            exits = matches!(one, [0xb8, number, 0, 0, 0] if EXITS.contains(number));
        }
        next += found.length;
    }
    if next > at { Some(Verdict::Other) } else { set.then_some(Verdict::Call) }
}

/// Returns true if a jump of a function leads to one of these offsets.
fn jumps_to(function: &[u8], places: Range<usize>) -> bool {
    let mut next = 0;
    while let Some(rest) = function.get(next..).filter(|rest| !rest.is_empty()) {
        let Decoded::Instruction(found) = decode(rest) else { return false };
        let (one, end) = (&rest[..found.length], next + found.length);
        let distance = match one {
            [0x70..=0x7f | 0xe0..=0xe3 | 0xeb, near] => Some(i64::from(near.cast_signed())),
            [0xe9, far @ ..] | [0x0f, 0x80..=0x8f, far @ ..] => {
                far.try_into().ok().map(|far| i64::from(i32::from_le_bytes(far)))
            }
            _ => None,
        };
        let target = distance.and_then(|far| end.checked_add_signed(far as isize));
        if target.is_some_and(|target| places.contains(&target)) {
            return true;
        }
        next = end;
    }
    false
}

/// Returns true if an instruction of a chain sets a number.
fn sets_a_number(code: &[u8], places: Range<usize>) -> bool {
    let mut next = places.start;
    while next < places.end {
        let Decoded::Instruction(found) = decode(&code[next..]) else { return false };
        if sets_number(&code[next..next + found.length]) {
            return true;
        }
        next += found.length;
    }
    false
}

/// Distance before an offset in which starts of functions are searched.
const FAR: usize = 16 * 1024;
/// Number of them that have to agree.
const ANCHORS: usize = 4;

/// Follows the instructions from apparent starts of functions: behind padding, at a multiple of 16.
/// All results have to agree.
fn by_anchors(code: &[u8], at: usize, is_code: bool) -> Option<Verdict> {
    let (mut verdict, mut count) = (None, 0);
    for start in (at.saturating_sub(FAR)..=at).rev().filter(|start| is_anchor(code, *start)) {
        let Some((is_call, sets)) = chain(code, start, at) else { continue };
        if verdict.is_some_and(|(other, _)| other != is_call) {
            return None;
        }
        verdict = Some((is_call, sets || verdict.is_some_and(|(_, sets)| sets)));
        count += 1;
        if count == ANCHORS {
            break;
        }
    }
    match verdict? {
        (false, _) => Some(Verdict::Other),
        (true, sets) if sets || is_code || looks_like_a_call(code, at) => Some(Verdict::Call),
        (true, _) => None,
    }
}

/// Returns true if the bytes before are padding, or the end of a function.
fn is_anchor(code: &[u8], at: usize) -> bool {
    const NOPS: [&[u8]; 7] = [
        &[0xcc],
        &[0x90],
        &[0xc3],
        &[0x0f, 0x1f, 0],
        &[0x0f, 0x1f, 0x40, 0],
        &[0x1f, 0x44, 0, 0],
        &[0, 0, 0, 0, 0],
    ];
    at.is_multiple_of(16) && (at == 0 || NOPS.iter().any(|nop| code[..at].ends_with(nop)))
}

/// Follows the chain from one offset to another: returns if it arrives there, and if one of the
/// last instructions before sets a number. `None` if it cannot be followed.
fn chain(code: &[u8], start: usize, at: usize) -> Option<(bool, bool)> {
    let (mut next, mut index, mut set, mut table) = (start, 0_usize, None, false);
    while next < at {
        let Decoded::Instruction(found) = decode(&code[next..]) else { return None };
        let one = &code[next..next + found.length];
        if sets_number(one) {
            set = Some(index);
        } else if found.kind == Kind::End || is_call(one) {
            set = None;
            table = false;
        }
        next += found.length;
        index += 1;
        table |= is_table(one, next);
    }
    Some((next == at, !table && set.is_some_and(|set| index - set <= NEAR)))
}

/// Returns true if some bytes around look like the code around a call.
fn is_near_a_call(code: &[u8], at: usize) -> bool {
    let before = (at.saturating_sub(32)..at).any(|start| {
        (2..=7).any(|length| {
            code.get(start..start + length)
                .is_some_and(|one| start + length <= at && sets_number(one))
        })
    });
    let behind = at + SYSCALL.len();
    before
        || (behind..behind + 12).any(|start| {
            (3..=6).any(|length| code.get(start..start + length).is_some_and(looks_at_result))
        })
}

/// Returns true if no program has these bytes right behind a call: sums with registers that the
/// call has just overwritten or that hold its result, whose sign has not been tested, or bytes that
/// no processor executes. Addresses, distances and tables that contain the bytes of a call end like
/// that (GHC has such among its code).
fn is_senseless(behind: &[u8]) -> bool {
    matches!(behind, [0..=3 | 0x10..=0x13, ..]) || decode(behind) == Decoded::Invalid
}

/// Decides what the bytes `0f 05` at an offset of memory that is about to be executed are, if
/// nothing else is known of it.
pub fn of_memory(code: &[u8], at: usize) -> Verdict {
    by_anchors(code, at, false).unwrap_or_else(|| by_agreement(code, at, false))
}

/// Decides by what all ways of decoding the bytes before agree on. `is_code`: the bytes are known
/// to be code. Without that, a call has to look like one.
fn by_agreement(code: &[u8], at: usize, is_code: bool) -> Verdict {
    if is_proven(code, at) {
        return if is_code || looks_like_a_call(code, at) {
            Verdict::Call
        } else {
            Verdict::Unknown
        };
    }
    let covers = |start: &usize| {
        let reaches = matches!(decode(&code[*start..]), Decoded::Instruction(found) if *start + found.length > at);
        reaches && is_proven(code, *start)
    };
    if (at.saturating_sub(LONGEST)..at).any(|start| covers(&start)) {
        Verdict::Other
    } else {
        Verdict::Unknown
    }
}

/// Greatest distance of the code that belongs to a call, in instructions.
const NEAR: usize = 24;

/// Returns true if the number is set before an offset, or the result is tested behind it.
fn looks_like_a_call(code: &[u8], at: usize) -> bool {
    match sets_before(code, at) {
        Some(true) => return true,
        Some(false) => {}
        None => return false,
    }
    let mut place = at + SYSCALL.len();
    // `mov %rax, ...`: the result is passed on.
    if matches!(code.get(place..), Some([0x48 | 0x49, 0x89, 0xc0..=0xc7, ..])) {
        return true;
    }
    for _ in 0..NEAR {
        let Some(rest) = code.get(place..) else { return false };
        match decode(rest) {
            Decoded::Instruction(found) => {
                let one = &rest[..found.length];
                if looks_at_result(one) || found.kind == Kind::End && rest[0] == 0xc3 {
                    return true;
                }
                if found.kind == Kind::End || is_call(one) || sets_number(one) {
                    return false;
                }
                place += found.length;
            }
            Decoded::Invalid | Decoded::Unknown => return false,
        }
    }
    false
}

/// Returns true if the number is set before an offset; `None` if there is a table of data.
fn sets_before(code: &[u8], at: usize) -> Option<bool> {
    let (mut place, mut sets) = (at, false);
    for _ in 0..NEAR {
        let Some(start) = before(code, place) else { break };
        let one = &code[start..place];
        if is_table(one, place) {
            return None;
        }
        let ends = matches!(decode(one), Decoded::Instruction(found) if found.kind == Kind::End);
        if ends || is_call(one) {
            break;
        }
        sets |= sets_number(one);
        place = start;
    }
    Some(sets)
}

/// Returns true for `add %al, (%rax)`, which is zeros: data, but zeros up to an aligned start of
/// code may be padding.
fn is_table(instruction: &[u8], end: usize) -> bool {
    instruction == [0, 0] && !end.is_multiple_of(16)
}

/// Returns true for `call`, which overwrites `rax`.
fn is_call(instruction: &[u8]) -> bool {
    matches!(instruction, [0xe8, ..] | [0xff, 0x10..=0x17 | 0x50..=0x57 | 0x90..=0x97 | 0xd0..=0xd7, ..])
}

/// Returns true for `mov` of a possible system call number, or of a register, to `eax` or `rax`;
/// `xor eax, eax`; `pop rax`.
fn sets_number(instruction: &[u8]) -> bool {
    let small = |value: &[u8]| matches!(value, [_, 0..=2, 0, 0]);
    match instruction {
        [0xb8, value @ ..] | [0x48, 0xc7, 0xc0, value @ ..] => small(value),
        [0x31 | 0x33, 0xc0] | [0x58] => true,
        [0x89, modrm] | [0x48 | 0x4c | 0x44, 0x89, modrm] => {
            matches!(modrm, 0xc0 | 0xc8 | 0xd0 | 0xd8 | 0xe0 | 0xe8 | 0xf0 | 0xf8)
        }
        [0x8b, modrm, ..] | [0x48 | 0x49, 0x8b, modrm, ..] | [0x48, 0x63, modrm, ..] => {
            matches!(modrm, 0..=7 | 0x40..=0x47 | 0x80..=0x87 | 0xc0..=0xc7)
        }
        _ => false,
    }
}

/// Returns true for comparisons of `rax` with the smallest error, or with zero.
fn looks_at_result(instruction: &[u8]) -> bool {
    matches!(
        instruction,
        [0x48, 0x3d, _, 0xf0, 0xff, 0xff]
            | [0x3d, _, 0xf0, 0xff, 0xff]
            | [0x48, 0x85, 0xc0]
            | [0x85, 0xc0]
            | [0x48, 0x83, 0xf8, _]
            | [0x83, 0xf8, _]
    )
}
