//! Decides which calls a backend has to see, and makes the seccomp program that stops only for
//! them.
//!
//! [`catch`] says what happens to a call: it passes, stops, fails, or does one of the latter two if
//! a test of its arguments holds. [`program`] makes a filter of these rules. The number is tested
//! first and alone, so that the kernel (5.11 and newer) can cache which numbers always pass. A tree
//! of comparisons, at most nine deep, finds the rule of the other numbers. Only a call that would
//! stop has its instruction pointer checked: calls that the loader makes for itself pass.
//!
//! A backend without seccomp (every call stops) asks [`Catch::decide`] and so sees the same calls.
//!
//! A backend inside the process ([`Interest::in_process`]) gets a signal instead of a stop, and has
//! to see more: no mask or handler of the guest may block that signal, and no mapping may replace
//! the backend's memory.
//!
//! A filter cannot read memory. Calls whose arguments matter only behind a pointer (`connect`,
//! `sendmsg`, `clone3`) always stop.

extern crate alloc;

use super::others::{self, Named};
use super::{Arch, Class, NUMBERS, Op, find_on};
use crate::boot::{BASE_STEP, BASES, LOADER_START};
use crate::bpf::{ALLOW, Assembler, Broken, Compare, ERRNO, Instruction, Label, TRACE, TRAP};
use crate::syscalls::X32_BIT;
use alloc::vec::Vec;
use linux_raw_sys::errno as raw;

/// The data value of this backend's stops, which distinguishes them from those of a guest's own
/// filter; see [`mark`].
pub const MARK: u16 = 0xc0ac;

/// The mark of a backend whose loader is at one of its places ([`crate::boot::start`]). Nested
/// containers have different marks: if two filters return the same action, the kernel reports the
/// newer one's mark, so the outer backend knows that the call belongs to the inner one.
pub const fn mark(loader: u64) -> u16 {
    MARK | (loader.wrapping_sub(LOADER_START) / BASE_STEP % BASES) as u16
}
const _: () = assert!(MARK & (BASES as u16 - 1) == 0, "a base fits into the mark");

/// The features of a container for which calls have to be caught.
#[expect(clippy::struct_excessive_bools, reason = "independent needs")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interest {
    /// Ids, owners and modes are emulated.
    pub identity: bool,
    /// Files of the tree are shared with the image until the first change.
    pub shared_image: bool,
    /// There are mount points that the tree does not contain, so directory listings have to be
    /// completed.
    pub listing: bool,
    /// The container has a host name of its own.
    pub host_name: bool,
    /// Addresses of the internet are translated ([`crate::network`]).
    pub networks: bool,
    /// Addresses (start, end exclusive) of code whose calls pass: the loader's.
    pub loader: Option<(u64, u64)>,
    /// The backend is in the guest's process and is called by `SIGSYS` with [`MARK`] in `si_errno`.
    /// So calls that change signal masks and actions, and the backend's own memory, are caught too.
    pub in_process: bool,
    /// The container has namespaces of its own ([`crate::shared::Switches::NAMESPACES`]): the
    /// kernel decides what [`refusal`] would refuse.
    pub namespaces: bool,
}

