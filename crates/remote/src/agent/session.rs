//! The agent's loop: frames in, frames out, and what programs write in between.
//!
//! One queue holds all that goes to the driver. Programs are read only while it is short, one piece
//! of each in turn and each turn beginning with another one, so the time that a message waits is
//! that of one short queue. What the driver asks for is read only while answers have room.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::ending::{ASKED, Note};
use super::files::{Incoming, Outgoing};
use super::guard::Ends;
use super::holder::Holder;
use super::process::Process;
use super::{Error, Options, ending, facts};
use crate::wire::frames::{self, Decoder, Frame};
use crate::wire::messages::{self, pack, unpack};
use crate::wire::{self, Kind, MAGIC, PIECE, SILENCE, VERSION, WINDOW};

/// Output of programs and files waits while so many bytes are in the queue.
const SHORT: usize = 256 << 10;
/// Requests wait while so many are.
const FULL: usize = 1 << 20;

/// Longest command for the end, in bytes: the guard gets it as one packet.
const LONGEST_WORDS: usize = 32 << 10;

/// Why the loop goes on or not.
#[derive(PartialEq, Eq)]
enum Next {
    Go,
    End,
}

struct Session<'a> {
    options: &'a Options,
    ends: Ends,
    rest: ending::Rest,
    out: VecDeque<u8>,
    runtime: std::path::PathBuf,
    hello: Option<messages::Hello>,
    processes: BTreeMap<u32, Process>,
    incoming: BTreeMap<u32, Incoming>,
    outgoing: BTreeMap<u32, (Outgoing, usize)>,
    /// Where the next turn begins.
    turn: u32,
}

/// Serves one driver; returns when it has left or is lost.
pub(super) fn serve(
    options: &Options,
    input: OwnedFd,
    output: OwnedFd,
    ends: Ends,
) -> Result<(), Error> {
    let mut session = Session {
        options,
        ends,
        rest: ending::Rest::default(),
        out: VecDeque::from(format!("{MAGIC}\n").into_bytes()),
        runtime: std::path::PathBuf::new(),
        hello: None,
        processes: BTreeMap::new(),
        incoming: BTreeMap::new(),
        outgoing: BTreeMap::new(),
        turn: 0,
    };
    let done = session.run(&input, &output);
    session.flush(&output);
    drop((input, output));
    // Without its processes: their pipes are closed now.
    let Session { ends, rest, .. } = session;
    if !ends.finish() {
        rest.finish(&ends.signals);
    }
    done
}

/// Once for both that have words.
#[inline(never)]
fn unpack_start(payload: &[u8]) -> Result<messages::Start, wire::Error> {
    unpack(Kind::Start, payload)
}

