//! One system call of a guest: what the view decides about it, and how that is carried out.
//!
//! A call that the kernel is not to make is skipped by giving it the number -1; its result is put
//! into the registers at once. So most calls cost one stop, with one reading and one writing of the
//! registers. Only where something has to be done *after* the kernel's work (a path to translate
//! back, arguments to put back) the thread stops again at the end of the call.
//!
//! A call that is interrupted by a signal is made again by the kernel, from the registers. So the
//! end of a changed call always puts back what the guest had given, number included, and the call
//! made again is caught again.

use super::backend::{Backend, TracerHost};
use super::processes::Processes;
use super::scratch::Scratch;
use super::tracee::{Held, Pending, Phase, Tracee};
use super::tracer::Tracer;
use crate::engines::interpose::delegate::DynBackend;
use abi::boot::{LOADER_END, LOADER_START};
use abi::boot32;
use abi::calls::Op;
use abi::calls::filter::{Catch, catch_number};
use abi::syscalls::ARCH_I386;
use linux_raw_sys::general::AT_FDCWD;
use sys::ptrace::{Id, Stopped};
use view::guest::{Dir, Guest as _};
use view::{After, Call, CallContext, Errno, HostFd, Task, Verdict};

/// Results by which the kernel marks a call that is to be made again after a signal: `ERESTARTSYS`
/// to `ERESTART_RESTARTBLOCK`.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
/// Files above this size are copied by a process of their own (bytes).
const LARGE: u64 = 4 << 20;
/// How often a call may ask for a copy: another process may be faster each time.
const COPIES: u32 = 8;

/// Where the calls of loaders come from.
const LOADERS: [std::ops::Range<u64>; 2] = [LOADER_START..LOADER_END, boot32::START..boot32::END];
/// Below the stack pointer, what leaf functions may use without moving it (bytes).
const RED_ZONE: u64 = 128;

