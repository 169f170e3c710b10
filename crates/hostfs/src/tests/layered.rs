//! The two layers of a container's tree on a [`Machine`]: the image at `/image`, its index, the
//! upper directory, and what the container has changed.

use super::fake::DEVICE;
use super::machine::{Inode, Kind, Machine};
use crate::overlay::Layers;
use abi::index::{Entry, File, Index, ROOT, build};
use abi::shared::Shared;
use std::collections::VecDeque;
use std::format;
use std::string::String;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec::Vec;
use view::image::Image;

pub(super) const LOWER: &str = "/image";
pub(super) const UPPER: &str = "/upper";
pub(super) const WORK: &str = "/work";
pub(super) const MOVED: &str = "/moved";
const OPAQUE: &str = "user.overlay.opaque";
const REDIRECT: &str = "user.overlay.redirect";

/// What the processes of a container have in common.
#[derive(Debug)]
pub(super) struct Layered {
    index: Vec<u8>,
    /// The file that they map.
    words: Vec<AtomicU64>,
}

/// Files that can be used again: making one takes longer than a test.
static UNUSED: Mutex<Vec<Vec<AtomicU64>>> = Mutex::new(Vec::new());

impl Drop for Layered {
    fn drop(&mut self) {
        UNUSED.lock().unwrap().push(std::mem::take(&mut self.words));
    }
}

impl Layered {
    /// Reads the upper directory, as a start does when no process lives in the container.
    pub(super) fn new(machine: &Machine) -> Self {
        let index = index(machine);
        let size = Shared::size_with_index(Index::open(&index).unwrap().len()) / 8;
        let words = UNUSED.lock().unwrap().pop().unwrap_or_default();
        let words = if words.len() == size { words } else { (0..size).map(zero).collect() };
        for word in words.iter().take(64).chain(&words[Shared::TABLE..]) {
            word.store(0, Ordering::Relaxed);
        }
        let layered = Self { index, words };
        let records = Index::open(&layered.index).unwrap().len();
        Shared::create_with_index(&layered.words, records).unwrap();
        layered.find_changes(machine);
        layered
    }

    pub(super) fn layers(&self) -> Layers<'_> {
        let image = Image {
            index: Index::open(&self.index).unwrap(),
            changes: Shared::open(&self.words).unwrap().changes(),
            lower: LOWER.as_bytes(),
            upper: UPPER.as_bytes(),
            device: (0, DEVICE),
            owner: (0, 0),
        };
        Layers { image, work: WORK.as_bytes(), moved: MOVED.as_bytes() }
    }

    /// As the engine's function of this name.
    fn find_changes(&self, machine: &Machine) {
        let changes = self.layers().image.changes;
        changes.merge(ROOT);
        self.directory(machine, UPPER, ROOT);
        let log = machine.at(MOVED).map(|log| machine.bytes(log)).unwrap_or_default();
        for line in log.split(|byte| *byte == 0) {
            let Some(space) = line.iter().position(|byte| *byte == b' ') else { continue };
            let name = format!("{UPPER}/{}", String::from_utf8_lossy(&line[space + 1..]));
            let Ok(top) = machine.at(&name) else { continue };
            if let Some(base) = self.redirect(machine.inode(top)) {
                changes.redirect();
                changes.merge(base);
                self.directory(machine, &name, base);
            }
        }
    }

    fn redirect(&self, top: &Inode) -> Option<u32> {
        let path = top.attributes.get(REDIRECT)?;
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        let index = self.layers().image.index;
        names.try_fold(ROOT, |here, name| index.child(here, name))
    }

    fn directory(&self, machine: &Machine, path: &str, base: u32) {
        let Image { index, changes, .. } = self.layers().image;
        for name in machine.list(path) {
            let Some(record) = index.child(base, name.as_bytes()) else { continue };
            let path = format!("{path}/{name}");
            let inode = machine.inode(machine.at(&path).unwrap());
            let has = |name: &str| inode.attributes.contains_key(name);
            let in_both = inode.is_directory() && index.entry(record).unwrap().is_directory();
            if !in_both || has(OPAQUE) || has(REDIRECT) {
                self.layers().image.cover(record);
            } else {
                changes.merge(record);
                self.directory(machine, &path, record);
            }
        }
    }
}

fn zero(_: usize) -> AtomicU64 {
    AtomicU64::new(0)
}

/// The index of the image's tree.
fn index(machine: &Machine) -> Vec<u8> {
    let mut names: Vec<(u32, String, u64)> = Vec::new();
    let mut pending = VecDeque::from([(0, String::new(), machine.at(LOWER).unwrap())]);
    while let Some((parent, name, number)) = pending.pop_front() {
        let record = names.len() as u32;
        if let Ok(children) = machine.names(number) {
            pending.extend(children.iter().map(|(name, child)| (record, name.clone(), *child)));
        }
        names.push((parent, name, number));
    }
    let files: Vec<File<'_>> = names
        .iter()
        .map(|(parent, name, number)| {
            let inode = machine.inode(*number);
            let entry = Entry {
                parent: *parent,
                size: inode.size() as u64,
                mtime: inode.times[1] * 1_000_000_000 + 2,
                inode: *number,
                links: inode.links as u16,
                mode: (inode.type_bits() | inode.mode) as u16,
                ..Entry::default()
            };
            let target = if let Kind::Link(target) = &inode.kind { target.as_bytes() } else { b"" };
            File { entry, owner: (0, 0), name: name.as_bytes(), target }
        })
        .collect();
    build(&files, 4096).unwrap()
}
