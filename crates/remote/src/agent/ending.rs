//! The end of an agent: its programs are ended, then the driver's command cleans up, unless another
//! agent has taken the cluster over.

use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};
use sys::event::SignalFd;

use super::holder::Holder;

/// Time between SIGTERM and SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for killed processes to be gone.
const GONE: Duration = Duration::from_secs(2);
/// Limit of the command that cleans up.
const CLEAN_UP: Duration = Duration::from_mins(2);
/// How often is looked.
const TURN: Duration = Duration::from_millis(100);

/// The numbers of the signals that ask a process to end: SIGHUP, SIGINT, SIGTERM.
pub(super) const ASKED: [i32; 3] = [1, 2, 15];

/// What the agent tells the guard; one message is one packet.
#[derive(Debug)]
pub(super) enum Note {
    /// This process, of a group and session of its own, is about to become a program. It tells so
    /// itself: the agent may be killed before it has learned who that is.
    Starting(i32),
    /// It has not become one.
    NotStarted,
    /// A program lives: its process, group and session.
    Started(i32),
    /// Nothing of it lives.
    Ended(i32),
    /// This agent holds the cluster.
    Holds(Holder),
    /// The command for the end.
    AtEnd(Vec<String>),
    /// The driver has left on purpose.
    Bye,
    /// Somebody has asked one of the processes to end.
    Asked,
    /// The agent has served, and waits for the guard.
    Over,
}

/// The letter of [`Note::Starting`].
pub(super) const STARTING: u8 = b'p';

impl Note {
    /// As a packet: a letter, and what belongs to it.
    pub(super) fn pack(&self) -> Vec<u8> {
        let number = |letter: u8, pid: &i32| [&[letter], &pid.to_le_bytes()[..]].concat();
        match self {
            Self::Starting(pid) => number(STARTING, pid),
            Self::NotStarted => b"n".to_vec(),
            Self::Started(pid) => number(b's', pid),
            Self::Ended(pid) => number(b'e', pid),
            Self::Holds(holder) => [b"h", &holder.pack()[..]].concat(),
            Self::AtEnd(words) => [b"c", words.join("\0").as_bytes()].concat(),
            Self::Bye => b"b".to_vec(),
            Self::Asked => b"a".to_vec(),
            Self::Over => b"o".to_vec(),
        }
    }

    /// From a packet.
    pub(super) fn unpack(packet: &[u8]) -> Option<Self> {
        let (letter, rest) = packet.split_first()?;
        let number = || rest.try_into().ok().map(i32::from_le_bytes);
        Some(match letter {
            &STARTING => Self::Starting(number()?),
            b'n' => Self::NotStarted,
            b's' => Self::Started(number()?),
            b'e' => Self::Ended(number()?),
            b'h' => Self::Holds(Holder::unpack(rest)?),
            b'c' if rest.is_empty() => Self::AtEnd(Vec::new()),
            b'c' => {
                Self::AtEnd(str::from_utf8(rest).ok()?.split('\0').map(str::to_owned).collect())
            }
            b'b' => Self::Bye,
            b'a' => Self::Asked,
            b'o' => Self::Over,
            _ => return None,
        })
    }
}

/// How the agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// This is the process that spoke with the driver; the other one has the result.
    Inner,
    /// The driver has left on purpose.
    Closed,
    /// The driver was lost, and there was nothing to clean up.
    Lost,
    /// Another agent has taken the cluster over.
    TakenOver,
    /// The driver was lost, and its command has cleaned up.
    CleanedUp,
    /// The driver was lost, and its command has failed or cannot be run.
    CleanUpFailed,
}

/// What is to be done at the end.
#[derive(Debug, Default)]
pub(super) struct Rest {
    groups: Vec<Pid>,
    /// One that may be a group.
    starting: Option<Pid>,
    holder: Option<Holder>,
    words: Vec<String>,
    bye: bool,
    /// Somebody has asked this process to end: there is no time for the grace.
    asked: bool,
}

impl Rest {
    /// Keeps what the agent tells.
    pub(super) fn note(&mut self, note: Note) {
        match note {
            Note::Starting(pid) => self.starting = Pid::from_raw(pid),
            Note::NotStarted => self.starting = None,
            Note::Started(pid) => {
                self.starting = None;
                self.groups.extend(Pid::from_raw(pid));
            }
            Note::Ended(pid) => self.groups.retain(|group| group.as_raw_nonzero().get() != pid),
            Note::Holds(holder) => self.holder = Some(holder),
            Note::AtEnd(words) => self.words = words,
            Note::Bye => self.bye = true,
            Note::Asked => self.asked = true,
            Note::Over => {}
        }
    }

