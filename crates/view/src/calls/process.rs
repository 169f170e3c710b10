//! Decides calls about processes and the system that a guest must not make, or not as the host's
//! caller.
//!
//! A call that needs a privilege over the whole machine is refused with the error that root of an
//! ordinary container gets (`EPERM`, or `ENOSYS` if programs have an alternative): mounts,
//! namespaces, clock, kernel modules. This does not rely on the caller being
//! unprivileged, because Coracle may be run by root. If emulated root raises limits that the host's
//! caller may not raise, or asks for a scheduling class, the call succeeds without effect
//! ([`After::Forgive`]): `su`, `sshd` and `cron` end a session if they cannot set its limits. A
//! priority is refused as by the kernel, as for root of an ordinary container: programs read it
//! back.
//!
//! What a user may do to another's processes is decided by [`super::others`], `prctl` by
//! [`super::prctl`], seccomp(2) by [`super::filters`].
//!
//! `ptrace` of a thread that has a tracer is `EPERM`, as for any other tracer.

use super::support::path_for_guest;
use super::{filters, host_name, others, prctl};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir};
use crate::identity::{self, Capability};
use crate::paths::{Intent, resolve};
use crate::verdict::{After, Call, Verdict};
use abi::calls::{Arch, Op};
use abi::syscalls::ARCH_X86_64;
use linux_raw_sys::general as raw;

/// Every kind of namespace that `unshare` and `clone3` make. In `clone` the low byte is the exit
/// signal, so `CLONE_NEWTIME` does not exist there.
const NEW_NAMESPACES: u64 = NEW_NAMESPACES_OF_CLONE | raw::CLONE_NEWTIME as u64;
const NEW_NAMESPACES_OF_CLONE: u64 = (raw::CLONE_NEWNS
    | raw::CLONE_NEWCGROUP
    | raw::CLONE_NEWUTS
    | raw::CLONE_NEWIPC
    | raw::CLONE_NEWUSER
    | raw::CLONE_NEWPID
    | raw::CLONE_NEWNET) as u64;
/// What `unshare` takes.
const UNSHARED: u64 = NEW_NAMESPACES
    | (raw::CLONE_THREAD
        | raw::CLONE_FS
        | raw::CLONE_SIGHAND
        | raw::CLONE_VM
        | raw::CLONE_FILES
        | raw::CLONE_SYSVSEM) as u64;
/// Size of the largest `struct clone_args` that is known here.
const CLONE_ARGUMENTS: usize = 88;
/// Size of the smallest `struct clone_args`.
const CLONE_ARGUMENTS_LEAST: usize = 64;

