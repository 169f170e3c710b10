//! Serialises a [`World`] for the in-process backends, which read it from the container's shared
//! file.
//!
//! ```text
//!   flags (4), switches (8), filter (4), identity (4 × 4)
//!   numbers of bindings and emulators (4, 4)
//!   places: host paths
//!   host name, slot in the table of networks (4)
//!   bindings: flags (1), guest path, host path
//!   emulators: machine (2), host path
//! ```
//!
//! A path is its length (2) and its bytes. Numbers are little-endian. The reader borrows all paths
//! from the bytes.

use crate::identity::{Capabilities, Credentials, Groups, Ids};
use crate::task::{Filters, Task};
use crate::world::{Binding, Emulator, Identity, Kind, World};
use abi::shared::Switches;
use abi::shared::processes::CREDENTIALS;

/// Host paths that a backend needs. They are absolute and without symbolic links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places<'a> {
    /// The container's tree: the host path of the root binding. Empty if that is the host's own
    /// root, or a directory that is not the container's.
    pub tree: &'a [u8],
    /// The stage: the file that each process of the container executes.
    pub stage: &'a [u8],
    /// The file that all processes share ([`abi::shared`]).
    pub shared: &'a [u8],
    /// The log of ownership records ([`abi::notes`]); it need not exist yet.
    pub notes: &'a [u8],
    /// A directory of the container on the file system of its tree, in which copies are made before
    /// they are renamed into place.
    pub copy_dir: &'a [u8],
    /// A directory for what the container needs only while it runs.
    pub run: &'a [u8],
    /// How the path of a symbolic link begins that leads to the directory [`LINKS`] in
    /// [`Places::run`]: [`ALIASES`] and hexadecimal digits. The path of the link is this and one
    /// more digit, the first for which the name is free or is this link already. The directory
    /// (readable by its owner alone) is made when it is needed. It holds links to directories whose
    /// own paths are too long for addresses of sockets. Both are to be removed when no process of
    /// the container lives. Empty if there is no such link.
    pub aliases: &'a [u8],
    /// The index of the image beneath [`Places::tree`] ([`abi::index`]). Empty where the tree is
    /// one directory.
    pub index: &'a [u8],
    /// The image's tree; empty likewise.
    pub lower: &'a [u8],
    /// The log of directories of the image that have got another name; empty likewise.
    pub moved: &'a [u8],
    /// The directory in which patched code is kept for all containers of the image (modes F). It
    /// lies beside the image's tree, one for each build of the stage. Empty if there is none.
    pub texts: &'a [u8],
    /// The table of networks ([`abi::network`]). Empty if the container is in none.
    pub networks: &'a [u8],
}

/// Everything that the container's programs are started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start<'a> {
    /// How ids of the host appear ([`World::identity`]).
    pub identity: Option<Identity>,
    /// Features that must not be used.
    pub switches: Switches,
    /// Number of the record ([`abi::shared::records`]) that holds the filter.
    pub filter: u32,
    /// Host paths.
    pub places: Places<'a>,
    /// The host name that the guest sees ([`World::host_name`]).
    pub host_name: &'a [u8],
    /// The container's slot in the table of networks; 0 if it is in none.
    pub slot: u32,
}

/// The name in `/proc/PID/maps` of the memory in which the stage keeps a program's code with its
/// rewritten sites.
pub const SITES: &[u8] = b"/memfd:coracle-sites";
/// How the path of a link begins that leads to a directory of links ([`Places::aliases`]).
pub const ALIASES: &[u8] = b"/tmp/.cor-";
/// The number of hexadecimal digits that follow [`ALIASES`].
pub const ALIASES_DIGITS: usize = 8;
/// Name of the directory of links in [`Places::run`].
pub const LINKS: &[u8] = b"aliases";
/// The number of hexadecimal digits in the name of a link there.
pub const LINK_DIGITS: usize = 4;
/// How the name of a file with patched code begins. While the file is being made, a dot and a
/// suffix follow.
pub const TEXT: &[u8] = b"text-";

