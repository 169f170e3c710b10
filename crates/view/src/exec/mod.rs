//! Decides `execve` and `execveat`: which file is run with which arguments, and every error that
//! the kernel would have found first.
//!
//! [`plan`] finds the program (through `#!` lines, as deep as the kernel goes), opens it and its
//! interpreter, and leaves an [`ExecPlan`] in [`crate::CallBuffers::exec`]. The backend then makes
//! the guest execute the loader, and a boot block tells the loader what to load: [`abi::boot`]
//! describes the protocol. Everything that must be right before the point of no return is checked
//! here, except argument lists and their limits, which the kernel checks when it executes the
//! loader.

mod file;
mod script;
#[cfg(test)]
mod tests;
mod vectors;

use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Host, HostFd};
use crate::identity;
use crate::paths::Intent;
use crate::text::Text;
use crate::verdict::{Call, Verdict};
use crate::{CallBuffers, CallContext};
use abi::boot::{BOOT_AT, BOOT_ROOM, Boot, Ids};
use abi::boot32::{self, Operations};
use abi::calls::{Arch, Op};
use abi::elf::{self, Class, Header};
use file::{Executable, Part};
use linux_raw_sys::general::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_RDONLY};
use script::LINE_MAX;
use vectors::Front;

/// The kind of code of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// x86-64, loaded by the stage.
    X86_64,
    /// i386, loaded by the stub for 32-bit programs.
    I386,
}

/// An `execve` that is allowed.
///
/// The order of the members in memory matters: the small ones lie together with the beginning of
/// the first text, because a process pays a page fault for each page that it touches first.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct ExecPlan {
    /// Selects the loader.
    pub machine: Machine,
    /// The program, open for reading. The backend closes it after it has carried out the plan:
    /// [`ExecPlan::release`].
    pub program: Option<HostFd>,
    /// The program's interpreter (`PT_INTERP`), opened in the same way; `None` for a static
    /// program.
    pub interpreter: Option<HostFd>,
    /// Device (major, minor) and inode number of the program, which cannot be written to while it
    /// runs. All zero if they are not known.
    pub inode: (u32, u32, u64),
    /// Name of the thread: the last component as the guest wrote it, 15 bytes at most.
    pub comm: [u8; 16],
    /// `AT_SECURE`: the program gains privileges that its caller does not have.
    pub secure: bool,
    /// The program's ids; `None` if ids are the host's.
    pub ids: Option<Ids>,
    /// `argv` for the loader's `execve`: an address in the guest.
    pub arguments: u64,
    /// `envp`, in the same way.
    pub environment: u64,
    /// `AT_EXECFN`: the name that the guest executed (`/dev/fd/N...` for `execveat`).
    pub name: Text,
    /// Guest path of the program: absolute, without symbolic links; the target of `/proc/self/exe`.
    pub program_guest: Text,
    /// Host path of the program, for a backend without `/proc` ([`Host::opens_by_path`]). Empty if
    /// it has none (deleted, in memory).
    pub program_host: Text,
    /// Host path of the interpreter, in the same way.
    pub interpreter_host: Text,
    /// The operations of the loader for [`Machine::I386`].
    pub operations: Operations,
}

impl ExecPlan {
    /// No plan.
    pub const EMPTY: Self = Self {
        machine: Machine::X86_64,
        program: None,
        interpreter: None,
        program_host: Text::EMPTY,
        interpreter_host: Text::EMPTY,
        program_guest: Text::EMPTY,
        inode: (0, 0, 0),
        name: Text::EMPTY,
        comm: [0; 16],
        secure: false,
        ids: None,
        operations: Operations::NONE,
        arguments: 0,
        environment: 0,
    };

    /// The address of the boot block, which depends on [`ExecPlan::machine`].
    pub const fn boot_at(&self) -> u64 {
        match self.machine {
            Machine::X86_64 => BOOT_AT,
            Machine::I386 => boot32::BLOCK_AT,
        }
    }

    /// Writes the boot block for this plan and returns the number of bytes used. `program` and
    /// `interpreter` are the paths by which the loader opens the files (without an interpreter the
    /// second is ignored): `/proc/PID/fd/N` of a backend that holds them, else
    /// [`ExecPlan::program_host`] and [`ExecPlan::interpreter_host`].
    pub fn boot(
        &self,
        program: &[u8],
        interpreter: &[u8],
        into: &mut [u8; BOOT_ROOM],
    ) -> Result<usize> {
        let boot = Boot {
            program,
            interpreter: self.interpreter.map(|_| interpreter),
            name: self.name.as_bytes(),
            comm: self.comm,
            secure: self.secure,
            ids: self.ids,
        };
        let length = match self.machine {
            Machine::X86_64 => boot.write(into),
            Machine::I386 => self.operations.write(&boot, into),
        };
        length.ok_or(Errno::ENAMETOOLONG)
    }