/// Decides a call of [`abi::calls::Class::Process`] or [`abi::calls::Class::Refused`], and of those
/// with a path: `chroot`, `pivot_root`, `mount`, `umount`, `umount2`, `open_tree`, `move_mount`,
/// `fspick`, `mount_setattr`, `swapon`, `swapoff`, `acct`, `quotactl`, `fanotify_mark`.
pub fn enter<N: Backend>(context: &mut CallContext<'_, N>, call: &Call, op: Op) -> Result<Verdict> {
    if context.world.namespaces {
        if is_kernels(context, op) {
            return Ok(Verdict::Pass);
        }
        let mounts = matches!(op, Op::Mount | Op::Umount | Op::Umount2);
        if mounts && call.arch == ARCH_X86_64 && context.task.creds.has(Capability::SYS_ADMIN) {
            return mount_below(context, call, op);
        }
    }
    others::check(context, call, op)?;
    match op {
        Op::Prctl => prctl::enter(context, call),
        Op::Seccomp => filters::install(context, call),
        Op::Ptrace => Err(ptrace(call.arguments[0])),
        Op::Clone => clone(call),
        Op::Clone3 => clone3(context, call),
        // The kernel finds unknown flags before it asks for a privilege.
        Op::Unshare if call.arguments[0] & !UNSHARED != 0 => Err(Errno::EINVAL),
        Op::Unshare if call.arguments[0] & NEW_NAMESPACES == 0 => Ok(Verdict::Pass),
        Op::Kill => kill(context, call),
        Op::Chroot => chroot(context, call),
        Op::Adjtimex => adjust_clock(context, call.arguments[0]),
        Op::ClockAdjtime | Op::ClockAdjtime64 => adjust_clock(context, call.arguments[1]),
        Op::Uname | Op::Olduname | Op::Oldolduname if !context.world.host_name.is_empty() => {
            Ok(Verdict::Watch(After::HostName))
        }
        Op::Sethostname => host_name::set(context, call),
        Op::Setrlimit => Ok(or_forgive(context, Capability(raw::CAP_SYS_RESOURCE))),
        // A call that also reads the old limit would not get it, so the kernel's error stays.
        Op::Prlimit64 if call.arguments[2] != 0 && call.arguments[3] == 0 => {
            Ok(or_forgive(context, Capability(raw::CAP_SYS_RESOURCE)))
        }
        Op::IoprioSet | Op::SchedSetscheduler | Op::SchedSetattr => {
            Ok(or_forgive(context, Capability(raw::CAP_SYS_NICE)))
        }
        // SYSLOG_ACTION_READ_ALL, SYSLOG_ACTION_SIZE_BUFFER: the other actions change what all
        // readers see.
        Op::Syslog if matches!(call.arguments[0] as u32, 3 | 10) => Ok(Verdict::Pass),
        _ => refusal(op).map_or(Ok(Verdict::Pass), Err),
    }
}

/// Finishes a call for [`After::Filter`], [`After::Forgive`] and [`After::HostName`]; returns the
/// result for the guest.
pub fn leave<N: Backend>(
    context: &mut CallContext<'_, N>,
    after: After,
    call: &Call,
    result: i64,
) -> i64 {
    match after {
        After::Filter => filters::installed(context.task, call, result),
        After::Forgive if [Errno::EPERM.result(), Errno::EACCES.result()].contains(&result) => {
            return 0;
        }
        After::HostName if result == 0 => {
            return host_name::put(context, call).map_or_else(Errno::result, |()| 0);
        }
        _ => {}
    }
    result
}

/// Whether the kernel decides about a call that it would refuse the host's caller, because the
/// container has namespaces of its own. Paths mean the same to it unless the guest has another
/// root.
fn is_kernels<N: Backend>(context: &CallContext<'_, N>, op: Op) -> bool {
    match op {
        Op::Clone | Op::Clone3 | Op::Unshare => true,
        op if abi::calls::filter::is_namespaced(op) => {
            context.task.root.as_bytes() == b"/" && context.task.creds.has(Capability::SYS_ADMIN)
        }
        op => abi::calls::filter::refusal(op).is_some(),
    }
}

/// `mount` and `umount2` of a guest with another root, which the kernel does not know: it gets the
/// paths that it takes them for. Without a boundary, a mount in a root that was changed is a mount
/// of the container's.
fn mount_below<N: Backend>(
    context: &mut CallContext<'_, N>,
    call: &Call,
    op: Op,
) -> Result<Verdict> {
    const UMOUNT_NOFOLLOW: u64 = 8;
    let [first, second, _, flags, ..] = call.arguments;
    let follow = op != Op::Umount2 || second & UMOUNT_NOFOLLOW == 0;
    let names_a_place = u64::from(raw::MS_BIND | raw::MS_MOVE);
    let mut instead = *call;
    let paths = match op {
        Op::Mount if flags & names_a_place != 0 => [Some((0, first)), Some((1, second))],
        Op::Mount => [None, Some((1, second))],
        _ => [Some((0, first)), None],
    };
    for (index, at) in paths.into_iter().flatten() {
        context.backend.read_text(at, &mut context.buffers.named[index])?;
        let intent =
            Intent::FOLLOW.with_at_flags(if follow { 0 } else { raw::AT_SYMLINK_NOFOLLOW });
        let place = resolve(context, Dir::Cwd, index, intent)?;
        let path = path_for_guest(context, &place, index);
        place.close(context.backend);
        instead.arguments[index] = path?;
    }
    Ok(Verdict::Instead(instead, After::Nothing))
}

