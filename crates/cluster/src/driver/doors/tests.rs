//! Doors whose processes are the test, and commands of a shell in the place of containers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, SyncSender, sync_channel};

use super::*;
use std::path::Path;

use remote::wire::messages::Ended;
use remote::wire::{PIECE, WINDOW};

use crate::driver::{Attach, Done, Local};
use crate::plan::Node;

/// A host on which `exec` runs the command without a container.
struct Shell {
    door: Mutex<Option<FakeDoor>>,
    /// What it says of all containers.
    runs: Arc<AtomicBool>,
}

struct FakeDoor {
    events: Mutex<Receiver<Event>>,
    input: Mutex<Option<Sender<Vec<u8>>>>,
}

impl Task for FakeDoor {
    fn event(&self) -> Option<Event> {
        lock(&self.events).recv().ok()
    }

    fn input(&self, bytes: &[u8]) -> Result<()> {
        let input = lock(&self.input);
        let sent = input.as_ref().map(|input| input.send(bytes.to_vec()).is_ok());
        if sent == Some(true) { Ok(()) } else { Err(Error::new("the door has ended")) }
    }

    fn close_input(&self) -> Result<()> {
        lock(&self.input).take();
        Ok(())
    }

    fn signal(&self, _: i32) -> Result<()> {
        self.close_input()
    }
}

impl Host for Shell {
    fn name(&self) -> &'static str {
        "shell"
    }

    fn run_until(&self, _: &Words, _: &(dyn Fn() -> bool + Sync)) -> Result<Done> {
        let out = self.runs.load(Ordering::Relaxed).to_string().into_bytes();
        Ok(Done { status: 0, out, err: Vec::new() })
    }

    fn run_attached(&self, _: &Words, _: Attach) -> Result<u8> {
        Err(Error::new("not here"))
    }

    fn put(&self, _: &Path, _: u32, _: &[u8]) -> Result<()> {
        Err(Error::new("not here"))
    }

    fn launch(&self, _: &[String], _: bool) -> Result<Box<dyn Task>> {
        Err(Error::new("not here"))
    }

    fn program(&self) -> Result<Vec<String>> {
        Err(Error::new("not here"))
    }

    fn node_name(&self) -> String {
        "shell".to_owned()
    }

    fn begin(&self, words: &Words, input: bool) -> Result<Box<dyn Task>> {
        if words[0] == "cluster" {
            let door = lock(&self.door).take().ok_or_else(|| Error::new("one door only"))?;
            return Ok(Box::new(door));
        }
        let at = words.iter().position(|word| word == "/bin/sh").expect("a shell");
        assert_eq!(words[at - 1], "c-node2");
        Local { program: vec!["/bin/sh".into()] }.start(&words[at + 1..], input)
    }
}

/// The doors of a cluster, and the end of its door's process.
struct Client {
    // Dropped first: the door's process has ended.
    events: SyncSender<Event>,
    doors: Option<Doors>,
    _hosts: Hosts,
    containers_run: Arc<AtomicBool>,
    input: Receiver<Vec<u8>>,
    decoder: Decoder,
}

impl Client {
    fn new() -> Self {
        let (events, of_door) = sync_channel(100);
        let (to_door, input) = channel();
        let (of_door, to_door) = (Mutex::new(of_door), Mutex::new(Some(to_door)));
        let door = FakeDoor { events: of_door, input: to_door };
        let runs = Arc::new(AtomicBool::new(true));
        let containers_run = Arc::clone(&runs);
        let hosts = Hosts::here(Shell { door: Mutex::new(Some(door)), runs });
        let node = |name: &str| Node {
            name: name.to_owned(),
            container: format!("c-{name}"),
            host: None,
            doors: "/store/door".to_owned(),
        };
        let plan = Plan {
            found: None,
            asked: Vec::new(),
            cluster: "c".to_owned(),
            backend: String::new(),
            phases: Vec::new(),
            nodes: vec![node("node1"), node("node2")],
            variables: Vec::new(),
        };
        events.send(Event::Output(Stream::Output, framed(Kind::Done, 0, &[]))).unwrap();
        let doors = Some(Doors::open(&plan, &hosts).unwrap());
        let decoder = Decoder::default();
        Self { events, doors, _hosts: hosts, containers_run, input, decoder }
    }

    fn send(&self, kind: Kind, number: u32, payload: &[u8]) {
        let frame = framed(kind, number, payload);
        self.events.send(Event::Output(Stream::Output, frame)).unwrap();
    }

    fn start(&self, number: u32, node: &str, command: &str) {
        let (node, command) = (node.to_owned(), command.to_owned());
        self.send(Kind::Start, number, &Request { node, user: None, command, input: true }.pack());
    }

    fn next_within(&mut self, time: Duration) -> Option<(Kind, u32, Vec<u8>)> {
        loop {
            if let Some(Frame { kind, id, payload }) = self.decoder.take().unwrap() {
                return Some((kind, id, payload));
            }
            self.decoder.feed(&self.input.recv_timeout(time).ok()?);
        }
    }

    fn next(&mut self) -> (Kind, u32, Vec<u8>) {
        self.next_within(Duration::from_secs(30)).expect("a frame")
    }

    fn refused(&mut self, number: u32) -> String {
        let (kind, id, why) = self.next();
        assert_eq!((kind, id), (Kind::Refused, number));
        String::from_utf8(why).unwrap()
    }
}

fn framed(kind: Kind, number: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = VecDeque::new();
    frames::append(&mut frame, kind, number, payload).unwrap();
    frame.into()
}

fn ended(ended: Ended) -> Vec<u8> {
    ended.pack().to_vec()
}