impl Interest {
    /// The filter's action for calls that are caught.
    pub const fn action(&self) -> u32 {
        let action = if self.in_process { TRAP } else { TRACE };
        let mark = match self.loader {
            Some((start, _)) => mark(start),
            None => MARK,
        };
        action | mark as u32
    }
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Catch {
    /// The kernel executes it.
    Pass,
    /// The backend sees it.
    Stop,
    /// It fails with an error number.
    Fail(u16),
    /// The backend sees it if one of the tests holds.
    StopIf(&'static [Test]),
    /// It fails if one of the tests holds.
    FailIf(u16, &'static [Test]),
}

/// A test of the arguments of a call, which are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// The argument is not 0 (a pointer is given).
    Given(u8),
    /// The low 32 bits (an `int`) are one of these.
    OneOf(u8, &'static [u32]),
    /// The low 32 bits have any of these set.
    Any(u8, u32),
    /// Of the low 32 bits that are in the first mask, exactly those of the second are set.
    Of(u8, u32, u32),
    /// The `int`s of both arguments have these values.
    Both((u8, u32), (u8, u32)),
    /// The high 32 bits (of an address) are one of these.
    High(u8, &'static [u32]),
    /// The argument is 4 GiB or more.
    Large(u8),
}

impl Test {
    /// Returns true if the test holds.
    pub fn holds(self, arguments: &[u64; 6]) -> bool {
        let int = |at: u8| arguments[usize::from(at)] as u32;
        match self {
            Self::Given(at) => arguments[usize::from(at)] != 0,
            Self::OneOf(at, values) => values.contains(&int(at)),
            Self::Any(at, mask) => int(at) & mask != 0,
            Self::Of(at, bits, set) => int(at) & bits == set,
            Self::Both((first, value), (second, other)) => {
                int(first) == value && int(second) == other
            }
            Self::High(at, values) => values.contains(&((arguments[usize::from(at)] >> 32) as u32)),
            Self::Large(at) => arguments[usize::from(at)] >> 32 != 0,
        }
    }
}

impl Catch {
    /// The decision with known arguments: [`Catch::Pass`], [`Catch::Stop`] or [`Catch::Fail`].
    #[must_use]
    pub fn decide(self, arguments: &[u64; 6]) -> Self {
        let any = |tests: &[Test]| tests.iter().any(|test| test.holds(arguments));
        match self {
            Self::StopIf(tests) if any(tests) => Self::Stop,
            Self::FailIf(errno, tests) if any(tests) => Self::Fail(errno),
            Self::StopIf(_) | Self::FailIf(..) => Self::Pass,
            plain => plain,
        }
    }
}

/// What happens to a call with any number, known or not; `arch` is `AUDIT_ARCH_*`.
pub fn catch_number(arch: u32, number: u32, interest: &Interest) -> Catch {
    match (Arch::from_audit(arch), super::find(arch, number)) {
        (Some(arch), Some(entry)) => catch(arch, entry.op, interest),
        _ => Catch::Fail(raw::ENOSYS as u16),
    }
}

/// The flags `CLONE_NEW*` that make namespaces, and `CLONE_UNTRACED`.
const CLONE: u32 = 0x7e02_0000 | 0x0080_0000;
/// New processes and threads that share state with others in an unusual way. Processes with
/// `CLONE_FS` and separate memory share root and working directory with their parent; processes
/// with `CLONE_FILES` see descriptors that the backend opens for a moment; threads without
/// `CLONE_FS` have a root and umask of their own, unlike the memory that they share. Ordinary
/// threads do not stop for this.
const SHARING: [Test; 3] =
    [Test::Of(0, 0x300, 0x200), Test::Of(0, 0x1_0400, 0x400), Test::Of(0, 0x1_0200, 0x1_0000)];
/// Options of prctl(2): dumpable, keep capabilities, seccomp, bounding and ambient set, secure
/// bits, memory map, no new privileges, user dispatch.
const PRCTL: &[u32] = &[3, 4, 7, 8, 21, 22, 23, 24, 27, 28, 35, 38, 39, 47, 59];
/// Changes of an inode that need no descriptor for writing: `FS_IOC_SETFLAGS` (twice),
/// `FS_IOC_FSSETXATTR`, `FS_IOC_SETVERSION` (twice), `FS_IOC_ENABLE_VERITY`.
const IOCTL: &[u32] =
    &[0x4008_6602, 0x4004_6602, 0x401c_5820, 0x4008_7602, 0x4004_7602, 0x4080_6685];
/// `SIOCGIFCONF`, `SIOCGIFADDR`, `SIOCGIFDSTADDR`, `SIOCGIFBRDADDR`, `SIOCGIFNETMASK`.
pub const INTERFACES: &[u32] = &[0x8912, 0x8915, 0x8917, 0x8919, 0x891b];
/// How musl receives an answer about interfaces, without an address: so many bytes, with
/// `MSG_DONTWAIT`. Other programs ask so for nothing that matters.
pub const ASKED_BY_MUSL: (u32, u32) = (8192, 0x40);
const BY_MUSL: Test = Test::Both((2, ASKED_BY_MUSL.0), (3, ASKED_BY_MUSL.1));
/// Commands that set (`IPC_SET`) or show (`IPC_STAT`, `*_STAT`, `*_STAT_ANY`) the owners of an
/// object of System V; i386 programs add `IPC_64`.
const SHM_OWNERS: &[u32] = &[1, 2, 13, 15, 0x101, 0x102, 0x10d, 0x10f];
const MSG_OWNERS: &[u32] = &[1, 2, 11, 13, 0x101, 0x102, 0x10b, 0x10d];
const SEM_OWNERS: &[u32] = &[1, 2, 18, 20, 0x101, 0x102, 0x112, 0x114];
/// `SOL_SOCKET` with `SO_PEERCRED`, `SO_PEERGROUPS`.
const PEERS: &[Test] = &[Test::Both((1, 1), (2, 17)), Test::Both((1, 1), (2, 59))];
/// `SOL_SOCKET` with `SO_PEERNAME`, `IPPROTO_IPV6` with `IPV6_V6ONLY`.
const NAMES: &[Test] = &[Test::Both((1, 1), (2, 28)), Test::Both((1, 41), (2, 26))];
const PEERS_AND_NAMES: &[Test] = &[PEERS[0], PEERS[1], NAMES[0], NAMES[1]];
/// `AF_NETLINK` with `NETLINK_AUDIT`.
const AUDIT: &[Test] = &[Test::Both((0, 16), (2, 9))];
/// Calls of socketcall(2): all except `socketpair`, `send`, `recv`, `shutdown`, `setsockopt`.
const SOCKETCALL: &[u32] = &[1, 2, 3, 4, 5, 6, 7, 11, 12, 15, 16, 17, 18, 19, 20];

/// High halves of the addresses of an in-process backend's memory, at all its places
/// ([`crate::boot`]), and the one before: a mapping that begins there may reach into it.
const BACKEND_HIGH: &[u32] = &[0x5500, 0x5501, 0x5502, 0x5503, 0x5504];
/// Signals whose actions belong to the backend: `SIGBUS`, `SIGSEGV`, `SIGSYS`.
const OWN_SIGNALS: &[u32] = &[7, 11, 31];
/// `PROT_WRITE`.
const WRITE: u32 = 2;
/// `SIGSTOP`.
const STOP: &[u32] = &[19];
/// `__WALL`; see wait(2).
const EVERY_CHILD: u32 = 0x4000_0000;

/// Additional tests for a backend inside the process: calls that change signal masks and actions,
/// and calls that change memory where the backend may lie.
fn in_process_tests(op: Op) -> Option<&'static [Test]> {
    const MEMORY: &[Test] = &[Test::High(0, BACKEND_HIGH), Test::Large(1)];
    Some(match op {
        // The kernel's masks and handlers are not the guest's.
        Op::RtSigprocmask | Op::Sigprocmask | Op::RtSigaction | Op::Sigaction => {
            &[Test::Given(1), Test::Given(2)]
        }
        Op::Sigaltstack | Op::RtSigpending | Op::RtSigtimedwait => &[Test::Given(0)],
        Op::Signal => &[Test::OneOf(0, OWN_SIGNALS)],
        Op::Ppoll | Op::PpollTime64 => &[Test::Given(3)],
        Op::Pselect6 | Op::Pselect6Time64 | Op::IoPgetevents | Op::IoPgeteventsTime64 => {
            &[Test::Given(5)]
        }
        Op::EpollPwait | Op::EpollPwait2 => &[Test::Given(4)],
        Op::Mmap | Op::Munmap | Op::Madvise | Op::Mseal | Op::RemapFilePages => MEMORY,
        // An alternate stack may lose the right to be written to.
        Op::Mprotect | Op::PkeyMprotect => {
            &[Test::High(0, BACKEND_HIGH), Test::Large(1), Test::Of(2, WRITE, 0)]
        }
        // The backend's memory counts.
        Op::Mlockall => &[Test::Any(0, 1)],
        Op::Mremap => &[
            Test::High(0, BACKEND_HIGH),
            Test::High(4, BACKEND_HIGH),
            Test::Large(1),
            Test::Large(2),
        ],
        Op::Shmat => &[Test::High(1, BACKEND_HIGH)],
        Op::Dup2 | Op::Dup3 => &[Test::OneOf(
            1,
            &[crate::boot::TREE_DESCRIPTOR as u32, crate::boot::UPPER_DESCRIPTOR as u32],
        )],
        // Only tracers use this flag; they would see the backend's signal.
        Op::Wait4 => &[Test::Any(2, EVERY_CHILD)],
        _ => return None,
    })
}

/// What happens to a call.
pub fn catch(arch: Arch, op: Op, interest: &Interest) -> Catch {
    if let Some(errno) = refusal(op) {
        return match (interest.namespaces, op) {
            // Emulated root gives the container another name.
            (false, Op::Sethostname) if interest.host_name && interest.identity => Catch::Stop,
            (false, _) => Catch::Fail(errno),
            // What restricts itself may not be able to execute the stage any more.
            (true, op) if is_namespaced(op) || matches!(op, Op::LandlockRestrictSelf) => {
                Catch::Stop
            }
            (true, _) => Catch::Pass,
        };
    }
    let if_so = |wanted: bool| if wanted { Catch::Stop } else { Catch::Pass };
    if interest.in_process
        && let Some(tests) = in_process_tests(op)
    {
        return Catch::StopIf(tests);
    }
    match op.entry().class {
        Class::Plain | Class::Refused => match op {
            // A tracer may have bound the thread to its processor.
            Op::SchedGetaffinity => if_so(!interest.in_process),
            // Each sets a mask, or may close the backend's descriptor.
            Op::RtSigreturn if arch == Arch::X86_64 => if_so(interest.in_process),
            Op::RtSigsuspend | Op::Sigsuspend | Op::Ssetmask | Op::CloseRange => {
                if_so(interest.in_process)
            }
            _ => Catch::Pass,
        },
        Class::Path | Class::Exec => Catch::Stop,
        Class::Descriptor => match op {
            Op::Ioctl => match (interest.identity || interest.shared_image, interest.networks) {
                (true, true) => Catch::StopIf(&[Test::OneOf(1, IOCTL), Test::OneOf(1, INTERFACES)]),
                (true, false) => Catch::StopIf(&[Test::OneOf(1, IOCTL)]),
                (false, true) => Catch::StopIf(&[Test::OneOf(1, INTERFACES)]),
                (false, false) => Catch::Pass,
            },
            // A file that was opened for writing is already a copy, and the status of a file system
            // shows nothing that must be hidden.
            Op::Ftruncate | Op::Ftruncate64 | Op::Fstatfs | Op::Fstatfs64 => Catch::Pass,
            Op::Getdents | Op::Getdents64 | Op::Readdir => if_so(interest.listing),
            // An in-process backend may remember the working directory.
            Op::Fchdir => if_so(interest.identity || interest.in_process),
            _ => if_so(interest.identity || interest.shared_image),
        },
        // Calls that the backend makes for the guest need the guest's umask.
        Class::Identity => match op {
            Op::Shmctl if interest.identity => Catch::StopIf(&[Test::OneOf(1, SHM_OWNERS)]),
            Op::Msgctl if interest.identity => Catch::StopIf(&[Test::OneOf(1, MSG_OWNERS)]),
            Op::Semctl if interest.identity => Catch::StopIf(&[Test::OneOf(2, SEM_OWNERS)]),
            _ => if_so(interest.identity || op == Op::Umask),
        },
        Class::Socket => socket(op, interest),
        Class::Process => process(arch, op, interest),
    }
}

fn socket(op: Op, interest: &Interest) -> Catch {
    match op {
        // The kernel refuses audit messages from other namespaces as if there was no audit, and
        // programs expect that. In the host's own namespace the error would be a missing
        // permission, which emulated root seems to have.
        Op::Socket if interest.identity => Catch::FailIf(raw::EPROTONOSUPPORT as u16, AUDIT),
        Op::Accept | Op::Accept4 => Catch::StopIf(&[Test::Given(1)]),
        Op::Recvfrom if interest.networks => Catch::StopIf(&[Test::Given(4), BY_MUSL]),
        Op::Sendto | Op::Recvfrom => Catch::StopIf(&[Test::Given(4)]),
        Op::Getsockopt => match (interest.identity, interest.networks) {
            (true, true) => Catch::StopIf(PEERS_AND_NAMES),
            (true, false) => Catch::StopIf(PEERS),
            (false, true) => Catch::StopIf(NAMES),
            (false, false) => Catch::Pass,
        },
        Op::Socket => Catch::Pass,
        // The kernel binds a socket that is not bound.
        Op::Listen if !interest.networks => Catch::Pass,
        Op::Socketcall => Catch::StopIf(&[Test::OneOf(0, SOCKETCALL)]),
        _ => Catch::Stop,
    }
}

fn process(arch: Arch, op: Op, interest: &Interest) -> Catch {
    match op {
        Op::Clone if interest.in_process => {
            Catch::StopIf(&[Test::Any(0, CLONE), SHARING[0], SHARING[1], SHARING[2]])
        }
        Op::Clone => Catch::StopIf(&[Test::Any(0, CLONE)]),
        Op::Prctl => Catch::StopIf(&[Test::OneOf(0, PRCTL)]),
        // A tracer may have bound the thread to its processor.
        Op::SchedSetaffinity if !interest.in_process => Catch::Stop,
        // Emulated root may do this; the host's caller may not.
        Op::Prlimit64 if interest.identity => Catch::StopIf(&[Test::Given(0), Test::Given(2)]),
        Op::IoprioSet
        | Op::Setrlimit
        | Op::SchedSetscheduler
        | Op::SchedSetattr
            if interest.identity =>
        {
            Catch::Stop
        }
        // All processes (-1) would be all processes of the host's caller.
        Op::Kill if interest.identity => Catch::Stop,
        // A process that stops itself may have asked to be traced.
        Op::Kill if interest.in_process => {
            Catch::StopIf(&[Test::OneOf(0, &[u32::MAX]), Test::OneOf(1, STOP)])
        }
        Op::Tkill if interest.in_process => Catch::StopIf(&[Test::OneOf(1, STOP)]),
        Op::Tgkill if interest.in_process => Catch::StopIf(&[Test::OneOf(2, STOP)]),
        Op::Kill => Catch::StopIf(&[Test::OneOf(0, &[u32::MAX])]),
        Op::Clone3
        | Op::Seccomp
        | Op::Ptrace
        | Op::Unshare
        // Every user may read these.
        | Op::Syslog
        | Op::Adjtimex
        | Op::ClockAdjtime
        | Op::ClockAdjtime64 => Catch::Stop,
        Op::Uname | Op::Olduname | Op::Oldolduname if interest.host_name => Catch::Stop,
        // The kernel does not know which processes an emulated user may reach.
        op if interest.identity && let Some((named, _)) = others::of(op) => reaches(named),
        // The kernel itself refuses the host's caller.
        _ => {
            debug_assert!(op.entry().number(arch).is_some());
            Catch::Pass
        }
    }
}

/// When a call may reach a process other than the caller.
const fn reaches(named: Named) -> Catch {
    match named {
        Named::Number(0) => Catch::StopIf(&[Test::Given(0)]),
        Named::Numbers(0, 1) => Catch::StopIf(&[Test::Given(0), Test::Given(1)]),
        Named::If(_, 1) => Catch::StopIf(&[Test::Given(1)]),
        _ => Catch::Stop,
    }
}

/// Whether a call of [`refusal`] changes what paths or ids mean to its process: a backend that
/// leaves such calls to the kernel has to know of them.
pub const fn is_namespaced(op: Op) -> bool {
    matches!(op, Op::Mount | Op::Umount | Op::Umount2 | Op::MoveMount | Op::PivotRoot | Op::Setns)
}

/// The error of a call that guests never get, whatever its arguments: that of a kernel without the
/// feature, or of a caller without the privilege (`sethostname`: where there is no name).
pub const fn refusal(op: Op) -> Option<u16> {
    Some(match op {
        // A ring opens files without a call that could be caught; a ruleset of the guest would
        // prevent the loader from running.
        Op::IoUringSetup
        | Op::IoUringEnter
        | Op::IoUringRegister
        | Op::LandlockCreateRuleset
        | Op::LandlockAddRule
        | Op::LandlockRestrictSelf
        // Programs fall back to mount(2), whose error they understand.
        | Op::Fsopen
        | Op::Fsconfig
        | Op::Fsmount
        | Op::Fspick
        | Op::OpenTree
        | Op::OpenTreeAttr
        | Op::MoveMount
        | Op::MountSetattr
        | Op::Statmount
        | Op::Listmount
        | Op::Listns
        | Op::Uselib
        // Programs do without.
        | Op::FileGetattr
        | Op::FileSetattr
        | Op::LookupDcookie => raw::ENOSYS as u16,
        Op::Mount
        | Op::Umount
        | Op::Umount2
        | Op::PivotRoot
        | Op::OpenByHandleAt
        | Op::FanotifyInit
        | Op::FanotifyMark
        | Op::Acct
        | Op::Swapon
        | Op::Swapoff
        | Op::Quotactl
        // State of the whole machine. The kernel itself refuses most callers, but not root.
        | Op::QuotactlFd
        | Op::Setns
        | Op::Sethostname
        | Op::Setdomainname
        | Op::Reboot
        | Op::Vhangup
        | Op::Bpf
        | Op::KexecLoad
        | Op::KexecFileLoad
        | Op::InitModule
        | Op::FinitModule
        | Op::DeleteModule
        | Op::Stime
        | Op::Settimeofday
        | Op::ClockSettime
        | Op::ClockSettime64 => raw::EPERM as u16,
        _ => return None,
    })
}

/// The filter for a kernel that runs these architectures. Calls of other architectures, and unknown
/// numbers, are `ENOSYS`.
///
/// # Errors
///
/// [`Broken`] if the rules have grown beyond the size of a filter.
pub fn program(arches: &[Arch], interest: &Interest) -> Result<Vec<Instruction>, Broken> {
    let mut filter = Filter { assembler: Assembler::new(), blocks: Vec::new() };
    let stop = filter.assembler.label();
    for arch in arches {
        let other = filter.assembler.label();
        let next = filter.assembler.label();
        filter.assembler.load_architecture();
        filter.assembler.unless_equal(arch.audit(), other);
        let mine = filter.assembler.label();
        filter.assembler.jump(mine);
        filter.assembler.place(other);
        filter.assembler.jump(next);
        filter.assembler.place(mine);
        filter.assembler.load_number();
        filter.tree(&runs(*arch, interest), stop);
        filter.blocks(stop);
        filter.assembler.place(next);
    }
    filter.assembler.ret(ERRNO | raw::ENOSYS);
    filter.assembler.place(stop);
    filter.stop(interest);
    filter.assembler.finish()
}

/// A run of neighbouring numbers with the same rule: the first number, and the rule.
type Run = (u32, Catch);

fn runs(arch: Arch, interest: &Interest) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for number in 0..=NUMBERS as u32 {
        let rule = match find_on(arch, number) {
            Some(entry) => catch(arch, entry.op, interest),
            None => Catch::Fail(raw::ENOSYS as u16),
        };
        if runs.last().is_none_or(|(_, last)| *last != rule) {
            runs.push((number, rule));
        }
    }
    debug_assert!((NUMBERS as u32) < X32_BIT);
    runs
}

struct Filter {
    assembler: Assembler,
    blocks: Vec<(Label, Catch)>,
}

impl Filter {
    /// Adds the comparisons of the loaded number.
    fn tree(&mut self, runs: &[Run], stop: Label) {
        if let [(_, rule)] = runs {
            return self.leaf(*rule, stop);
        }
        let (left, right) = runs.split_at(runs.len() / 2);
        let (here, there) = (self.assembler.label(), self.assembler.label());
        let Some((first, _)) = right.first() else { return };
        // A leaf is one instruction, a branch one or three, and a conditional jump reaches 255.
        if left.len() * 4 < 255 {
            self.assembler.if_at_least(*first, there);
        } else {
            let far = self.assembler.label();
            self.assembler.if_at_least(*first, far);
            self.assembler.jump(here);
            self.assembler.place(far);
            self.assembler.jump(there);
        }
        self.assembler.place(here);
        self.tree(left, stop);
        self.assembler.place(there);
        self.tree(right, stop);
    }

    fn leaf(&mut self, rule: Catch, stop: Label) {
        match rule {
            Catch::Pass => self.assembler.ret(ALLOW),
            Catch::Fail(errno) => self.assembler.ret(ERRNO | u32::from(errno)),
            Catch::Stop => self.assembler.jump(stop),
            Catch::StopIf(_) | Catch::FailIf(..) => {
                let known = self.blocks.iter().find(|(_, other)| *other == rule);
                let label = if let Some((label, _)) = known {
                    *label
                } else {
                    let label = self.assembler.label();
                    self.blocks.push((label, rule));
                    label
                };
                self.assembler.jump(label);
            }
        }
    }

    /// Adds the rules that test arguments.
    fn blocks(&mut self, stop: Label) {
        for (label, rule) in core::mem::take(&mut self.blocks) {
            self.assembler.place(label);
            let hit = self.assembler.label();
            let (Catch::StopIf(tests) | Catch::FailIf(_, tests)) = rule else { continue };
            for test in tests {
                self.test(*test, hit);
            }
            self.assembler.ret(ALLOW);
            self.assembler.place(hit);
            match rule {
                Catch::FailIf(errno, _) => self.assembler.ret(ERRNO | u32::from(errno)),
                _ => self.assembler.jump(stop),
            }
        }
    }

    /// Jumps to `hit` if the test holds.
    fn test(&mut self, test: Test, hit: Label) {
        match test {
            Test::Given(at) => {
                let no = self.assembler.label();
                self.assembler.argument(at, Compare::NotEqual, 0, no);
                self.assembler.jump(hit);
                self.assembler.place(no);
            }
            Test::OneOf(at, values) => {
                self.assembler.load_low(at);
                for value in values {
                    self.assembler.if_equal(*value, hit);
                }
            }
            Test::Any(at, mask) => {
                self.assembler.load_low(at);
                self.assembler.if_any(mask, hit);
            }
            Test::Of(at, bits, set) => {
                self.assembler.load_low(at);
                self.assembler.and(bits);
                self.assembler.if_equal(set, hit);
            }
            Test::Both((first, value), (second, other)) => {
                let no = self.assembler.label();
                self.assembler.load_low(first);
                self.assembler.unless_equal(value, no);
                self.assembler.load_low(second);
                self.assembler.if_equal(other, hit);
                self.assembler.place(no);
            }
            Test::High(at, values) => {
                self.assembler.load_high(at);
                for value in values {
                    self.assembler.if_equal(*value, hit);
                }
            }
            Test::Large(at) => {
                self.assembler.load_high(at);
                self.assembler.if_any(u32::MAX, hit);
            }
        }
    }

    /// Adds the end of all calls that stop.
    fn stop(&mut self, interest: &Interest) {
        if let Some((from, to)) = interest.loader {
            // Calls that an outer container makes in the same process, from the places before, do
            // not concern this one.
            let inner = interest.in_process && crate::boot::is_loaders(from);
            let from = if inner { LOADER_START } else { from };
            let no = self.assembler.label();
            self.assembler.pointer(Compare::GreaterOrEqual, from, no);
            self.assembler.pointer(Compare::Less, to, no);
            self.assembler.ret(ALLOW);
            self.assembler.place(no);
        }
        self.assembler.ret(interest.action());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::{Data, LIMIT, run};
    use proptest::prelude::*;

    const X86: [Arch; 2] = [Arch::X86_64, Arch::I386];

    fn action(catch: Catch, interest: &Interest) -> u32 {
        match catch {
            Catch::Pass => ALLOW,
            Catch::Stop => interest.action(),
            Catch::Fail(errno) => ERRNO | u32::from(errno),
            Catch::StopIf(_) | Catch::FailIf(..) => unreachable!("decided"),
        }
    }

    fn argument() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            0..70_u64,
            Just(u64::from(u32::MAX)),
            Just(u64::MAX),
            Just(1 << 32),
            (0x5500..0x5506_u64, any::<u32>()).prop_map(|(high, low)| high << 32 | u64::from(low)),
            proptest::sample::select(IOCTL).prop_map(u64::from),
            (0..32_u32).prop_map(|bit| 1 << bit),
            proptest::sample::select(&[0x200_u64, 0x311, 0x1_0100, 0x1_0300][..]),
        ]
    }

    fn interest() -> impl Strategy<Value = Interest> {
        (any::<[bool; 7]>(), any::<bool>()).prop_map(
            |(
                [identity, shared_image, listing, host_name, networks, in_process, namespaces],
                loader,
            )| {
                Interest {
                    identity,
                    shared_image,
                    listing,
                    host_name,
                    networks,
                    in_process,
                    namespaces,
                    loader: loader.then_some((0x6a00_0000_0000, 0x6a00_0001_0000)),
                }
            },
        )
    }

    proptest! {
        #[test]
        fn the_program_decides_as_the_rules_do(
            interest in interest(),
            arch in prop_oneof![
                proptest::sample::select(&Arch::ALL[..]).prop_map(Arch::audit),
                any::<u32>(),
            ],
            number in prop_oneof![
                8 => 0..520_u32, 1 => any::<u32>(), 1 => (0..520_u32).prop_map(|number| number | X32_BIT)
            ],
            arguments in proptest::array::uniform6(argument()),
            pointer in prop_oneof![
                any::<u64>(), 0x6a00_0000_0000_u64..0x6a00_0001_0000, Just(0x6a00_0001_0000),
                Just(0x69ff_ffff_ffff)
            ],
        ) {
            for arches in [&X86[..], &[Arch::Aarch64][..]] {
                let program = program(arches, &interest).unwrap();
                let data = Data { number, architecture: arch, pointer, arguments };
                let here = arches.iter().any(|known| known.audit() == arch);
                let mut wanted = if here {
                    catch_number(arch, number, &interest).decide(&arguments)
                } else {
                    Catch::Fail(raw::ENOSYS as u16)
                };
                let inside = interest.loader.is_some_and(|(from, to)| (from..to).contains(&pointer));
                if wanted == Catch::Stop && inside {
                    wanted = Catch::Pass;
                }
                prop_assert_eq!(run(&program, &data), Some(action(wanted, &interest)));
            }
        }
    }

    #[test]
    fn calls_with_a_path_never_pass() {
        for entry in &super::super::CALLS {
            for arch in Arch::ALL {
                if entry.number(arch).is_some() && entry.takes_path() {
                    let catch = catch(arch, entry.op, &Interest::default());
                    assert!(matches!(catch, Catch::Stop | Catch::Fail(_)), "{}", entry.name);
                }
            }
            if entry.class == Class::Refused {
                assert!(refusal(entry.op).is_some(), "{}", entry.name);
            }
        }
    }

    #[test]
    fn the_host_name_is_set_where_the_container_has_one_and_a_root() {
        for (identity, host_name) in [(false, false), (false, true), (true, false), (true, true)] {
            let interest = Interest { identity, host_name, ..Interest::default() };
            let refused = Catch::Fail(raw::EPERM as u16);
            let wanted = if identity && host_name { Catch::Stop } else { refused };
            assert_eq!(catch(Arch::X86_64, Op::Sethostname, &interest), wanted);
            assert_eq!(catch(Arch::X86_64, Op::Setdomainname, &interest), refused);
        }
    }

    #[test]
    fn programs_are_small() {
        let all = Interest {
            identity: true,
            shared_image: true,
            listing: true,
            host_name: true,
            networks: true,
            loader: Some((1, 2)),
            in_process: true,
            namespaces: false,
        };
        let length = program(&X86, &all).unwrap().len();
        // A guest may add filters of its own; the kernel counts them all against one limit of
        // 32768.
        assert!(length < LIMIT / 3, "{length}");
    }

    #[test]
    fn an_in_process_backend_protects_its_signals_and_memory() {
        let inside = Interest { in_process: true, ..Interest::default() };
        let outside = Interest::default();
        let seen = |op: Op, arguments: [u64; 6]| {
            assert_ne!(catch(Arch::X86_64, op, &outside).decide(&arguments), Catch::Stop, "{op:?}");
            catch(Arch::X86_64, op, &inside).decide(&arguments) == Catch::Stop
        };
        let ours = crate::boot::LOADER_START + 0x1000;
        for (set, old) in [(1, 0), (0, 1), (1, 1)] {
            assert!(seen(Op::RtSigprocmask, [2, set, old, 8, 0, 0]), "{set} {old}");
        }
        assert!(!seen(Op::RtSigprocmask, [2, 0, 0, 8, 0, 0]));
        assert!(seen(Op::Sigaltstack, [1, 0, 0, 0, 0, 0]));
        assert!(seen(Op::Mprotect, [0x7f00_0000_0000, 0x1000, 5, 0, 0, 0]));
        assert!(!seen(Op::Mprotect, [0x7f00_0000_0000, 0x1000, 3, 0, 0, 0]));
        assert!(seen(Op::RtSigaction, [1, 1, 0, 8, 0, 0]));
        assert!(seen(Op::RtSigaction, [31, 0, 1, 8, 0, 0]));
        assert!(seen(Op::RtSigaction, [1, 0, 1, 8, 0, 0]));
        assert!(seen(Op::RtSigsuspend, [1, 8, 0, 0, 0, 0]));
        assert!(seen(Op::RtSigreturn, [0; 6]));
        // A process with any exit signal; a thread with a root of its own; an ordinary thread, and
        // `vfork`.
        assert!(seen(Op::Clone, [0x20c, 0, 0, 0, 0, 0]));
        assert!(seen(Op::Clone, [0x4_0611, 0, 0, 0, 0, 0]));
        assert!(seen(Op::Clone, [0x1_0900, 0, 0, 0, 0, 0]));
        assert!(!seen(Op::Clone, [0x3d_0f00, 0, 0, 0, 0, 0]));
        assert!(!seen(Op::Clone, [0x4111, 0, 0, 0, 0, 0]));
        assert!(seen(Op::Munmap, [ours, 0x1000, 0, 0, 0, 0]));
        assert!(seen(Op::Munmap, [0x1000, 1 << 46, 0, 0, 0, 0]));
        assert!(!seen(Op::Munmap, [0x7f00_0000_0000, 0x1000, 0, 0, 0, 0]));
        assert!(seen(Op::Mremap, [0x1000, 1, 1, 3, ours, 0]));
        assert!(!seen(Op::Mmap, [0, 0x1000, 3, 0x22, u64::MAX, 0]));
    }

    #[test]
    fn hot_calls_pass_whatever_their_arguments() {
        let all = Interest { identity: true, shared_image: true, ..Interest::default() };
        let inside = Interest { in_process: true, ..all };
        assert_eq!(catch(Arch::X86_64, Op::Mmap, &all), Catch::Pass);
        for op in [Op::Read, Op::Write, Op::Futex, Op::EpollWait, Op::Getpid, Op::Close] {
            assert_eq!(catch(Arch::X86_64, op, &all), Catch::Pass, "{}", op.name());
            assert_eq!(catch(Arch::X86_64, op, &inside), Catch::Pass, "{}", op.name());
        }
    }
}
