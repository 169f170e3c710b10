//! The log with every error at every call, with a process that is killed before every call, and
//! with processes at once.

use super::fake::{Fault, Process};
use super::machine::Machine;
use super::turns::Turns;
use crate::InodeLog;
use crate::inode_log::{IndexedLog, open, record};
use crate::kernel::Kernel;
use abi::notes::{RECORD, ROOM};
use abi::shared::Shared;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::vec::Vec;
use view::Errno;
use view::errno::Result;

const PATH: &[u8] = b"/notes";
/// The errors that some call is prepared for, and some others. (The shared file is large: with all
/// errors the tests would take minutes.)
const ERRORS: [Errno; 18] = [
    Errno::EPERM,
    Errno::ENOENT,
    Errno::EINTR,
    Errno::EIO,
    Errno::EBADF,
    Errno::EAGAIN,
    Errno::ENOMEM,
    Errno::EACCES,
    Errno::EEXIST,
    Errno::EINVAL,
    Errno::EMFILE,
    Errno::ENOSPC,
    Errno::EROFS,
    Errno::ENOLCK,
    Errno::ENOSYS,
    Errno::EOPNOTSUPP,
    Errno::ESTALE,
    Errno::EDQUOT,
];

/// The file that processes share.
struct Words(Vec<AtomicU64>);

impl Words {
    fn new() -> Self {
        let words: Vec<_> = (0..Shared::size(0) / 8).map(|_| AtomicU64::new(0)).collect();
        Shared::create(&words, &[]).unwrap();
        Self(words)
    }

    /// Like a copy of the file.
    fn copy(&self) -> Self {
        use std::sync::atomic::Ordering::Relaxed;
        Self(self.0.iter().map(|word| AtomicU64::new(word.load(Relaxed))).collect())
    }

    fn shared(&self) -> Shared<'_> {
        Shared::open(&self.0).unwrap()
    }

    fn log<'a>(&'a self, process: &'a Process) -> IndexedLog<'a, Process> {
        IndexedLog { kernel: process, path: PATH, index: self.shared().notes() }
    }
}

fn get(words: &Words, process: &Process, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = [0; RECORD];
    let length = words.log(process).get(key, &mut value)?;
    Some(value[..length].to_vec())
}

/// All values, as a process with a map reads them.
fn read_all(process: &Process) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut all = BTreeMap::new();
    let file = process.with_path(&[PATH], |path| open(process, path, true)).unwrap();
    let log = InodeLog::new(process, file.fd());
    log.read_from(&mut 0, &mut [0; 2 * RECORD], |key, value| {
        match value {
            Some(value) => all.insert(key.to_vec(), value.to_vec()),
            None => all.remove(key),
        };
    })
    .unwrap();
    all
}

/// A log with two records of one key, one of another, and rubbish between them.
fn filled() -> (Machine, Words) {
    let (process, words) = (Process::new(Machine::new()), Words::new());
    let log = words.log(&process);
    log.set(b"a", Some(b"0")).unwrap();
    log.set(b"a", Some(b"1")).unwrap();
    let notes = process.machine().at("/notes").unwrap();
    process.machine().write(notes).extend([0xee; RECORD]);
    log.set(b"b", Some(b"old")).unwrap();
    // Half a record, as after a crash.
    process.machine().write(notes).extend([0xdd; 100]);
    let machine = process.machine().clone();
    (machine, words)
}

