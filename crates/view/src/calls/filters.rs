//! Decides calls by which the guest installs seccomp(2) filters of its own.
//!
//! A guest's filter is really installed. The kernel runs it together with the container's filter
//! and takes the most severe result. So what the guest's filter forbids stays forbidden: `KILL`,
//! `TRAP` and `ERRNO` win over the container's `TRACE`, before any backend sees the call. The
//! kernel checks a call again after a tracer has changed it. Rules never change the number of a
//! call, and filters cannot look through pointers, so the second check gives the same result as the
//! first.
//!
//! Three problems remain. A prefix ([`prefix`]) and a small change of the program
//! ([`without_trace`]) solve them:
//!
//! - The stage makes calls where the kernel would have made none; those from its addresses are
//!   allowed.
//! - A tracer that sees every call skips one by the number -1, which newer kernels show to the
//!   filter. It is allowed, and does nothing.
//! - `RET_TRACE` without a tracer of the guest's own means `ENOSYS`, but would reach the
//!   container's tracer: it becomes that error.
//!
//! Programs that leave no room for the prefix, or are longer than a buffer, are installed
//! unchanged. A listener (`SECCOMP_FILTER_FLAG_NEW_LISTENER`) is `EBUSY`, as if there were another
//! one already: the backend would never see a call that the listener lets continue. Strict mode is
//! installed as a filter, because the kernel does not allow both. A filter can end a thread by
//! `SIGSYS` only, and strict mode does by `SIGKILL`: a backend inside the process does that itself.

use super::process::is_32_bit;
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::Backend;
use crate::identity::Capability;
use crate::task::Task;
use crate::verdict::{After, Call, Verdict};
use abi::boot::{LOADER_START, RANGE};
use abi::bpf::{ALLOW, ERRNO, KILL_THREAD, LIMIT, TRACE};
use linux_raw_sys::prctl::PR_SET_SECCOMP;

const SET_MODE_STRICT: u32 = 0;
const SET_MODE_FILTER: u32 = 1;
const MODE_STRICT: u32 = 1;
const MODE_FILTER: u32 = 2;
const FLAG_TSYNC: u64 = 1;
const FLAG_NEW_LISTENER: u64 = 1 << 3;
/// Size of `struct sock_filter` in bytes.
pub const INSTRUCTION: usize = 8;

const LOAD: u16 = 0x20;
const LOAD_NUMBER: u16 = 0x00;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;

/// Encodes a `struct sock_filter`.
const fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> [u8; INSTRUCTION] {
    let ([c0, c1], [k0, k1, k2, k3]) = (code.to_le_bytes(), k.to_le_bytes());
    [c0, c1, jt, jf, k0, k1, k2, k3]
}

/// Number of instructions of [`prefix`].
pub const PREFIX: usize = 9;

/// The instructions before the guest's program. They allow the number -1, and calls of the loader
/// at this address and of the loaders at lower places, which belong to the containers around this
/// one. Loaders at higher places belong to containers inside this one: their calls are calls of
/// this guest, and its filter has to see them. Afterwards the accumulator is 0 again.
pub const fn prefix(loader: u64) -> [[u8; INSTRUCTION]; PREFIX] {
    let (first, last) = ((LOADER_START >> 32) as u32, (loader >> 32) as u32);
    [
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_EQUAL, 5, 0, u32::MAX),
        instruction(LOAD, 0, 0, 12),
        instruction(JUMP_GREATER_EQUAL, 0, 4, first),
        instruction(JUMP_GREATER_EQUAL, 3, 0, last + 1),
        instruction(LOAD, 0, 0, 8),
        instruction(JUMP_GREATER_EQUAL, 1, 0, RANGE as u32),
        instruction(RETURN, 0, 0, ALLOW),
        instruction(LOAD_NUMBER, 0, 0, 0),
    ]
}
const _: () = assert!(LOADER_START as u32 == 0, "a loader lies at the beginning of 4 GiB");

/// Number of instructions of [`new_processes`].
const NEW_PROCESSES: usize = 8 + PREFIX;