/// Lets the kernel decide, but hides its refusal if the guest has the capability.
fn or_forgive<N: Backend>(context: &CallContext<'_, N>, capability: Capability) -> Verdict {
    if context.world.identity.is_some() && context.task.creds.has(capability) {
        Verdict::Watch(After::Forgive)
    } else {
        Verdict::Pass
    }
}

/// The error of a call that is refused whatever its arguments are: by the table, or because no rule
/// above has allowed it.
const fn refusal(op: Op) -> Option<Errno> {
    match (abi::calls::filter::refusal(op), op) {
        (Some(number), _) => Some(Errno(number)),
        (None, Op::Unshare | Op::Syslog) => Some(Errno::EPERM),
        (None, _) => None,
    }
}

/// The guest's threads have a tracer already, or must appear to have one, so no guest can trace
/// another.
const fn ptrace(request: u64) -> Errno {
    match request as u32 {
        linux_raw_sys::ptrace::PTRACE_TRACEME
        | linux_raw_sys::ptrace::PTRACE_ATTACH
        | linux_raw_sys::ptrace::PTRACE_SEIZE => Errno::EPERM,
        _ => Errno::ESRCH,
    }
}

/// The error for a new namespace. The kernel finds contradictory flags first: the directories of a
/// mount namespace cannot be shared.
pub const fn refused_clone(flags: u64) -> Errno {
    let shared = raw::CLONE_FS as u64;
    let private = (raw::CLONE_NEWNS | raw::CLONE_NEWUSER) as u64;
    if flags & shared != 0 && flags & private != 0 { Errno::EINVAL } else { Errno::EPERM }
}

/// Removes `CLONE_UNTRACED`, so that a tracer does not lose a child.
fn clone(call: &Call) -> Result<Verdict> {
    let flags = call.arguments[0];
    if flags & NEW_NAMESPACES_OF_CLONE != 0 {
        return Err(refused_clone(flags));
    }
    if flags & u64::from(raw::CLONE_UNTRACED) == 0 {
        return Ok(Verdict::Pass);
    }
    let mut instead = *call;
    instead.arguments[0] &= !u64::from(raw::CLONE_UNTRACED);
    Ok(Verdict::Instead(instead, After::Nothing))
}

/// Calls that the kernel refuses anyway (a bad size, an unreadable structure) are passed to it.
fn clone3<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<Verdict> {
    let size = call.arguments[1] as usize;
    if !(CLONE_ARGUMENTS_LEAST..=4096).contains(&size) {
        return Ok(Verdict::Pass);
    }
    let mut arguments = [0; CLONE_ARGUMENTS];
    let known = size.min(CLONE_ARGUMENTS);
    if context.backend.read(call.arguments[0], &mut arguments[..known]).is_err() {
        return Ok(Verdict::Pass);
    }
    let mut flags = [0; 8];
    flags.copy_from_slice(&arguments[..8]);
    let flags = u64::from_le_bytes(flags);
    if flags & NEW_NAMESPACES != 0 {
        return Err(refused_clone(flags));
    }
    if flags & u64::from(raw::CLONE_UNTRACED) == 0 {
        return Ok(Verdict::Pass);
    }
    if size > CLONE_ARGUMENTS {
        return Err(Errno::E2BIG);
    }
    arguments[..8].copy_from_slice(&(flags & !u64::from(raw::CLONE_UNTRACED)).to_le_bytes());
    let mut instead = *call;
    instead.arguments[0] = context.backend.scratch(&arguments[..known], 8)?;
    Ok(Verdict::Instead(instead, After::Nothing))
}

