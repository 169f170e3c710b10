//! Places the tracer and a busy guest on one processor.
//!
//! At every stop the tracer is woken, and the guest after it. Left alone, the scheduler finds an
//! idle processor for the process that is woken, so the two run on different ones, and each stop
//! costs two wake-ups across processors. Measured in a virtual machine (a `stat`, real-time
//! priority, so that other load does not count): 42 µs, and 13 µs where both are on one processor.
//! Binding the tracer alone gains nothing, because then the guest goes elsewhere (43 µs).
//! `SCHED_IDLE` for the tracer would keep the guest where it is, but starves the tracer on a busy
//! machine, and cannot be left again without privilege.
//!
//! So a thread that does little but make calls that stop is bound, together with the tracer, to the
//! tracer's processor: the two take turns anyway. A new process, and one that has just executed a
//! program, is bound at once, because the start of a program is full of such calls. That ends as
//! soon as another thread stops, when the thread makes a child (which does not inherit it), when it
//! asks for its processors or chooses them, now and then by itself, so that the scheduler can find
//! a better place, and when the thread has not stopped for a while: then it computes, and may do
//! that wherever there is room. Where several threads turn out to stop at the same time, new
//! processes stay free for a while: together they are faster on several processors, however slow
//! each is.
//!
//! Who computes is let go by a thread of the tracer's that does nothing else: a signal in its stead
//! would interrupt calls that the tracer makes for guests.

use rustix::thread::CpuSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use sys::ptrace::Id;

/// So many stops in a row by one thread...
const STOPS: u32 = 8;
/// ...in less than this make it busy.
const BUSY: Duration = Duration::from_millis(1);
/// Stops after which the scheduler has its say again.
const TERM: u32 = 16_384;
/// A bound thread that does not stop for so long (up to twice that) is let go.
const IDLE: Duration = Duration::from_millis(10);
/// For so long after two threads stopped at the same time new processes are not bound at once.
const PARALLEL: Duration = Duration::from_millis(20);

/// What is bound, and what led to it.
#[derive(Debug)]
pub(super) struct Placement {
    /// The thread that stopped last.
    last: Id,
    /// How many stops of it in a row.
    count: u32,
    since: Instant,
    /// When another thread than the bound one stopped.
    parallel: Option<Instant>,
    /// Threads whose processors are their own choice.
    chosen: Vec<Id>,
    /// Nothing where the tracer has one processor anyway.
    bench: Option<Arc<Bench>>,
}

/// What the tracer shares with the thread that unbinds idle guests.
#[derive(Debug)]
struct Bench {
    tracer: Id,
    /// The tracer's own processors.
    own: CpuSet,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bound: Option<Bound>,
    /// The bound thread has stopped lately.
    active: bool,
    /// The other thread waits for something to be bound.
    asleep: bool,
    started: bool,
}

/// A thread that is bound to the tracer's processor.
#[derive(Debug)]
struct Bound {
    id: Id,
    /// Its processors before.
    before: CpuSet,
}

fn pid(id: Id) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(id as i32)
}

impl Bench {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both are free again. A thread that has ended cannot be, and need not.
    fn free(&self, state: &mut State) {
        let Some(Bound { id, before }) = state.bound.take() else { return };
        let _ = rustix::thread::sched_setaffinity(pid(id), &before);
        let _ = rustix::thread::sched_setaffinity(pid(self.tracer), &self.own);
    }

    fn bind(self: &Arc<Self>, id: Id) {
        let mut state = self.state();
        if state.bound.as_ref().is_some_and(|bound| bound.id == id) {
            return;
        }
        self.free(&mut state);
        let before = pid(id).and_then(|pid| rustix::thread::sched_getaffinity(Some(pid)).ok());
        let Some(before) = before.filter(|set| set.count() > 1) else { return };
        let processor = rustix::thread::sched_getcpu();
        if processor >= CpuSet::MAX_CPU || !before.is_set(processor) {
            return;
        }
        let mut one = CpuSet::new();
        one.set(processor);
        if (!state.started && !self.watch(&mut state))
            || rustix::thread::sched_setaffinity(None, &one).is_err()
        {
            return;
        }
        state.bound = Some(Bound { id, before });
        state.active = true;
        if rustix::thread::sched_setaffinity(pid(id), &one).is_err() {
            self.free(&mut state);
        } else if state.asleep {
            state.asleep = false;
            self.wake.notify_one();
        }
    }

    /// Starts the thread that unbinds idle guests; whether that worked.
    fn watch(self: &Arc<Self>, state: &mut State) -> bool {
        let bench = Arc::clone(self);
        let builder = std::thread::Builder::new().stack_size(64 << 10);
        state.started = builder.spawn(move || bench.let_go()).is_ok();
        state.started
    }

