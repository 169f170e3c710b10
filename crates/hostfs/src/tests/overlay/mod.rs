//! A tree in two layers, compared with a tree in one directory on which the same is done.

mod cases;
mod faults;
mod operations;
mod random;
mod together;
mod tree;

use super::fake::Process;
use super::layered::{LOWER, Layered, UPPER, WORK};
use super::machine::{Inode, Kind, Machine};
use crate::Files;
use crate::layout::is_temporary;
use operations::Operation;
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::{String, ToString};
use std::sync::{Arc, Mutex};
use std::vec::Vec;
use view::HostFd;

/// The directory that [`Container::prepare`] opens.
const HELD: &str = "d";
/// When the image was made. (Tests begin at 1000.)
const TIMES: [i64; 2] = [11, 12];

/// Puts the files of the image into a directory.
fn populate(machine: &mut Machine, top: &str) {
    let at = |name: &str| format!("{top}/{name}");
    machine.directory(top);
    for directory in ["a", "a/b", "a/b/c", "d", "e", "x (deleted)"] {
        machine.directory(&at(directory));
    }
    for file in ["a/b/c/x", "a/b/x", "a/x", "d/x", "d/y", "f", "x (deleted)/y", "y (deleted)"] {
        machine.file(&at(file), file.as_bytes());
    }
    let file = machine.at(&at("f")).unwrap();
    for second in ["g", "d/f"] {
        machine.link(file, 1, &at(second)).unwrap();
    }
    for (name, target) in [("l", "a/x"), ("a/l", "b"), ("d/l", "none")] {
        machine.make(1, &at(name), Kind::Link(target.to_string()), 0o777).unwrap();
    }
    machine.make(1, &at("p"), Kind::Pipe, 0o644).unwrap();
    let attributed = ["a/x", "d", "a/b"].map(|name| machine.at(&at(name)).unwrap());
    for inode in attributed {
        let value = inode.to_string().len().to_string().into_bytes();
        machine.change(inode).attributes.insert("user.z".to_string(), value);
    }
    for inode in inodes(machine, top).into_values() {
        let inode = machine.change(inode);
        (inode.times, inode.changes) = (TIMES, 0);
    }
    for (name, mode) in [("a/b", 0o700), ("a/x", 0o755)] {
        let inode = machine.at(&at(name)).unwrap();
        machine.change(inode).mode = mode;
    }
}

/// All paths beneath a directory, with itself, and their inodes.
fn inodes(machine: &Machine, top: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut pending = Vec::from([top.to_string()]);
    while let Some(path) = pending.pop() {
        let inode = machine.at(&path).unwrap();
        if machine.inode(inode).is_directory() {
            pending.extend(machine.list(&path).iter().map(|name| format!("{path}/{name}")));
        }
        found.insert(path, inode);
    }
    found
}

/// A container's tree, in two layers or in one.
struct Container {
    files: Files<Process>,
    /// The image as it was made.
    image: BTreeMap<String, Inode>,
    /// In one layer: the inodes that are the image's.
    shared: BTreeSet<u64>,
    /// A directory that is open.
    held: Option<HostFd>,
}

impl Container {
    /// In two layers.
    fn layered() -> Self {
        let mut machine = Machine::new();
        populate(&mut machine, LOWER);
        machine.directory(WORK);
        machine.directory(UPPER);
        let upper = machine.at(UPPER).unwrap();
        machine.change(upper).times = TIMES;
        let layers = Some(Arc::new(Layered::new(&machine)));
        let image = image(&machine);
        let process = Process { layers, umask: 0o022, ..Process::new(machine) };
        Self { image, ..Self::of(process) }
    }

    /// What a process works with.
    fn of(process: Process) -> Self {
        let (image, shared) = (BTreeMap::new(), BTreeSet::new());
        Self { files: Files { process }, image, shared, held: None }
    }

    /// In one.
    fn plain() -> Self {
        let mut machine = Machine::new();
        populate(&mut machine, UPPER);
        let shared = inodes(&machine, UPPER).into_values();
        let shared = shared.filter(|inode| !machine.inode(*inode).is_directory()).collect();
        let process = Process { umask: 0o022, ..Process::new(machine) };
        Self { shared, ..Self::of(process) }
    }

    /// Opens the directory from which an operation begins; this is never disturbed.
    fn prepare(&mut self, operation: &Operation) {
        if !operation.is_relative() {
            return;
        }
        let process = &mut self.files.process;
        let (fault, turns) = (process.fault.take(), process.turns.take());
        assert_eq!(self.run(&Operation::Hold(HELD.to_string())), Ok(Vec::new()));
        let process = &mut self.files.process;
        process.calls.take();
        (process.fault, process.turns) = (fault, turns);
    }

    fn machine(&self) -> std::sync::MutexGuard<'_, Machine> {
        self.files.process.machine()
    }

    /// All processes end, and another one starts.
    fn restart(&mut self) {
        if let Some(held) = self.held.take() {
            self.files.close(held);
        }
        if self.files.process.layers.is_none() {
            return;
        }
        tidy(&mut self.machine());
        let layers = Some(Arc::new(Layered::new(&self.machine())));
        let (umask, machine) = (self.files.process.umask, &self.files.process.machine);
        let process = Process { umask, layers, ..Process::on(machine) };
        self.files.process = process;
    }

    /// Fails if the image was changed, or something is left over.
    fn check(&self) {
        let (machine, process) = (self.machine(), &self.files.process);
        assert_eq!(image(&machine), self.image, "the image was changed");
        assert!(machine.locks.is_empty(), "a lock stays");
        assert_eq!(temporary(&machine), Vec::<String>::new(), "temporary files stay");
        let held = usize::from(self.held.is_some());
        assert_eq!(process.files.borrow().len(), held, "files stay open");
    }
}

/// The image's tree, without the number of names.
fn image(machine: &Machine) -> BTreeMap<String, Inode> {
    let inodes = inodes(machine, LOWER).into_iter();
    inodes.map(|(path, inode)| (path, Inode { links: 0, ..machine.inode(inode).clone() })).collect()
}

/// Temporary files.
fn temporary(machine: &Machine) -> Vec<String> {
    let names = machine.list(WORK).into_iter();
    names.filter(|name| is_temporary(name.as_bytes())).collect()
}

/// What a start does in a container in which no process lives.
fn tidy(machine: &mut Machine) {
    for name in temporary(machine) {
        let top = format!("{WORK}/{name}");
        for path in inodes(machine, &top).into_keys().rev() {
            let is_directory = machine.inode(machine.at(&path).unwrap()).is_directory();
            machine.remove(1, &path, is_directory).unwrap();
        }
    }
}

/// Another process of a container.
fn process(machine: &Arc<Mutex<Machine>>, layers: Option<&Arc<Layered>>) -> Process {
    Process { layers: layers.cloned(), umask: 0o022, ..Process::on(machine) }
}