/// What a test changes: the value of `b`, by the length of it.
type Change<'a> = &'a dyn Fn(&IndexedLog<'_, Process>) -> Result<()>;

fn set(log: &IndexedLog<'_, Process>) -> Result<()> {
    log.set(b"b", Some(&[b'n'; 200]))
}

fn remove(log: &IndexedLog<'_, Process>) -> Result<()> {
    log.set(b"b", None)
}

/// Another process finds the log whole; whether the change has been made.
fn is_changed(words: &Words, process: &Process, new: Option<&[u8]>) -> bool {
    assert_eq!(get(words, process, b"a").as_deref(), Some(&b"1"[..]));
    let value = get(words, process, b"b");
    let is_new = value.as_deref() == new;
    assert!(is_new || value.as_deref() == Some(&b"old"[..]), "{value:?}");
    assert!(get(words, process, b"c").is_none());
    let all = read_all(process);
    assert_eq!(
        (all.get(&b"b"[..]).cloned(), all.len()),
        (value.clone(), 1 + usize::from(value.is_some()))
    );
    is_new
}

/// Another process goes on with the log.
fn go_on(words: &Words, process: &Process) {
    words.log(process).set(b"c", Some(b"2")).unwrap();
    assert_eq!(get(words, process, b"a").as_deref(), Some(&b"1"[..]));
    assert_eq!(get(words, process, b"c").as_deref(), Some(&b"2"[..]));
    assert!(!words.shared().notes().is_pending());
}

fn each_fault(faults: impl Fn(usize) -> Vec<Fault>) {
    let (machine, words) = filled();
    let changes: [(Change<'_>, Option<&[u8]>); 2] = [(&set, Some(&[b'n'; 200])), (&remove, None)];
    for (change, new) in changes {
        let calls = {
            let (process, words) = (Process::new(machine.clone()), words.copy());
            change(&words.log(&process)).unwrap();
            process.calls.borrow().len()
        };
        for fault in (0..calls).flat_map(&faults) {
            let process = Process::new(machine.clone()).with_fault(fault);
            let words = words.copy();
            let result = change(&words.log(&process));
            std::println!("{fault:?} in {:?}: {result:?}", process.failed_in());
            let (open, is_killed) = (process.end(), matches!(fault, Fault::Killed(_)));
            assert!(is_killed || open == 0, "files stay open");
            assert!(process.machine().locks.is_empty(), "a lock stays");
            let other = Process::on(&process.machine);
            // Removing what cannot be read is removing nothing.
            let is_new = is_changed(&words, &other, new);
            assert!(is_new || result.is_err() || new.is_none(), "not written, no error");
            go_on(&words, &other);
        }
    }
}

#[test]
fn after_any_error_a_value_is_old_or_new() {
    each_fault(|call| ERRORS.map(|errno| Fault::Error(call, errno)).to_vec());
}

#[test]
fn after_a_kill_a_value_is_old_or_new() {
    each_fault(|call| [Fault::Killed(call)].into());
}

#[test]
fn an_error_never_makes_a_look_up_find_something_else() {
    let (machine, words) = filled();
    words.shared().notes().set_pending(true);
    let process = Process::new(machine.clone());
    assert!(get(&words.copy(), &process, b"b").is_some());
    let calls = process.calls.borrow().len();
    for call in 0..calls {
        for errno in ERRORS {
            let words = words.copy();
            let process = Process::new(machine.clone()).with_fault(Fault::Error(call, errno));
            let value = get(&words, &process, b"b");
            assert!(value.is_none_or(|value| value == b"old"));
            assert_eq!((process.end(), process.machine().locks.len()), (0, 0));
            let other = Process::on(&process.machine);
            assert!(!is_changed(&words, &other, Some(b"never")));
            go_on(&words, &other);
        }
    }
}

#[test]
fn records_that_an_index_lacks_survive_an_error_while_it_is_completed() {
    let (machine, _) = filled();
    let calls = 40;
    for call in 0..calls {
        let words = Words::new();
        words.shared().notes().set_pending(true);
        let process = Process::new(machine.clone()).with_fault(Fault::Error(call, Errno::EIO));
        let _ = get(&words, &process, b"b");
        let other = Process::on(&process.machine);
        assert!(!is_changed(&words, &other, Some(b"never")), "call {call}");
    }
}

#[test]
fn processes_at_once_lose_nothing() {
    for seed in 0..40 {
        let machine = Arc::new(Mutex::new(Machine::new()));
        let (words, turns) = (Words::new(), Arc::new(Turns::new(2, seed)));
        std::thread::scope(|scope| {
            for number in 0..2_u8 {
                let process = Process::on(&machine).in_turn(&turns, number.into());
                let words = &words;
                scope.spawn(move || {
                    for at in 0..4_u8 {
                        words.log(&process).set(&[number, at], Some(&[at; 150])).unwrap();
                        words.log(&process).set(b"both", Some(&[number])).unwrap();
                        assert!(get(words, &process, &[number, at]).is_some());
                    }
                    assert_eq!(process.end(), 0);
                });
            }
        });
        let process = Process::on(&machine);
        let all = read_all(&process);
        assert_eq!(all.len(), 9);
        for (key, value) in &all {
            assert_eq!(get(&words, &process, key).as_ref(), Some(value), "seed {seed}");
        }
        let notes = process.machine().at("/notes").unwrap();
        assert_eq!(process.machine().bytes(notes).len(), 16 * RECORD);
    }
}

#[test]
fn a_record_has_its_limits() {
    let (process, words) = (Process::new(Machine::new()), Words::new());
    let log = words.log(&process);
    assert_eq!(log.set(b"long", Some(&[0; ROOM])), Err(Errno::ENOSPC));
    log.set(b"long", Some(&[7; ROOM - 4])).unwrap();
    assert_eq!(get(&words, &process, b"long").as_deref(), Some(&[7; ROOM - 4][..]));
    assert_eq!(log.get(b"long", &mut [0; 3]), None);
    // Nothing is written to remove nothing.
    assert_eq!(log.set(b"none", None), Ok(()));
    assert_eq!(read_all(&process).len(), 1);
    assert!(record(b"", None).is_err());
}

#[test]
fn a_child_that_inherits_the_lock_does_not_keep_it() {
    let process = Process { has_child: true, ..Process::new(Machine::new()) };
    Words::new().log(&process).set(b"a", Some(b"1")).unwrap();
    assert!(process.machine().locks.is_empty());
}
