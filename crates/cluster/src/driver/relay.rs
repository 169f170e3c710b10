//! Moves the streams of a command on a host from and to those of this process.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sys::event::{MaskGuard, SignalFd, SignalSet};

use super::Task;
use crate::channel::{Event, Stream};
use crate::error::{Error, Result};
use crate::wire::PIECE;

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

/// How often is looked whether the command has ended while signals are waited for.
const LOOK: Duration = Duration::from_millis(50);

/// Moves streams until the command has ended, and passes signals on: `signal` waits for one for so
/// long at most. Returns the exit status.
///
/// # Errors
/// If the command was not started, its host is lost, or standard output cannot be written.
pub(super) fn relay(
    task: Box<dyn Task>,
    input: bool,
    signal: &(dyn Fn(Duration) -> Option<i32> + Sync),
) -> Result<u8> {
    let task: Arc<dyn Task> = Arc::from(task);
    if input {
        feed(Arc::clone(&task));
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if let Some(number) = signal(LOOK) {
                    let _ = task.signal(number);
                }
            }
        });
        let status = copy(&*task);
        over.store(true, Ordering::Relaxed);
        status
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
