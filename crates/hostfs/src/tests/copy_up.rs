//! Copy-up with every error at every call, with a process that is killed before every call, and
//! with two processes at once.

use super::fake::{Fault, Process};
use super::machine::{Kind, Machine};
use super::turns::Turns;
use crate::copy_up::{Image, copy_up};
use crate::kernel::{CWD, Kernel};
use crate::layout::is_temporary;
use linux_raw_sys::general::O_RDWR;
use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::sync::{Arc, Mutex};
use std::vec::Vec;
use view::Errno;
use view::errno::Result;

const RUN: &[u8] = b"/run";
const FILE: &core::ffi::CStr = c"/tree/file";
/// Data and holes, longer than what one call copies.
const CONTENTS: &[u8] = &{
    let mut bytes = [b'x'; 260];
    bytes[120] = 0;
    bytes[259] = 0;
    bytes
};
const MODE: u32 = 0o1754;
const TIMES: [i64; 2] = [11, 12];
const GROUP: u32 = 5;
/// Numbers of errors that Linux has.
const ERRORS: core::ops::RangeInclusive<u16> = 1..=133;

/// An image's file under two names of the image and one of a container's tree.
fn machine() -> Machine {
    let mut machine = Machine::new();
    for directory in ["/image", "/tree", "/run"] {
        machine.directory(directory);
    }
    let inode = machine.file("/image/file", CONTENTS);
    machine.link(inode, 1, "/image/other").unwrap();
    machine.link(inode, 1, "/tree/file").unwrap();
    let file = machine.change(inode);
    (file.mode, file.times, file.group) = (MODE, TIMES, GROUP);
    file.attributes = attributes();
    file.changes = 0;
    let tree = machine.at("/tree").unwrap();
    machine.change(tree).times = TIMES;
    machine
}

fn attributes() -> BTreeMap<String, Vec<u8>> {
    let all = [("security.label", &b"label"[..]), ("user.coracle.owner", b"0:0"), ("user.z", b"")];
    all.map(|(name, value)| (name.to_string(), value.to_vec())).into()
}

/// The inodes with names in `/image`, and those that were told to lose a name.
struct Inodes {
    image: Vec<u64>,
    told: Vec<u64>,
}

impl Inodes {
    fn of(machine: &Machine) -> Self {
        let path = |name| machine.at(&format!("/image/{name}")).unwrap();
        Self { image: machine.list("/image").iter().map(path).collect(), told: Vec::new() }
    }
}

impl Image for Inodes {
    fn has(&self, inode: u64) -> bool {
        self.image.contains(&inode)
    }

    fn will_replace(&mut self, inode: u64) {
        self.told.push(inode);
    }
}

fn copy(process: &Process) -> Result<()> {
    let mut inodes = Inodes::of(&process.machine());
    let is_copied = |machine: &Machine| machine.at("/tree/file") != machine.at("/image/file");
    let before = is_copied(&process.machine());
    let result = copy_up(process, RUN, FILE, &mut inodes);
    // Processes that have the file open are told of each copy, before it is there.
    let was_made = !before && is_copied(&process.machine());
    assert!(!was_made || inodes.told == [process.machine().at("/image/file").unwrap()]);
    result
}

/// Whether the container has its copy; fails where anything is half done.
fn is_copied(machine: &Machine, is_complete: bool) -> bool {
    let image = machine.at("/image/file").unwrap();
    assert_eq!(machine.at("/image/other"), Ok(image));
    let old = machine.inode(image);
    assert_eq!(old.changes, 0, "the image's inode was changed");
    let file = machine.at("/tree/file").unwrap();
    assert_eq!(old.links, if file == image { 3 } else { 2 });
    if file == image {
        return false;
    }
    let new = machine.inode(file);
    assert_eq!(machine.bytes(file), CONTENTS);
    assert_eq!((new.mode, new.times, new.links), (MODE, TIMES, 1));
    let mut all = attributes();
    all.insert("user.coracle.copy".to_string(), image.to_string().into_bytes());
    if is_complete {
        assert_eq!((&new.attributes, new.group), (&all, GROUP));
        assert_eq!(machine.inode(machine.at("/tree").unwrap()).times, TIMES);
    } else {
        assert!(new.attributes.iter().all(|(name, value)| all.get(name) == Some(value)));
    }
    true
}

fn temporary(machine: &Machine) -> Vec<String> {
    let mut names = machine.list("/run");
    names.retain(|name| name != ".copy-turn");
    assert!(names.iter().all(|name| is_temporary(name.as_bytes())), "{names:?}");
    names
}