/// The greatest number of bindings. A backend without a heap has room for so many.
pub const BINDINGS_MAX: usize = 256;
/// The greatest number of emulators, for the same reason.
pub const EMULATORS_MAX: usize = 16;

const WITH_IDENTITY: u32 = 1;
const READ_ONLY: u8 = 0x80;

const fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Tree => 0,
        Kind::Host => 1,
        Kind::Proc => 2,
        Kind::Mask => 3,
        Kind::HostName => 4,
    }
}

struct Writer<'a> {
    into: &'a mut [u8],
    length: usize,
}

impl Writer<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.length.checked_add(bytes.len())?;
        self.into.get_mut(self.length..end)?.copy_from_slice(bytes);
        self.length = end;
        Some(())
    }

    fn word(&mut self, word: u32) -> Option<()> {
        self.bytes(&word.to_le_bytes())
    }

    fn path(&mut self, path: &[u8]) -> Option<()> {
        self.bytes(&u16::try_from(path.len()).ok()?.to_le_bytes())?;
        self.bytes(path)
    }
}

/// Writes a start and its world. Returns the number of bytes, or `None` if `into` is too small or a
/// table or path is too long.
pub fn write(start: &Start<'_>, world: &World<'_>, into: &mut [u8]) -> Option<usize> {
    if world.bindings.len() > BINDINGS_MAX || world.emulators.len() > EMULATORS_MAX {
        return None;
    }
    let mut writer = Writer { into, length: 0 };
    writer.word(if start.identity.is_some() { WITH_IDENTITY } else { 0 })?;
    writer.bytes(&start.switches.0.to_le_bytes())?;
    writer.word(start.filter)?;
    let none = Identity { host_uid: 0, host_gid: 0, uid: 0, gid: 0 };
    let identity = start.identity.unwrap_or(none);
    for id in [identity.host_uid, identity.host_gid, identity.uid, identity.gid] {
        writer.word(id)?;
    }
    writer.word(u32::try_from(world.bindings.len()).ok()?)?;
    writer.word(u32::try_from(world.emulators.len()).ok()?)?;
    let Places { tree, stage, shared, notes, copy_dir, run, .. } = start.places;
    let Places { aliases, index, lower, moved, texts, networks, .. } = start.places;
    for path in [tree, stage, shared, notes, copy_dir, run] {
        writer.path(path)?;
    }
    for path in [aliases, index, lower, moved, texts, networks] {
        writer.path(path)?;
    }
    writer.path(start.host_name)?;
    writer.word(start.slot)?;
    for binding in world.bindings {
        let read_only = if binding.read_only { READ_ONLY } else { 0 };
        writer.bytes(&[kind_number(binding.kind) | read_only])?;
        writer.path(binding.guest)?;
        writer.path(binding.host)?;
    }
    for emulator in world.emulators {
        writer.bytes(&emulator.machine.to_le_bytes())?;
        writer.path(emulator.host)?;
    }
    Some(writer.length)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.first_chunk().copied()
    }

    fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn path(&mut self) -> Option<&'a [u8]> {
        let length = self.array().map(u16::from_le_bytes)?;
        self.bytes(length.into())
    }
}

/// The bindings and emulators of a world that was read: their numbers, and the bytes that hold
/// them.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// How many bindings there are.
    pub bindings: usize,
    /// How many emulators there are.
    pub emulators: usize,
    rest: &'a [u8],
}