/// kill(2). To the kernel, "every process" means every process of the caller on the host.
fn kill<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<Verdict> {
    let [target, signal, ..] = call.arguments.map(|word| word as u32);
    if target != u32::MAX {
        return Ok(Verdict::Pass);
    }
    if signal > 64 {
        return Err(Errno::EINVAL);
    }
    context.backend.signal_all(signal)?;
    Ok(Verdict::Done(0))
}

/// Every user may read the clock's state.
fn adjust_clock<N: Backend>(context: &mut CallContext<'_, N>, timex: u64) -> Result<Verdict> {
    /// `ADJ_ADJTIME`, and the bit that it needs.
    const SINGLE: u32 = 0x8000;
    const OFFSET: u32 = 1;
    let mut modes = [0; 4];
    context.backend.read(timex, &mut modes)?;
    match u32::from_le_bytes(modes) {
        0 => Ok(Verdict::Pass),
        // The kernel finds this before it asks for a privilege.
        modes if modes & SINGLE != 0 && modes & OFFSET == 0 => Err(Errno::EINVAL),
        _ => Err(Errno::EPERM),
    }
}

/// chroot(2), for root of the guest. The kernel is never asked; from then on the task's paths start
/// at the new root.
fn chroot<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<Verdict> {
    context.backend.read_text(call.arguments[0], &mut context.buffers.named[0])?;
    let place = resolve(context, Dir::Cwd, 0, Intent::FOLLOW)?;
    let buffers = &mut *context.buffers;
    let found = buffers.found[0].as_c_str();
    let mut facts = identity::files::NO_FACTS;
    let mut checked = context.backend.statx(place.at, found, raw::AT_EMPTY_PATH, &mut facts);
    if checked.is_ok() && u32::from(facts.stx_mode) & raw::S_IFMT != raw::S_IFDIR {
        checked = Err(Errno::ENOTDIR);
    }
    if checked.is_ok()
        && let Some(ids) = &context.world.identity
    {
        let who = &context.task.creds;
        checked = identity::files::search(context.backend, ids, who, place.kind, place.at, found);
    }
    place.close(context.backend);
    checked?;
    if context.world.identity.is_none() || !context.task.creds.has(Capability::SYS_CHROOT) {
        return Err(Errno::EPERM);
    }
    if buffers.position.is_empty() {
        return Err(Errno::EACCES);
    }
    context.task.root = buffers.position;
    context.task.fs_changed = true;
    Ok(Verdict::Done(0))
}