/// What a start does in a container in which no process lives.
fn tidy(machine: &mut Machine) {
    for name in temporary(machine) {
        machine.unlink(1, &format!("/run/{name}")).unwrap();
    }
}

/// How many calls a copy takes.
fn count(way: Way) -> usize {
    let process = way.process(machine());
    copy(&process).unwrap();
    assert!(is_copied(&process.machine(), true));
    assert_eq!(temporary(&process.machine()), Vec::<String>::new());
    assert_eq!(process.end(), 0);
    let calls = process.calls.borrow();
    assert!(calls.len() > 20, "{calls:?}");
    calls.len()
}

/// How contents are copied.
#[derive(Debug, Clone, Copy)]
enum Way {
    Shared,
    InKernel,
    ByHand,
}

const WAYS: [Way; 3] = [Way::Shared, Way::InKernel, Way::ByHand];

impl Way {
    fn process(self, machine: Machine) -> Process {
        let has_reflinks = matches!(self, Self::Shared);
        let has_copy_file_range = !matches!(self, Self::ByHand);
        Process { has_reflinks, has_copy_file_range, ..Process::new(machine) }
    }
}

/// Errors after which a copy is complete enough: attributes that cannot be given, and times of the
/// directory.
fn may_lack_something(failed_in: Option<&str>) -> bool {
    let calls = ["listxattr", "getxattr", "setxattr", "fchownat", "utimensat"];
    failed_in.is_some_and(|name| calls.contains(&name))
}

/// `ENXIO` of `lseek` is no error: the rest of the file is a hole.
fn is_answer(process: &Process, errno: Errno) -> bool {
    process.failed_in() == Some("lseek") && errno == Errno::ENXIO
}

fn check(process: &Process, result: Result<()>, fault: Fault) {
    let (open, machine) = (process.end(), process.machine());
    let failed_in = process.failed_in();
    let copied = is_copied(&machine, !may_lack_something(failed_in));
    let (Fault::Error(_, errno) | Fault::Always(_, errno)) = fault else { return };
    assert_eq!(open, 0, "files stay open");
    assert!(machine.locks.is_empty(), "a lock stays");
    // Only where removing it failed.
    assert!(temporary(&machine).is_empty() || failed_in == Some("unlinkat"));
    // What is not there any more need not be copied.
    assert!(copied || result.is_err() || errno == Errno::ENOENT, "no copy, no error");
    let is_late = matches!(failed_in, Some("close" | "flock" | "utimensat"));
    if let Err(error) = result {
        assert!(!copied || is_late, "{error:?}, but there is a copy");
    }
}

#[test]
fn after_any_error_the_file_is_old_or_new() {
    for way in WAYS {
        for call in 0..count(way) {
            for errno in ERRORS.map(Errno) {
                let fault = Fault::Error(call, errno);
                let process = way.process(machine()).with_fault(fault);
                let result = copy(&process);
                if is_answer(&process, errno) {
                    continue;
                }
                std::println!("{way:?} {fault:?} in {:?}: {result:?}", process.failed_in());
                check(&process, result, fault);
                let again = Process::on(&process.machine);
                assert_eq!(copy(&again), Ok(()));
                assert!(is_copied(&again.machine(), !may_lack_something(process.failed_in())));
            }
        }
    }
}

#[test]
fn calls_that_never_work_are_done_without_or_reported() {
    // A kernel that always says these has no end.
    let endless = [Errno::EINTR, Errno::EEXIST];
    for way in WAYS {
        for call in 0..count(way) {
            for errno in ERRORS.map(Errno).filter(|errno| !endless.contains(errno)) {
                let fault = Fault::Always(call, errno);
                let process = way.process(machine()).with_fault(fault);
                let result = copy(&process);
                if is_answer(&process, errno) {
                    continue;
                }
                std::println!("{way:?} {fault:?} in {:?}: {result:?}", process.failed_in());
                // Two failures: a copy may be left whose removal failed, too.
                if process.failed_in() == Some("fstatat") {
                    tidy(&mut process.machine());
                }
                check(&process, result, fault);
            }
        }
    }
}

#[test]
fn a_killed_process_leaves_nothing_that_a_start_does_not_remove() {
    for way in WAYS {
        for call in 0..count(way) {
            for is_tidied in [true, false] {
                let fault = Fault::Killed(call);
                let process = way.process(machine()).with_fault(fault);
                let result = copy(&process);
                std::println!("{way:?} before {call}: {result:?}");
                // The directory's times may be those of the rename.
                is_copied(&process.machine(), false);
                process.end();
                if is_tidied {
                    tidy(&mut process.machine());
                    assert_eq!(temporary(&process.machine()), Vec::<String>::new());
                }
                // A process with the same number meets what the killed one left.
                let again = Process::on(&process.machine);
                assert_eq!(copy(&again), Ok(()));
                assert!(is_copied(&again.machine(), false));
                assert_eq!(again.end(), 0);
                assert!(temporary(&again.machine()).len() <= usize::from(!is_tidied));
            }
        }
    }
}