impl Session<'_> {
    fn run(&mut self, input: &OwnedFd, output: &OwnedFd) -> Result<(), Error> {
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; PIECE];
        let mut heard = Instant::now();
        loop {
            let Some(left) = SILENCE.checked_sub(heard.elapsed()) else { return Ok(()) };
            self.wait(input, output, left);
            if self.signals() {
                return Ok(());
            }
            if self.out.len() < FULL {
                match rustix::io::read(input, &mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(count) => {
                        heard = Instant::now();
                        decoder.feed(&buffer[..count]);
                    }
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(_) => return Ok(()),
                }
                while let Some(frame) = decoder.take().map_err(Error::Stream)? {
                    if self.frame(&frame).map_err(Error::Stream)? == Next::End {
                        return Ok(());
                    }
                }
            }
            self.turn(&mut buffer);
            if !self.write(output) {
                return Ok(());
            }
        }
    }

    /// Waits until something can be done.
    fn wait(&self, input: &OwnedFd, output: &OwnedFd, left: std::time::Duration) {
        let mut ready = vec![PollFd::new(&self.ends.signals, PollFlags::IN)];
        if self.out.len() < FULL {
            ready.push(PollFd::new(input, PollFlags::IN));
        }
        if !self.out.is_empty() {
            ready.push(PollFd::new(output, PollFlags::OUT));
        }
        let short = self.out.len() < SHORT;
        for process in self.processes.values() {
            ready.extend(
                process.wants_input().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)),
            );
            if short {
                let outputs = process.wants_output();
                ready.extend(outputs.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            }
        }
        let file = short && self.outgoing.values().any(|(_, window)| *window > 0);
        let time = if file { std::time::Duration::ZERO } else { left };
        let time = Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let _ = poll(&mut ready, Some(&time));
    }

    /// Takes signals; true if the agent is asked to end.
    fn signals(&mut self) -> bool {
        let (mut asked, mut any) = (false, false);
        while let Ok(Some(received)) = self.ends.signals.next() {
            any = true;
            // The guard's end sends one, too; then the grace is kept.
            if ASKED.contains(&received.number) {
                asked = true;
                if rustix::process::getppid() == Some(self.ends.guard) {
                    self.note(Note::Asked);
                }
            }
        }
        // One signal may stand for the ends of several children.
        for process in self.processes.values_mut().filter(|_| any) {
            if process.look() {
                self.ends.to_guard.tell(&Note::Ended(process.pid.as_raw_nonzero().get()));
                self.rest.note(Note::Ended(process.pid.as_raw_nonzero().get()));
            }
        }
        asked
    }

    fn note(&mut self, note: Note) {
        self.ends.to_guard.tell(&note);
        self.rest.note(note);
    }

    fn send(&mut self, kind: Kind, id: u32, payload: &[u8]) {
        // Payloads of this side are short or cut into pieces.
        let _ = frames::append(&mut self.out, kind, id, payload);
    }

    #[inline(never)]
    fn refuse(&mut self, id: u32, why: impl Into<String>) {
        let refused = messages::Refused { why: why.into(), version: None };
        self.send(Kind::Refused, id, &pack(&refused));
    }

    fn answer(&mut self, id: u32, done: Result<(), String>) {
        match done {
            Ok(()) => self.send(Kind::Done, id, &[]),
            Err(why) => self.refuse(id, why),
        }
    }

    fn frame(&mut self, frame: &Frame) -> Result<Next, wire::Error> {
        let Frame { kind, id, payload } = frame;
        let (kind, id) = (*kind, *id);
        match kind {
            Kind::Hello if self.hello.is_none() => return self.hello(unpack(kind, payload)?),
            _ if self.hello.is_none() => return Err(wire::Error::Unexpected(kind)),
            Kind::Ping => self.send(Kind::Pong, 0, &[]),
            Kind::Start => match Process::start(unpack_start(payload)?, &self.ends.to_guard) {
                Ok(process) => {
                    self.note(Note::Started(process.pid.as_raw_nonzero().get()));
                    self.processes.insert(id, process);
                }
                Err(why) => self.refuse(id, why),
            },
            Kind::Input => {
                // It may have ended while this was under way.
                if let Some(process) = self.processes.get_mut(&id) {
                    process.feed(id, payload)?;
                }
            }
            Kind::CloseInput => {
                if let Some(process) = self.processes.get_mut(&id) {
                    process.close_input();
                }
            }
            Kind::Signal => {
                let number = messages::number(kind, payload)?.cast_signed();
                if let Some(process) =
                    self.processes.get(&id).filter(|_| (1..=64).contains(&number))
                {
                    let _ = process.signal(number);
                }
                // A file that the driver gives up.
                if self.incoming.remove(&id).is_some() || self.outgoing.remove(&id).is_some() {
                    self.refuse(id, "it was given up");
                }
            }
            Kind::Put => {
                let messages::Put { path, mode } = messages::Put::unpack(payload)?;
                match Incoming::begin(&path, mode) {
                    Ok(file) => drop(self.incoming.insert(id, file)),
                    Err(why) => self.refuse(id, why),
                }
            }
            Kind::PutData => {
                if let Some(file) = self.incoming.get_mut(&id) {
                    file.write(payload);
                    let count = payload.len() as u32;
                    self.send(Kind::Credit, id, &count.to_le_bytes());
                }
            }
            Kind::PutEnd => {
                if let Some(file) = self.incoming.remove(&id) {
                    self.answer(id, file.finish());
                }
            }
            Kind::Get => {
                let path = messages::path_of(payload);
                match Outgoing::begin(&path) {
                    Ok(file) => drop(self.outgoing.insert(id, (file, WINDOW))),
                    Err(why) => self.refuse(id, why),
                }
            }
            Kind::AtEnd => {
                let words = unpack_start(payload)?.words;
                let holds = self.hello.as_ref().is_some_and(|hello| hello.holds);
                if payload.len() > LONGEST_WORDS {
                    self.refuse(id, "the command for the end is too long");
                } else if holds {
                    self.note(Note::AtEnd(words));
                    self.answer(id, Ok(()));
                } else {
                    self.refuse(id, "this driver does not hold the cluster");
                }
            }
            Kind::Credit => {
                let count = messages::number(kind, payload)? as usize;
                if let Some(process) = self.processes.get_mut(&id) {
                    process.credit(count);
                } else if let Some((_, window)) = self.outgoing.get_mut(&id) {
                    *window = (*window + count).min(WINDOW);
                }
            }
            Kind::Bye => {
                self.note(Note::Bye);
                return Ok(Next::End);
            }
            _ => return Err(wire::Error::Unexpected(kind)),
        }
        Ok(Next::Go)
    }

    #[inline(never)]
    fn hello(&mut self, hello: messages::Hello) -> Result<Next, wire::Error> {
        if hello.version != VERSION {
            let why = wire::Error::Version { agent: VERSION, driver: hello.version };
            let refused = messages::Refused { why: why.to_string(), version: Some(VERSION) };
            self.send(Kind::Refused, 0, &pack(&refused));
            return Err(why);
        }
        match super::runtime(self.options) {
            Ok(runtime) => self.runtime = runtime,
            Err(error) => {
                self.refuse(0, error.to_string());
                return Ok(Next::End);
            }
        }
        if hello.holds {
            match Holder::take(&self.runtime, &hello.cluster, hello.grace) {
                Ok(holder) => self.note(Note::Holds(holder)),
                Err(error) => {
                    let place = self.runtime.display();
                    let why = format!("cannot take the cluster over in {place}: {error}");
                    self.refuse(0, why);
                    return Ok(Next::End);
                }
            }
        }
        let facts = facts::gather(self.options, &self.runtime, hello.room);
        self.send(Kind::Facts, 0, &pack(&facts));
        self.hello = Some(hello);
        Ok(Next::Go)
    }

    /// Moves what can be moved: one piece of everything.
    fn turn(&mut self, buffer: &mut [u8]) {
        let mut order: Vec<u32> = self.processes.keys().copied().collect();
        let begin = order.partition_point(|id| *id <= self.turn);
        order.rotate_left(begin);
        for id in order {
            let Some(process) = self.processes.get_mut(&id) else { continue };
            if let Some(count) = process.push_input() {
                let count = (count as u32).to_le_bytes();
                let _ = frames::append(&mut self.out, Kind::Credit, id, &count);
            }
            if self.out.len() < SHORT {
                let out = &mut self.out;
                process.pull_output(buffer, |kind, bytes| {
                    let _ = frames::append(out, kind, id, bytes);
                });
                self.turn = id;
            }
            if let Some(ended) = process.over() {
                self.processes.remove(&id);
                self.send(Kind::Ended, id, &ended.pack());
            }
        }
        let files: Vec<u32> = self.outgoing.keys().copied().collect();
        for id in files {
            if self.out.len() < SHORT {
                self.pull_file(id, buffer);
            }
        }
    }

    fn pull_file(&mut self, id: u32, buffer: &mut [u8]) {
        let Some((file, window)) = self.outgoing.get_mut(&id) else { return };
        let most = (*window).min(PIECE).min(buffer.len());
        if most == 0 {
            return;
        }
        match file.read(&mut buffer[..most]) {
            Ok(0) => {
                self.outgoing.remove(&id);
                self.send(Kind::Done, id, &[]);
            }
            Ok(count) => {
                *window -= count;
                let _ = frames::append(&mut self.out, Kind::Data, id, &buffer[..count]);
            }
            Err(why) => {
                self.outgoing.remove(&id);
                self.refuse(id, why);
            }
        }
    }

    /// Writes what the stream takes; false if it is gone.
    fn write(&mut self, output: &OwnedFd) -> bool {
        while !self.out.is_empty() {
            match rustix::io::write(output, self.out.as_slices().0) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        // An idle agent remembers no flood.
        self.out.shrink_to(PIECE);
        true
    }

    /// Writes last words, for a moment.
    fn flush(&mut self, output: &OwnedFd) {
        let moment = Timespec { tv_sec: 1, tv_nsec: 0 };
        while self.write(output) && !self.out.is_empty() {
            let mut ready = [PollFd::new(output, PollFlags::OUT)];
            if !matches!(poll(&mut ready, Some(&moment)), Ok(1..)) {
                break;
            }
        }
    }
}
