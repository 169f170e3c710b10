//! The tracer's loop: one event of one thread at a time.
//!
//! | event | what is done |
//! |---|---|
//! | a call that the filter stops, or every call | [`Tracer::enter_call`]: the view decides |
//! | the end of a call | [`Tracer::leave_call`], if somebody wanted to see it |
//! | a child | it gets a copy of its parent's state; it may have been seen before its parent told of it |
//! | `execve` | the other threads of the process are forgotten, the loader is told what to load |
//! | a signal | delivered as it is |
//! | a group stop | left alone (`PTRACE_LISTEN`) until `SIGCONT` |
//! | an end | forgotten; after the last one the loop ends |
//!
//! Every request to a thread can fail because it was killed; its end is then reported by itself, so
//! such failures are not looked at.

use super::backend::TracerHost;
use super::placement::Placement;
use super::scratch::{Chunks, Room};
use super::signal;
use super::tracee::{Executing, Held, Phase, Program, Tracee};
use abi::calls::Op;
use abi::calls::filter::Interest;
use abi::syscalls::{ARCH_I386, ARCH_X86_64};
use linux_raw_sys::general::{CLONE_FILES, CLONE_FS, CLONE_SYSVSEM, CLONE_THREAD};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use sys::ptrace::{self, Event, Gate, Go, Id, Stop, Stopped, Whom};
use view::{CallBuffers, Task, World};

/// What a tracer is given.
#[derive(Debug)]
pub struct Settings<'a> {
    /// The container.
    pub world: World<'a>,
    /// What it needs to have caught; used where every call stops.
    pub interest: Interest,
    /// Every call stops, because there is no filter.
    pub every_call: bool,
    /// Host path of the program that loads programs.
    pub loader: CString,
    /// Likewise for 32-bit programs.
    pub loader_i386: CString,
}

/// The tracer.
#[derive(Debug)]
pub struct Tracer<'a, H> {
    pub(super) settings: Settings<'a>,
    pub(super) host: H,
    pub(super) buffers: Box<CallBuffers>,
    pub(super) tracees: HashMap<Id, Tracee>,
    /// Processes of the container, by the number of their first thread.
    pub(super) programs: HashMap<Id, Program>,
    /// New threads that stopped before we heard of them from those that made them.
    early: HashMap<Id, Stopped>,
    /// Worker processes that copy files up, and the thread that waits for each.
    pub(super) workers: HashMap<Id, Id>,
    /// Chunks of scratch memory that calls under way use.
    pub(super) chunks: Chunks,
    pub(super) placement: Placement,
    /// Number for the next set of threads that share root and umask.
    next_fs: u64,
    /// Kernels before 4.8 stop at the entry of a call after its filter has stopped it.
    pub(super) entry_after_filter: bool,
}

impl<'a, H: TracerHost> Tracer<'a, H> {
    /// A tracer without tracees.
    pub fn new(settings: Settings<'a>, host: H) -> Self {
        let [loader, loader_i386] = [settings.loader, settings.loader_i386].map(canonical);
        let settings = Settings { loader, loader_i386, ..settings };
        Self {
            settings,
            host,
            buffers: Box::default(),
            tracees: HashMap::new(),
            programs: HashMap::new(),
            early: HashMap::new(),
            workers: HashMap::new(),
            chunks: 0,
            placement: Placement::new(),
            next_fs: 1,
            entry_after_filter: kernel_is_before(4, 8),
        }
    }

    /// Takes over a process that was seized, which becomes a guest: its next call is decided by the
    /// view.
    ///
    /// Where every call stops it must make one more first, whatever that is.
    pub fn adopt(&mut self, process: Id, task: Task) {
        let fs = self.new_fs();
        let phase = Phase::Free;
        let tracee = Tracee { process, fs, task: Some(Box::new(task)), phase };
        self.tracees.insert(process, tracee);
        self.programs.insert(process, Program::default());
    }

