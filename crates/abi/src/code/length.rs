//! Decodes length and kind of instructions in 64-bit mode (Intel SDM volume 2, appendix A; AMD APM
//! volume 3, appendix A).
//!
//! There are three results: an instruction; certainly not an instruction ([`Decoded::Invalid`]:
//! every processor refuses these bytes); or undecided ([`Decoded::Unknown`]: the bytes are cut off,
//! or belong to an extension with its own encodings). A proof must give up at the last. The
//! property test compares the results with `iced-x86`.

/// The property of an instruction that decides if it can be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It has the same effect at any address.
    Plain,
    /// It addresses memory relative to itself.
    Relative,
    /// Control may go elsewhere, and may continue behind it.
    Branch,
    /// Control never continues behind it.
    End,
    /// `syscall`.
    Syscall,
    /// It has no effect.
    Nop,
    /// `int3`.
    Trap,
}

/// A decoded instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Length in bytes, 1 to 15.
    pub length: usize,
    /// Its kind.
    pub kind: Kind,
}

/// Result of decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// The bytes begin with this instruction.
    Instruction(Instruction),
    /// No processor executes the bytes.
    Invalid,
    /// Undecided.
    Unknown,
}

/// Length of the longest instruction.
pub const LONGEST: usize = 15;

// The bytes that follow an opcode, as bits.
const MODRM: u8 = 1;
/// One byte.
const BYTE: u8 = 2;
/// Two or four bytes, depending on the operand size.
const WORD: u8 = 4;
/// Two bytes.
const TWO: u8 = 8;
/// An address of full size.
const FAR: u8 = 16;
/// A distance of four bytes.
const NEAR: u8 = 32;
const INVALID: u8 = 64;
const UNKNOWN: u8 = 128;

const fn set(table: &mut [u8; 256], from: usize, to: usize, what: u8) {
    let mut index = from;
    while index <= to {
        table[index] = what;
        index += 1;
    }
}

/// Opcodes of one byte; prefixes and escapes are handled before.
static ONE: [u8; 256] = {
    let mut table = [0; 256];
    let mut row = 0;
    while row < 0x40 {
        set(&mut table, row, row + 3, MODRM);
        table[row + 4] = BYTE;
        table[row + 5] = WORD;
        set(&mut table, row + 6, row + 7, INVALID);
        row += 8;
    }
    set(&mut table, 0x60, 0x62, INVALID);
    table[0x63] = MODRM;
    table[0x68] = WORD;
    table[0x69] = MODRM | WORD;
    table[0x6a] = BYTE;
    table[0x6b] = MODRM | BYTE;
    set(&mut table, 0x70, 0x7f, BYTE);
    table[0x80] = MODRM | BYTE;
    table[0x81] = MODRM | WORD;
    table[0x82] = INVALID;
    table[0x83] = MODRM | BYTE;
    set(&mut table, 0x84, 0x8f, MODRM);
    table[0x9a] = INVALID;
    set(&mut table, 0xa0, 0xa3, FAR);
    table[0xa8] = BYTE;
    table[0xa9] = WORD;
    set(&mut table, 0xb0, 0xb7, BYTE);
    set(&mut table, 0xb8, 0xbf, WORD);
    set(&mut table, 0xc0, 0xc1, MODRM | BYTE);
    table[0xc2] = TWO;
    table[0xc6] = MODRM | BYTE;
    table[0xc7] = MODRM | WORD;
    table[0xc8] = TWO | BYTE;
    table[0xca] = TWO;
    table[0xcd] = BYTE;
    table[0xce] = INVALID;
    set(&mut table, 0xd0, 0xd3, MODRM);
    table[0xd4] = INVALID;
    // A second kind of REX prefix, on future processors.
    table[0xd5] = UNKNOWN;
    table[0xd6] = INVALID;
    set(&mut table, 0xd8, 0xdf, MODRM);
    set(&mut table, 0xe0, 0xe7, BYTE);
    set(&mut table, 0xe8, 0xe9, NEAR);
    table[0xea] = INVALID;
    table[0xeb] = BYTE;
    set(&mut table, 0xf6, 0xf7, MODRM);
    set(&mut table, 0xfe, 0xff, MODRM);
    table
};

