//! A door between connections and a driver, which are both the test.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::Duration;

use super::*;

/// The driver's end of a door, which runs in a thread.
struct Driver {
    stream: UnixStream,
    decoder: Decoder,
}

impl Driver {
    fn send(&mut self, kind: Kind, number: u32, payload: &[u8]) {
        let mut frame = VecDeque::new();
        frames::append(&mut frame, kind, number, payload).unwrap();
        self.stream.write_all(frame.make_contiguous()).unwrap();
    }

    fn take(&mut self) -> (Kind, u32, Vec<u8>) {
        take(&mut self.stream, &mut self.decoder).expect("a frame")
    }
}

fn take(stream: &mut UnixStream, decoder: &mut Decoder) -> Option<(Kind, u32, Vec<u8>)> {
    let mut buffer = vec![0; PIECE];
    loop {
        if let Some(Frame { kind, id, payload }) = decoder.take().unwrap() {
            return Some((kind, id, payload));
        }
        match stream.read(&mut buffer).unwrap_or(0) {
            0 => return None,
            count => decoder.feed(&buffer[..count]),
        }
    }
}

/// Runs a test with a door, and returns how that has ended.
fn with_door(test: impl FnOnce(Driver, &Path)) -> Result<()> {
    let scratch = tempfile::tempdir().unwrap();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o700)).unwrap();
    // Longer than a socket's address may be.
    let path = scratch.path().join("c".repeat(100)).join("door/name");
    let above = path.parent().unwrap().parent().unwrap();
    DirBuilder::new().recursive(true).mode(0o700).create(above).unwrap();
    let (listener, socket) = listen(&path).unwrap();
    let (stream, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // A path that a test can connect to.
    let short = scratch.path().join("s");
    std::os::unix::fs::symlink(path.parent().unwrap(), &short).unwrap();
    let served = thread::scope(|scope| {
        let served = scope.spawn(move || {
            let signals = SignalFd::new(SignalSet::of(&[SIGTERM])).unwrap();
            let _socket = socket;
            Door::new(listener, theirs.as_fd(), theirs.as_fd()).run(&signals)
        });
        test(Driver { stream, decoder: Decoder::default() }, &short.join("name"));
        served.join().unwrap()
    });
    assert!(!path.exists(), "the socket is left");
    served
}

fn say(connection: &mut UnixStream, kind: Kind, payload: &[u8]) {
    let mut frame = VecDeque::new();
    frames::append(&mut frame, kind, 0, payload).unwrap();
    connection.write_all(frame.make_contiguous()).unwrap();
}

#[test]
fn connections_have_numbers() {
    with_door(|mut driver, path| {
        let mut one = UnixStream::connect(path).unwrap();
        say(&mut one, Kind::Start, b"one");
        assert_eq!(driver.take(), (Kind::Start, 1, b"one".to_vec()));
        let mut two = UnixStream::connect(path).unwrap();
        say(&mut two, Kind::Input, b"two");
        assert_eq!(driver.take(), (Kind::Input, 2, b"two".to_vec()));
        driver.send(Kind::Errors, 2, b"for two");
        driver.send(Kind::Ended, 1, &[0; 5]);
        driver.send(Kind::Output, 77, b"for nobody");
        let mut decoder = Decoder::default();
        assert_eq!(take(&mut two, &mut decoder), Some((Kind::Errors, 0, b"for two".to_vec())));
        // It is closed behind its last frame, which is not told.
        let mut decoder = Decoder::default();
        assert_eq!(take(&mut one, &mut decoder), Some((Kind::Ended, 0, vec![0; 5])));
        assert_eq!(take(&mut one, &mut decoder), None);
        drop(two);
        assert_eq!(driver.take(), (Kind::Bye, 2, Vec::new()));
    })
    .unwrap();
}

#[test]
fn a_connection_that_says_nonsense_is_closed() {
    with_door(|mut driver, path| {
        let mut one = UnixStream::connect(path).unwrap();
        one.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        assert_eq!(driver.take(), (Kind::Bye, 1, Vec::new()));
        let mut two = UnixStream::connect(path).unwrap();
        say(&mut two, Kind::Put, b"a driver's word");
        assert_eq!(driver.take(), (Kind::Bye, 2, Vec::new()));
        assert_eq!(take(&mut two, &mut Decoder::default()), None);
    })
    .unwrap();
}

#[test]
fn a_driver_that_says_nonsense_ends_the_door() {
    let damaged = |bytes: &[u8]| with_door(|mut driver, _| driver.stream.write_all(bytes).unwrap());
    assert!(damaged(b"garbage!!").is_err());
    let mut start = VecDeque::new();
    frames::append(&mut start, Kind::Start, 1, b"").unwrap();
    assert!(damaged(start.make_contiguous()).is_err());
}

/// What a connection sends waits in its socket while the driver does not read.
#[test]
fn a_driver_that_does_not_read_holds_the_writers_back() {
    with_door(|mut driver, path| {
        let mut one = UnixStream::connect(path).unwrap();
        one.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut frame = VecDeque::new();
        frames::append(&mut frame, Kind::Input, 0, &vec![7; PIECE]).unwrap();
        let bytes = frame.make_contiguous();
        let (mut sent, most) = (0, 100);
        while sent < most && one.write_all(bytes).is_ok() {
            sent += 1;
        }
        assert!(sent < most, "{sent} pieces are kept");
        for _ in 0..sent {
            assert_eq!(driver.take(), (Kind::Input, 1, vec![7; PIECE]));
        }
    })
    .unwrap();
}

/// A connection that reads nothing, and says that it does.
#[test]
fn what_is_kept_for_a_connection_has_a_limit() {
    with_door(|mut driver, path| {
        let mut one = UnixStream::connect(path).unwrap();
        say(&mut one, Kind::Start, b"");
        assert_eq!(driver.take().0, Kind::Start);
        for _ in 0..2 * KEPT / PIECE {
            driver.send(Kind::Output, 1, &vec![7; PIECE]);
        }
        assert_eq!(driver.take(), (Kind::Bye, 1, Vec::new()));
    })
    .unwrap();
}

#[test]
fn users_of_containers_may_connect_where_others_of_the_host_cannot() {
    let scratch = tempfile::tempdir().unwrap();
    let modes = |of_above: u32| {
        let above = scratch.path().join(format!("{of_above:o}"));
        fs::create_dir(&above).unwrap();
        fs::set_permissions(&above, Permissions::from_mode(of_above)).unwrap();
        let path = above.join("door/name");
        let _listener = listen(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        [mode(path.parent().unwrap()), mode(&path)]
    };
    assert_eq!(modes(0o700), [0o711, 0o666]);
    assert_eq!(modes(0o755), [0o700, 0o600]);
}
