//! Makes stubs: the instructions that a rewritten site jumps to.
//!
//! A page of stubs belongs to one page of code, and is made together with it: neither is ever
//! written to while it can be executed.
//!
//! ```text
//!    0  address of the stage's entry
//!   64  which numbers go there: for each upper byte of a 16-bit number the offset of a row, then
//!       the rows, a byte for each lower byte
//! 1344  stubs
//! ```
//!
//! A stub does what the moved instruction did, and goes to the stage's entry with the number in rax
//! and the site's return address in rcx. If the number is not known in advance, the stub looks it
//! up first, and calls that the stage does not want go back to the site. A stub changes no flag and
//! no memory, and uses only rcx and r11, which `syscall` overwrites too.

use super::form::{Form, JUMP, Plan};

/// Size of a page in bytes.
pub const PAGE: usize = 4096;
/// Offset of the table of numbers.
const TABLE: usize = 64;
/// Offset of the rows in the table.
const ROWS: usize = 512;
/// Offset of the first stub.
const FIRST: usize = TABLE + ROWS + 3 * 256;
/// `int3`, in unused bytes.
const TRAP: u8 = 0xcc;

/// A page of stubs that is being made.
pub struct Stubs<'a> {
    page: &'a mut [u8; PAGE],
    /// The address where it will be.
    at: u64,
    /// Number of bytes in use.
    end: usize,
    /// Set if the table of numbers is filled.
    has_table: bool,
    /// Calls are never made at their sites: the stub makes the calls that pass.
    makes_calls: bool,
}

impl<'a> Stubs<'a> {
    /// An empty page that will be executed at `at`.
    pub fn new(page: &'a mut [u8; PAGE], at: u64, entry: u64) -> Self {
        page.fill(TRAP);
        page[..8].copy_from_slice(&entry.to_le_bytes());
        Self { page, at, end: FIRST, has_table: false, makes_calls: false }
    }

    /// As [`Stubs::new`], for sites where the instruction is no longer a call: the stub makes the
    /// calls that the stage does not want.
    pub fn making_calls(page: &'a mut [u8; PAGE], at: u64, entry: u64) -> Self {
        Self { makes_calls: true, ..Self::new(page, at, entry) }
    }

    /// The page, to be written to the place where it will be executed.
    pub fn page(&mut self) -> &mut [u8; PAGE] {
        self.page
    }

    /// Begins another page, behind this one.
    pub fn next(&mut self, entry: u64) {
        self.page.fill(TRAP);
        self.page[..8].copy_from_slice(&entry.to_le_bytes());
        self.at += PAGE as u64;
        (self.end, self.has_table) = (FIRST, false);
    }

    fn fill_table(&mut self, wants: impl Fn(u32) -> bool) {
        self.has_table = true;
        self.page[TABLE..FIRST].fill(0);
        for upper in 0..256_u16 {
            // All upper bytes except two have the first row, of zeros.
            let offset = ROWS as u16 + if upper < 2 { 256 * (upper + 1) } else { 0 };
            let word = TABLE + 2 * usize::from(upper);
            self.page[word..word + 2].copy_from_slice(&offset.to_le_bytes());
        }
        for number in 0..512 {
            self.page[TABLE + ROWS + 256 + number] = u8::from(wants(number as u32));
        }
    }

    /// Adds the stub for a site at the address `site`. `moved` are the bytes of the moved
    /// instruction; `wants` selects the numbers that go to the stage. Returns the stub's address,
    /// or `None` if the page is full, or too far away.
    pub fn add(
        &mut self,
        plan: &Plan,
        site: u64,
        moved: &[u8],
        wants: impl Fn(u32) -> bool,
    ) -> Option<u64> {
        let start = self.end;
        let makes_calls = self.makes_calls || plan.form == Form::Call;
        let passes = self.makes_calls && plan.number.is_some_and(|number| !wants(number));
        if plan.number.is_none() && !self.has_table {
            self.fill_table(&wants);
        }
        let mut writer = Writer { stubs: self, failed: false };
        writer.bytes(moved);
        if plan.number.is_none() {
            // movzx ecx, ah; lea r11, [rip + TABLE]; movzx ecx, word ptr [r11 + 2 * rcx]; lea r11,
            // [r11 + rcx]; movzx ecx, al; movzx ecx, byte ptr [r11 + rcx]; jrcxz +13
            writer.bytes(&[0x0f, 0xb6, 0xcc, 0x4c, 0x8d, 0x1d]);
            writer.distance_within(TABLE);
            writer.bytes(&[0x41, 0x0f, 0xb7, 0x0c, 0x4b, 0x4d, 0x8d, 0x1c, 0x0b, 0x0f, 0xb6, 0xc8]);
            writer.bytes(&[0x41, 0x0f, 0xb6, 0x0c, 0x0b, 0xe3, 13]);
        }
        if !passes {
            // lea rcx, [rip + behind the site]; jmp [rip + entry]
            writer.bytes(&[0x48, 0x8d, 0x0d]);
            writer.distance(site + 2);
            writer.bytes(&[0xff, 0x25]);
            writer.distance_within(0);
        }
        if plan.number.is_none() || passes {
            let back = if makes_calls {
                // syscall
                writer.bytes(&[0x0f, 0x05]);
                site + 2
            } else {
                site
            };
            // jmp back
            writer.bytes(&[0xe9]);
            writer.distance(back);
        }
        if writer.failed {
            self.end = start;
            return None;
        }
        // The next stub begins at a multiple of 16, as functions do.
        self.end = self.end.next_multiple_of(16);
        Some(self.at + start as u64)
    }
}

struct Writer<'b, 'a> {
    stubs: &'b mut Stubs<'a>,
    failed: bool,
}

impl Writer<'_, '_> {
    fn bytes(&mut self, bytes: &[u8]) {
        match self.stubs.page.get_mut(self.stubs.end..self.stubs.end + bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
            None => self.failed = true,
        }
        self.stubs.end += bytes.len();
    }

    /// Writes the distance to an address; it is the last part of an instruction.
    fn distance(&mut self, to: u64) {
        let from = self.stubs.at + self.stubs.end as u64 + 4;
        match distance(from, to) {
            Some(distance) => self.bytes(&distance),
            None => self.failed = true,
        }
    }

    fn distance_within(&mut self, offset: usize) {
        self.distance(self.stubs.at + offset as u64);
    }
}

/// The distance from the end of an instruction to an address, if four bytes are enough.
pub fn distance(from: u64, to: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(from) as i64).ok().map(i32::to_le_bytes)
}

/// A jump from one address to another.
pub fn jump(from: u64, to: u64) -> Option<[u8; JUMP]> {
    let [a, b, c, d] = distance(from + JUMP as u64, to)?;
    Some([0xe9, a, b, c, d])
}