    /// Empties the plan without closing its files. Texts stay, because making a plan sets them.
    fn clear(&mut self) {
        self.machine = Machine::X86_64;
        (self.program, self.interpreter) = (None, None);
        self.inode = (0, 0, 0);
        self.comm = [0; 16];
        self.secure = false;
        self.ids = None;
        (self.arguments, self.environment) = (0, 0);
    }

    /// Closes the files of the plan.
    pub fn release(&mut self, host: &mut impl Host) {
        for fd in [self.program.take(), self.interpreter.take()].into_iter().flatten() {
            host.close(fd);
        }
    }
}

/// The greatest depth of scripts that are interpreted by scripts.
const SCRIPTS_MAX: usize = 5;

/// `AT_EXECVE_CHECK` (Linux 6.14): only check.
const AT_EXECVE_CHECK: u32 = 0x1_0000;

/// Decides an `execve` or `execveat`: [`Verdict::Exec`] with the plan in the buffers, or the error.
///
/// With [`Verdict::Exec`] the task is already in the state in which the program will run
/// ([`crate::Task::executed`], credentials). A backend keeps a copy of the state before, because
/// the kernel may refuse the loader's `execve`.
pub fn plan<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Verdict {
    context.buffers.exec.clear();
    let verdict = decide(context, call).unwrap_or_else(|errno| Verdict::Done(errno.result()));
    if verdict != Verdict::Exec {
        context.buffers.exec.release(context.backend);
    }
    verdict
}

/// The decoded call.
struct Request {
    /// The directory that its path starts from.
    from: Dir,
    intent: Intent,
    argv: u64,
    envp: u64,
    /// Size of its pointers in bytes.
    width: usize,
    flags: u32,
}

fn request<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<Request> {
    let arch = Arch::from_audit(call.arch).ok_or(Errno::ENOSYS)?;
    let op = abi::calls::find(call.arch, call.number).map(|entry| entry.op);
    let word = |index: usize| match arch {
        Arch::I386 => call.arguments[index] & 0xffff_ffff,
        Arch::X86_64 | Arch::Aarch64 => call.arguments[index],
    };
    let (from, first, flags) = match op {
        Some(Op::Execve) => (Dir::Cwd, 0, 0),
        Some(Op::Execveat) => match word(0) as i32 {
            AT_FDCWD => (Dir::Cwd, 1, word(4) as u32),
            fd => (Dir::Guest(fd), 1, word(4) as u32),
        },
        _ => return Err(Errno::ENOSYS),
    };
    // The kernel reads the name before it looks at the flags.
    context.backend.read_text(word(first), &mut context.buffers.named[0])?;
    if context.buffers.named[0].is_empty() && flags & AT_EMPTY_PATH == 0 {
        return Err(Errno::ENOENT);
    }
    if flags & !(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_EXECVE_CHECK) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Request {
        from,
        intent: Intent::FOLLOW.with_at_flags(flags),
        argv: word(first + 1),
        envp: word(first + 2),
        width: arch.word(),
        flags,
    })
}

fn decide<N: Backend>(context: &mut CallContext<'_, N>, call: &Call) -> Result<Verdict> {
    let request = request(context, call)?;
    name(context.buffers, &request)?;
    let mut file = file::open(context, request.from, request.intent, Part::Program)?;
    context.buffers.exec.program = Some(file.fd);
    if request.flags & AT_EXECVE_CHECK != 0 {
        return Ok(Verdict::Done(0));
    }
    let mut front = Front::NONE;
    let mut depth = 0;
    while let Some(line) = script::parse(file.line(context))? {
        // The interpreter's arguments: its own name, the rest of the line, the script's name.
        let interpreter = copy(Some(line.interpreter))?;
        let argument = copy(line.argument)?;
        if depth == 0 && is_unreachable(context, &request) {
            return Err(Errno::ENOENT);
        }
        if front.pop().is_none() {
            front.push(context.backend, context.buffers.exec.name.with_nul())?;
        } else {
            front.push(context.backend, context.buffers.named[0].with_nul())?;
        }
        if let Some((argument, length)) = argument {
            front.push(context.backend, &argument[..=length])?;
        }
        if let Some((interpreter, length)) = interpreter {
            front.push(context.backend, &interpreter[..=length])?;
            context.buffers.named[0].set(&interpreter[..length])?;
        }
        context.buffers.exec.release(context.backend);
        file = file::open(context, Dir::Cwd, Intent::FOLLOW, Part::Program)?;
        context.buffers.exec.program = Some(file.fd);
        depth += 1;
        if depth > SCRIPTS_MAX {
            return Err(Errno::ELOOP);
        }
    }
    load(context, &request, &mut file, &mut front)?;
    describe(&request, &mut context.buffers.exec);
    context.buffers.exec.inode = file.inode;
    apply_to_task(context, &file);
    let CallBuffers { exec, input, .. } = &mut *context.buffers;
    exec.environment = request.envp;
    exec.arguments = if front.is_empty() {
        request.argv
    } else {
        front.vector(context.backend, request.argv, request.width, input)?
    };
    Ok(Verdict::Exec)
}

