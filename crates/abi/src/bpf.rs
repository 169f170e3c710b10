//! An assembler with labels for classic BPF as seccomp uses it, and an interpreter.
//!
//! A filter sees one `struct seccomp_data`: number, architecture, instruction pointer, six
//! arguments of 64 bits each. It can only load 32-bit words of it, compare, jump forward and return
//! an action. Conditional jumps reach at most 255 instructions. So comparisons here are written as
//! "not equal: skip this return", and longer distances use the unconditional jump.
//!
//! See [seccomp(2)](https://man7.org/linux/man-pages/man2/seccomp.2.html),
//! `include/uapi/linux/filter.h`.

extern crate alloc;
use alloc::vec::Vec;

/// One instruction: `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Number of instructions to skip if true.
    pub jt: u8,
    /// Number of instructions to skip if false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// Loads a word of the data.
const LOAD: u16 = 0x20;
/// Jumps if equal.
const JEQ: u16 = 0x15;
/// Jumps if greater.
const JGT: u16 = 0x25;
/// Jumps if greater or equal.
const JGE: u16 = 0x35;
/// Jumps if any bit of the operand is set.
const JSET: u16 = 0x45;
/// Jumps always.
const JA: u16 = 0x05;
/// Bitwise and with the operand.
const AND: u16 = 0x54;
/// Returns.
const RET: u16 = 0x06;

/// Length of the longest program that the kernel takes.
pub const LIMIT: usize = 4096;

/// Allow the call.
pub const ALLOW: u32 = 0x7fff_0000;
/// Ask the listener.
pub const USER_NOTIF: u32 = 0x7fc0_0000;
/// Fail with the errno in the low 16 bits.
pub const ERRNO: u32 = 0x0005_0000;
/// Raise SIGSYS.
pub const TRAP: u32 = 0x0003_0000;
/// Stop the thread for the tracer.
pub const TRACE: u32 = 0x7ff0_0000;
/// Allow, and log.
pub const LOG: u32 = 0x7ffc_0000;
/// Kill the thread.
pub const KILL_THREAD: u32 = 0;
/// Kill the process.
pub const KILL_PROCESS: u32 = 0x8000_0000;

/// A position in a program, which may be set later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label(usize);

/// A comparison of an argument; 64 bits, unsigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `(argument & mask) == value`
    Masked(u64),
}

#[derive(Debug, Clone, Copy)]
enum Item {
    Plain(Instruction),
    /// A conditional jump; `None` falls through.
    Branch {
        code: u16,
        k: u32,
        yes: Option<Label>,
        no: Option<Label>,
    },
    Jump(Label),
}

/// A program that is being assembled.
#[derive(Debug, Clone, Default)]
pub struct Assembler {
    items: Vec<Item>,
    labels: Vec<Option<usize>>,
}

/// The reason why a program could not be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A label was used and never placed, or placed before its use.
    Label,
    /// A conditional jump is longer than 255.
    TooFar,
    /// More than [`LIMIT`] instructions.
    TooLong,
}

