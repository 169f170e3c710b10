//! Decodes the arguments of a call by the roles that the table of calls gives them.
//!
//! The three architectures differ in the calls that they have, in the width of data in memory, and
//! in some bits of `open`'s flags. The position of an argument is the same on all. So a rule asks
//! for "the second path" or "the flags" and does not depend on the number of the call.

use crate::errno::{Errno, Result};
use crate::guest::{Dir, Guest};
use crate::verdict::Call;
use abi::calls::{Arch, Entry, Op, Role};
use abi::layout::Times;
use linux_raw_sys::general::{AT_FDCWD, timespec};

/// A decoded call.
#[derive(Clone, Copy)]
pub struct Arguments<'c> {
    /// The architecture whose conventions apply.
    pub arch: Arch,
    /// The call's row in the table.
    pub entry: &'static Entry,
    /// The call as it was caught.
    pub call: &'c Call,
}

impl<'c> Arguments<'c> {
    /// Decodes a call; `None` if guests have no such call.
    pub fn of(call: &'c Call) -> Option<Self> {
        let arch = Arch::from_audit(call.arch)?;
        let entry = abi::calls::find_on(arch, call.number)?;
        Some(Self { arch, entry, call })
    }

    /// The operation.
    pub fn op(&self) -> Op {
        self.entry.op
    }

    /// A pointer, or a number of the machine's width.
    pub fn word(&self, index: usize) -> u64 {
        match self.arch {
            Arch::I386 => self.call.arguments[index] & 0xffff_ffff,
            Arch::X86_64 | Arch::Aarch64 => self.call.arguments[index],
        }
    }

    /// An `int` or `unsigned int`: the upper half of the register is ignored.
    pub fn int(&self, index: usize) -> u32 {
        self.call.arguments[index] as u32
    }

    /// A signed `long`.
    pub fn long(&self, index: usize) -> i64 {
        match self.arch {
            Arch::I386 => i64::from(self.call.arguments[index] as i32),
            Arch::X86_64 | Arch::Aarch64 => self.call.arguments[index] as i64,
        }
    }

    /// A descriptor, or `AT_FDCWD`.
    pub fn dir(&self, index: usize) -> Dir {
        match self.int(index) as i32 {
            AT_FDCWD => Dir::Cwd,
            fd => Dir::Guest(fd),
        }
    }

    /// Position of the first argument with a role.
    pub fn position(&self, role: Role) -> Option<usize> {
        self.entry.roles.iter().position(|known| *known == role)
    }

    /// Position of path number `which` (0 or 1) among those that are resolved, and position of the
    /// directory that it starts from.
    pub fn path_position(&self, which: usize) -> Option<(Option<usize>, usize)> {
        let paths = self.entry.roles.iter().enumerate().filter(|(_, role)| role.is_path());
        let at = paths.map(|(index, _)| index).nth(which)?;
        let before = at.checked_sub(1).filter(|index| self.entry.roles[*index] == Role::Dir);
        Some((before, at))
    }

    /// The directory that path number `which` starts from, and the address of its text.
    pub fn path(&self, which: usize) -> Result<(Dir, u64)> {
        let (dir, at) = self.path_position(which).ok_or(Errno::ENOSYS)?;
        Ok((dir.map_or(Dir::Cwd, |index| self.dir(index)), self.word(at)))
    }

    /// `AT_*` flags, or the plain flags of a call; 0 for calls that have none.
    pub fn flags(&self) -> u32 {
        let at = self.position(Role::AtFlags).or_else(|| self.position(Role::Flags));
        at.map_or(0, |index| self.int(index))
    }

    /// The mode of a new file, as the guest gave it.
    pub fn mode(&self) -> u32 {
        self.position(Role::Mode).map_or(0, |index| self.int(index))
    }

    /// A length of a file, from one register or two.
    pub fn length(&self) -> i64 {
        if let Some(low) = self.position(Role::Low)
            && let Some(high) = self.position(Role::High)
        {
            return (u64::from(self.int(high)) << 32 | u64::from(self.int(low))) as i64;
        }
        self.position(Role::Offset).map_or(0, |index| self.long(index))
    }
}

/// `open`'s flags, with bits as on the calling architecture. There are methods for the bits that
/// differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFlags {
    arch: Arch,
    /// The flags.
    pub raw: u32,
}