/// A word of a script's line, with a NUL behind it.
fn copy(argument: Option<&[u8]>) -> Result<Option<([u8; LINE_MAX + 1], usize)>> {
    let Some(argument) = argument else { return Ok(None) };
    let mut bytes = [0; LINE_MAX + 1];
    bytes.get_mut(..argument.len()).ok_or(Errno::ENOEXEC)?.copy_from_slice(argument);
    Ok(Some((bytes, argument.len())))
}

/// `bprm->filename`: the name of what was executed.
fn name(buffers: &mut CallBuffers, request: &Request) -> Result<()> {
    let CallBuffers { named: [typed, _], exec: plan, .. } = buffers;
    let typed = typed.as_bytes();
    match request.from {
        Dir::Guest(fd) if typed.first() != Some(&b'/') => {
            plan.name.set(b"/dev/fd/")?;
            plan.name.push_number(fd.unsigned_abs())?;
            if typed.is_empty() { Ok(()) } else { plan.name.push_component(typed) }
        }
        _ => plan.name.set(typed),
    }
}

/// `comm`: the last component as the guest wrote it. For a file executed by its descriptor, the
/// program's own name (since Linux 6.14).
fn describe(request: &Request, plan: &mut ExecPlan) {
    let by_descriptor = matches!(request.from, Dir::Guest(_))
        && request.flags & AT_EMPTY_PATH != 0
        && plan.name.as_bytes().starts_with(b"/dev/fd/")
        && !plan.name.as_bytes()[8..].contains(&b'/');
    let source = if by_descriptor { &plan.program_guest } else { &plan.name };
    let whole = source.as_bytes();
    let whole =
        if by_descriptor { whole.strip_suffix(b" (deleted)").unwrap_or(whole) } else { whole };
    let base = whole.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let length = base.len().min(15);
    plan.comm = [0; 16];
    plan.comm[..length].copy_from_slice(&base[..length]);
}

/// Returns true if a script was executed by a descriptor and its interpreter could not open it,
/// because the descriptor is closed by then.
fn is_unreachable<N: Backend>(context: &mut CallContext<'_, N>, request: &Request) -> bool {
    let Dir::Guest(fd) = request.from else { return false };
    let CallBuffers { exec: plan, spare: [path, _], .. } = &mut *context.buffers;
    let host = &mut *context.backend;
    if !plan.name.as_bytes().starts_with(b"/dev/fd/") {
        return false;
    }
    let mut text = [0; 64];
    let length = crate::proc::about_descriptor(host, fd, path, &mut text).unwrap_or(0);
    // "flags:\t02100000": octal, O_CLOEXEC among them.
    let flags =
        text[..length].split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"flags:"));
    let value = flags.unwrap_or_default().iter().filter(|byte| byte.is_ascii_digit());
    value.fold(0_u32, |sum, digit| sum.wrapping_mul(8) + u32::from(digit - b'0')) & O_CLOEXEC != 0
}