#[test]
fn a_command_has_streams_and_a_status() {
    let mut client = Client::new();
    client.start(5, "node2", "cat; echo oh >&2; exit 3");
    client.send(Kind::Input, 5, b"\0\xffin");
    client.send(Kind::CloseInput, 5, &[]);
    let mut said = [client.next(), client.next()];
    said.sort_by_key(|(kind, ..)| *kind as u8);
    let [output, errors] = said;
    assert_eq!(output, (Kind::Output, 5, b"\0\xffin".to_vec()));
    assert_eq!(errors, (Kind::Errors, 5, b"oh\n".to_vec()));
    assert_eq!(client.next(), (Kind::Ended, 5, ended(Ended::Code(3))));
    // The name of the container says it, too; a signal is passed on.
    client.start(6, "c-node2", "echo begun; exec sleep 600");
    assert_eq!(client.next(), (Kind::Output, 6, b"begun\n".to_vec()));
    client.send(Kind::Signal, 6, &15_u32.to_le_bytes());
    assert_eq!(client.next(), (Kind::Ended, 6, ended(Ended::Signal(15))));
}

#[test]
fn what_cannot_run_is_refused() {
    let mut client = Client::new();
    client.start(1, "node9", "true");
    assert_eq!(client.refused(1), "node9 is not a node of this cluster: they are node1 to node2");
    client.send(Kind::Start, 2, b"\x01node2");
    assert!(client.refused(2).contains("a word is missing"));
    // What exec says of its own failure is one line of the refusal, and the command's words are
    // its own.
    client.start(3, "node2", "echo error: container c-node2 is not running >&2; exit 125");
    assert_eq!(client.refused(3), "node2 is lost: container c-node2 is not running");
    client.start(4, "node2", "echo error: container c-node2 bad >&2; exit 1");
    assert_eq!(client.next(), (Kind::Errors, 4, b"error: container c-node2 bad\n".to_vec()));
    assert_eq!(client.next(), (Kind::Ended, 4, ended(Ended::Code(1))));
    // One that is killed may be so with its container.
    client.start(5, "node2", "kill -KILL $$");
    assert_eq!(client.next(), (Kind::Ended, 5, ended(Ended::Signal(9))));
    client.containers_run.store(false, Ordering::Relaxed);
    client.start(6, "node2", "kill -KILL $$");
    assert_eq!(client.refused(6), "node2 is lost: its container has ended");
}

/// Nothing is sent without credit, in both directions.
#[test]
fn credit_is_kept() {
    let mut client = Client::new();
    client.start(1, "node2", "head -c 1000000 /dev/zero");
    let mut got = 0;
    while let Some((kind, _, payload)) = client.next_within(Duration::from_millis(500)) {
        assert_eq!(kind, Kind::Output);
        got += payload.len();
    }
    assert!(got <= WINDOW && got > WINDOW - PIECE, "{got} bytes came");
    loop {
        let (kind, _, payload) = client.next_after_credit(1);
        if kind == Kind::Ended {
            break;
        }
        got += payload.len();
    }
    assert_eq!(got, 1_000_000);
    client.start(2, "node2", "exec sleep 600");
    for _ in 0..=2 * WINDOW / PIECE {
        client.send(Kind::Input, 2, &vec![7; PIECE]);
    }
    loop {
        match client.next() {
            (Kind::Credit, 2, _) => {}
            (Kind::Refused, 2, why) => {
                let why = String::from_utf8(why).unwrap();
                assert_eq!(why, "more bytes for number 2 than were allowed");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Client {
    fn next_after_credit(&mut self, number: u32) -> (Kind, u32, Vec<u8>) {
        self.send(Kind::Credit, number, &(PIECE as u32).to_le_bytes());
        self.next()
    }
}

#[test]
fn commands_end_with_their_connection_and_with_the_doors() {
    let mut client = Client::new();
    let scratch = tempfile::tempdir().unwrap();
    let trap = |name: &str| {
        let path = scratch.path().join(name);
        let script = format!("trap 'touch {}; exit' TERM; echo begun; ", path.display());
        (path, script + "while :; do sleep 0.05; done")
    };
    let until = |path: &Path| {
        for _ in 0..600 {
            if path.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{} did not get SIGTERM", path.display());
    };
    let (one, script) = trap("one");
    client.start(1, "node2", &script);
    assert_eq!(client.next().0, Kind::Output);
    client.send(Kind::Bye, 1, &[]);
    until(&one);
    let (two, script) = trap("two");
    client.start(2, "node2", &script);
    assert_eq!(client.next().0, Kind::Output);
    // The door's process ends by the end of its input.
    client.events = sync_channel(0).0;
    drop(client.doors.take());
    until(&two);
}

#[test]
fn a_door_that_cannot_be_opened_is_told() {
    struct Broken(Event);
    impl Task for Broken {
        fn event(&self) -> Option<Event> {
            Some(self.0.clone())
        }
        fn input(&self, _: &[u8]) -> Result<()> {
            Ok(())
        }
        fn close_input(&self) -> Result<()> {
            Ok(())
        }
        fn signal(&self, _: i32) -> Result<()> {
            Ok(())
        }
    }
    let told = |event| opened(&Broken(event)).unwrap_err().to_string();
    let garbage = Event::Output(Stream::Output, b"Welcome to host 7\n".to_vec());
    assert!(told(garbage).starts_with("no door for the nodes: a frame of"));
    let other = Event::Output(Stream::Output, framed(Kind::Output, 0, &[]));
    assert!(told(other).contains("not expected"));
    assert_eq!(told(Event::Failed("no program".to_owned())), "no door for the nodes: no program");
}