/// Reads a start; `None` if the bytes are damaged.
pub fn read(bytes: &[u8]) -> Option<(Start<'_>, Tables<'_>)> {
    let mut reader = Reader(bytes);
    let flags = reader.word()?;
    let switches = Switches(u64::from_le_bytes(reader.array()?));
    let filter = reader.word()?;
    let identity = Identity {
        host_uid: reader.word()?,
        host_gid: reader.word()?,
        uid: reader.word()?,
        gid: reader.word()?,
    };
    let identity = (flags & WITH_IDENTITY != 0).then_some(identity);
    let (bindings, emulators) = (reader.word()? as usize, reader.word()? as usize);
    let places = Places {
        tree: reader.path()?,
        stage: reader.path()?,
        shared: reader.path()?,
        notes: reader.path()?,
        copy_dir: reader.path()?,
        run: reader.path()?,
        aliases: reader.path()?,
        index: reader.path()?,
        lower: reader.path()?,
        moved: reader.path()?,
        texts: reader.path()?,
        networks: reader.path()?,
    };
    let (host_name, slot) = (reader.path()?, reader.word()?);
    Some((
        Start { identity, switches, filter, places, host_name, slot },
        Tables { bindings, emulators, rest: reader.0 },
    ))
}

impl<'a> Tables<'a> {
    /// Fills in the tables. `None` if they are smaller than [`Tables::bindings`] and
    /// [`Tables::emulators`] say, or the bytes are damaged.
    pub fn fill(&self, bindings: &mut [Binding<'a>], emulators: &mut [Emulator<'a>]) -> Option<()> {
        let mut reader = Reader(self.rest);
        for place in bindings.get_mut(..self.bindings)? {
            let [flags] = reader.array()?;
            let kind = match flags & !READ_ONLY {
                0 => Kind::Tree,
                1 => Kind::Host,
                2 => Kind::Proc,
                3 => Kind::Mask,
                4 => Kind::HostName,
                _ => return None,
            };
            let read_only = flags & READ_ONLY != 0;
            let (guest, host) = (reader.path()?, reader.path()?);
            *place = Binding { guest, host, read_only, kind };
        }
        for place in emulators.get_mut(..self.emulators)? {
            let machine = u16::from_le_bytes(reader.array()?);
            *place = Emulator { machine, host: reader.path()? };
        }
        Some(())
    }
}

/// Index of the first word with groups among the words of credentials.
const GROUPS_AT: usize = 11;
const NO_NEW_PRIVILEGES: u64 = 1 << 32;
const DUMPABLE: u64 = 1 << 33;

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Packs the state of a thread that other processes may read. Of the groups only the first ones
/// that fit are included.
pub fn credentials_to_words(task: &Task) -> [u64; CREDENTIALS] {
    let mut words = [0; CREDENTIALS];
    let Credentials { uid, gid, groups, capabilities, no_new_privileges } = &task.creds;
    for (place, ids) in [(0, uid), (2, gid)] {
        words[place] = pair(ids.real, ids.effective);
        words[place + 1] = pair(ids.saved, ids.files);
    }
    let Capabilities { effective, permitted, inheritable, bounding, ambient, secure } =
        *capabilities;
    words[4..9].copy_from_slice(&[effective, permitted, inheritable, bounding, ambient]);
    words[9] = u64::from(secure)
        | if *no_new_privileges { NO_NEW_PRIVILEGES } else { 0 }
        | if task.dumpable { DUMPABLE } else { 0 };
    let groups = groups.as_slice();
    let told = groups.len().min((CREDENTIALS - GROUPS_AT) * 2);
    words[10] = pair(told as u32, u32::from(task.filters.mode) | task.filters.count << 8);
    for (at, group) in groups[..told].iter().enumerate() {
        words[GROUPS_AT + at / 2] |= u64::from(*group) << (at % 2 * 32);
    }
    words
}

