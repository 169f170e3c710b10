//! Decides calls about the container's host name, where it has one of its own: `uname`,
//! `sethostname`, and `open` of `/proc/sys/kernel/hostname`.
//!
//! The name is the one of [`World::host_name`](crate::World::host_name) until a process sets
//! another; then the backend tells it ([`Host::host_name`](crate::guest::Host::host_name)). A
//! guest that opens the file for writing gets one of the backend's, since no rule sees a `write`;
//! its contents count as soon as there are some, so neither `O_TRUNC` nor a process that ends
//! before it writes changes the name. Readers get a copy of the name as it is when they open the
//! file.
//!
//! Without a name of its own, a container sees the host's, and nobody may set it.

use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, HOST_NAME_MAX};
use crate::identity::Capability;
use crate::verdict::{Call, Verdict};
use abi::calls::Op;
use linux_raw_sys::general as raw;

/// Size of a field of `struct utsname`, and of the first Linux's.
const UTS: usize = HOST_NAME_MAX + 1;
const UTS_OLDEST: usize = 9;

/// Returns true if guests with the privilege may set the name.
fn is_emulated<N: Backend>(context: &CallContext<'_, N>) -> bool {
    !context.world.host_name.is_empty() && context.world.identity.is_some()
}

/// The name as it is now, and its length.
fn now<N: Backend>(context: &mut CallContext<'_, N>) -> ([u8; HOST_NAME_MAX], usize) {
    let mut name = [0; HOST_NAME_MAX];
    if let Some(length) = context.backend.host_name(&mut name) {
        return (name, length.min(HOST_NAME_MAX));
    }
    let start = context.world.host_name;
    let length = start.len().min(HOST_NAME_MAX);
    name[..length].copy_from_slice(&start[..length]);
    (name, length)
}

/// Replaces the second field of a `struct utsname`. Each field ends with a zero.
pub(super) fn put<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<()> {
    let oldest =
        abi::calls::find(call.arch, call.number).is_some_and(|entry| entry.op == Op::Oldolduname);
    let size = if oldest { UTS_OLDEST } else { UTS };
    let mut field = [0; UTS];
    let (name, length) = now(context);
    let length = length.min(size - 1);
    field[..length].copy_from_slice(&name[..length]);
    context.backend.write(call.arguments[0] + size as u64, &field[..size])
}