impl<H: TracerHost> Tracer<'_, H> {
    /// A thread is about to make a call.
    pub(super) fn enter_call(&mut self, stopped: Stopped) {
        let Ok(entry) = stopped.entry() else { return };
        let (arch, number, arguments) = (entry.architecture, entry.number, entry.arguments);
        let call = Call { arch, number, arguments };
        // The filter knows one loader; the one for 32-bit programs makes two calls that it catches.
        if LOADERS.iter().any(|range| range.contains(&entry.instruction)) {
            return self.pass(stopped);
        }
        if self.settings.every_call {
            let catch = catch_number(arch, call.number, &self.settings.interest);
            match catch.decide(&call.arguments) {
                Catch::Fail(errno) => {
                    return self.done(stopped, -i64::from(errno));
                }
                Catch::Pass => return self.pass(stopped),
                _ => {}
            }
        }
        self.placement.stopped(stopped.id());
        self.loader_is_done(stopped.id());
        if let Some(held) = self.with_low_room(Held { stopped, call, stack: entry.stack }) {
            self.decide(held);
        }
    }

    /// Asks the view, and does what it says.
    pub(super) fn decide(&mut self, held: Held) {
        let Held { stopped, call, stack } = held;
        let op = abi::calls::find(call.arch, call.number).map(|entry| entry.op);
        if let Some(op @ (Op::SchedGetaffinity | Op::SchedSetaffinity)) = op {
            self.placement.asked(stopped.id(), op == Op::SchedSetaffinity);
        }
        let mut scratch = Scratch::below(stack.saturating_sub(RED_ZONE), call.arch == ARCH_I386);
        scratch.many = self.many(stopped.id());
        for _ in 0..COPIES {
            let before = matches!(op, Some(Op::Execve | Op::Execveat))
                .then(|| self.tracees.get(&stopped.id())?.task.clone())
                .flatten();
            let verdict =
                self.ask(&stopped, &mut scratch, |context| view::calls::enter(context, &call));
            let chunks = scratch.chunks;
            if !matches!(
                verdict,
                Some(Verdict::Watch(_) | Verdict::Instead(..) | Verdict::Give(..) | Verdict::Exec)
            ) {
                self.chunks &= !chunks;
            }
            match verdict {
                None => return,
                Some(Verdict::Pass) => {
                    if op == Some(Op::Unshare) {
                        self.unshared(stopped.id(), call.arguments[0]);
                    }
                    return self.pass(stopped);
                }
                Some(Verdict::Done(result)) => {
                    let mut held = Held { stopped, call, stack };
                    if scratch.short && result == Errno::E2BIG.result() {
                        held = match self.map_many(held) {
                            Ok(()) => return,
                            Err(held) => held,
                        };
                    }
                    return self.done(held.stopped, result);
                }
                Some(Verdict::Watch(after)) => {
                    return self
                        .watch(stopped, Pending { call, made: call, after, chunks, exec: None });
                }
                Some(Verdict::Instead(other, after)) => {
                    let pending = Pending { call, made: other, after, chunks, exec: None };
                    return self.watch(stopped, pending);
                }
                Some(Verdict::Give(file, flags)) => {
                    return self.give(Held { stopped, call, stack }, scratch, (file, flags));
                }
                Some(Verdict::Exec) => {
                    return self.execute(Held { stopped, call, stack }, scratch, before);
                }
                Some(Verdict::CopyUp) if self.is_large() => {
                    return self.copy_elsewhere(Held { stopped, call, stack });
                }
                Some(Verdict::CopyUp) => {
                    let path = self.buffers.host;
                    if let Err(errno) = self.host.copy_up(path.as_c_str()) {
                        return self.done(stopped, errno.result());
                    }
                }
            }
        }
        self.done(stopped, Errno::EAGAIN.result());
    }

    /// Has the view look at a thread. `None`: the thread is unknown.
    pub(super) fn ask<T>(
        &mut self,
        stopped: &Stopped,
        scratch: &mut Scratch,
        question: impl FnOnce(&mut CallContext<'_, DynBackend<'_>>) -> T,
    ) -> Option<T> {
        let thread = stopped.id();
        let tracee = self.tracees.get_mut(&thread)?;
        let mut task = tracee.task.take()?;
        let process = tracee.process;
        self.host.serve(thread);
        let mut backend = Backend {
            host: &mut self.host,
            memory: stopped.memory(),
            thread,
            process,
            scratch: *scratch,
            room: self
                .programs
                .get(&process)
                .map(|program| program.room_for(scratch.narrow))
                .unwrap_or_default(),
            free: !self.chunks,
            processes: Processes {
                world: &self.settings.world,
                loaders: [&self.settings.loader, &self.settings.loader_i386],
            },
            programs: &self.programs,
            tracees: &self.tracees,
            sockets: Vec::new(),
        };
        task.fs_changed = false;
        task.filters.synchronised = false;
        let answer = question(&mut CallContext {
            backend: &mut DynBackend::new(&mut backend),
            world: &self.settings.world,
            task: &mut task,
            buffers: &mut self.buffers,
        });
        *scratch = backend.scratch;
        self.chunks |= scratch.chunks;
        self.share(thread, &task);
        if let Some(tracee) = self.tracees.get_mut(&thread) {
            tracee.task = Some(task);
        }
        Some(answer)
    }

    /// Gives what threads share to those that share it with this one.
    fn share(&mut self, thread: Id, task: &Task) {
        if !task.fs_changed && !task.filters.synchronised {
            return;
        }
        let Some(Tracee { fs, process, .. }) = self.tracees.get(&thread) else { return };
        let (fs, process) = (*fs, *process);
        for other in self.tracees.values_mut() {
            let Some(state) = &mut other.task else { continue };
            if task.fs_changed && other.fs == fs {
                state.root = task.root;
                state.umask = task.umask;
                state.entered = task.entered;
            }
            if task.filters.synchronised && other.process == process {
                state.filters = task.filters;
                state.creds.no_new_privileges = task.creds.no_new_privileges;
            }
        }
    }

    /// The kernel makes the call, and the tracer does not see its end.
    pub(super) fn pass(&mut self, stopped: Stopped) {
        if self.settings.every_call {
            self.set_phase(stopped.id(), Phase::Passing);
        }
        self.go_on(stopped, 0);
    }

    /// The kernel does not do the call.
    pub(super) fn done(&mut self, stopped: Stopped, result: i64) {
        let _ = stopped.skip(result);
        self.pass(stopped);
    }

    /// The kernel does a call, the guest's or another, whose end is to be seen.
    pub(super) fn watch(&mut self, stopped: Stopped, pending: Pending) {
        change(&stopped, &pending.call, &pending.made);
        self.set_phase(stopped.id(), Phase::InCall(Box::new(pending)));
        self.go_on(stopped, 0);
    }

    /// The guest opens a file that we hold, through our own `/proc/PID/fd`.
    fn give(&mut self, held: Held, mut scratch: Scratch, (file, flags): (HostFd, u32)) {
        let Held { stopped, call, .. } = held;
        let path = format!("/proc/{}/fd/{}\0", std::process::id(), file.0);
        let place =
            self.ask(&stopped, &mut scratch, |context| context.backend.scratch(path.as_bytes(), 1));
        let number = abi::calls::Arch::from_audit(call.arch)
            .and_then(|arch| Op::Openat.entry().number(arch));
        let (Some(Ok(at)), Some(number)) = (place, number) else {
            self.host.close(file);
            self.chunks &= !scratch.chunks;
            return self.done(stopped, Errno::EFAULT.result());
        };
        let chunks = scratch.chunks;
        let start = u64::from(AT_FDCWD as u32);
        let arguments = [start, at, u64::from(flags), 0, 0, 0];
        let after = After::Close(file);
        let made = Call { number, arguments, ..call };
        self.watch(stopped, Pending { call, made, after, chunks, exec: None });
    }

    /// The kernel has done a call.
    pub(super) fn leave_call(&mut self, stopped: Stopped, pending: Box<Pending>) {
        let unseen = pending.after == After::Nothing && !self.entry_after_filter;
        let result = if unseen { Ok(0) } else { stopped.result() };
        let Ok(result) = result else { return self.give_up(*pending) };
        if self.entry_after_filter && result == Errno::ENOSYS.result() {
            // Not the end yet: this kernel shows the entry now.
            self.set_phase(stopped.id(), Phase::InCall(pending));
            return self.go_on(stopped, 0);
        }
        let Pending { call, made, after, chunks, exec } = *pending;
        self.chunks &= !chunks;
        if let Some(executing) = exec {
            self.close_all(executing.files);
        }
        if after != After::Nothing {
            let interrupted = RESTARTS.contains(&result);
            let seen = if interrupted { Errno::EINTR.result() } else { result };
            let shown = self.ask(&stopped, &mut Scratch::default(), |context| {
                view::calls::leave(context, after, &call, seen)
            });
            if let Some(shown) = shown.filter(|&shown| !interrupted && shown != result) {
                let _ = stopped.set_result(shown);
            }
        }
        change(&stopped, &made, &call);
        self.go_on(stopped, 0);
    }

    /// A call whose end will not be seen.
    pub(super) fn give_up(&mut self, pending: Pending) {
        self.chunks &= !pending.chunks;
        view::calls::abandon(&mut self.host, pending.after);
        if let Some(executing) = pending.exec {
            self.close_all(executing.files);
        }
    }

    pub(super) fn close_all(&mut self, files: [Option<HostFd>; 2]) {
        files.into_iter().flatten().for_each(|file| self.host.close(file));
    }

    /// A thread makes a call of its own, so its loader has opened what it needs.
    fn loader_is_done(&mut self, id: Id) {
        let Some(tracee) = self.tracees.get(&id) else { return };
        if let Some(program) = self.programs.get_mut(&tracee.process)
            && program.files != [None, None]
        {
            let files = std::mem::take(&mut program.files);
            self.close_all(files);
        }
    }

    /// Whether the file to be copied would keep everybody waiting.
    fn is_large(&mut self) -> bool {
        let path = self.buffers.host;
        let mut facts = view::identity::NO_FACTS;
        let flags = linux_raw_sys::general::AT_SYMLINK_NOFOLLOW;
        self.host.statx(Dir::Root, path.as_c_str(), flags, &mut facts).is_ok()
            && facts.stx_size > LARGE
    }

    /// Has a worker process copy, while the call waits.
    fn copy_elsewhere(&mut self, held: Held) {
        let Held { stopped, call, stack } = held;
        let path = self.buffers.host;
        self.host.will_copy(path.as_c_str());
        match sys::fork::fork_unseen() {
            Ok(None) => {
                let result = self.host.copy_up(path.as_c_str());
                sys::fork::exit_now(result.err().map_or(0, |errno| i32::from(errno.0)));
            }
            Ok(Some(worker)) => {
                let id = stopped.id();
                self.workers.insert(worker.as_raw_nonzero().get() as Id, id);
                self.set_phase(id, Phase::Held(Box::new(Held { stopped, call, stack })));
            }
            Err(_) => match self.host.copy_up(path.as_c_str()) {
                Ok(()) => self.decide(Held { stopped, call, stack }),
                Err(errno) => self.done(stopped, errno.result()),
            },
        }
    }

    /// A copy has been made, or not.
    pub(super) fn copied(&mut self, waiting: Id, code: u32) {
        let Some(held) = self.take_held(waiting) else { return };
        match code {
            0 => self.decide(held),
            // What it was killed by is no error number.
            128.. => self.done(held.stopped, Errno::EIO.result()),
            errno => self.done(held.stopped, Errno(errno as u16).result()),
        }
    }
}

/// Makes one call another.
fn change(stopped: &Stopped, from: &Call, to: &Call) {
    if from.number != to.number {
        let _ = stopped.set_number(to.number);
    }
    for (index, (old, new)) in from.arguments.iter().zip(to.arguments).enumerate() {
        if *old != new {
            let _ = stopped.set_argument(to.arch, index, new);
        }
    }
}