/// Opcodes of two bytes, behind `0f`.
static TWO_BYTES: [u8; 256] = {
    let mut table = [MODRM; 256];
    table[0x04] = INVALID;
    set(&mut table, 0x05, 0x09, 0);
    table[0x0a] = INVALID;
    table[0x0b] = 0;
    table[0x0c] = INVALID;
    table[0x0e] = 0;
    table[0x0f] = MODRM | BYTE;
    set(&mut table, 0x24, 0x27, UNKNOWN);
    set(&mut table, 0x30, 0x35, 0);
    table[0x36] = INVALID;
    table[0x37] = 0;
    table[0x39] = INVALID;
    set(&mut table, 0x3b, 0x3f, INVALID);
    set(&mut table, 0x70, 0x73, MODRM | BYTE);
    table[0x77] = 0;
    set(&mut table, 0x7a, 0x7b, UNKNOWN);
    set(&mut table, 0x80, 0x8f, NEAR);
    set(&mut table, 0xa0, 0xa2, 0);
    table[0xa4] = MODRM | BYTE;
    set(&mut table, 0xa6, 0xa7, UNKNOWN);
    set(&mut table, 0xa8, 0xaa, 0);
    table[0xac] = MODRM | BYTE;
    table[0xba] = MODRM | BYTE;
    table[0xc2] = MODRM | BYTE;
    set(&mut table, 0xc4, 0xc6, MODRM | BYTE);
    set(&mut table, 0xc8, 0xcf, 0);
    // An instruction that is always refused; processors differ in the bytes that belong to it.
    table[0xff] = UNKNOWN;
    table
};

/// The prefixes before the opcode.
#[derive(Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a prefix, and they come in any combination"
)]
struct Prefixes {
    /// `66`: operands of 16 bits.
    short: bool,
    /// `67`: addresses of 32 bits.
    narrow: bool,
    /// `f2`, `f3`.
    repeat: bool,
    lock: bool,
    /// The REX byte itself, if it is right before the opcode.
    rex: u8,
}

impl Prefixes {
    fn is_wide(self) -> bool {
        self.rex & 8 != 0
    }
}

/// Decodes the beginning of `bytes`.
pub fn decode(bytes: &[u8]) -> Decoded {
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    let mut prefixes = Prefixes::default();
    let mut at = 0;
    let opcode = loop {
        let Some(byte) = bytes.get(at) else { return cut(bytes) };
        at += 1;
        match byte {
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 => {}
            0x66 => prefixes.short = true,
            0x67 => prefixes.narrow = true,
            0xf0 => prefixes.lock = true,
            0xf2 | 0xf3 => prefixes.repeat = true,
            0x40..=0x4f => {
                prefixes.rex = *byte;
                continue;
            }
            other => break *other,
        }
        // A REX byte before other prefixes has no effect.
        prefixes.rex = 0;
    };
    let decoded = match opcode {
        0x0f => escaped(bytes, at, prefixes),
        0x62 => evex(bytes, at, prefixes),
        0xc4 | 0xc5 => vex(bytes, at, prefixes),
        opcode => one(bytes, at, opcode, prefixes),
    };
    match decoded {
        Some(decoded) => decoded,
        None => cut(bytes),
    }
}

/// An instruction cannot be longer than [`LONGEST`]; shorter bytes are undecided.
fn cut(bytes: &[u8]) -> Decoded {
    if bytes.len() == LONGEST { Decoded::Invalid } else { Decoded::Unknown }
}

/// Length of `ModRM` with the bytes that belong to it, and true if it addresses memory relative to
/// the instruction. `None` if it is cut off.
fn modrm(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let byte = *bytes.get(at)?;
    let (mode, memory) = (byte >> 6, byte & 7);
    if mode == 3 {
        return Some((1, false));
    }
    let (mut length, mut base) = (1, memory);
    if memory == 4 {
        base = *bytes.get(at + 1)? & 7;
        length = 2;
    }
    Some(match mode {
        0 if base == 5 => (length + 4, memory == 5),
        0 => (length, false),
        1 => (length + 1, false),
        _ => (length + 4, false),
    })
}

/// The instruction in which an opcode that ends at `at` is followed by `what`.
fn finish(bytes: &[u8], at: usize, what: u8, prefixes: Prefixes, kind: Kind) -> Option<Decoded> {
    if what & INVALID != 0 {
        return Some(Decoded::Invalid);
    }
    // Processors of Intel and AMD differ on a short distance being two or four bytes.
    // `66 66 48 e8`, the form of calls of `__tls_get_addr` that compilers emit, has a wide one.
    if what & UNKNOWN != 0 || what & NEAR != 0 && prefixes.short && !prefixes.is_wide() {
        return Some(Decoded::Unknown);
    }
    let (mut length, mut kind) = (at, kind);
    if what & MODRM != 0 {
        let (more, relative) = modrm(bytes, at)?;
        length += more;
        if relative && kind == Kind::Plain {
            kind = Kind::Relative;
        }
    }
    let word = if prefixes.short && !prefixes.is_wide() { 2 } else { 4 };
    let address = if prefixes.narrow { 4 } else { 8 };
    for (bit, size) in [(BYTE, 1), (WORD, word), (TWO, 2), (FAR, address), (NEAR, 4)] {
        if what & bit != 0 {
            length += size;
        }
    }
    if length > bytes.len() {
        return None;
    }
    Some(Decoded::Instruction(Instruction { length, kind }))
}

