//! This machine as a host: commands are children of this process.

use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::{Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use remote::channel::{Event, Stream};
use remote::wire::PIECE;
use remote::wire::messages::Ended;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::hosts::{Attach, Done, Host, Task, lock};
use super::relay::Signals;
use crate::error::{Error, Result};
use crate::plan::Words;

/// Pieces of output that wait for the caller; the command waits while there are more.
const PIECES: usize = 8;
/// How often a command that runs is asked for whether it is still wanted.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const TERM: i32 = 15;

/// This machine.
#[derive(Debug, Clone)]
pub struct Local {
    /// The path of this program, and the words of its options that stand before a command.
    pub program: Vec<OsString>,
}

impl Local {
    /// A command of this program.
    pub(super) fn command(&self, words: &Words) -> Result<Command> {
        let program =
            self.program.first().ok_or_else(|| Error::new("there is no program to run"))?;
        let words = words.of_program(&self.program);
        let mut command = Command::new(program);
        command.args(&words.shown()[1..]).envs(words.variables());
        // The caller waits for signals that a container's program is to have.
        sys::child::unblocked(&mut command);
        Ok(command)
    }

    /// Starts a command whose streams the caller moves.
    fn spawn(mut command: Command, input: bool) -> std::io::Result<Box<dyn Task>> {
        command.stdin(if input { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (sender, events) = sync_channel(PIECES);
        let input = child.stdin.take();
        let end = Arc::new(pidfd(&child)?);
        if let Some(stream) = child.stdout.take() {
            read(stream, Stream::Output, sender.clone(), Arc::clone(&end));
        }
        if let Some(stream) = child.stderr.take() {
            read(stream, Stream::Errors, sender, end);
        }
        Ok(Box::new(LocalTask {
            events: Mutex::new(events),
            input: Mutex::new(input),
            child: Mutex::new(Some(child)),
        }))
    }
}

/// A descriptor that is ready when a child has ended.
fn end_of(child: &Child) -> Result<OwnedFd> {
    pidfd(child).map_err(|error| cannot_wait(&error))
}

fn pidfd(child: &Child) -> std::io::Result<OwnedFd> {
    let pid = Pid::from_child(child);
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}

/// Waits a while for a child's end.
fn has_ended(end: &OwnedFd) -> bool {
    let mut ready = [PollFd::new(end, PollFlags::IN)];
    let _ = poll(&mut ready, Some(&LOOK));
    !ready[0].revents().is_empty()
}

fn cannot_wait(error: &std::io::Error) -> Error {
    Error::new(format!("a command's end cannot be waited for: {error}"))
}

impl Host for Local {
    fn name(&self) -> &'static str {
        "this machine"
    }

    fn run_until(&self, words: &Words, stop: &(dyn Fn() -> bool + Sync)) -> Result<Done> {
        let mut command = self.command(words)?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A key on the terminal means the driver, which ends what it has begun; and what a killed
        // driver has begun is not finished behind the back of the next one.
        sys::child::apart(&mut command, Some(rustix::process::Signal::TERM));
        let child = command.spawn().map_err(|error| not_started(words, &error))?;
        let end = end_of(&child)?;
        std::thread::scope(|scope| {
            let output = scope.spawn(|| child.wait_with_output());
            let mut asked = false;
            while !has_ended(&end) {
                if !asked && stop() {
                    asked = true;
                    let _ = sys::event::send_signal_fd(&end, TERM);
                }
            }
            let lost = |_| std::io::Error::other("its output was not read");
            let output = output.join().map_err(lost).flatten();
            let output = output.map_err(|error| not_started(words, &error))?;
            let status = Ended::from(output.status).exit_status();
            Ok(Done { status, out: output.stdout, err: output.stderr })
        })
    }

    fn run_attached(&self, words: &Words, attach: Attach) -> Result<u8> {
        let mut command = self.command(words)?;
        if !attach.input && !attach.terminal {
            command.stdin(Stdio::null());
        }
        attached(command, &|error| not_started(words, error))
    }

    fn put(&self, path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
        let write = || -> std::io::Result<()> {
            let parent = path.parent().unwrap_or(Path::new("/"));
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            let part = parent.join(format!(".{}", sys::random::suffix()?));
            let written = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&part)
                .and_then(|mut file| file.write_all(bytes))
                .and_then(|()| std::fs::set_permissions(&part, Permissions::from_mode(mode)))
                .and_then(|()| std::fs::rename(&part, path));
            if written.is_err() {
                let _ = std::fs::remove_file(&part);
            }
            written
        };
        write().map_err(|error| Error::new(format!("cannot write {}: {error}", path.display())))
    }

    fn begin(&self, words: &Words, input: bool) -> Result<Box<dyn Task>> {
        let mut command = self.command(words)?;
        // A signal of the terminal is passed on by the caller, once.
        command.process_group(0);
        Self::spawn(command, input).map_err(|error| not_started(words, &error))
    }

    fn launch(&self, words: &[String], input: bool) -> Result<Box<dyn Task>> {
        let (program, rest) =
            words.split_first().ok_or_else(|| Error::new("the program to start is missing"))?;
        let mut command = Command::new(program);
        command.args(rest);
        // What a killed driver has started is not to go on without it.
        sys::child::apart(&mut command, Some(rustix::process::Signal::TERM));
        let failed = |error| Error::new(format!("cannot start {program}: {error}"));
        Self::spawn(command, input).map_err(failed)
    }

    fn program(&self) -> Result<Vec<String>> {
        let text = |word: &OsString| {
            let text = word.to_str().map(str::to_owned);
            text.ok_or_else(|| Error::new(format!("{} is not UTF-8", word.display())))
        };
        self.program.iter().map(text).collect()
    }

    fn node_name(&self) -> String {
        rustix::system::uname().nodename().to_string_lossy().into_owned()
    }
}

/// Runs a command on the streams of this process, and passes on the signals that this process is
/// sent. Returns its exit status.
pub(super) fn attached(
    mut command: Command,
    not_started: &dyn Fn(&std::io::Error) -> Error,
) -> Result<u8> {
    let signals = Signals::take()?;
    let mut child = command.spawn().map_err(|error| not_started(&error))?;
    let end = end_of(&child)?;
    loop {
        let mut ready = [PollFd::new(&end, PollFlags::IN), PollFd::new(&signals.fd, PollFlags::IN)];
        let _ = poll(&mut ready, None);
        if let Some(status) = child.try_wait().map_err(|error| cannot_wait(&error))? {
            return Ok(Ended::from(status).exit_status());
        }
        while let Ok(Some(signal)) = signals.fd.next() {
            // A key on the terminal reaches the command, too.
            if !signal.from_kernel() {
                let _ = sys::event::send_signal_fd(&end, signal.number);
            }
        }
    }
}

fn not_started(words: &Words, error: &std::io::Error) -> Error {
    Error::new(format!("cannot run coracle {}: {error}", remote::shell::join(&words.shown())))
}

/// Waits until a child has ended, and leaves it to be reaped.
fn wait_for(pid: Pid) {
    let wait = || waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let _ = rustix::io::retry_on_intr(wait);
}

/// Moves a stream in a thread of its own. What the command wrote before its end has been read then;
/// others that hold the stream are not waited for.
fn read(
    mut stream: impl Read + AsFd + Send + 'static,
    kind: Stream,
    to: SyncSender<Event>,
    end: Arc<OwnedFd>,
) {
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE];
        let mut is_over = false;
        loop {
            let mut ready =
                [PollFd::new(&stream, PollFlags::IN), PollFd::new(&*end, PollFlags::IN)];
            let _ = poll(&mut ready, None);
            let [has_output, has_ended] = ready.map(|fd| !fd.revents().is_empty());
            if !has_output {
                // It is looked once more: something may have come before the end.
                if is_over {
                    return;
                }
                is_over = has_ended;
                continue;
            }
            match stream.read(&mut piece) {
                Ok(0) => return,
                Ok(count) => {
                    if to.send(Event::Output(kind, piece[..count].to_vec())).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
}

/// A command of this machine. The child is taken when it has ended.
#[derive(Debug)]
struct LocalTask {
    events: Mutex<Receiver<Event>>,
    input: Mutex<Option<ChildStdin>>,
    child: Mutex<Option<Child>>,
}

impl LocalTask {
    fn pid(&self) -> Option<Pid> {
        lock(&self.child).as_ref().map(Pid::from_child)
    }
}

impl Task for LocalTask {
    fn event(&self) -> Option<Event> {
        if let Ok(event) = lock(&self.events).recv() {
            return Some(event);
        }
        // Its streams are at their end, so the command has ended, or soon does. It is waited for
        // without the lock, so that it can be signalled meanwhile.
        wait_for(self.pid()?);
        let mut child = lock(&self.child).take()?;
        let status = child.wait().ok()?;
        Some(Event::Ended(status.into()))
    }

    fn input(&self, bytes: &[u8]) -> Result<()> {
        let mut input = lock(&self.input);
        let written = input.as_mut().map(|stream| stream.write_all(bytes));
        let gone = || Error::new("the command reads no more");
        written.ok_or_else(gone)?.map_err(|_| gone())
    }

    fn close_input(&self) -> Result<()> {
        lock(&self.input).take();
        Ok(())
    }

    fn signal(&self, number: i32) -> Result<()> {
        // All of its group, as a key on a terminal means all that is in the foreground. The group
        // is there as long as the child is not reaped, which needs the lock.
        let child = lock(&self.child);
        if let Some(child) = &*child {
            let _ = sys::event::send_signal_to_group(Pid::from_child(child), number);
        }
        Ok(())
    }
}

impl Drop for LocalTask {
    fn drop(&mut self) {
        let _ = self.signal(15);
        // Its streams are closed first, so that it does not wait for a reader.
        let child = lock(&self.child).take();
        drop(std::mem::replace(&mut *lock(&self.events), sync_channel(0).1));
        if let Some(mut child) = child {
            std::thread::spawn(move || child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell() -> Local {
        Local { program: vec!["sh".into(), "-c".into()] }
    }

    #[test]
    fn a_command_is_moved_by_its_caller() {
        let words = ["cat; echo oh >&2; exit 3".to_owned()];
        let task = shell().start(&words, true).unwrap();
        let bytes = vec![7; 3 << 20];
        let (mut out, mut err, mut end) = (Vec::new(), Vec::new(), None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                task.input(&bytes).unwrap();
                task.close_input().unwrap();
            });
            while let Some(event) = task.event() {
                match event {
                    Event::Output(Stream::Output, bytes) => out.extend(bytes),
                    Event::Output(Stream::Errors, bytes) => err.extend(bytes),
                    other => assert!(end.replace(other).is_none()),
                }
            }
        });
        assert_eq!(end, Some(Event::Ended(Ended::Code(3))));
        assert!(out == bytes && err == b"oh\n");
        assert!(task.input(b"x").is_err());
    }

    #[test]
    fn a_process_that_holds_the_streams_is_not_waited_for() {
        let words = ["sleep 600 & echo $!; exit 4".to_owned()];
        let task = shell().start(&words, false).unwrap();
        let Some(Event::Output(Stream::Output, pid)) = task.event() else { panic!("no output") };
        assert_eq!(task.event(), Some(Event::Ended(Ended::Code(4))));
        let pid = str::from_utf8(&pid).unwrap().trim().parse().ok().and_then(Pid::from_raw);
        rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn a_command_that_is_not_wanted_any_more_is_ended() {
        let began = std::time::Instant::now();
        let stop = || began.elapsed() > std::time::Duration::from_millis(150);
        let words =
            ["echo out; trap 'echo end >&2; kill $!; exit 3' TERM; sleep 600 & wait".to_owned()];
        let done = shell().run_until(&words.to_vec().into(), &stop).unwrap();
        assert_eq!((done.status, done.out, done.err), (3, b"out\n".to_vec(), b"end\n".to_vec()));
    }

    /// The caller blocks it, as `cluster up` does.
    #[test]
    fn a_signal_ends_a_command() {
        let set = sys::event::SignalSet::of(&[15]);
        let _blocked = sys::event::MaskGuard::block(set).unwrap();
        let task = shell().start(&["exec sleep 600".to_owned()], false).unwrap();
        task.signal(15).unwrap();
        assert_eq!(task.event(), Some(Event::Ended(Ended::Signal(15))));
        assert_eq!(task.event(), None);
        // One that nobody waits for.
        drop(shell().start(&["exec sleep 600".to_owned()], false).unwrap());
    }
}
