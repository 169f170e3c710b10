//! The table of all system calls of Linux on x86-64, i386 and arm64: numbers, classes, and the
//! meaning of the arguments.
//!
//! One table serves several purposes: [`filter`] makes the seccomp program from it, `view`
//! dispatches by [`Op`], and the documentation is printed from it. A number that is not in it does
//! not exist for a guest (`ENOSYS`): a call of a newer kernel might take a path, and would reach
//! the host's files. A test compares the table with `linux-raw-sys`, so an update of that crate
//! shows new calls.
//!
//! A name stands for one way of passing arguments, not for one meaning: `stat`, `newfstatat` and
//! `statx` are three [`Op`]s. [`Arch`] covers what differs only by architecture (the width of ids,
//! the layout of buffers).

pub mod filter;
pub mod others;
mod table;

pub use table::{CALLS, Op};

/// An architecture whose calls are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arch {
    /// 64-bit calls of x86.
    X86_64,
    /// 32-bit calls of x86 (`int 0x80`, `sysenter`), also from 64-bit programs.
    I386,
    /// 64-bit calls of arm.
    Aarch64,
}

impl Arch {
    /// All architectures.
    pub const ALL: [Self; 3] = [Self::X86_64, Self::I386, Self::Aarch64];

    /// From `AUDIT_ARCH_*`.
    pub const fn from_audit(arch: u32) -> Option<Self> {
        match arch {
            crate::syscalls::ARCH_X86_64 => Some(Self::X86_64),
            crate::syscalls::ARCH_I386 => Some(Self::I386),
            crate::syscalls::ARCH_AARCH64 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// `AUDIT_ARCH_*`.
    pub const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => crate::syscalls::ARCH_X86_64,
            Self::I386 => crate::syscalls::ARCH_I386,
            Self::Aarch64 => crate::syscalls::ARCH_AARCH64,
        }
    }

    /// Size of a pointer, a `long` and a `size_t` in bytes.
    pub const fn word(self) -> usize {
        match self {
            Self::X86_64 | Self::Aarch64 => 8,
            Self::I386 => 4,
        }
    }
}

/// The class of a call, which selects the part of `view` that decides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The kernel executes it; no rule is needed.
    Plain,
    /// Names a file by path.
    Path,
    /// Concerns an open file: owner, mode, entries, working directory.
    Descriptor,
    /// Ids, groups, capabilities.
    Identity,
    /// Addresses of sockets, credentials in messages.
    Socket,
    /// Runs another program.
    Exec,
    /// Concerns processes and the system, where a guest must not act as the host's caller.
    Process,
    /// Not for guests: it would reach outside of the root, or show the host's mounts.
    Refused,
}

/// The role of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A number or address that does not concern the container.
    Value,
    /// Flags of the call itself.
    Flags,
    /// `AT_*`: decide if links are followed and empty paths allowed.
    AtFlags,
    /// `O_*`.
    OpenFlags,
    /// `struct open_how *`; its size follows.
    OpenHow,
    /// Number of bytes or elements.
    Size,
    /// A position or length in a file: 64 bits on architectures with such registers.
    Offset,
    /// The low half of an offset.
    Low,
    /// The high half of an offset.
    High,
    /// Permission bits.
    Mode,
    /// `dev_t`.
    Device,
    /// A descriptor.
    Fd,
    /// The descriptor, or `AT_FDCWD`, that the next path starts from.
    Dir,
    /// A path; a link at the end is followed.
    Path,
    /// A path; a link at the end is not followed.
    Link,
    /// A path; other arguments decide if a link at the end is followed.
    PathAt,
    /// A string that is not resolved: a link's target, a name.
    Text,
    /// Memory that a path is written to.
    PathOut,
    /// Memory, read or written.
    Buffer,
    /// `struct stat *` in one of its layouts, see `abi::layout`.
    Stat,
    /// `struct statx *`.
    Statx,
    /// `struct statfs *`.
    Statfs,
    /// Memory for directory entries.
    Listing,
    /// Name of an extended attribute.
    Attribute,
    /// Timestamps.
    Times,
    /// A user id; 16 bits wide if [`narrow_ids`] returns true.
    Uid,
    /// A group id.
    Gid,
    /// An array of group ids.
    Groups,
    /// `argv` or `envp`.
    Vector,
    /// A process, thread, or group of processes.
    Pid,
    /// A signal.
    Signal,
    /// `sigset_t *`.
    SignalSet,
    /// `struct sockaddr *`; its length follows.
    Address,
    /// `struct sockaddr *` that is written.
    AddressOut,
    /// `socklen_t *`.
    AddressLength,
    /// `struct msghdr *` that is sent.
    Message,
    /// `struct msghdr *` that is received.
    MessageOut,
    /// `struct mmsghdr *` that are sent.
    Messages,
    /// `struct mmsghdr *` that are received.
    MessagesOut,
}

