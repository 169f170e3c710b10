//! Passes the state of a process from one program to the next, for the in-process backends, as a
//! string in the environment.
//!
//! Of a process's memory an `execve` keeps only the strings that it was given. So the code that
//! executes the stage (the stage of the previous program, or the engine that starts a container's
//! program) adds one string at the end of the environment: [`Handover::write`]. The new stage finds
//! it on its stack, reads it in place ([`Handover::read`]), and removes it from the environment. It
//! then has everything that a caught call needs.
//!
//! The string starts with [`MARK`], so that it looks like a variable where it cannot be hidden.
//! Numbers and texts follow with their NULs escaped: each byte that was 0 or 1 has a byte 1 before
//! it. The end is the name of the program ([`Handover::name`]), not escaped, because it stays on
//! the stack as `AT_EXECFN`.
//!
//! The program and its interpreter are passed as descriptors, which the stage closes after it has
//! mapped them: by then a path could mean another file, or be unreadable.

use crate::identity::{Credentials, Groups, Ids};
use crate::task::{Filters, Task};
use abi::boot;
use abi::shared::Switches;

/// How the string starts.
pub const MARK: &[u8] = b"CORACLE_STAGE_HANDOVER=1";

/// Length of the longest argument or environment string that execve(2) takes, with its NUL
/// (`MAX_ARG_STRLEN`).
pub const LONGEST: usize = 32 * 4096;

/// The contents of the string except the [`Task`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover<'a> {
    /// The program, open for reading, without close-on-exec. The stage closes it.
    pub program: i32,
    /// The program's interpreter, opened in the same way.
    pub interpreter: Option<i32>,
    /// `AT_EXECFN`: the name that the guest executed.
    pub name: &'a [u8],
    /// Guest path of the program: the target of `/proc/self/exe`.
    pub path: &'a [u8],
    /// Device (major, minor) and inode number of the program; zeros if they are not known.
    pub inode: (u32, u32, u64),
    /// Name of the thread, padded with NULs.
    pub comm: [u8; 16],
    /// `AT_SECURE`.
    pub secure: bool,
    /// Ids for the auxiliary vector; with `None` the kernel's stay.
    pub ids: Option<boot::Ids>,
    /// Host path of the container's shared file. In a string that was read, a NUL follows it.
    pub shared: &'a [u8],
    /// Number of the record in that file that holds this program's world.
    pub world: u32,
    /// Number of the record that holds the seccomp program to install. `None` if the process has
    /// inherited it already: only a process that comes from outside of the container installs it.
    pub filter: Option<u32>,
    /// Features that must not be used, because this process has found out or was told so.
    pub switches: Switches,
    /// Signals (bit 0 is signal 1) that the guest ignores but the kernel does not, because the
    /// stage has its own actions for them.
    pub ignored: u64,
    /// Signals that the guest has blocked. Unless there is a `filter`, the kernel has more of them
    /// blocked when the stage begins.
    pub blocked: u64,
    /// The guest's own seccomp programs, which decide on the stage's calls too; the stage defines
    /// the form.
    pub filters: &'a [u8],
}

/// Encodes numbers and texts without NULs.
struct Writer<'a> {
    into: &'a mut [u8],
    end: usize,
}

impl Writer<'_> {
    fn raw(&mut self, bytes: &[u8]) -> Option<()> {
        self.into.get_mut(self.end..self.end + bytes.len())?.copy_from_slice(bytes);
        self.end += bytes.len();
        Some(())
    }

    fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte <= 1) {
            self.raw(&rest[..at])?;
            self.raw(&[1, rest[at] + 1])?;
            rest = &rest[at + 1..];
        }
        self.raw(rest)
    }

    fn number(&mut self, number: u64) -> Option<()> {
        // Seven bits in each byte; the eighth says that more follow. Small numbers are short.
        let mut rest = number;
        while rest >= 0x80 {
            self.bytes(&[rest as u8 | 0x80])?;
            rest >>= 7;
        }
        self.bytes(&[rest as u8])
    }

    fn text(&mut self, text: &[u8]) -> Option<()> {
        self.number(text.len() as u64)?;
        self.bytes(text)
    }

    fn optional(&mut self, number: Option<u32>) -> Option<()> {
        self.number(number.map_or(0, |number| u64::from(number) + 1))
    }

    fn ids(&mut self, ids: &Ids) -> Option<()> {
        [ids.real, ids.effective, ids.saved, ids.files]
            .into_iter()
            .try_for_each(|id| self.number(id.into()))
    }

    fn task(&mut self, task: &Task) -> Option<()> {
        let Credentials { uid, gid, groups, capabilities, no_new_privileges } = &task.creds;
        self.text(task.root.as_bytes())?;
        self.number(task.umask.into())?;
        self.number(task.entered.into())?;
        let unmapped = u64::from(groups.has_unmapped());
        let flags = u64::from(*no_new_privileges) | u64::from(task.dumpable) << 1 | unmapped << 2;
        self.number(flags)?;
        self.ids(uid)?;
        self.ids(gid)?;
        self.number(groups.as_slice().len() as u64)?;
        groups.as_slice().iter().try_for_each(|group| self.number((*group).into()))?;
        let sets = [
            capabilities.effective,
            capabilities.permitted,
            capabilities.inheritable,
            capabilities.bounding,
            capabilities.ambient,
            capabilities.secure.into(),
            task.filters.mode.into(),
            task.filters.count.into(),
        ];
        sets.into_iter().try_for_each(|number| self.number(number))
    }
}