/// Bits that all architectures share; see `asm-generic/fcntl.h`.
pub mod open_bits {
    #![expect(missing_docs, reason = "the names of open(2)")]
    pub const ACCMODE: u32 = 3;
    pub const WRONLY: u32 = 1;
    pub const RDWR: u32 = 2;
    pub const CREAT: u32 = 0o100;
    pub const EXCL: u32 = 0o200;
    pub const TRUNC: u32 = 0o1000;
    pub const NOATIME: u32 = 0o1_000_000;
    pub const CLOEXEC: u32 = 0o2_000_000;
    pub const PATH: u32 = 0o10_000_000;
    /// Without `O_DIRECTORY`, which the kernel requires together with it.
    pub const TMPFILE: u32 = 0o20_000_000;
}

impl OpenFlags {
    /// The flags of a call.
    pub const fn new(arch: Arch, raw: u32) -> Self {
        Self { arch, raw }
    }

    /// Returns true if any of `bits` is set.
    pub const fn has(self, bits: u32) -> bool {
        self.raw & bits != 0
    }

    /// The bit of `O_DIRECTORY`.
    pub const fn directory_bit(arch: Arch) -> u32 {
        match arch {
            Arch::X86_64 | Arch::I386 => 0o200_000,
            Arch::Aarch64 => 0o40_000,
        }
    }

    /// The bit of `O_NOFOLLOW`.
    pub const fn no_follow_bit(arch: Arch) -> u32 {
        match arch {
            Arch::X86_64 | Arch::I386 => 0o400_000,
            Arch::Aarch64 => 0o100_000,
        }
    }

    /// Returns true if `O_DIRECTORY` is set.
    pub const fn directory(self) -> bool {
        self.has(Self::directory_bit(self.arch))
    }

    /// Returns true if `O_NOFOLLOW` is set.
    pub const fn no_follow(self) -> bool {
        self.has(Self::no_follow_bit(self.arch))
    }

    /// Returns true if the descriptor only names a file (`O_PATH`): then most other flags have no
    /// effect.
    pub const fn path(self) -> bool {
        self.has(open_bits::PATH)
    }

    /// Returns true if the call may make a file. (`O_PATH` cancels this bit.)
    pub const fn create(self) -> bool {
        self.has(open_bits::CREAT) && !self.path()
    }

    /// Returns true if the call must make a file.
    pub const fn exclusive(self) -> bool {
        self.create() && self.has(open_bits::EXCL)
    }

    /// Returns true if the call makes a file without a name in a directory.
    pub const fn nameless(self) -> bool {
        self.has(open_bits::TMPFILE) && !self.path()
    }

    /// Returns true if the call may change the contents.
    pub const fn writes(self) -> bool {
        !self.path() && (self.raw & open_bits::ACCMODE != 0 || self.has(open_bits::TRUNC))
    }

    /// Checks what open(2) calls invalid before it looks at any name.
    pub const fn check(self) -> Result<()> {
        let wants_write =
            matches!(self.raw & open_bits::ACCMODE, open_bits::WRONLY | open_bits::RDWR);
        if self.nameless() && !(self.directory() && wants_write && !self.has(open_bits::CREAT)) {
            return Err(Errno::EINVAL);
        }
        // Since Linux 6.4. Before, the kernel made a regular file or failed with ENOTDIR or EISDIR.
        if self.create() && self.directory() && !self.nameless() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }
}

/// `[access, modification]` from the call; `None` is the current time.
pub fn times(arguments: &Arguments<'_>, guest: &mut impl Guest) -> Result<Option<[timespec; 2]>> {
    let Some(at) = arguments.position(Role::Times) else { return Ok(None) };
    let address = arguments.word(at);
    if address == 0 {
        return Ok(None);
    }
    let form = Times::of(arguments.arch, arguments.op()).ok_or(Errno::ENOSYS)?;
    let mut bytes = [0_u8; 32];
    guest.read(address, &mut bytes[..form.size()])?;
    let mut times = form.read(&bytes).ok_or(Errno::EINVAL)?;
    if arguments.op() == Op::UtimensatTime64 {
        // The upper half of the nanoseconds is padding in this call.
        for time in &mut times {
            time.tv_nsec = i64::from(time.tv_nsec as i32);
        }
    }
    Ok(Some(times))
}