impl Assembler {
    /// An empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a new label, to be placed later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts the label at the next instruction.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.items.len());
    }

    fn plain(&mut self, code: u16, k: u32) {
        self.items.push(Item::Plain(Instruction { code, jt: 0, jf: 0, k }));
    }

    /// Loads the number of the call.
    pub fn load_number(&mut self) {
        self.plain(LOAD, 0);
    }

    /// Loads the architecture.
    pub fn load_architecture(&mut self) {
        self.plain(LOAD, 4);
    }

    /// Loads the low half of an argument.
    pub fn load_low(&mut self, argument: u8) {
        self.plain(LOAD, 16 + 8 * u32::from(argument));
    }

    /// Loads the high half of an argument.
    pub fn load_high(&mut self, argument: u8) {
        self.plain(LOAD, 20 + 8 * u32::from(argument));
    }

    /// Continues if the comparison with the instruction pointer is true, else jumps to the label.
    /// Overwrites the loaded word.
    pub fn pointer(&mut self, compare: Compare, value: u64, otherwise: Label) {
        self.wide(8, compare, value, otherwise);
    }

    /// Keeps the bits of the mask.
    pub fn and(&mut self, mask: u32) {
        self.plain(AND, mask);
    }

    /// Ends with an action.
    pub fn ret(&mut self, action: u32) {
        self.plain(RET, action);
    }

    /// Ends with an action if the loaded word equals `word`.
    pub fn ret_if(&mut self, word: u32, action: u32) {
        self.items.push(Item::Plain(Instruction { code: JEQ, jt: 0, jf: 1, k: word }));
        self.ret(action);
    }

    /// Jumps to a label.
    pub fn jump(&mut self, to: Label) {
        self.items.push(Item::Jump(to));
    }

    /// Continues if the loaded word equals `word`, else jumps to the label.
    pub fn unless_equal(&mut self, word: u32, to: Label) {
        self.branch(JEQ, word, None, Some(to));
    }

    /// Jumps to the label if the loaded word equals `word`.
    pub fn if_equal(&mut self, word: u32, to: Label) {
        self.branch(JEQ, word, Some(to), None);
    }

    /// Jumps to the label if any bit of the mask is set.
    pub fn if_any(&mut self, mask: u32, to: Label) {
        self.branch(JSET, mask, Some(to), None);
    }

    /// Jumps to the label if the loaded word is at least `word`.
    pub fn if_at_least(&mut self, word: u32, to: Label) {
        self.branch(JGE, word, Some(to), None);
    }

    fn branch(&mut self, code: u16, k: u32, yes: Option<Label>, no: Option<Label>) {
        self.items.push(Item::Branch { code, k, yes, no });
    }

    /// Continues if the comparison with the argument is true, else jumps to the label. Overwrites
    /// the loaded word.
    pub fn argument(&mut self, argument: u8, compare: Compare, value: u64, otherwise: Label) {
        self.wide(16 + 8 * u32::from(argument), compare, value, otherwise);
    }

    /// Compares the 64 bits at an offset of the data.
    fn wide(&mut self, at: u32, compare: Compare, value: u64, otherwise: Label) {
        let (high, low) = ((value >> 32) as u32, value as u32);
        let fine = self.label();
        let (yes, no) = (Some(fine), Some(otherwise));
        self.plain(LOAD, at + 4);
        match compare {
            Compare::Equal => {
                self.branch(JEQ, high, None, no);
                self.plain(LOAD, at);
                self.branch(JEQ, low, None, no);
            }
            Compare::NotEqual => {
                self.branch(JEQ, high, None, yes);
                self.plain(LOAD, at);
                self.branch(JEQ, low, no, None);
            }
            Compare::Greater | Compare::GreaterOrEqual => {
                let code = if compare == Compare::Greater { JGT } else { JGE };
                self.branch(JGT, high, yes, None);
                self.branch(JEQ, high, None, no);
                self.plain(LOAD, at);
                self.branch(code, low, None, no);
            }
            Compare::Less | Compare::LessOrEqual => {
                let code = if compare == Compare::Less { JGE } else { JGT };
                self.branch(JGT, high, no, None);
                self.branch(JEQ, high, None, yes);
                self.plain(LOAD, at);
                self.branch(code, low, no, None);
            }
            Compare::Masked(mask) => {
                self.and((mask >> 32) as u32);
                self.branch(JEQ, high, None, no);
                self.plain(LOAD, at);
                self.and(mask as u32);
                self.branch(JEQ, low, None, no);
            }
        }
        self.place(fine);
    }

    /// Resolves the labels and returns the program.
    ///
    /// # Errors
    ///
    /// See [`Broken`].
    pub fn finish(self) -> Result<Vec<Instruction>, Broken> {
        if self.items.len() > LIMIT {
            return Err(Broken::TooLong);
        }
        let distance = |from: usize, label: Label| {
            let to = self.labels.get(label.0).copied().flatten().ok_or(Broken::Label)?;
            to.checked_sub(from + 1).ok_or(Broken::Label)
        };
        let short = |from: usize, label: Option<Label>| match label {
            None => Ok(0),
            Some(label) => u8::try_from(distance(from, label)?).map_err(|_| Broken::TooFar),
        };
        self.items
            .iter()
            .enumerate()
            .map(|(at, item)| {
                Ok(match *item {
                    Item::Plain(instruction) => instruction,
                    Item::Jump(label) => {
                        Instruction { code: JA, jt: 0, jf: 0, k: distance(at, label)? as u32 }
                    }
                    Item::Branch { code, k, yes, no } => {
                        Instruction { code, jt: short(at, yes)?, jf: short(at, no)?, k }
                    }
                })
            })
            .collect()
    }
}