fn one(bytes: &[u8], at: usize, opcode: u8, prefixes: Prefixes) -> Option<Decoded> {
    let mut what = ONE[usize::from(opcode)];
    let next = bytes.get(at).copied();
    let register = next.map(|byte| byte >> 3 & 7);
    let mut kind = match opcode {
        0x70..=0x7f | 0xcd | 0xe0..=0xe3 | 0xe8 | 0xf1 => Kind::Branch,
        0xc2 | 0xc3 | 0xca | 0xcb | 0xcf | 0xe9 | 0xeb | 0xf4 => Kind::End,
        0xcc => Kind::Trap,
        0x90 if !prefixes.repeat && !prefixes.lock && prefixes.rex == 0 => Kind::Nop,
        _ => Kind::Plain,
    };
    match opcode {
        // AMD's XOP, which uses the opcode of POP with another register.
        0x8f if next? & 0x1f >= 8 => return Some(Decoded::Unknown),
        0xb8..=0xbf if prefixes.is_wide() => {
            return finish(bytes, at + 8, 0, prefixes, Kind::Plain);
        }
        // XBEGIN has a distance, and XABORT continues elsewhere.
        0xc6 if next? == 0xf8 => kind = Kind::Branch,
        0xc7 if next? == 0xf8 => {
            kind = Kind::Branch;
            what = MODRM | NEAR;
        }
        0xf6 if register? < 2 => what |= BYTE,
        0xf7 if register? < 2 => what |= WORD,
        0xff => match register? {
            2 | 3 => kind = Kind::Branch,
            4 | 5 => kind = Kind::End,
            _ => {}
        },
        _ => {}
    }
    finish(bytes, at, what, prefixes, kind)
}

fn escaped(bytes: &[u8], at: usize, prefixes: Prefixes) -> Option<Decoded> {
    let opcode = *bytes.get(at)?;
    let at = at + 1;
    let mut what = TWO_BYTES[usize::from(opcode)];
    let kind = match opcode {
        0x38 | 0x3a => {
            bytes.get(at)?;
            let what = if opcode == 0x3a { MODRM | BYTE } else { MODRM };
            return finish(bytes, at + 1, what, prefixes, Kind::Plain);
        }
        // Includes calls of a hypervisor.
        0x01 if *bytes.get(at)? >= 0xc0 => Kind::Branch,
        0x05 => Kind::Syscall,
        0x07 | 0x0b | 0x35 | 0xaa | 0xb9 => Kind::End,
        0x34 | 0x80..=0x8f => Kind::Branch,
        0x1f if !prefixes.repeat && !prefixes.lock && bytes.get(at)? & 0x38 == 0 => Kind::Nop,
        // All values are read as two registers.
        0x20..=0x23 => return finish(bytes, at + 1, 0, prefixes, Kind::Plain),
        // EXTRQ and INSERTQ have two bytes more than VMREAD.
        0x78 if prefixes.short || prefixes.repeat => return Some(Decoded::Unknown),
        _ => Kind::Plain,
    };
    // A `syscall` with prefixes is one, but longer than two bytes.
    if kind == Kind::Syscall && at != 2 {
        what = UNKNOWN;
    }
    finish(bytes, at, what, prefixes, kind)
}

/// The bytes that follow an opcode of VEX or EVEX.
fn vector(map: u8, opcode: u8) -> u8 {
    match (map, opcode) {
        (1, 0x77) => 0,
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => MODRM | BYTE,
        _ => MODRM,
    }
}

fn vex(bytes: &[u8], at: usize, prefixes: Prefixes) -> Option<Decoded> {
    if prefixes.short || prefixes.repeat || prefixes.lock || prefixes.rex != 0 {
        return Some(Decoded::Invalid);
    }
    let first = *bytes.get(at)?;
    let (map, at) = if bytes[at - 1] == 0xc5 { (1, at + 1) } else { (first & 0x1f, at + 2) };
    if !(1..=3).contains(&map) {
        return Some(Decoded::Unknown);
    }
    let opcode = *bytes.get(at)?;
    finish(bytes, at + 1, vector(map, opcode), prefixes, Kind::Plain)
}

fn evex(bytes: &[u8], at: usize, prefixes: Prefixes) -> Option<Decoded> {
    if prefixes.short || prefixes.repeat || prefixes.lock || prefixes.rex != 0 {
        return Some(Decoded::Invalid);
    }
    let (first, second) = (*bytes.get(at)?, *bytes.get(at + 1)?);
    // Other maps and bits belong to extensions that promote old instructions.
    if first & 8 != 0 || second & 4 == 0 || !matches!(first & 7, 1 | 2 | 3 | 5 | 6) {
        return Some(Decoded::Unknown);
    }
    let opcode = *bytes.get(at + 3)?;
    let what = if first & 7 == 1 && opcode == 0x77 { UNKNOWN } else { vector(first & 7, opcode) };
    finish(bytes, at + 4, what, prefixes, Kind::Plain)
}