/// A filter that returns `action` for `clone`, `fork` and `vfork` of x86-64, except for those of
/// the loader at this address. It allows all other calls.
pub const fn new_processes(loader: u64, action: u32) -> [[u8; INSTRUCTION]; NEW_PROCESSES] {
    /// `clone`, `fork`, `vfork`.
    const NUMBERS: [u32; 3] = [56, 57, 58];
    let mut program = [instruction(RETURN, 0, 0, ALLOW); NEW_PROCESSES];
    program[0] = instruction(LOAD, 0, 0, 4);
    program[1] = instruction(JUMP_EQUAL, 0, 4, abi::syscalls::ARCH_X86_64);
    program[2] = instruction(LOAD, 0, 0, 0);
    program[3] = instruction(JUMP_EQUAL, 3, 0, NUMBERS[0]);
    program[4] = instruction(JUMP_EQUAL, 2, 0, NUMBERS[1]);
    program[5] = instruction(JUMP_EQUAL, 1, 0, NUMBERS[2]);
    let prefix = prefix(loader);
    let mut at = 0;
    while at < PREFIX {
        program[7 + at] = prefix[at];
        at += 1;
    }
    program[NEW_PROCESSES - 1] = instruction(RETURN, 0, 0, action);
    program
}

/// Strict mode as a filter, for the three architectures: allows `read`, `write`, `exit`,
/// `rt_sigreturn` (and i386's `sigreturn`), and has `action` for all other calls.
pub const fn strict(arch: u32, action: u32) -> [[u8; INSTRUCTION]; 10] {
    let numbers: [u32; 5] = match arch {
        abi::syscalls::ARCH_I386 => [3, 4, 1, 173, 119],
        abi::syscalls::ARCH_AARCH64 => [63, 64, 93, 139, 139],
        _ => [0, 1, 60, 15, 15],
    };
    [
        instruction(LOAD, 0, 0, 4),
        instruction(JUMP_EQUAL, 0, 6, arch),
        instruction(LOAD, 0, 0, 0),
        instruction(JUMP_EQUAL, 5, 0, numbers[0]),
        instruction(JUMP_EQUAL, 4, 0, numbers[1]),
        instruction(JUMP_EQUAL, 3, 0, numbers[2]),
        instruction(JUMP_EQUAL, 2, 0, numbers[3]),
        instruction(JUMP_EQUAL, 1, 0, numbers[4]),
        instruction(RETURN, 0, 0, action),
        instruction(RETURN, 0, 0, ALLOW),
    ]
}

/// What a call asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// `SECCOMP_MODE_STRICT`.
    Strict,
    /// A filter: address of the `struct sock_fprog`, flags.
    Filter(u64, u64),
    /// Any other request, which the kernel handles.
    Other,
}

impl Wish {
    /// Decodes a `seccomp` or `prctl` call.
    pub fn of(call: &Call) -> Self {
        let [first, second, third, ..] = call.arguments;
        let by_prctl = matches!(
            abi::calls::find(call.arch, call.number),
            Some(entry) if entry.op == abi::calls::Op::Prctl
        );
        match (by_prctl, first as u32, second as u32) {
            (true, PR_SET_SECCOMP, MODE_STRICT) => Self::Strict,
            (true, PR_SET_SECCOMP, MODE_FILTER) => Self::Filter(third, 0),
            (false, SET_MODE_STRICT, 0) if third == 0 => Self::Strict,
            (false, SET_MODE_FILTER, _) => Self::Filter(third, second & 0xffff_ffff),
            _ => Self::Other,
        }
    }
}

/// Decides `seccomp`, and `prctl(PR_SET_SECCOMP)`. The kernel handles requests that do not install
/// a filter.
pub(super) fn install<N: Backend>(
    context: &mut CallContext<'_, N>,
    call: &Call,
) -> Result<Verdict> {
    match Wish::of(call) {
        Wish::Other => Ok(Verdict::Pass),
        Wish::Strict => install_strict(context, call),
        Wish::Filter(program, flags) => install_filter(context, call, program, flags),
    }
}

fn install_strict<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<Verdict> {
    if u32::from(context.task.filters.mode) == MODE_FILTER {
        return Err(Errno::EINVAL);
    }
    let program = strict(call.arch, KILL_THREAD);
    let bytes = program.as_flattened();
    let at = context.backend.scratch(bytes, 8)?;
    instead(context, call, at, program.len())
}