impl Role {
    /// Returns true if the argument is a path that is resolved.
    pub const fn is_path(self) -> bool {
        matches!(self, Self::Path | Self::Link | Self::PathAt)
    }
}

/// One call: a row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The operation.
    pub op: Op,
    /// The kernel's name.
    pub name: &'static str,
    /// The class.
    pub class: Class,
    /// Its arguments. Registers beyond them have undefined contents.
    pub roles: &'static [Role],
    numbers: [u16; 3],
}

/// The call does not exist on that architecture.
const ABSENT: u16 = u16::MAX;

impl Entry {
    /// Number on an architecture.
    pub const fn number(&self, arch: Arch) -> Option<u32> {
        match self.numbers[arch as usize] {
            ABSENT => None,
            number => Some(number as u32),
        }
    }

    /// Returns true if an argument is a path that is resolved.
    pub fn takes_path(&self) -> bool {
        self.roles.iter().any(|role| role.is_path())
    }
}

impl Op {
    /// The row of the table.
    pub const fn entry(self) -> &'static Entry {
        &CALLS[self as usize]
    }

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        self.entry().name
    }
}

/// All numbers are below this, on every architecture.
pub const NUMBERS: usize = 512;

static BY_NUMBER: [[u16; NUMBERS]; 3] =
    [by_number(Arch::X86_64), by_number(Arch::I386), by_number(Arch::Aarch64)];

const fn by_number(arch: Arch) -> [u16; NUMBERS] {
    let mut rows = [ABSENT; NUMBERS];
    let mut row = 0;
    while row < CALLS.len() {
        if let Some(number) = CALLS[row].number(arch) {
            assert!(rows[number as usize] == ABSENT, "a number occurs twice in the table");
            rows[number as usize] = row as u16;
        }
        row += 1;
    }
    rows
}

/// The call with a number (`arch` is `AUDIT_ARCH_*`); `None` for calls of x32 and unknown numbers.
pub fn find(arch: u32, number: u32) -> Option<&'static Entry> {
    find_on(Arch::from_audit(arch)?, number)
}

/// The call with a number.
pub fn find_on(arch: Arch, number: u32) -> Option<&'static Entry> {
    match *BY_NUMBER[arch as usize].get(number as usize)? {
        ABSENT => None,
        row => CALLS.get(usize::from(row)),
    }
}

/// The call with a name.
pub fn find_name(name: &str) -> Option<&'static Entry> {
    CALLS.iter().find(|entry| entry.name == name)
}

/// The operation of a call of i386's `socketcall(2)`, whose arguments are an array of words in
/// memory.
pub const fn socketcall(call: u32) -> Option<Op> {
    Some(match call {
        1 => Op::Socket,
        2 => Op::Bind,
        3 => Op::Connect,
        4 => Op::Listen,
        5 => Op::Accept,
        6 => Op::Getsockname,
        7 => Op::Getpeername,
        8 => Op::Socketpair,
        // `send` and `recv` are `sendto` and `recvfrom` without their last two arguments.
        9 | 11 => Op::Sendto,
        10 | 12 => Op::Recvfrom,
        13 => Op::Shutdown,
        14 => Op::Setsockopt,
        15 => Op::Getsockopt,
        16 => Op::Sendmsg,
        17 => Op::Recvmsg,
        18 => Op::Accept4,
        19 => Op::Recvmmsg,
        20 => Op::Sendmmsg,
        _ => return None,
    })
}