/// `sethostname`, with the kernel's checks in its order.
pub(super) fn set<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<Verdict> {
    if !is_emulated(context) || !context.task.creds.has(Capability::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let [at, length, ..] = call.arguments;
    // An `int`: a negative one is too long.
    let length = length as u32 as usize;
    let mut name = [0; HOST_NAME_MAX];
    let name = name.get_mut(..length).ok_or(Errno::EINVAL)?;
    if !name.is_empty() {
        context.backend.read(at, name)?;
    }
    context.backend.set_host_name(name)?;
    Ok(Verdict::Done(0))
}

/// Opens the file of the name; `None` if the binding's own file will do.
#[inline(never)]
pub(super) fn open<N: Backend>(
    context: &mut CallContext<'_, N>,
    flags: u32,
) -> Result<Option<Verdict>> {
    let given = flags & (raw::O_ACCMODE | raw::O_CLOEXEC | raw::O_NONBLOCK);
    if flags & raw::O_ACCMODE == raw::O_RDONLY {
        let mut name = [0; HOST_NAME_MAX + 1];
        let Some(length) = name.first_chunk_mut().and_then(|name| context.backend.host_name(name))
        else {
            return Ok(None);
        };
        name[length] = b'\n';
        let file = context.backend.memory_file(c"hostname")?;
        if let Err(errno) = context.backend.write_all(file, &name[..=length]) {
            context.backend.close(file);
            return Err(errno);
        }
        return Ok(Some(Verdict::Give(file, given)));
    }
    if !is_emulated(context) {
        return Ok(None);
    }
    // Files under `/proc/sys` do not know of CAP_DAC_OVERRIDE.
    if context.task.creds.uid.effective != 0 {
        return Err(Errno::EACCES);
    }
    if !context.task.creds.has(Capability::SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let file = context.backend.host_name_file()?;
    Ok(Some(Verdict::Give(file, given)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostFd;
    use crate::calls::{self, process};
    use crate::guest::Guest;
    use crate::identity::{Credentials, Groups};
    use crate::task::Task;
    use crate::testing::{Bench, Fake, binding, read_only, tree::Body};
    use crate::verdict::After;
    use crate::world::{Binding, Identity, Kind};
    use abi::calls::Arch;
    use abi::syscalls::ARCH_X86_64;
    use std::vec::Vec;

    const NAME: &str = "/proc/sys/kernel/hostname";
    const TABLE: [Binding<'static>; 3] = [
        binding("/", "/c", Kind::Tree),
        binding("/proc", "/proc", Kind::Proc),
        read_only(NAME, "/run/name", Kind::HostName),
    ];
    const IDS: Identity = Identity { host_uid: 1000, host_gid: 1000, uid: 5, gid: 5 };

    fn bench() -> Bench<'static> {
        let mut fake = Fake::new();
        fake.dir("/c").file("/run/name", "start\n").file(NAME, "host\n").chdir("/c");
        let mut bench = Bench::new(fake, &TABLE);
        bench.world.identity = Some(IDS);
        bench.world.host_name = b"start";
        bench
    }

    fn call(op: Op, arguments: [u64; 6]) -> Call {
        let number = op.entry().number(Arch::X86_64).unwrap();
        Call { arch: ARCH_X86_64, number, arguments }
    }

    fn ask(bench: &mut Bench<'_>, op: Op, arguments: [u64; 6]) -> Result<Verdict> {
        bench.context(|context| process::enter(context, &call(op, arguments), op))
    }

    /// `sethostname` with a length.
    fn set_length(bench: &mut Bench<'_>, length: u64) -> Result<Verdict> {
        ask(bench, Op::Sethostname, [0x9000, length, 0, 0, 0, 0])
    }

    fn set(bench: &mut Bench<'_>, name: &[u8]) -> Result<Verdict> {
        bench.fake.map(0x9000, name);
        set_length(bench, name.len() as u64)
    }

    /// What `uname` says.
    fn name(bench: &mut Bench<'_>) -> Vec<u8> {
        bench.fake.map(0x1000, &[b'x'; 512]);
        let uname = call(Op::Uname, [0x1000; 6]);
        let result = bench.context(|context| process::leave(context, After::HostName, &uname, 0));
        assert_eq!(result, 0);
        let mut found = [0; UTS];
        Guest::read(&mut bench.fake, 0x1000 + UTS as u64, &mut found).unwrap();
        found.split(|byte| *byte == 0).next().unwrap().to_vec()
    }

    fn user(bench: &mut Bench<'_>, id: u32) {
        bench.task = Task::new(Credentials::new(id, id, Groups::NONE), 0o022);
    }

    /// A call with the file's path.
    fn by_path(bench: &mut Bench<'_>, op: Op, flags: u64) -> Verdict {
        bench.fake.map(0x5000, std::format!("{NAME}\0").as_bytes());
        let call = call(op, [-100_i64 as u64, 0x5000, flags, 0o644, 0, 0]);
        bench.context(|context| calls::enter(context, &call))
    }

    fn failed(errno: Errno) -> Verdict {
        Verdict::Done(errno.result())
    }

    /// The contents of the file that the guest gets.
    fn given(bench: &mut Bench<'_>, verdict: Verdict) -> Vec<u8> {
        let Verdict::Give(HostFd(file), _) = verdict else { panic!("{verdict:?}") };
        let node = bench.fake.held.remove(&file).unwrap().node;
        assert!(bench.fake.held.is_empty());
        let Body::File(bytes) = &bench.fake.tree.nodes[node].body else { panic!("no file") };
        bytes.clone()
    }

    #[test]
    fn root_sets_the_name_and_others_do_not() {
        let mut bench = bench();
        assert_eq!(name(&mut bench), b"start");
        assert_eq!(set(&mut bench, b"other"), Ok(Verdict::Done(0)));
        assert_eq!(name(&mut bench), b"other");
        assert_eq!(set(&mut bench, &[b'y'; 64]), Ok(Verdict::Done(0)));
        assert_eq!(name(&mut bench), [b'y'; 64]);
        assert_eq!(set(&mut bench, &[b'z'; 65]), Err(Errno::EINVAL));
        assert_eq!(set_length(&mut bench, u64::MAX), Err(Errno::EINVAL));
        assert_eq!(ask(&mut bench, Op::Sethostname, [8, 1, 0, 0, 0, 0]), Err(Errno::EFAULT));
        assert_eq!(name(&mut bench), [b'y'; 64]);
        assert_eq!(ask(&mut bench, Op::Sethostname, [8, 0, 0, 0, 0, 0]), Ok(Verdict::Done(0)));
        assert_eq!(name(&mut bench), b"");
        user(&mut bench, 7);
        // The privilege is asked for first.
        for length in [1, 65] {
            assert_eq!(set_length(&mut bench, length), Err(Errno::EPERM));
        }
        let mut bench = super::tests::bench();
        bench.world.identity = None;
        assert_eq!(set(&mut bench, b"x"), Err(Errno::EPERM));
    }

    #[test]
    fn the_file_is_written_by_root_alone() {
        const WRITE: u64 = (raw::O_WRONLY | raw::O_CREAT | raw::O_TRUNC) as u64;
        const ACCESS: [u64; 2] = [2, 4];
        let mut bench = bench();
        let verdict = by_path(&mut bench, Op::Openat, 0);
        assert!(matches!(verdict, Verdict::Instead(..)), "{verdict:?}");
        set(&mut bench, b"other").unwrap();
        let verdict = by_path(&mut bench, Op::Openat, 0);
        assert_eq!(given(&mut bench, verdict), b"other\n");
        let verdict = by_path(&mut bench, Op::Openat, WRITE);
        assert!(matches!(verdict, Verdict::Give(_, raw::O_WRONLY)), "{verdict:?}");
        assert_eq!(given(&mut bench, verdict), b"");
        assert_eq!(by_path(&mut bench, Op::Openat, WRITE | 0o200), failed(Errno::EEXIST));
        assert_eq!(by_path(&mut bench, Op::Unlinkat, 0), failed(Errno::EBUSY));
        assert_eq!(by_path(&mut bench, Op::Fchmodat, 0o666), failed(Errno::EROFS));
        for mode in ACCESS {
            assert_eq!(by_path(&mut bench, Op::Faccessat, mode), Verdict::Done(0), "{mode}");
        }
        user(&mut bench, 7);
        assert_eq!(by_path(&mut bench, Op::Openat, WRITE), failed(Errno::EACCES));
        assert_eq!(by_path(&mut bench, Op::Faccessat, 2), failed(Errno::EACCES));
        let verdict = by_path(&mut bench, Op::Openat, 0);
        assert_eq!(given(&mut bench, verdict), b"other\n");
        bench.world.identity = None;
        assert_eq!(by_path(&mut bench, Op::Openat, WRITE), failed(Errno::EROFS));
        assert!(bench.fake.held.is_empty());
    }

    #[test]
    fn the_host_name_is_the_containers() {
        let mut bench = bench();
        bench.world.host_name = b"";
        assert_eq!(ask(&mut bench, Op::Uname, [0x1000; 6]), Ok(Verdict::Pass));
        assert_eq!(set(&mut bench, b"x"), Err(Errno::EPERM));
        bench.world.host_name = b"a-long-name";
        assert_eq!(ask(&mut bench, Op::Uname, [0; 6]), Ok(Verdict::Watch(After::HostName)));
        for (op, arch, size, seen) in [
            (Op::Uname, Arch::X86_64, 65, "a-long-name"),
            (Op::Olduname, Arch::I386, 65, "a-long-name"),
            (Op::Oldolduname, Arch::I386, 9, "a-long-n"),
        ] {
            bench.fake.map(0x1000, &[b'x'; 512]);
            let number = op.entry().number(arch).unwrap();
            let call = Call { arch: arch.audit(), number, arguments: [0x1000; 6] };
            let mut after = |result| {
                bench.context(|context| process::leave(context, After::HostName, &call, result))
            };
            assert_eq!((after(-14), after(0)), (-14, 0));
            let mut found = [0; 512];
            Guest::read(&mut bench.fake, 0x1000, &mut found).unwrap();
            let mut wanted = [b'x'; 512];
            wanted[size..2 * size].fill(0);
            wanted[size..size + seen.len()].copy_from_slice(seen.as_bytes());
            assert_eq!(found, wanted, "{}", op.name());
        }
    }
}