/// Decodes what [`Writer`] has written, after the escapes have been removed.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn short(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    /// Reads what `Writer::optional` wrote: 0 for none, otherwise the number plus one.
    fn optional(&mut self) -> Option<u64> {
        self.number().filter(|number| *number <= 1 << 32)
    }

    fn ids(&mut self) -> Option<Ids> {
        Some(Ids {
            real: self.short()?,
            effective: self.short()?,
            saved: self.short()?,
            files: self.short()?,
        })
    }

    fn task(&mut self, task: &mut Task) -> Option<()> {
        task.root.set(self.text()?).ok()?;
        task.umask = self.short()?;
        task.entered = u16::try_from(self.number()?).ok()?;
        let flags = self.number()?;
        task.fs_changed = false;
        task.dumpable = flags & 2 != 0;
        task.creds.no_new_privileges = flags & 1 != 0;
        task.creds.uid = self.ids()?;
        task.creds.gid = self.ids()?;
        let count = self.number()?;
        let mut broken = false;
        let groups = (0..count).map_while(|_| {
            let group = self.short();
            broken |= group.is_none();
            group
        });
        task.creds.groups = Groups::new(groups).ok()?.with_unmapped(flags & 4 != 0);
        if broken {
            return None;
        }
        let capabilities = &mut task.creds.capabilities;
        capabilities.effective = self.number()?;
        capabilities.permitted = self.number()?;
        capabilities.inheritable = self.number()?;
        capabilities.bounding = self.number()?;
        capabilities.ambient = self.number()?;
        capabilities.secure = self.short()?;
        task.filters = Filters {
            mode: u8::try_from(self.number()?).ok()?,
            count: self.short()?,
            synchronised: false,
        };
        Some(())
    }
}

impl<'a> Handover<'a> {
    /// Writes the string without its NUL and returns its length. `None` if it does not fit, or
    /// would be longer than the kernel takes.
    pub fn write(&self, task: &Task, into: &mut [u8]) -> Option<usize> {
        let room = into.len().min(LONGEST - 1);
        let mut writer = Writer { into: &mut into[..room], end: 0 };
        writer.raw(MARK)?;
        writer.number(self.name.len() as u64)?;
        writer.number(u64::from(self.program as u32))?;
        writer.optional(self.interpreter.map(|descriptor| descriptor as u32))?;
        writer.text(self.path)?;
        writer.number(self.inode.0.into())?;
        writer.number(self.inode.1.into())?;
        writer.number(self.inode.2)?;
        writer.bytes(&self.comm)?;
        writer.number(u64::from(self.secure) | u64::from(self.ids.is_some()) << 1)?;
        if let Some(ids) = &self.ids {
            [ids.uid, ids.euid, ids.gid, ids.egid]
                .into_iter()
                .try_for_each(|id| writer.number(id.into()))?;
        }
        writer.text(self.shared)?;
        writer.bytes(b"\0")?;
        writer.number(self.world.into())?;
        writer.optional(self.filter)?;
        writer.number(self.switches.0)?;
        writer.number(self.ignored)?;
        writer.number(self.blocked)?;
        writer.text(self.filters)?;
        writer.task(task)?;
        if self.name.contains(&0) {
            return None;
        }
        writer.raw(self.name)?;
        Some(writer.end)
    }

