//! What one program tells the next where the backend is inside the process: the hand-over.
//!
//! An `execve` leaves nothing of a process's memory but the strings that it was given. So who executes the stage (the stage of the program
//! before, or whoever starts a container's program) adds one string to the environment, the last: [`Handover::write`]. The stage finds it
//! on its stack, reads it in place ([`Handover::read`]), takes it out of the environment, and has everything that a caught call needs.
//!
//! The string starts with [`MARK`], so that it looks like a variable where it cannot be hidden. What follows is numbers and texts, with their NULs
//! escaped (byte 1 stands before what was 0 or 1), and in the end, as it is, the name of the program ([`Handover::name`]): it stays
//! on the stack as `AT_EXECFN`.
//!
//! The program and its interpreter are passed as descriptors, which the stage closes when they are mapped: a path could have got another
//! meaning by then, or not be readable.

use crate::identity::{Credentials, Groups, Ids};
use crate::task::{Filters, Task};
use abi::boot;
use abi::shared::Switches;

/// How the string starts.
pub const MARK: &[u8] = b"CORACLE_STAGE_HANDOVER=1";

/// The longest string of arguments or environment that execve(2) takes, with its NUL (`MAX_ARG_STRLEN`).
pub const LONGEST: usize = 32 * 4096;

/// What the string says, but for the [`Task`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handover<'a> {
    /// The program, open for reading; not close-on-exec. The stage closes it.
    pub program: i32,
    /// Its interpreter, likewise.
    pub interpreter: Option<i32>,
    /// `AT_EXECFN`: what was executed, as the guest named it.
    pub name: &'a [u8],
    /// Guest path of the program: what `/proc/self/exe` shows.
    pub path: &'a [u8],
    /// Device (major, minor) and inode number of the program; zeros where that is not known.
    pub inode: (u32, u32, u64),
    /// Name of the thread, padded with NUL.
    pub comm: [u8; 16],
    /// `AT_SECURE`.
    pub secure: bool,
    /// Ids for the auxiliary vector; `None` leaves the kernel's.
    pub ids: Option<boot::Ids>,
    /// Host path of the container's shared file. Where it was read, a NUL follows it.
    pub shared: &'a [u8],
    /// Number of the record in that file that is this program's world.
    pub world: u32,
    /// Number of the record that is the seccomp program to be installed. `None` where the process has it already: whoever is started from
    /// outside of the container installs it, and it is inherited for ever.
    pub filter: Option<u32>,
    /// What is not to be used, as far as this process has found out or was told.
    pub switches: Switches,
    /// Signals (bit 0 is signal 1) that the guest ignores and the kernel does not know it, because their actions are the stage's own.
    pub ignored: u64,
    /// Signals that the guest has blocked. The kernel has more blocked when the stage begins, unless there is a `filter`.
    pub blocked: u64,
    /// The guest's own seccomp programs that calls of the stage have to be asked of; the form is the stage's own.
    pub filters: &'a [u8],
}

/// Writes numbers and texts without NUL.
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
        // Seven bits at a time, the last without the eighth: small numbers are short.
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
        self.number(u64::from(*no_new_privileges) | u64::from(task.dumpable) << 1)?;
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

/// Reads them.
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

    /// What `Writer::optional` wrote: 0 is none, others are one more than they mean.
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
        task.creds.groups = Groups::new(groups).ok()?;
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
    /// Writes the string, without its NUL: how many bytes. `None` where it does not fit, or would be longer than the kernel takes.
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

    /// Reads the string, which is changed on the way; the task goes to `task`. `None` where it is none. [`Handover::name`] is the end of
    /// `string`, unmoved.
    pub fn read(string: &'a mut [u8], task: &mut Task) -> Option<Self> {
        let whole = string.strip_prefix(MARK)?.len();
        let skipped = string.len() - whole;
        let body = string.get_mut(skipped..)?;
        // The length of the name comes first: what is before the name is escaped.
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

/// Takes the escapes out; how many bytes are left, at the beginning.
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
        let groups = Groups::new([5, 0, 70_000]).unwrap();
        let mut task = Task::new(Credentials::new(1, 256, groups), 0o22);
        task.root.set(b"/srv/root").unwrap();
        task.creds.capabilities =
            Capabilities { effective: 1 << 40, bounding: 3, ..Capabilities::NONE };
        task.filters = Filters { mode: 2, count: 300, synchronised: false };
        task.dumpable = false;
        task
    }

    fn there_and_back(handover: &Handover<'_>) -> Vec<u8> {
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
    fn what_was_written_is_read() {
        there_and_back(&handover(b"", b"./true"));
        there_and_back(&handover(b"\0\x01\x02\0", b""));
        there_and_back(&Handover {
            interpreter: None,
            ids: None,
            filter: None,
            secure: false,
            ..handover(&vec![0; 60_000], &[b'x'; 4095])
        });
    }

    #[test]
    fn too_much_does_not_fit() {
        let filters = vec![0; 70_000];
        assert_eq!(handover(&filters, b"x").write(&task(), &mut vec![0; LONGEST * 2]), None);
        assert_eq!(handover(b"", b"a\0b").write(&task(), &mut vec![0; LONGEST]), None);
        assert_eq!(handover(b"", b"x").write(&task(), &mut [0; 100]), None);
    }

    #[test]
    fn halves_are_nothing() {
        let whole = there_and_back(&handover(b"\0\x01", b""));
        let mut task = Task::new(Credentials::ROOT, 0);
        for length in 0..whole.len() {
            let mut half = whole[..length].to_vec();
            assert_eq!(Handover::read(&mut half, &mut task), None, "{length}");
        }
        assert_eq!(Handover::read(&mut b"PATH=/bin".to_vec(), &mut task), None);
    }
}