/// Returns true if pointers of a call are 32 bits wide.
pub(super) const fn is_32_bit(call: &Call) -> bool {
    matches!(Arch::from_audit(call.arch), Some(Arch::I386))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Credentials, Groups};
    use crate::task::Task;
    use crate::testing::{Bench, Fake, binding, string, task};
    use crate::world::{Binding, Identity, Kind};
    use abi::syscalls::ARCH_X86_64;
    use linux_raw_sys::prctl as names;

    const TABLE: [Binding<'static>; 3] = [
        binding("/", "/c", Kind::Tree),
        binding("/data", "/srv/data", Kind::Host),
        binding("/proc", "/proc", Kind::Proc),
    ];
    const IDS: Identity = Identity { host_uid: 1000, host_gid: 1000, uid: 0, gid: 0 };

    fn bench() -> Bench<'static> {
        let mut fake = Fake::new();
        fake.dir("/c/jail/etc").file("/c/file", "").dir("/srv/data").chdir("/c");
        fake.link("/c/door", "jail");
        let mut bench = Bench::new(fake, &TABLE);
        bench.world.identity = Some(IDS);
        bench
    }

    fn ask(bench: &mut Bench<'_>, op: Op, arguments: [u64; 6]) -> Result<Verdict> {
        let number = op.entry().number(Arch::X86_64).unwrap();
        let call = Call { arch: ARCH_X86_64, number, arguments };
        bench.context(|context| enter(context, &call, op))
    }

    fn user(bench: &mut Bench<'_>, id: u32) {
        bench.task = Task::new(Credentials::new(id, id, Groups::NONE), 0o022);
    }

    #[test]
    fn calls_that_change_the_machine_are_refused() {
        let mut bench = bench();
        for op in [
            Op::Mount,
            Op::PivotRoot,
            Op::Sethostname,
            Op::Setns,
            Op::Reboot,
            Op::Settimeofday,
            Op::FinitModule,
            Op::Bpf,
            Op::OpenByHandleAt,
        ] {
            assert_eq!(ask(&mut bench, op, [0; 6]), Err(Errno::EPERM), "{}", op.name());
        }
        for op in [Op::IoUringSetup, Op::LandlockCreateRuleset, Op::Statmount] {
            assert_eq!(ask(&mut bench, op, [0; 6]), Err(Errno::ENOSYS), "{}", op.name());
        }
        for op in [Op::Uname, Op::PerfEventOpen, Op::PidfdGetfd, Op::PidfdSendSignal] {
            assert_eq!(ask(&mut bench, op, [0; 6]), Ok(Verdict::Pass), "{}", op.name());
        }
        assert_eq!(ask(&mut bench, Op::Syslog, [3, 0, 0, 0, 0, 0]), Ok(Verdict::Pass));
        assert_eq!(ask(&mut bench, Op::Syslog, [5, 0, 0, 0, 0, 0]), Err(Errno::EPERM));
        bench.fake.map(0x1000, &[0; 64]).map(0x2000, &[1; 64]);
        assert_eq!(ask(&mut bench, Op::Adjtimex, [0x1000, 0, 0, 0, 0, 0]), Ok(Verdict::Pass));
        assert_eq!(ask(&mut bench, Op::Adjtimex, [0x2000, 0, 0, 0, 0, 0]), Err(Errno::EPERM));
        let trace =
            |bench: &mut Bench<'_>, request| ask(bench, Op::Ptrace, [request, 5, 0, 0, 0, 0]);
        assert_eq!(trace(&mut bench, 0), Err(Errno::EPERM));
        assert_eq!(trace(&mut bench, 0x4206), Err(Errno::EPERM));
        assert_eq!(trace(&mut bench, 0x4200), Err(Errno::ESRCH));
    }

    #[test]
    fn in_namespaces_of_its_own_the_kernel_decides() {
        let mut bench = bench();
        bench.world.namespaces = true;
        for op in [Op::Mount, Op::PivotRoot, Op::Setns, Op::Sethostname, Op::IoUringSetup] {
            assert_eq!(ask(&mut bench, op, [0; 6]), Ok(Verdict::Pass), "{}", op.name());
        }
        let new_user = 0x1000_0011;
        assert_eq!(ask(&mut bench, Op::Clone, [new_user, 0, 0, 0, 0, 0]), Ok(Verdict::Pass));
        // A path below another root means something else to the kernel.
        bench.task.root.set(b"/jail").unwrap();
        assert_eq!(ask(&mut bench, Op::PivotRoot, [0; 6]), Err(Errno::EPERM));
        bench.task.root.set(b"/").unwrap();
        user(&mut bench, 7);
        assert_eq!(ask(&mut bench, Op::Mount, [0; 6]), Err(Errno::EPERM));
    }

    #[test]
    fn namespaces_are_refused_and_threads_are_not() {
        let mut bench = bench();
        let pthread = 0x003d_0f00;
        let (new_user, untraced) = (0x1000_0000, 0x0080_0000);
        assert_eq!(ask(&mut bench, Op::Clone, [pthread, 0, 0, 0, 0, 0]), Ok(Verdict::Pass));
        assert_eq!(ask(&mut bench, Op::Clone, [0x91, 0, 0, 0, 0, 0]), Ok(Verdict::Pass));
        let refused = ask(&mut bench, Op::Clone, [new_user | 0x11, 0, 0, 0, 0, 0]);
        assert_eq!(refused, Err(Errno::EPERM));
        let verdict = ask(&mut bench, Op::Clone, [untraced | 0x11, 1, 2, 3, 4, 0]);
        let Ok(Verdict::Instead(instead, After::Nothing)) = verdict else { panic!("{verdict:?}") };
        assert_eq!(instead.arguments, [17, 1, 2, 3, 4, 0]);
        assert_eq!(ask(&mut bench, Op::Unshare, [0x200, 0, 0, 0, 0, 0]), Ok(Verdict::Pass));
        assert_eq!(ask(&mut bench, Op::Unshare, [0x80, 0, 0, 0, 0, 0]), Err(Errno::EPERM));
        let mut arguments = [0_u8; 88];
        for (flags, wanted) in
            [(pthread, Ok(Verdict::Pass)), (new_user, Err(Errno::EPERM)), (0x80, Err(Errno::EPERM))]
        {
            arguments[..8].copy_from_slice(&flags.to_le_bytes());
            bench.fake.map(0x1000, &arguments);
            assert_eq!(ask(&mut bench, Op::Clone3, [0x1000, 88, 0, 0, 0, 0]), wanted);
        }
        arguments[..8].copy_from_slice(&untraced.to_le_bytes());
        bench.fake.map(0x1000, &arguments);
        let verdict = ask(&mut bench, Op::Clone3, [0x1000, 88, 0, 0, 0, 0]);
        let Ok(Verdict::Instead(instead, After::Nothing)) = verdict else { panic!("{verdict:?}") };
        assert_eq!(bench.fake.peek(instead.arguments[0], 88), [0; 88]);
        assert_eq!(ask(&mut bench, Op::Clone3, [0x1000, 8, 0, 0, 0, 0]), Ok(Verdict::Pass));
        assert_eq!(ask(&mut bench, Op::Clone3, [0xf0_0000, 88, 0, 0, 0, 0]), Ok(Verdict::Pass));
    }

    #[test]
    fn users_may_signal_only_their_own_processes() {
        let mut bench = bench();
        for (tid, id) in [(77, 500), (78, 501)] {
            let mut other = task();
            other.creds = Credentials::new(id, id, Groups::NONE);
            bench.fake.tasks.insert(tid, other);
        }
        let kill = |bench: &mut Bench<'_>, target: i64, signal| {
            ask(bench, Op::Kill, [target as u64, signal, 0, 0, 0, 0])
        };
        assert_eq!(kill(&mut bench, 78, 15), Ok(Verdict::Pass), "root may");
        user(&mut bench, 500);
        assert_eq!(kill(&mut bench, 77, 15), Ok(Verdict::Pass));
        assert_eq!(kill(&mut bench, 78, 15), Err(Errno::EPERM));
        assert_eq!(kill(&mut bench, 78, 0), Err(Errno::EPERM));
        assert_eq!(kill(&mut bench, 78, 18), Ok(Verdict::Pass), "SIGCONT");
        assert_eq!(
            kill(&mut bench, 99, 15),
            Ok(Verdict::Pass),
            "not in this container: the kernel decides"
        );
        assert_eq!(kill(&mut bench, -5, 15), Ok(Verdict::Pass));
        let queue = ask(&mut bench, Op::RtSigqueueinfo, [78, 15, 0, 0, 0, 0]);
        assert_eq!(queue, Err(Errno::EPERM));
        assert_eq!(kill(&mut bench, -1, 15), Ok(Verdict::Done(0)));
        assert_eq!(kill(&mut bench, -1, 65), Err(Errno::EINVAL));
        assert_eq!(bench.fake.signalled, [15]);
        bench.world.identity = None;
        assert_eq!(kill(&mut bench, 78, 15), Ok(Verdict::Pass));
    }

    #[test]
    fn users_reach_only_their_own_processes() {
        let mut bench = bench();
        for (tid, id) in [(77, 500), (78, 501)] {
            let mut other = task();
            other.creds = Credentials::new(id, id, Groups::NONE);
            bench.fake.tasks.insert(tid, other);
        }
        bench.fake.file("/proc/42/fdinfo/5", "pos:\t0\nflags:\t02\nPid:\t78\nNSpid:\t78\n");
        bench.fake.file("/proc/42/fdinfo/6", "pos:\t0\nflags:\t02\nPid:\t77\n");
        let process = |process| {
            [
                (Op::ProcessVmWritev, [process, 0, 0, 0, 0, 0]),
                (Op::Kcmp, [0, process, 0, 0, 0, 0]),
                (Op::SchedSetaffinity, [process, 8, 0, 0, 0, 0]),
                (Op::Setpriority, [0, process, 5, 0, 0, 0]),
                (Op::IoprioSet, [1, process, 0, 0, 0, 0]),
                (Op::Prlimit64, [process, 7, 0, 1, 0, 0]),
                (Op::PidfdGetfd, [if process == 78 { 5 } else { 6 }, 0, 0, 0, 0, 0]),
            ]
        };
        for (op, arguments) in process(78).into_iter().chain(process(77)) {
            let verdict = ask(&mut bench, op, arguments);
            assert!(matches!(verdict, Ok(Verdict::Pass | Verdict::Watch(_))), "root: {op:?}");
        }
        user(&mut bench, 500);
        for (op, arguments) in process(78) {
            assert_eq!(ask(&mut bench, op, arguments), Err(Errno::EPERM), "{op:?}");
        }
        for (op, arguments) in process(77).into_iter().chain(process(0)).chain(process(99)) {
            assert_eq!(ask(&mut bench, op, arguments), Ok(Verdict::Pass), "{op:?}");
        }
        // A group of processes, which has the number of one.
        let group = ask(&mut bench, Op::Setpriority, [1, 78, 5, 0, 0, 0]);
        assert_eq!(group, Ok(Verdict::Pass));
        let unknown = ask(&mut bench, Op::PidfdGetfd, [9, 0, 0, 0, 0, 0]);
        assert_eq!(unknown, Ok(Verdict::Pass));
    }

    #[test]
    fn chroot_changes_the_root_of_the_task() {
        let mut bench = bench();
        let mut chroot = |path: &str, user_id: u32| {
            bench.fake.map_text(0x1000, path);
            user(&mut bench, user_id);
            let verdict = ask(&mut bench, Op::Chroot, [0x1000, 0, 0, 0, 0, 0]);
            assert!(bench.fake.held.is_empty());
            assert_eq!(bench.task.fs_changed, verdict.is_ok());
            verdict.map(|verdict| (verdict, string(&bench.task.root)))
        };
        let done = |root: &str| Ok((Verdict::Done(0), root.into()));
        assert_eq!(chroot("/jail", 0), done("/jail"));
        assert_eq!(chroot("door/etc/..", 0), done("/jail"));
        assert_eq!(chroot(".", 0), done("/"));
        assert_eq!(chroot("/data/", 0), done("/data"));
        assert_eq!(chroot("/jail", 500), Err(Errno::EPERM));
        assert_eq!(chroot("/none", 500), Err(Errno::ENOENT));
        assert_eq!(chroot("/file", 0), Err(Errno::ENOTDIR));
    }

    #[test]
    fn a_chroot_in_a_chroot() {
        let mut bench = bench();
        bench.fake.map_text(0x1000, "/jail").map_text(0x1100, "/etc");
        assert_eq!(ask(&mut bench, Op::Chroot, [0x1000, 0, 0, 0, 0, 0]), Ok(Verdict::Done(0)));
        assert_eq!(ask(&mut bench, Op::Chroot, [0x1100, 0, 0, 0, 0, 0]), Ok(Verdict::Done(0)));
        assert_eq!(string(&bench.task.root), "/jail/etc");
    }

    #[test]
    fn prctl_reports_the_emulated_state() {
        let mut bench = bench();
        let ask = |bench: &mut Bench<'_>, option: u32, second, third| {
            ask(bench, Op::Prctl, [u64::from(option), second, third, 0, 0, 0])
        };
        let done = |value| Ok(Verdict::Done(value));
        assert_eq!(ask(&mut bench, names::PR_GET_SECCOMP, 0, 0), done(0));
        assert_eq!(ask(&mut bench, names::PR_GET_NO_NEW_PRIVS, 0, 0), done(0));
        assert_eq!(ask(&mut bench, names::PR_GET_DUMPABLE, 0, 0), done(1));
        assert_eq!(ask(&mut bench, names::PR_SET_NO_NEW_PRIVS, 2, 0), Err(Errno::EINVAL));
        assert_eq!(ask(&mut bench, names::PR_SET_NO_NEW_PRIVS, 1, 0), Ok(Verdict::Pass));
        assert_eq!(ask(&mut bench, names::PR_GET_NO_NEW_PRIVS, 0, 0), done(1));
        assert_eq!(ask(&mut bench, names::PR_GET_NO_NEW_PRIVS, 0, 1), Err(Errno::EINVAL));
        assert_eq!(ask(&mut bench, names::PR_SET_DUMPABLE, 2, 0), Err(Errno::EINVAL));
        assert_eq!(ask(&mut bench, names::PR_SET_DUMPABLE, 0, 0), done(0));
        assert_eq!(ask(&mut bench, names::PR_GET_DUMPABLE, 0, 0), done(0));
        bench.task.executed();
        assert_eq!(ask(&mut bench, names::PR_GET_DUMPABLE, 0, 0), done(1));
        assert_eq!(ask(&mut bench, names::PR_CAPBSET_READ, 7, 0), done(1));
        assert_eq!(ask(&mut bench, names::PR_CAPBSET_DROP, 7, 0), done(0));
        assert_eq!(ask(&mut bench, names::PR_CAPBSET_READ, 7, 0), done(0));
        assert_eq!(ask(&mut bench, names::PR_CAPBSET_READ, 63, 0), Err(Errno::EINVAL));
        assert_eq!(ask(&mut bench, names::PR_SET_KEEPCAPS, 1, 0), done(0));
        assert_eq!(ask(&mut bench, names::PR_GET_KEEPCAPS, 0, 0), done(1));
        assert_eq!(ask(&mut bench, names::PR_GET_SECUREBITS, 0, 0), done(16));
        assert_eq!(ask(&mut bench, names::PR_CAP_AMBIENT, 1, 7), done(0));
        assert_eq!(ask(&mut bench, names::PR_SET_NAME, 1, 7), Ok(Verdict::Pass));
        bench.world.identity = None;
        assert_eq!(ask(&mut bench, names::PR_CAPBSET_READ, 7, 0), Ok(Verdict::Pass));
    }

    #[test]
    fn limits_that_the_host_refuses_appear_set_to_root() {
        let mut bench = bench();
        let limit = [0, 7, 0x1000, 0, 0, 0];
        assert_eq!(ask(&mut bench, Op::Prlimit64, limit), Ok(Verdict::Watch(After::Forgive)));
        let nice = [0, 0, -5_i64 as u64, 0, 0, 0];
        assert_eq!(ask(&mut bench, Op::Setpriority, nice), Ok(Verdict::Pass));
        let call = Call { arch: ARCH_X86_64, number: 302, arguments: limit };
        let mut result =
            |result| bench.context(|context| leave(context, After::Forgive, &call, result));
        assert_eq!([result(-1), result(-13), result(-22), result(5)], [0, 0, -22, 5]);
        let both = [0, 7, 0x1000, 0x2000, 0, 0];
        assert_eq!(ask(&mut bench, Op::Prlimit64, both), Ok(Verdict::Pass));
        user(&mut bench, 500);
        assert_eq!(ask(&mut bench, Op::Prlimit64, limit), Ok(Verdict::Pass));
    }
}