/// Finds the loader of a program that is not a script, and checks that it can load it.
fn load<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    file: &mut Executable,
    front: &mut Front,
) -> Result<()> {
    let header = file.header(context).ok_or(Errno::ENOEXEC)?;
    context.buffers.exec.machine = match (header.machine, header.class) {
        (elf::MACHINE_X86_64, Class::Bits64) => Machine::X86_64,
        (elf::MACHINE_I386 | elf::MACHINE_I486, Class::Bits32) => {
            context.buffers.exec.operations = Operations::NONE;
            Machine::I386
        }
        (machine, _) => return emulate(context, request, machine, front),
    };
    if !header.is_loadable() {
        return Err(Errno::ENOEXEC);
    }
    let mut wanted = None;
    file.segments(context, &header, |segment| {
        wanted = (segment.kind == elf::INTERPRETER).then_some(*segment);
        wanted.is_some()
    })?;
    let narrow = context.buffers.exec.machine == Machine::I386;
    let Some(segment) = wanted else {
        if narrow {
            operations(context, file, &header, Part::Program)?;
            context.buffers.exec.operations.entry(&header).ok_or(Errno::ENOEXEC)?;
        }
        return Ok(());
    };
    file.interpreter(context, &segment)?;
    if narrow {
        operations(context, file, &header, Part::Program)?;
    }
    let mut interpreter = file::open(context, Dir::Cwd, Intent::FOLLOW, Part::Interpreter)?;
    context.buffers.exec.interpreter = Some(interpreter.fd);
    if interpreter.is_short() {
        return Err(Errno::EIO);
    }
    let inner = interpreter.header(context).ok_or(Errno::ELIBBAD)?;
    if inner.class != header.class || !same_machine(inner.machine, header.machine) {
        return Err(Errno::ELIBBAD);
    }
    if narrow {
        let mapped = operations(context, &mut interpreter, &inner, Part::Interpreter);
        return mapped
            .and_then(|()| context.buffers.exec.operations.entry(&inner).ok_or(Errno::ENOEXEC))
            .map_err(|_| Errno::ELIBBAD);
    }
    interpreter.segments(context, &inner, |_| true).map_err(|_| Errno::ELIBBAD)
}

/// Adds the operations that map a 32-bit file to the plan. A function of its own, because it needs
/// stack that is not always available.
#[inline(never)]
fn operations<N: Backend>(
    context: &mut CallContext<'_, N>,
    file: &mut Executable,
    header: &Header,
    part: Part,
) -> Result<()> {
    let mut operations = core::mem::replace(&mut context.buffers.exec.operations, Operations::NONE);
    let added = file.operations(context, header, part == Part::Interpreter, &mut operations);
    context.buffers.exec.operations = operations;
    added
}

fn same_machine(one: u16, other: u16) -> bool {
    let plain = |machine| if machine == elf::MACHINE_I486 { elf::MACHINE_I386 } else { machine };
    plain(one) == plain(other)
}

/// Runs a program of another architecture by an emulator of the host, as `binfmt_misc` does: the
/// emulator gets the program's name and its `argv[0]`.
fn emulate<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    machine: u16,
    front: &mut Front,
) -> Result<()> {
    let emulator =
        context.world.emulators.iter().find(|emulator| emulator.machine == machine).copied();
    let emulator = emulator.ok_or(Errno::ENOEXEC)?;
    let zero = match front.pop() {
        Some(zero) => zero,
        None if request.argv == 0 => 0,
        None => {
            let mut word = [0; 8];
            context.backend.read(request.argv, &mut word[..request.width])?;
            u64::from_le_bytes(word)
        }
    };
    let CallBuffers { exec: plan, named: [named, _], .. } = &mut *context.buffers;
    let program = if front.is_empty() { &plan.name } else { &*named };
    let program = context.backend.scratch(program.with_nul(), 1)?;
    front.push_address(program)?;
    if zero == 0 {
        front.push_address(program)?;
    } else {
        front.push_address(zero)?;
    }
    front.push(context.backend, b"-0\0")?;
    plan.program_host.set(emulator.host)?;
    front.push(context.backend, plan.program_host.with_nul())?;
    let opened = context.backend.open(Dir::Root, plan.program_host.as_c_str(), O_RDONLY, 0, 0);
    // The emulated program's own file is not needed: the emulator opens it by name.
    let program = plan.program.take();
    if let Some(program) = program {
        context.backend.close(program);
    }
    plan.program = Some(opened.map_err(|_| Errno::ENOEXEC)?);
    plan.machine = Machine::X86_64;
    Ok(())
}

/// Changes the thread's state to the one in which the program will run.
fn apply_to_task<N: Backend>(context: &mut CallContext<'_, N>, file: &Executable) {
    let (task, plan) = (&mut *context.task, &mut context.buffers.exec);
    task.executed();
    if context.world.identity.is_none() {
        return;
    }
    let executed = identity::execute(&mut task.creds, &file.truth, file.no_set_id);
    plan.secure = executed.secure;
    // Nor may a user look into a program that has other rights than the user.
    task.dumpable = !executed.secure;
    let (uid, gid) = (task.creds.uid, task.creds.gid);
    plan.ids = Some(Ids { uid: uid.real, euid: uid.effective, gid: gid.real, egid: gid.effective });
}
