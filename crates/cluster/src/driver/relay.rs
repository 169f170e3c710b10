//! Moves the streams of a command on a host from and to those of this process.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use remote::channel::{Event, Stream};
use remote::wire::PIECE;
use sys::event::{MaskGuard, SignalFd, SignalSet, release_code, trim_memory};

use super::Task;

use crate::error::{Error, Result};

/// SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2: what a command in the foreground gets where
/// this process is sent them.
const PASSED_ON: [i32; 6] = [1, 2, 3, 15, 10, 12];

/// Takes the signals that are passed on, in this thread and those that it begins.
pub(super) struct Signals {
    _mask: MaskGuard,
    pub(super) fd: SignalFd,
}

impl Signals {
    /// Blocks them until this is dropped.
    pub(super) fn take() -> Result<Self> {
        let wrong = |error| Error::new(format!("signals cannot be waited for: {error}"));
        let set = SignalSet::of(&PASSED_ON);
        let mask = MaskGuard::block(set).map_err(wrong)?;
        Ok(Self { _mask: mask, fd: SignalFd::new(set).map_err(wrong)? })
    }

    /// Waits for one, for so long at most.
    pub(super) fn wait(&self, within: Duration) -> Option<i32> {
        self.fd.next_within(within).ok().flatten().map(|signal| signal.number)
    }
}

impl Drop for Signals {
    /// What came while a command ran was for the command, and the command's end may be seen first.
    /// Still pending when it is let through again, it would end this process in place of the
    /// command's status.
    fn drop(&mut self) {
        while let Ok(Some(_)) = self.fd.next() {}
    }
}

/// How often is looked whether the command has ended while signals are waited for.
const LOOK: Duration = Duration::from_millis(50);

/// After so long the memory that only the start has needed is given back.
const REST: Duration = Duration::from_secs(2);
/// Time between SIGTERM and SIGKILL for a command whose time is over.
const LAST: Duration = Duration::from_secs(10);
const TERM: i32 = 15;
const KILL: i32 = 9;

/// How a command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// Its exit status, 128+n for signal n.
    pub(super) status: u8,
    /// Its time was over, and it was ended.
    pub(super) is_late: bool,
}

/// Moves streams until the command has ended, and passes signals on: `signal` waits for one for so
/// long at most. After `time` the command is ended.
///
/// # Errors
/// If the command was not started, its host is lost, or standard output cannot be written.
pub(super) fn relay(
    task: Box<dyn Task>,
    input: bool,
    signal: &(dyn Fn(Duration) -> Option<i32> + Sync),
    time: Option<Duration>,
) -> Result<Ended> {
    relay_for(task, input, signal, (time, LAST))
}

/// The same, with the time between SIGTERM and SIGKILL.
fn relay_for(
    task: Box<dyn Task>,
    input: bool,
    signal: &(dyn Fn(Duration) -> Option<i32> + Sync),
    (time, last): (Option<Duration>, Duration),
) -> Result<Ended> {
    let task: Arc<dyn Task> = Arc::from(task);
    if input {
        feed(Arc::clone(&task));
    }
    let (over, is_late) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut end = time.and_then(|time| Instant::now().checked_add(time));
    let mut rest = Some(Instant::now() + REST);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if rest.take_if(|rest| Instant::now() >= *rest).is_some() {
                    trim_memory();
                    release_code();
                }
                if let Some(number) = signal(LOOK) {
                    let _ = task.signal(number);
                }
                if end.is_some_and(|end| Instant::now() >= end) {
                    // The second time it did not obey.
                    let again = is_late.swap(true, Ordering::Relaxed);
                    let _ = task.signal(if again { KILL } else { TERM });
                    end = Instant::now().checked_add(last);
                }
            }
        });
        let status = copy(&*task);
        over.store(true, Ordering::Relaxed);
        let is_late = is_late.load(Ordering::Relaxed);
        status.map(|status| Ended { status, is_late })
    })
}

/// Gives standard input to the command. The thread ends with the process at the latest, because
/// a read of standard input cannot be ended.
fn feed(task: Arc<dyn Task>) {
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE];
        loop {
            match std::io::stdin().lock().read(&mut piece) {
                Ok(count @ 1..) if task.input(&piece[..count]).is_ok() => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        let _ = task.close_input();
    });
}

fn copy(task: &dyn Task) -> Result<u8> {
    while let Some(event) = task.event() {
        match event {
            Event::Output(stream, bytes) => write(stream, &bytes).map_err(|error| {
                Error::new(format!("cannot write what the command says: {error}"))
            })?,
            Event::Ended(ended) => return Ok(ended.exit_status()),
            Event::Failed(why) => return Err(Error::new(why)),
            Event::Lost(why) => return Err(Error::new(why.to_string())),
        }
    }
    Err(Error::new("the command has ended without a status"))
}

fn write(stream: Stream, bytes: &[u8]) -> std::io::Result<()> {
    match stream {
        Stream::Output => {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Stream::Errors => std::io::stderr().lock().write_all(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Host as _, Local};
    use super::*;

    #[test]
    fn a_command_that_does_not_obey_is_killed_with_its_group() {
        let shell = Local { program: vec!["sh".into(), "-c".into()] };
        let words = ["trap '' TERM; sleep 600; sleep 600".to_owned()];
        let none = |within| {
            std::thread::sleep(within);
            None
        };
        let late = |time: u64| {
            let task = shell.start(&words, false).unwrap();
            let times = (Some(Duration::from_millis(time)), Duration::from_millis(100));
            relay_for(task, false, &none, times).unwrap()
        };
        assert_eq!(late(100), Ended { status: 137, is_late: true });
    }
}