fn install_filter<N: Backend>(
    context: &mut CallContext<'_, N>,
    call: &Call,
    program: u64,
    flags: u64,
) -> Result<Verdict> {
    if flags & FLAG_NEW_LISTENER != 0 {
        return Err(Errno::EBUSY);
    }
    let mut header = [0; 16];
    let (size, pointer) = if is_32_bit(call) { (8, 4) } else { (16, 8) };
    let header = &mut header[..size];
    context.backend.read(program, header)?;
    let length = usize::from(u16::from_le_bytes([header[0], header[1]]));
    let mut address = [0; 8];
    address[..size - pointer].copy_from_slice(&header[pointer..]);
    let address = u64::from_le_bytes(address);
    if length == 0 || length > LIMIT {
        return Err(Errno::EINVAL);
    }
    let creds = &context.task.creds;
    if !creds.no_new_privileges && !creds.has(Capability::SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    let whole = (PREFIX + length) * INSTRUCTION;
    if PREFIX + length > LIMIT || whole > context.buffers.input.len() {
        return Ok(Verdict::Watch(After::Filter));
    }
    let (before, rest) = context.buffers.input[..whole].split_at_mut(PREFIX * INSTRUCTION);
    // A tracer's loader is at the first place.
    before.copy_from_slice(prefix(LOADER_START).as_flattened());
    context.backend.read(address, rest)?;
    without_trace(rest);
    let at = context.backend.scratch(&context.buffers.input[..whole], 8)?;
    instead(context, call, at, PREFIX + length)
}

/// Replaces each `RET_TRACE` by its meaning when there is no tracer.
pub fn without_trace(program: &mut [u8]) {
    for one in program.as_chunks_mut::<INSTRUCTION>().0 {
        let code = u16::from_le_bytes([one[0], one[1]]);
        let k = u32::from_le_bytes([one[4], one[5], one[6], one[7]]);
        if code == RETURN && k & 0xffff_0000 == TRACE {
            one[4..].copy_from_slice(&(ERRNO | u32::from(Errno::ENOSYS.0)).to_le_bytes());
        }
    }
}

/// The same call with another program. The number stays, so existing filters decide it as before.
fn instead<N: Backend>(
    context: &mut CallContext<'_, N>,
    call: &Call,
    at: u64,
    length: usize,
) -> Result<Verdict> {
    let mut header = [0; 16];
    header[..2].copy_from_slice(&(length as u16).to_le_bytes());
    let header = if is_32_bit(call) {
        header[4..8].copy_from_slice(&(at as u32).to_le_bytes());
        &header[..8]
    } else {
        header[8..].copy_from_slice(&at.to_le_bytes());
        &header[..]
    };
    let header = context.backend.scratch(header, 8)?;
    let mut instead = *call;
    instead.arguments[2] = header;
    match Wish::of(call) {
        Wish::Strict if call.arguments[0] as u32 == PR_SET_SECCOMP => {
            instead.arguments[1] = u64::from(MODE_FILTER);
        }
        Wish::Strict => instead.arguments[0] = u64::from(SET_MODE_FILTER),
        Wish::Filter(..) | Wish::Other => {}
    }
    Ok(Verdict::Instead(instead, After::Filter))
}

/// Counts the filter after the kernel has installed it.
pub fn installed(task: &mut Task, call: &Call, result: i64) {
    if result != 0 {
        return;
    }
    let wish = Wish::of(call);
    task.filters.mode = if wish == Wish::Strict { MODE_STRICT } else { MODE_FILTER } as u8;
    task.filters.count += 1;
    task.filters.synchronised = matches!(wish, Wish::Filter(_, flags) if flags & FLAG_TSYNC != 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::{Credentials, Groups};
    use crate::testing::{Bench, Fake, binding, task};
    use crate::world::{Binding, Kind};
    use abi::boot::{BASE_STEP, BASES, LOADER_END, start};
    use abi::bpf::{Data, Instruction, run};
    use abi::syscalls::{ARCH_AARCH64, ARCH_I386, ARCH_X86_64};
    use std::vec::Vec;

    const TABLE: [Binding<'static>; 1] = [binding("/", "/c", Kind::Tree)];

    fn parse(bytes: &[u8]) -> Vec<Instruction> {
        let one = |one: &[u8; 8]| Instruction {
            code: u16::from_le_bytes([one[0], one[1]]),
            jt: one[2],
            jf: one[3],
            k: u32::from_le_bytes([one[4], one[5], one[6], one[7]]),
        };
        bytes.as_chunks::<8>().0.iter().map(one).collect()
    }

    fn bench(user: u32) -> Bench<'static> {
        let mut bench = Bench::new(Fake::new(), &TABLE);
        bench.task = crate::Task::new(Credentials::new(user, user, Groups::NONE), 0o022);
        bench
    }

    /// Installs a program as the guest; returns the program that the kernel gets.
    fn installed_by(bench: &mut Bench<'_>, call: &Call, program: &[u8]) -> Result<Vec<u8>> {
        let at = 0x2000_u64;
        let mut header = Vec::from(((program.len() / 8) as u16).to_le_bytes());
        header.resize(if is_32_bit(call) { 4 } else { 8 }, 0);
        header.extend(at.to_le_bytes());
        bench.fake.map(0x1000, &header).map(at, program);
        match bench.context(|context| install(context, call))? {
            Verdict::Instead(instead, After::Filter) => {
                assert_eq!(instead.number, call.number);
                let header =
                    bench.fake.peek(instead.arguments[2], if is_32_bit(call) { 8 } else { 16 });
                let length = usize::from(u16::from_le_bytes([header[0], header[1]]));
                let mut at = [0; 8];
                let start = if is_32_bit(call) { 4 } else { 8 };
                at[..header.len() - start].copy_from_slice(&header[start..]);
                Ok(bench.fake.peek(u64::from_le_bytes(at), length * 8))
            }
            Verdict::Watch(After::Filter) => Ok(program.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    fn seccomp_call(arch: u32, arguments: [u64; 6]) -> Call {
        let number = match arch {
            ARCH_I386 => 354,
            ARCH_AARCH64 => 277,
            _ => 317,
        };
        Call { arch, number, arguments }
    }

    fn asked(number: u32, pointer: u64) -> Data {
        Data { number, architecture: ARCH_X86_64, pointer, arguments: [0; 6] }
    }

    /// A guest's filter that kills for every call, but fails call 1 and traces call 2.
    fn guests() -> Vec<u8> {
        [
            instruction(LOAD, 0, 0, 0),
            instruction(JUMP_EQUAL, 0, 1, 1),
            instruction(RETURN, 0, 0, ERRNO | 0xd),
            instruction(JUMP_EQUAL, 0, 1, 2),
            instruction(RETURN, 0, 0, TRACE | 7),
            instruction(RETURN, 0, 0, KILL_THREAD),
        ]
        .concat()
    }

    #[test]
    fn the_loader_and_skipped_calls_are_exempt() {
        for arch in [ARCH_X86_64, ARCH_I386, ARCH_AARCH64] {
            let call = seccomp_call(arch, [1, 0, 0x1000, 0, 0, 0]);
            let bytes = installed_by(&mut bench(0), &call, &guests()).unwrap();
            let program = parse(&bytes);
            let answer = |number, pointer| run(&program, &asked(number, pointer));
            let program_at = 0x5555_5555_0000;
            assert_eq!(answer(0, program_at), Some(KILL_THREAD));
            assert_eq!(answer(1, program_at), Some(ERRNO | 0xd));
            assert_eq!(answer(2, program_at), Some(ERRNO | 0x26));
            assert_eq!(answer(u32::MAX, program_at), Some(ALLOW));
            for inside in [LOADER_START, LOADER_START + 2, LOADER_END - 1] {
                assert_eq!(answer(0, inside), Some(ALLOW), "{inside:x}");
            }
            for outside in [LOADER_START - 1, LOADER_END, 2, LOADER_START + BASE_STEP] {
                assert_eq!(answer(0, outside), Some(KILL_THREAD), "{outside:x}");
            }
        }
    }

    #[test]
    fn loaders_of_inner_containers_are_not_exempt() {
        let bytes = [prefix(start(1)).as_flattened(), &guests()].concat();
        let program = parse(&bytes);
        let answer = |pointer| run(&program, &asked(0, pointer));
        for place in 0..BASES {
            for at in [start(place), start(place) + RANGE - 1] {
                let wanted = if place <= 1 { ALLOW } else { KILL_THREAD };
                assert_eq!(answer(at), Some(wanted), "{at:x}");
            }
            assert_eq!(answer(start(place) + RANGE), Some(KILL_THREAD));
        }
    }

    #[test]
    fn strict_mode_allows_four_calls() {
        for (arch, allowed) in [
            (ARCH_X86_64, &[0, 1, 15, 60][..]),
            (ARCH_I386, &[3, 4, 1, 173, 119]),
            (ARCH_AARCH64, &[63, 64, 93, 139]),
        ] {
            let program = parse(strict(arch, KILL_THREAD).as_flattened());
            for number in 0..450 {
                let data = Data { architecture: arch, ..asked(number, 0) };
                let wanted = if allowed.contains(&number) { ALLOW } else { KILL_THREAD };
                assert_eq!(run(&program, &data), Some(wanted), "{arch:x} {number}");
                let data = Data { architecture: 7, ..data };
                assert_eq!(run(&program, &data), Some(KILL_THREAD));
            }
        }
        let call = seccomp_call(ARCH_X86_64, [0, 0, 0, 0, 0, 0]);
        let mut bench = bench(1000);
        let verdict = bench.context(|context| install(context, &call)).unwrap();
        let Verdict::Instead(instead, After::Filter) = verdict else { panic!("{verdict:?}") };
        assert_eq!(instead.arguments[0], 1);
        installed(&mut bench.task, &call, 0);
        assert_eq!(bench.task.filters.mode, 1);
        let call = Call { number: 157, arguments: [22, 1, 0, 0, 0, 0], ..call };
        let verdict = bench.context(|context| install(context, &call)).unwrap();
        let Verdict::Instead(instead, After::Filter) = verdict else { panic!("{verdict:?}") };
        assert_eq!(instead.arguments[..2], [22, 2]);
    }

    #[test]
    fn installing_needs_a_privilege() {
        let call = seccomp_call(ARCH_X86_64, [1, 0, 0x1000, 0, 0, 0]);
        assert!(installed_by(&mut bench(0), &call, &guests()).is_ok());
        let mut user = bench(1000);
        assert_eq!(installed_by(&mut user, &call, &guests()), Err(Errno::EACCES));
        user.task.creds.no_new_privileges = true;
        assert!(installed_by(&mut user, &call, &guests()).is_ok());
        let listener = seccomp_call(ARCH_X86_64, [1, 8, 0x1000, 0, 0, 0]);
        assert_eq!(installed_by(&mut user, &listener, &guests()), Err(Errno::EBUSY));
        assert_eq!(installed_by(&mut user, &call, &[]), Err(Errno::EINVAL));
        let long = guests().repeat(600);
        assert_eq!(installed_by(&mut user, &call, &long).unwrap(), long, "unchanged");
        let bad = seccomp_call(ARCH_X86_64, [1, 0, 0x9_0000, 0, 0, 0]);
        assert_eq!(user.context(|context| install(context, &bad)), Err(Errno::EFAULT));
        let query = seccomp_call(ARCH_X86_64, [2, 0, 0x1000, 0, 0, 0]);
        assert_eq!(user.context(|context| install(context, &query)), Ok(Verdict::Pass));
    }

    #[test]
    fn installed_filters_are_counted() {
        let mut thread = task();
        let call = seccomp_call(ARCH_X86_64, [1, 1, 0x1000, 0, 0, 0]);
        installed(&mut thread, &call, -22);
        installed(&mut thread, &call, 77);
        assert_eq!(thread.filters, crate::task::Filters::NONE);
        installed(&mut thread, &call, 0);
        installed(
            &mut thread,
            &Call { number: 157, arguments: [22, 2, 0x1000, 0, 0, 0], ..call },
            0,
        );
        assert_eq!((thread.filters.mode, thread.filters.count), (2, 2));
    }
}
