//! Lets processes make their calls in an order that a seed decides.

use std::sync::{Condvar, Mutex};
use std::time::Duration;
use std::vec::Vec;

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    seed: u64,
    /// The process goes on for so many calls on average.
    run: u64,
    current: usize,
    running: Vec<bool>,
}

impl State {
    /// A pseudo-random number (xorshift).
    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 20) % below
    }

    /// Chooses among those that still run.
    fn choose(&mut self) {
        if self.running[self.current] && self.random(self.run) != 0 {
            return;
        }
        let running: Vec<usize> = (0..self.running.len()).filter(|at| self.running[*at]).collect();
        if !running.is_empty() {
            let chosen = self.random(running.len() as u64) as usize;
            self.current = running[chosen];
        }
    }
}

impl Turns {
    pub(super) fn new(processes: usize, seed: u64) -> Self {
        // Some seeds let the processes change at every call, others seldom.
        let (run, current) = (1 << (seed % 6), seed as usize % processes);
        let running = std::vec![true; processes];
        let seed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut state = State { seed, run, current, running };
        state.choose();
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Makes one call in turn; then another one may have the turn.
    pub(super) fn take<T>(&self, process: usize, call: impl FnOnce() -> T) -> T {
        let state = self.state.lock().unwrap();
        // A process that failed has the turn for ever.
        let is_other = |state: &mut State| state.current != process;
        let patience = Duration::from_mins(1);
        let (mut state, waited) =
            self.changed.wait_timeout_while(state, patience, is_other).unwrap();
        assert!(!waited.timed_out(), "another process has failed");
        let result = call();
        state.choose();
        self.changed.notify_all();
        result
    }

    /// A process makes no more calls.
    pub(super) fn end(&self, process: usize) {
        let mut state = self.state.lock().unwrap();
        state.running[process] = false;
        if state.current == process {
            state.choose();
        }
        self.changed.notify_all();
    }
}