/// Puts what [`credentials_to_words`] packed into a task.
pub fn credentials_from_words(words: &[u64; CREDENTIALS], task: &mut Task) {
    let ids = |at: usize| Ids {
        real: words[at] as u32,
        effective: (words[at] >> 32) as u32,
        saved: words[at + 1] as u32,
        files: (words[at + 1] >> 32) as u32,
    };
    let told = (words[10] as u32 as usize).min((CREDENTIALS - GROUPS_AT) * 2);
    let group = |at: usize| (words[GROUPS_AT + at / 2] >> (at % 2 * 32)) as u32;
    task.creds = Credentials {
        uid: ids(0),
        gid: ids(2),
        groups: Groups::new((0..told).map(group)).unwrap_or(Groups::NONE),
        capabilities: Capabilities {
            effective: words[4],
            permitted: words[5],
            inheritable: words[6],
            bounding: words[7],
            ambient: words[8],
            secure: words[9] as u32,
        },
        no_new_privileges: words[9] & NO_NEW_PRIVILEGES != 0,
    };
    task.dumpable = words[9] & DUMPABLE != 0;
    let filters = (words[10] >> 32) as u32;
    task.filters = Filters { mode: filters as u8, count: filters >> 8, synchronised: false };
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDINGS: [Binding<'static>; 3] = [
        Binding { guest: b"/", host: b"/c/ROOT", read_only: false, kind: Kind::Tree },
        Binding { guest: b"/data", host: b"/home/x", read_only: true, kind: Kind::Host },
        Binding { guest: b"/proc", host: b"/proc", read_only: false, kind: Kind::Proc },
    ];

    #[test]
    fn a_world_round_trips() {
        let identity = Identity { host_uid: 1000, host_gid: 100, uid: 0, gid: 5 };
        let emulators = [Emulator { machine: 183, host: b"/usr/bin/qemu-aarch64-static" }];
        let world = World::new(&BINDINGS, Some(identity), &emulators);
        let places = Places {
            tree: b"/c/ROOT",
            stage: b"/c/run/stage",
            notes: b"/c/notes",
            texts: b"/t/texts/stage-0",
            ..Places::default()
        };
        let start = Start {
            identity: Some(identity),
            switches: Switches::NO_OPENAT2,
            filter: 9,
            places,
            host_name: b"box",
            slot: 7,
        };
        let mut bytes = [0; 512];
        let length = write(&start, &world, &mut bytes).unwrap();
        assert_eq!(write(&start, &world, &mut [0; 512][..length - 1]), None);
        let (found, tables) = read(&bytes[..length]).unwrap();
        assert_eq!(found, start);
        let mut bindings = [BINDINGS[0]; 3];
        let mut found = [Emulator { machine: 0, host: b"" }; 1];
        tables.fill(&mut bindings, &mut found).unwrap();
        assert_eq!((bindings, found), (BINDINGS, emulators));
        assert_eq!(tables.fill(&mut bindings[..2], &mut found), None);
        for short in 0..length {
            let whole = read(&bytes[..short])
                .is_some_and(|(_, tables)| tables.fill(&mut bindings, &mut found).is_some());
            assert!(!whole, "{short} of {length} bytes");
        }
    }

    #[test]
    fn credentials_round_trip() {
        let groups = Groups::new([7, 3, u32::MAX]).unwrap();
        let mut task = Task::new(Credentials::new(12, 13, groups), 0o22);
        task.creds.uid.effective = 14;
        task.creds.gid.saved = 15;
        task.creds.no_new_privileges = true;
        task.creds.capabilities.secure = 5;
        task.dumpable = false;
        task.filters = Filters { mode: 2, count: 3, synchronised: false };
        let mut other = Task::new(Credentials::ROOT, 0o22);
        credentials_from_words(&credentials_to_words(&task), &mut other);
        assert_eq!(other.creds, task.creds);
        assert_eq!((other.dumpable, other.filters), (task.dumpable, task.filters));
        task.creds.groups = Groups::new(0..200).unwrap();
        credentials_from_words(&credentials_to_words(&task), &mut other);
        assert_eq!(other.creds.groups.as_slice(), (0..58).collect::<std::vec::Vec<u32>>());
    }
}