    /// Until the last guest has ended.
    pub fn run(&mut self) {
        let mut heard = Heard::default();
        while !(self.tracees.is_empty() && self.early.is_empty()) {
            match heard.next() {
                Some(event) => self.handle(event),
                // No tracee is left.
                None => return,
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Exited(id, code) => self.ended(id, code),
            Event::Killed(id, signal) => self.ended(id, 128 + signal),
            Event::Stopped(stopped, stop) => self.stopped(stopped, stop),
        }
    }

    fn stopped(&mut self, stopped: Stopped, stop: Stop) {
        let id = stopped.id();
        if !self.tracees.contains_key(&id) && stop != Stop::Exec {
            self.early.insert(id, stopped);
            return;
        }
        match stop {
            Stop::Seccomp => self.enter_call(stopped),
            Stop::Syscall => match self.take_phase(id) {
                Phase::Free => self.enter_call(stopped),
                Phase::InCall(pending) => self.leave_call(stopped, pending),
                Phase::Passing => self.go_on(stopped, 0),
                Phase::Mapping(mapping) => self.mapped(stopped, mapping),
                held @ Phase::Held(_) => self.set_phase(id, held),
            },
            Stop::Child => self.made_child(stopped),
            Stop::Exec => self.executed(stopped),
            Stop::Signal(signal) => {
                signal::renew_call(&stopped, signal);
                self.go_on(stopped, signal);
            }
            Stop::Group(_) => {
                let _ = stopped.listen();
            }
            Stop::Trap | Stop::Other => self.go_on(stopped, 0),
        }
    }

    /// Lets a thread go on, as far as is right for where it is.
    pub(super) fn go_on(&mut self, stopped: Stopped, signal: u32) {
        let in_call = self
            .tracees
            .get(&stopped.id())
            .is_some_and(|tracee| !matches!(tracee.phase, Phase::Free));
        let how = if in_call || self.settings.every_call { Go::ToSyscall } else { Go::On };
        let _ = stopped.go(how, signal);
    }

    pub(super) fn take_phase(&mut self, id: Id) -> Phase {
        self.tracees
            .get_mut(&id)
            .map_or(Phase::Free, |tracee| std::mem::replace(&mut tracee.phase, Phase::Free))
    }

    pub(super) fn set_phase(&mut self, id: Id, phase: Phase) {
        if let Some(tracee) = self.tracees.get_mut(&id) {
            tracee.phase = phase;
        }
    }

    fn new_fs(&mut self) -> u64 {
        self.next_fs += 1;
        self.next_fs
    }

    /// A thread has made another thread or process.
    fn made_child(&mut self, stopped: Stopped) {
        let Ok(child) = stopped.message() else { return };
        let flags = Self::clone_flags(&stopped);
        self.placement.child(stopped.id(), child, flags & u64::from(CLONE_THREAD) == 0);
        let fresh = self.new_fs();
        if let Some(parent) = self.tracees.get(&stopped.id())
            && let Some(task) = &parent.task
        {
            let thread = flags & u64::from(CLONE_THREAD) != 0;
            let process = if thread { parent.process } else { child };
            let fs = if flags & u64::from(CLONE_FS) != 0 { parent.fs } else { fresh };
            let task = Some(task.clone());
            if !thread {
                let known = self.programs.get(&parent.process);
                let program = known.map_or_else(Program::default, Program::of_child);
                self.programs.insert(child, program);
            }
            self.tracees.insert(child, Tracee { process, fs, task, phase: Phase::Free });
            if let Some(early) = self.early.remove(&child) {
                self.go_on(early, 0);
            }
        }
        self.go_on(stopped, 0);
    }

    /// A thread is about to share less with others.
    pub(super) fn unshared(&mut self, id: Id, flags: u64) {
        // The others can be refused.
        let certain = u64::from(CLONE_FS | CLONE_FILES | CLONE_SYSVSEM);
        if flags & u64::from(CLONE_FS) != 0 && flags & !certain == 0 {
            let fs = self.new_fs();
            if let Some(tracee) = self.tracees.get_mut(&id) {
                tracee.fs = fs;
            }
        }
    }

    /// Flags of the call by which a thread has just made another.
    fn clone_flags(stopped: &Stopped) -> u64 {
        let Ok(registers) = stopped.registers() else { return 0 };
        // At this stop the kernel does not say by which gate.
        let compat = stopped.gate(&registers) == Gate::Compat;
        let arch = if compat { ARCH_I386 } else { ARCH_X86_64 };
        let arguments = registers.arguments(compat);
        match abi::calls::find(arch, registers.number()).map(|entry| entry.op) {
            Some(Op::Clone) => arguments[0],
            Some(Op::Clone3) => {
                let mut flags = [0; 8];
                match stopped.memory().read(arguments[0], &mut flags) {
                    Ok(()) => u64::from_ne_bytes(flags),
                    Err(_) => 0,
                }
            }
            _ => 0,
        }
    }

    /// A process has executed a program: the loader's, or in the case of a foreign one whatever it
    /// was.
    fn executed(&mut self, stopped: Stopped) {
        let process = stopped.id();
        let former = stopped.message().unwrap_or(process);
        let Some(mut tracee) = self.tracees.remove(&former) else {
            let _ = stopped.go(Go::On, 0);
            return;
        };
        self.placement.executed(former, process);
        // The other threads of the process are gone, whichever of them called.
        let gone: Vec<Id> = self
            .tracees
            .iter()
            .filter_map(|(&id, other)| (other.process == process).then_some(id))
            .collect();
        gone.into_iter()
            .filter_map(|id| self.tracees.remove(&id))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|other| {
                if let Phase::InCall(pending) = other.phase {
                    self.give_up(*pending);
                }
            });
        // Whom it shares root and umask with stays as it was.
        tracee.process = process;
        let phase = std::mem::replace(
            &mut tracee.phase,
            if self.settings.every_call { Phase::Passing } else { Phase::Free },
        );
        self.tracees.insert(process, tracee);
        if let Phase::InCall(pending) = phase
            && let Some(executing) = pending.exec
        {
            self.chunks &= !pending.chunks;
            self.start_program(&stopped, *executing);
        }
        self.go_on(stopped, 0);
    }