/// Returns true if user and group ids of a call are 16 bits wide: the first generation of i386.
pub fn narrow_ids(arch: Arch, op: Op) -> bool {
    arch == Arch::I386
        && !op.name().ends_with("32")
        && !matches!(op, Op::Fchownat | Op::Capget | Op::Capset | Op::Umask)
        && (op.entry().class == Class::Identity
            || op.entry().roles.iter().any(|role| matches!(role, Role::Uid | Role::Gid)))
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::string::{String, ToString};

    /// The directory in which cargo keeps the sources of `linux-raw-sys`.
    fn raw_sys() -> PathBuf {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "metadata",
                "--format-version",
                "1",
                "--offline",
                "--filter-platform",
                "x86_64-unknown-linux-gnu",
            ])
            .args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")])
            .output()
            .unwrap();
        let metadata = String::from_utf8(output.stdout).unwrap();
        let path = metadata
            .split('"')
            .find(|word| word.contains("/linux-raw-sys-") && word.ends_with("/Cargo.toml"))
            .expect("linux-raw-sys among the dependencies");
        Path::new(path).parent().unwrap().join("src")
    }

    fn numbers(folder: &Path) -> BTreeMap<String, u32> {
        let text = std::fs::read_to_string(folder.join("general.rs")).unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix("pub const __NR_")?.strip_suffix(';'))
            .filter_map(|line| {
                let (name, number) = line.split_once(": u32 = ")?;
                Some((name.to_string(), number.parse().ok()?))
            })
            .collect()
    }

    /// Calls that `linux-raw-sys` does not know yet.
    const NEWER: [&str; 2] = ["listns", "uprobe"];

    #[test]
    fn the_table_has_every_call_of_the_kernel_headers() {
        let sources = raw_sys();
        for (arch, folder) in
            [(Arch::X86_64, "x86_64"), (Arch::I386, "x86"), (Arch::Aarch64, "aarch64")]
        {
            let known = numbers(&sources.join(folder));
            assert!(known.len() > 300, "{folder}");
            for (name, number) in &known {
                let entry = find_on(arch, *number);
                assert_eq!(
                    entry.map(|entry| entry.name),
                    Some(name.as_str()),
                    "{folder} {number}: add the call and its arguments to the table"
                );
            }
            for entry in CALLS.iter().filter(|entry| !NEWER.contains(&entry.name)) {
                assert_eq!(entry.number(arch), known.get(entry.name).copied(), "{}", entry.name);
            }
        }
    }

    #[test]
    fn calls_with_a_path_have_a_class_for_paths() {
        for entry in &CALLS {
            assert_eq!(entry.op.entry(), entry);
            assert!(entry.roles.len() <= 6);
            if entry.takes_path() {
                assert!(matches!(entry.class, Class::Path | Class::Exec), "{}", entry.name);
            }
            for pair in entry.roles.windows(2) {
                assert!(pair[0] != Role::Dir || pair[1].is_path(), "{}", entry.name);
            }
            // The name shows a call that takes a path by a new convention.
            let named = ["at", "path", "open", "mount", "link", "chmod", "chown", "xattr", "stat"];
            let else_so = ["mq_open", "mq_unlink", "pidfd_open", "cachestat", "shmat", "ustat"];
            if named.iter().any(|end| entry.name.ends_with(end)) && !else_so.contains(&entry.name) {
                assert_ne!(entry.class, Class::Plain, "{}", entry.name);
            }
        }
    }

    #[test]
    fn calls_are_found_by_number() {
        let name = |arch, number| find(arch, number).map_or("", |entry| entry.name).to_string();
        assert_eq!(name(crate::syscalls::ARCH_X86_64, 257), "openat");
        assert_eq!(name(crate::syscalls::ARCH_I386, 5), "open");
        assert_eq!(name(crate::syscalls::ARCH_AARCH64, 221), "execve");
        assert_eq!(name(crate::syscalls::ARCH_X86_64, 0x4000_0002), "");
        assert_eq!(name(0, 0), "");
        assert!(narrow_ids(Arch::I386, Op::Chown) && narrow_ids(Arch::I386, Op::Setgroups));
        assert!(!narrow_ids(Arch::I386, Op::Chown32) && !narrow_ids(Arch::X86_64, Op::Chown));
        assert!(!narrow_ids(Arch::I386, Op::Fchownat) && !narrow_ids(Arch::I386, Op::Stat));
    }
}