    /// Unbinds guests that have not stopped for a while. Runs until the tracer ends.
    fn let_go(&self) {
        let mut state = self.state();
        loop {
            if state.bound.is_none() {
                state.asleep = true;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.active = false;
            let waited = self.wake.wait_timeout(state, IDLE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if !state.active {
                self.free(&mut state);
            }
        }
    }
}

impl Placement {
    /// Nothing is bound. Where the caller has one processor anyway, nothing ever will be.
    pub(super) fn new() -> Self {
        let own = rustix::thread::sched_getaffinity(None).ok().filter(|set| set.count() > 1);
        let bench = own.map(|own| {
            let tracer = rustix::thread::gettid().as_raw_nonzero().get() as Id;
            Arc::new(Bench { tracer, own, state: Mutex::default(), wake: Condvar::new() })
        });
        let since = Instant::now();
        Self { last: 0, count: 0, since, parallel: None, chosen: Vec::new(), bench }
    }

    /// A thread has stopped at a call.
    pub(super) fn stopped(&mut self, id: Id) {
        let Some(bench) = &self.bench else { return };
        if id != self.last {
            (self.last, self.count) = (id, 0);
        }
        self.count += 1;
        let mut state = bench.state();
        match &state.bound {
            Some(bound) if bound.id == id && self.count < TERM => {
                state.active = true;
                return;
            }
            Some(bound) => {
                if bound.id != id {
                    self.parallel = Some(Instant::now());
                }
                bench.free(&mut state);
                self.count = 1;
            }
            None => {}
        }
        drop(state);
        if self.count == 1 {
            self.since = Instant::now();
        } else if self.count >= STOPS {
            self.count = 0;
            if self.since.elapsed() < BUSY {
                self.bind(id);
            }
        }
    }

    fn bind(&self, id: Id) {
        if let Some(bench) = &self.bench
            && !self.chosen.contains(&id)
        {
            bench.bind(id);
        }
    }

    /// A program starts, or will soon.
    fn start(&self, id: Id) {
        if self.parallel.is_none_or(|then| then.elapsed() > PARALLEL) {
            self.bind(id);
        }
    }

    /// Both are free again.
    pub(super) fn release(&mut self) {
        self.count = 0;
        if let Some(bench) = &self.bench {
            bench.free(&mut bench.state());
        }
    }

    /// A thread has made another, which shall not inherit what we did. A new process mostly
    /// executes a program soon.
    pub(super) fn child(&mut self, parent: Id, child: Id, process: bool) {
        let Some(bench) = &self.bench else { return };
        let mut state = bench.state();
        if let Some(bound) = state.bound.as_ref().filter(|bound| bound.id == parent) {
            let _ = rustix::thread::sched_setaffinity(pid(child), &bound.before);
            bench.free(&mut state);
        }
        drop(state);
        if self.chosen.contains(&parent) {
            self.chosen.push(child);
        }
        if process {
            self.start(child);
        }
    }

    /// A thread asks about processors, or chooses them.
    pub(super) fn asked(&mut self, id: Id, chooses: bool) {
        self.release();
        if chooses && !self.chosen.contains(&id) {
            self.chosen.push(id);
        }
    }

    /// A thread has executed a program, and has the number of its process now.
    pub(super) fn executed(&mut self, former: Id, process: Id) {
        if former != process {
            self.release();
            self.chosen.retain(|&chosen| chosen != process);
            self.chosen.iter_mut().filter(|chosen| **chosen == former).for_each(|id| *id = process);
        }
        self.start(process);
    }

    /// A thread has ended.
    pub(super) fn ended(&mut self, id: Id) {
        if let Some(bench) = &self.bench {
            let mut state = bench.state();
            if state.bound.as_ref().is_some_and(|bound| bound.id == id) {
                bench.free(&mut state);
            }
        }
        self.chosen.retain(|&chosen| chosen != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_stop_is_let_go() {
        let mut child = std::process::Command::new("sleep").arg("10").spawn().unwrap();
        let processors = || rustix::thread::sched_getaffinity(pid(child.id())).unwrap().count();
        let (before, mut placement) = (processors(), Placement::new());
        placement.executed(child.id(), child.id());
        if before > 1 {
            assert_eq!(processors(), 1);
            while processors() != before {
                std::thread::yield_now();
            }
            for _ in 0..STOPS {
                placement.stopped(child.id());
            }
            placement.release();
        }
        assert_eq!(processors(), before);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