    /// A thread, or a worker process that copied a file, has ended.
    fn ended(&mut self, id: Id, code: u32) {
        if let Some(waiting) = self.workers.remove(&id) {
            self.copied(waiting, code);
            return;
        }
        self.early.remove(&id);
        self.placement.ended(id);
        let Some(tracee) = self.tracees.remove(&id) else { return };
        if let Phase::InCall(pending) = tracee.phase {
            self.give_up(*pending);
        }
        if tracee.process == id
            && let Some(program) = self.programs.remove(&id)
        {
            self.close_all(program.files);
        }
        self.adopt_orphans(tracee.task.as_deref());
    }

    /// New threads whose maker was killed before it could tell of them become its heirs.
    fn adopt_orphans(&mut self, task: Option<&Task>) {
        let Some(task) = task.filter(|_| !self.early.is_empty()) else { return };
        let orphans: Vec<Id> = self
            .early
            .keys()
            .copied()
            .filter(|&id| {
                !family(id).is_some_and(|(process, parent)| {
                    self.programs.contains_key(&parent)
                        || process != id && self.programs.contains_key(&process)
                })
            })
            .collect();
        for id in orphans {
            let Some(stopped) = self.early.remove(&id) else { continue };
            self.adopt(id, task.clone());
            self.go_on(stopped, 0);
        }
    }

    /// Takes the thread of a call that waited for a copy.
    pub(super) fn take_held(&mut self, id: Id) -> Option<Held> {
        match self.take_phase(id) {
            Phase::Held(held) => Some(*held),
            other => {
                self.set_phase(id, other);
                None
            }
        }
    }

    fn start_program(&mut self, stopped: &Stopped, executing: Executing) {
        let Executing { block, block_at, task, program, inode, files } = executing;
        let written = stopped.memory().write(block_at, &block);
        // A stopped thread can be killed at any moment.
        debug_assert!(
            matches!(written, Ok(()) | Err(Errno::SRCH)),
            "the loader has no room for its block: {written:?}"
        );
        let process = stopped.id();
        let known = self.programs.entry(process).or_default();
        known.path = program;
        known.inode = inode;
        known.room = Room::behind(block_at, block.len());
        known.low = None;
        known.many = None;
        let before = std::mem::replace(&mut known.files, files);
        self.close_all(before);
        if let Some(tracee) = self.tracees.get_mut(&process) {
            tracee.task = Some(task);
        }
    }
}

/// What has happened, in an order in which everybody gets a turn.
///
/// The kernel tells of the newest thread that has stopped first (ptrace(2) promises no order). A
/// few threads that do nothing but make calls would so keep all older ones waiting for ever. Where
/// events of different threads alternate, everything that has happened is heard before the first of
/// them goes on.
#[derive(Debug, Default)]
struct Heard {
    waiting: VecDeque<Event>,
    last: Id,
}

impl Heard {
    /// Waits for the next event; `None` if no tracee is left.
    fn next(&mut self) -> Option<Event> {
        if let Some(event) = self.waiting.pop_front() {
            return Some(event);
        }
        let first = ptrace::wait(Whom::Any, false).ok()??;
        if std::mem::replace(&mut self.last, first.id()) == first.id() {
            return Some(first);
        }
        self.waiting.push_back(first);
        while let Ok(Some(event)) = ptrace::wait(Whom::Any, true) {
            // A thread that executes a program takes over the number of its process, whose first
            // thread has been killed.
            if let Event::Stopped(stopped, Stop::Exec) = &event {
                let process = stopped.id();
                self.waiting.retain(|earlier| earlier.id() != process);
            }
            self.waiting.push_back(event);
        }
        self.waiting.pop_front()
    }
}

/// Process and parent of a thread, from `/proc/ID/status`.
fn family(id: Id) -> Option<(Id, Id)> {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let field = |name: &str| -> Option<Id> {
        text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
    };
    Some((field("Tgid:")?, field("PPid:")?))
}

/// A path as the kernel shows it.
fn canonical(path: CString) -> CString {
    let whole = std::fs::canonicalize(OsStr::from_bytes(path.as_bytes()));
    whole
        .ok()
        .and_then(|whole| CString::new(whole.into_os_string().into_vec()).ok())
        .unwrap_or(path)
}

/// Whether the kernel's version is lower than this.
fn kernel_is_before(major: u32, minor: u32) -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-', '+']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(0)) < (major, minor)
}