    /// Does it.
    pub(super) fn finish(mut self, signals: &SignalFd) -> Exit {
        self.groups.extend(self.starting.take());
        end(&self.groups, signals, &mut self.asked);
        let Some(holder) = self.holder.take() else {
            return if self.bye { Exit::Closed } else { Exit::Lost };
        };
        // Without a command there is nothing to wait for: the driver was lost before it began.
        if self.bye || self.words.is_empty() {
            // Agents of earlier drivers see that the mark is not theirs.
            if holder.is_mine()
                && let Some(held) = holder.lock()
            {
                held.remove();
            }
            return if self.bye { Exit::Closed } else { Exit::Lost };
        }
        let limit = Instant::now() + holder.grace;
        while !self.asked && Instant::now() < limit {
            if !holder.is_mine() {
                return Exit::TakenOver;
            }
            let left = limit.saturating_duration_since(Instant::now());
            self.asked |= asked_within(signals, left.min(TURN * 2));
        }
        // Who comes now waits until the cleaning is over.
        let Some(held) = holder.lock() else { return Exit::TakenOver };
        let done = clean_up(&self.words);
        held.remove();
        if done { Exit::CleanedUp } else { Exit::CleanUpFailed }
    }
}

/// Ends all processes of these sessions.
fn end(groups: &[Pid], signals: &SignalFd, asked: &mut bool) {
    for (signal, patience) in [(Signal::TERM, PATIENCE), (Signal::KILL, GONE)] {
        let limit = Instant::now() + patience;
        let mut turn = Duration::from_millis(5);
        for pid in living(groups) {
            let _ = rustix::process::kill_process(pid, signal);
        }
        loop {
            while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
            let left = living(groups);
            if left.is_empty() {
                return;
            }
            if Instant::now() > limit {
                break;
            }
            if signal == Signal::KILL {
                // One that was being started by another is not missed.
                for pid in left {
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
            *asked |= asked_within(signals, turn);
            turn = (turn * 2).min(TURN);
        }
    }
}

fn living(groups: &[Pid]) -> Vec<Pid> {
    groups.iter().flat_map(|&group| sys::child::session(group)).collect()
}

/// Waits for a signal that asks the process to end; other signals end the waiting early.
fn asked_within(signals: &SignalFd, time: Duration) -> bool {
    let (mut next, mut asked) = (signals.next_within(time), false);
    while let Ok(Some(received)) = next {
        asked |= ASKED.contains(&received.number);
        next = signals.next();
    }
    asked
}

/// Runs the command; true if it succeeded in time.
fn clean_up(words: &[String]) -> bool {
    let Some(mut command) = super::command(words) else { return false };
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // At the end of a job's time Slurm sends SIGTERM to all of its processes twice: the second one
    // finds this command at work.
    sys::child::unmoved(&mut command);
    let Ok(mut child) = command.spawn() else { return false };
    let limit = Instant::now() + CLEAN_UP;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return ExitStatus::success(&status),
            Ok(None) if Instant::now() < limit => std::thread::sleep(TURN / 5),
            _ => break,
        }
    }
    for pid in sys::child::session(Pid::from_child(&child)) {
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
    let _ = child.wait();
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_arrive_as_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let holder = Holder::take(dir.path(), "c", Duration::from_millis(1500)).unwrap();
        let words = vec!["a b".to_owned(), String::new(), "c".to_owned()];
        for note in [
            Note::Starting(7),
            Note::NotStarted,
            Note::Started(7),
            Note::Ended(i32::MAX),
            Note::Holds(holder),
            Note::AtEnd(words),
            Note::AtEnd(Vec::new()),
            Note::Bye,
            Note::Asked,
            Note::Over,
        ] {
            let arrived = Note::unpack(&note.pack()).unwrap();
            assert_eq!(format!("{arrived:?}"), format!("{note:?}"));
        }
        assert!(Note::unpack(b"").is_none() && Note::unpack(b"s12").is_none());
    }

    #[test]
    fn one_that_was_being_started_is_ended_too() {
        let mut rest = Rest::default();
        let groups = |rest: &Rest| -> Vec<i32> {
            let all = rest.groups.iter().chain(&rest.starting);
            all.map(|pid| pid.as_raw_nonzero().get()).collect()
        };
        for (note, expected) in [
            (Note::Starting(7), &[7][..]),
            (Note::Started(7), &[7]),
            (Note::Starting(8), &[7, 8]),
            (Note::NotStarted, &[7]),
            (Note::Starting(9), &[7, 9]),
        ] {
            rest.note(note);
            assert_eq!(groups(&rest), expected);
        }
    }
}