#[test]
fn two_at_once_make_one_copy_and_lose_no_write() {
    for seed in 0..600 {
        let machine = Arc::new(Mutex::new(machine()));
        let turns = Arc::new(Turns::new(2, seed));
        std::thread::scope(|scope| {
            for number in 0..2 {
                let process = Process::on(&machine).in_turn(&turns, number);
                scope.spawn(move || {
                    let mut inodes = Inodes::of(&process.machine());
                    let result = copy_up(&process, RUN, FILE, &mut inodes);
                    // What the copy is for.
                    let end = (CONTENTS.len() + number) as u64;
                    let file = process.openat(CWD, FILE, O_RDWR, 0).unwrap();
                    process.pwrite(file, &[b'0' + number as u8], end).unwrap();
                    process.close(file);
                    assert_eq!((result, process.end()), (Ok(()), 0));
                });
            }
        });
        let mut machine = machine.lock().unwrap();
        let file = machine.at("/tree/file").unwrap();
        assert_eq!(machine.bytes(file), [CONTENTS, b"01"].concat(), "seed {seed}");
        machine.write(file).truncate(CONTENTS.len());
        machine.change(file).times = TIMES;
        assert!(is_copied(&machine, true), "seed {seed}");
        assert_eq!((temporary(&machine).len(), machine.locks.len()), (0, 0));
    }
}

#[test]
fn threads_with_one_number_do_not_remove_each_others_copies() {
    // As in two namespaces of processes. (The second thread comes into the same names.)
    for seed in 0..600 {
        let machine = Arc::new(Mutex::new(machine()));
        let turns = Arc::new(Turns::new(2, seed));
        {
            let mut machine = machine.lock().unwrap();
            let second = machine.file("/image/second", b"second");
            machine.link(second, 1, "/tree/second").unwrap();
        }
        std::thread::scope(|scope| {
            for (number, path) in [FILE, c"/tree/second"].into_iter().enumerate() {
                let process = Process::on(&machine).in_turn(&turns, number);
                let process = Process { thread: 7, ..process };
                scope.spawn(move || {
                    let mut inodes = Inodes::of(&process.machine());
                    let result = copy_up(&process, RUN, path, &mut inodes);
                    assert_eq!((result, process.end()), (Ok(()), 0));
                });
            }
        });
        let machine = machine.lock().unwrap();
        let [image, copy] = ["/image/second", "/tree/second"].map(|path| machine.at(path).unwrap());
        assert_ne!(image, copy, "seed {seed}");
        assert_eq!(machine.bytes(copy), b"second");
        assert_ne!(machine.at("/image/file"), machine.at("/tree/file"), "seed {seed}");
        assert_eq!(temporary(&machine), Vec::<String>::new());
    }
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let mut machine = machine();
    machine.directory("/tree/directory");
    let process = Process::new(machine);
    let refused = |path| {
        let directory = process.machine().at("/tree/directory").unwrap();
        let mut inodes = Inodes { image: [directory].into(), told: Vec::new() };
        let result = copy_up(&process, RUN, path, &mut inodes);
        assert!(inodes.told.is_empty());
        result
    };
    assert_eq!(refused(c"/tree/none"), Err(Errno::ENOENT));
    assert_eq!(refused(c"/tree/directory"), Err(Errno::EINVAL));
    process.machine().make(1, "/tree/link", Kind::Link("file".into()), 0).unwrap();
    assert_eq!(refused(c"/tree/link"), Err(Errno::ELOOP));
    assert_eq!(temporary(&process.machine()), Vec::<String>::new());
}

#[test]
fn another_processs_copy_is_not_copied_again() {
    let process = Process::new(machine());
    copy(&process).unwrap();
    // The process that made it writes to it.
    let made = process.machine().at("/tree/file").unwrap();
    process.machine().write(made).extend(b"new");
    copy(&process).unwrap();
    assert_eq!(process.machine().at("/tree/file"), Ok(made));
}

#[test]
fn a_child_that_inherits_the_lock_does_not_keep_it() {
    let process = Process { has_child: true, ..Process::new(machine()) };
    copy(&process).unwrap();
    assert!(process.machine().locks.is_empty());
}