    /// Reads the string and puts the thread's state into `task`. The bytes of `string` are changed,
    /// except its end, which [`Handover::name`] points to. `None` if it is not a hand-over.
    pub fn read(string: &'a mut [u8], task: &mut Task) -> Option<Self> {
        let whole = string.strip_prefix(MARK)?.len();
        let skipped = string.len() - whole;
        let body = string.get_mut(skipped..)?;
        // The length of the name comes first, because only the part before the name is escaped.
        let mut start = [0; 20];
        let length = body.len().min(start.len());
        start[..length].copy_from_slice(&body[..length]);
        let length = unescape(&mut start);
        let name = usize::try_from(Reader { bytes: &start[..length] }.number()?).ok()?;
        let (body, name) = body.split_at_mut_checked(body.len().checked_sub(name)?)?;
        let length = unescape(body);
        let mut reader = Reader { bytes: &body[..length] };
        reader.number()?;
        let program = reader.short()? as i32;
        let interpreter = reader.optional()?.checked_sub(1).map(|descriptor| descriptor as i32);
        let path = reader.text()?;
        let inode = (reader.short()?, reader.short()?, reader.number()?);
        let comm = *reader.take(16)?.first_chunk()?;
        let flags = reader.number()?;
        let ids = if flags & 2 == 0 {
            None
        } else {
            Some(boot::Ids {
                uid: reader.short()?,
                euid: reader.short()?,
                gid: reader.short()?,
                egid: reader.short()?,
            })
        };
        let handover = Self {
            program,
            interpreter,
            name,
            path,
            inode,
            comm,
            secure: flags & 1 != 0,
            ids,
            shared: {
                let path = reader.text()?;
                (reader.take(1)? == b"\0").then_some(path)?
            },
            world: reader.short()?,
            filter: reader.optional()?.checked_sub(1).map(|number| number as u32),
            switches: Switches(reader.number()?),
            ignored: reader.number()?,
            blocked: reader.number()?,
            filters: reader.text()?,
        };
        reader.task(task)?;
        Some(handover)
    }
}

/// Removes the escapes and returns the number of bytes that remain, at the beginning.
fn unescape(bytes: &mut [u8]) -> usize {
    let (mut from, mut to) = (0, 0);
    while from < bytes.len() {
        let mut byte = bytes[from];
        if byte == 1 && from + 1 < bytes.len() {
            from += 1;
            byte = bytes[from].wrapping_sub(1);
        }
        bytes[to] = byte;
        from += 1;
        to += 1;
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Capabilities;
    use std::vec;
    use std::vec::Vec;

    fn handover<'a>(filters: &'a [u8], name: &'a [u8]) -> Handover<'a> {
        Handover {
            program: 3,
            interpreter: Some(0),
            name,
            path: b"/usr/bin/true",
            inode: (8, 1, u64::MAX),
            comm: *b"true\0\0\0\0\0\0\0\0\0\0\0\0",
            secure: true,
            ids: Some(boot::Ids { uid: 0, euid: 1, gid: 128, egid: u32::MAX }),
            shared: b"/home/u/run/shared",
            world: 0,
            filter: Some(0),
            switches: Switches::NO_OPENAT2,
            ignored: 1 << 30,
            blocked: 1 << 63,
            filters,
        }
    }

    fn task() -> Task {
        let groups = Groups::new([5, 0, 70_000]).unwrap().with_unmapped(true);
        let mut task = Task::new(Credentials::new(1, 256, groups), 0o22);
        task.root.set(b"/srv/root").unwrap();
        task.creds.capabilities =
            Capabilities { effective: 1 << 40, bounding: 3, ..Capabilities::NONE };
        task.filters = Filters { mode: 2, count: 300, synchronised: false };
        task.dumpable = false;
        task
    }

    fn round_trip(handover: &Handover<'_>) -> Vec<u8> {
        let mut string = vec![0; LONGEST];
        let length = handover.write(&task(), &mut string).expect("it fits");
        string.truncate(length);
        assert!(!string.contains(&0));
        let written = string.clone();
        let mut read = Task::new(Credentials::ROOT, 0);
        let end = string.as_ptr() as usize + length - handover.name.len();
        let back = Handover::read(&mut string, &mut read).expect("it is one");
        assert_eq!(&back, handover);
        assert_eq!(back.name.as_ptr() as usize, end);
        assert_eq!((read.root, read.umask, read.dumpable), (task().root, 0o22, false));
        assert_eq!((read.creds, read.filters), (task().creds, task().filters));
        written
    }

    #[test]
    fn a_written_string_is_read_back() {
        round_trip(&handover(b"", b"./true"));
        round_trip(&handover(b"\0\x01\x02\0", b""));
        round_trip(&Handover {
            interpreter: None,
            ids: None,
            filter: None,
            secure: false,
            ..handover(&vec![0; 60_000], &[b'x'; 4095])
        });
    }

    #[test]
    fn a_string_that_is_too_long_is_refused() {
        let filters = vec![0; 70_000];
        assert_eq!(handover(&filters, b"x").write(&task(), &mut vec![0; LONGEST * 2]), None);
        assert_eq!(handover(b"", b"a\0b").write(&task(), &mut vec![0; LONGEST]), None);
        assert_eq!(handover(b"", b"x").write(&task(), &mut [0; 100]), None);
    }

    #[test]
    fn a_truncated_string_is_refused() {
        let whole = round_trip(&handover(b"\0\x01", b""));
        let mut task = Task::new(Credentials::ROOT, 0);
        for length in 0..whole.len() {
            let mut half = whole[..length].to_vec();
            assert_eq!(Handover::read(&mut half, &mut task), None, "{length}");
        }
        assert_eq!(Handover::read(&mut b"PATH=/bin".to_vec(), &mut task), None);
    }
}
