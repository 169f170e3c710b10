//! The process beside the network agent: it waits for the agent's end, and begins another one where
//! that was killed while containers run.
//!
//! A container that starts has an agent begun where none is, but those that run notice nothing, and
//! some have no process beside them that could. So the agent is a child of a process that does
//! nothing else than wait for it: nothing is polled. The containers' connections do not go through
//! the agent and live on, and the next one answers at the port of the one before
//! ([`net::agent::run`]).
//!
//! An agent that ends by itself is not needed any more, or another one is there. If this process is
//! killed the agent goes on alone; if both are, the next container that starts begins both.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitOptions, waitpid};
use sys::fork::{ForkResult, fork};

/// What `ps` shows.
const NAME: &str = "coracle-guard";

/// An agent that was killed sooner than this after its beginning may be killed again at once, by
/// something that lasts; the next one waits for as long.
const SOON: Duration = Duration::from_secs(1);

/// Runs `agent` in a child, and again for as long as it is killed. The exit status of the last one.
/// Call it in a process of its own; the child returns, too, with what `agent` returns.
pub(super) fn guard(store: &Path, agent: impl Fn() -> u8) -> u8 {
    sys::event::set_title(NAME, &format!("{NAME} {}", store.display()));
    loop {
        let began = Instant::now();
        let child = match fork() {
            Ok(ForkResult::Child) => return agent(),
            Ok(ForkResult::Parent(child)) => child,
            Err(_) => return 1,
        };
        // Whoever has started it waits for the agent's word, or the end of its output.
        if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdout(&null);
        }
        if let Some(status) = ended(child) {
            return status;
        }
        std::thread::sleep(SOON.saturating_sub(began.elapsed()));
    }
}

/// Waits for a child's end: its exit status, or `None` where a signal has ended it.
fn ended(child: Pid) -> Option<u8> {
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
                return code.or((!status.signaled()).then_some(1));
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Some(1),
        }
    }
}