/// The input of a filter: `struct seccomp_data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Data {
    /// Number of the call.
    pub number: u32,
    /// `AUDIT_ARCH_*`.
    pub architecture: u32,
    /// Instruction pointer.
    pub pointer: u64,
    /// Arguments.
    pub arguments: [u64; 6],
}

impl Data {
    fn word(&self, at: u32) -> Option<u32> {
        Some(match at {
            0 => self.number,
            4 => self.architecture,
            8 => self.pointer as u32,
            12 => (self.pointer >> 32) as u32,
            16..64 if at.is_multiple_of(4) => {
                let argument = self.arguments[(at as usize - 16) / 8];
                if at.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
            _ => return None,
        })
    }
}

/// Number of words of memory that a program has.
const MEMORY: usize = 16;

/// Runs a program as the kernel would; `None` for a program that the kernel would refuse. (The
/// kernel's check before the first run, `seccomp_check_filter`, also refuses some programs that
/// this function runs.)
pub fn run(program: &[Instruction], data: &Data) -> Option<u32> {
    /// Size of `struct seccomp_data` in bytes.
    const SIZE: u32 = 64;
    let (mut at, mut word, mut index) = (0_usize, 0_u32, 0_u32);
    let mut memory = [0_u32; MEMORY];
    // Jumps go forward only, so every instruction runs at most once.
    loop {
        let Instruction { code, jt, jf, k } = *program.get(at)?;
        at += 1;
        let operand = if code & BY_INDEX == 0 { k } else { index };
        match code {
            LOAD => word = data.word(k)?,
            0x80 => word = SIZE,
            0x00 => word = k,
            0x60 => word = *memory.get(k as usize)?,
            0x81 => index = SIZE,
            0x01 => index = k,
            0x61 => index = *memory.get(k as usize)?,
            0x02 => *memory.get_mut(k as usize)? = word,
            0x03 => *memory.get_mut(k as usize)? = index,
            0x07 => index = word,
            0x87 => word = index,
            RET => return Some(k),
            0x16 => return Some(word),
            JA => at = at.checked_add(k as usize)?,
            // A division by zero ends the program, as in the kernel.
            0x3c if index == 0 => return Some(0),
            _ if code & 7 == 4 => word = calculate(code & !BY_INDEX, word, operand)?,
            _ => {
                let condition = match code & !BY_INDEX {
                    JEQ => word == operand,
                    JGT => word > operand,
                    JGE => word >= operand,
                    JSET => word & operand != 0,
                    _ => return None,
                };
                at += usize::from(if condition { jt } else { jf });
            }
        }
    }
}

/// The operand is the index register (`BPF_X`) instead of the constant.
const BY_INDEX: u16 = 0x08;

/// Arithmetic of 32 bits. Of a shift only the low five bits count, as in the kernel on x86-64.
fn calculate(code: u16, word: u32, operand: u32) -> Option<u32> {
    Some(match code {
        0x04 => word.wrapping_add(operand),
        0x14 => word.wrapping_sub(operand),
        0x24 => word.wrapping_mul(operand),
        0x34 => word.checked_div(operand)?,
        0x44 => word | operand,
        AND => word & operand,
        0xa4 => word ^ operand,
        0x64 => word.wrapping_shl(operand),
        0x74 => word.wrapping_shr(operand),
        0x84 => word.wrapping_neg(),
        _ => return None,
    })
}

/// The effective result of two filters: the more severe one, and of equal ones the newer filter's.
pub const fn severer(older: u32, newer: u32) -> u32 {
    if severity(newer) <= severity(older) { newer } else { older }
}

/// The kernel compares actions as signed numbers.
const fn severity(answer: u32) -> i32 {
    (answer & 0xffff_0000).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compare_program(compare: Compare, value: u64) -> Vec<Instruction> {
        let mut assembler = Assembler::new();
        let no = assembler.label();
        assembler.argument(2, compare, value, no);
        assembler.ret(ALLOW);
        assembler.place(no);
        assembler.ret(KILL_PROCESS);
        assembler.finish().unwrap()
    }

    fn interesting() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            0..3_u64,
            Just(u64::from(u32::MAX)),
            Just(1 << 32),
            (0..3_u64).prop_map(|low| (1 << 32) | low)
        ]
    }

    proptest! {
        #[test]
        fn comparisons_are_those_of_64_bits(a in interesting(), b in interesting(), mask in interesting()) {
            let data = Data { arguments: [9, 9, a, 9, 9, 9], ..Data::default() };
            for (compare, truth) in [
                (Compare::Equal, a == b),
                (Compare::NotEqual, a != b),
                (Compare::Less, a < b),
                (Compare::LessOrEqual, a <= b),
                (Compare::Greater, a > b),
                (Compare::GreaterOrEqual, a >= b),
                (Compare::Masked(mask), a & mask == b),
            ] {
                let expected = if truth { ALLOW } else { KILL_PROCESS };
                prop_assert_eq!(run(&compare_program(compare, b), &data), Some(expected), "{:?}", compare);
            }
        }
    }

    #[test]
    fn guests_programs_run() {
        let one = |code, k| Instruction { code, jt: 0, jf: 0, k };
        let data = Data { number: 7, ..Data::default() };
        // ((7 + 5) * 3) ^ 1, stored, doubled through the index register, minus 10.
        let program = [
            one(LOAD, 0),
            one(0x04, 5),
            one(0x24, 3),
            one(0xa4, 1),
            one(0x02, 15),
            one(0x61, 15),
            one(0x0c, 0),
            one(0x14, 10),
            one(0x16, 0),
        ];
        assert_eq!(run(&program, &data), Some(37 * 2 - 10));
        let by_index = [
            one(LOAD, 0),
            one(0x01, 7),
            Instruction { code: JEQ | BY_INDEX, jt: 1, jf: 0, k: 9 },
            one(RET, 1),
            one(0x84, 0),
            one(0x74, 28),
            one(0x16, 0),
        ];
        assert_eq!(run(&by_index, &data), Some(15));
        assert_eq!(run(&[one(0x80, 0), one(0x07, 0), one(0x87, 0), one(0x16, 0)], &data), Some(64));
        assert_eq!(run(&[one(0x3c, 0), one(RET, 9)], &data), Some(0), "divided by zero");
        assert_eq!(run(&[one(0x60, 16), one(RET, 9)], &data), None);
        assert_eq!(run(&[one(LOAD, 64), one(RET, 9)], &data), None);
        assert_eq!(run(&[one(JA, u32::MAX)], &data), None);
    }

    #[test]
    fn the_most_severe_result_wins() {
        let ladder = [KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, USER_NOTIF, TRACE, LOG, ALLOW];
        for (index, severe) in ladder.iter().enumerate() {
            for mild in &ladder[index + 1..] {
                assert_eq!(severer(*severe, *mild), *severe);
                assert_eq!(severer(*mild, *severe), *severe);
            }
        }
        assert_eq!(severer(ERRNO | 1, ERRNO | 2), ERRNO | 2);
    }

    #[test]
    fn wrong_programs_are_refused() {
        let mut backwards = Assembler::new();
        let label = backwards.label();
        backwards.place(label);
        backwards.jump(label);
        assert_eq!(backwards.finish(), Err(Broken::Label));
        let mut far = Assembler::new();
        let label = far.label();
        far.unless_equal(1, label);
        (0..300).for_each(|_| far.ret(ALLOW));
        far.place(label);
        far.ret(ALLOW);
        assert_eq!(far.finish(), Err(Broken::TooFar));
    }
}
