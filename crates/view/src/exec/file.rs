//! Opens a file that is to be executed, checks the permission, and reads its headers.

use super::script::LINE_MAX;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Host, HostFd, Purpose};
use crate::identity::{self, Truth, Want};
use crate::paths::{self, Intent, Origin, Place};
use crate::world::{Identity, Kind};
use crate::{CallBuffers, CallContext};
use abi::boot32::Operations;
use abi::elf::{self, Header, Segment};
use abi::layout::stat::EMPTY_STATFS;
use core::ffi::CStr;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, O_RDONLY, S_IFLNK, S_IFMT, S_IFREG, X_OK, statx,
};

/// Number of bytes that are read first: mostly they contain the program headers and the
/// interpreter's name.
const START: usize = 1024;
/// `ST_NOEXEC` and `ST_NOSUID` of statvfs(3).
const NO_EXEC: i64 = 8;
const NO_SET_ID: i64 = 2;

/// An executable file, open for reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct Executable {
    /// The file. The owner of this value closes it.
    pub(super) fd: HostFd,
    /// Its device (major, minor) and inode number.
    pub(super) inode: (u32, u32, u64),
    /// Its owner and mode.
    pub(super) truth: Truth,
    /// Its setuid and setgid bits are ignored.
    pub(super) no_set_id: bool,
    /// Number of its bytes in `buffers.input`.
    start: usize,
}

/// One of a plan's two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The program that is executed.
    Program,
    /// The interpreter that loads it.
    Interpreter,
}

/// Finds and opens the program that `buffers.named[0]` names. Puts its host path into the plan
/// (empty if it has none), and the guest path of what is executed. Afterwards the start of the file
/// is in `buffers.input`.
pub(super) fn open<N: Backend>(
    context: &mut CallContext<'_, N>,
    from: Dir,
    intent: Intent,
    part: Part,
) -> Result<Executable> {
    let place = paths::resolve(context, from, 0, intent.held_or_seen())?;
    let result = open_place(context, &place, part);
    if let (Ok(executable), Part::Program) = (&result, part) {
        let buffers = &mut *context.buffers;
        let guest = &mut buffers.exec.program_guest;
        let is_named = place.seen && buffers.position.is_empty();
        guest.copy(if is_named { &buffers.named[0] } else { &buffers.position });
        if place.magic || guest.is_empty() {
            find_name(context, executable.fd);
        }
    }
    place.close(context.backend);
    let mut executable = result?;
    match read(context, executable.fd, 0, START) {
        Ok(start) => executable.start = start,
        Err(errno) => {
            context.backend.close(executable.fd);
            return Err(errno);
        }
    }
    Ok(executable)
}

/// Finds the name of a file that was not reached by one: a deleted file keeps the guest's name, a
/// memory file the kernel's.
fn find_name<N: Backend>(context: &mut CallContext<'_, N>, fd: HostFd) {
    let CallBuffers { link: found, exec, .. } = &mut *context.buffers;
    let guest = &mut exec.program_guest;
    guest.clear();
    if context.backend.path_of(Dir::Held(fd), found).is_err() {
        return;
    }
    if let Ok(Origin::Unnamed) = paths::reverse(context.world, found.as_bytes(), guest) {
        guest.copy(found);
    }
}

fn open_place<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
    part: Part,
) -> Result<Executable> {
    let CallContext { backend, world, task, buffers } = context;
    let (dir, path) = match place.held {
        Some(held) => (Dir::Held(held), c""),
        None => (place.at, buffers.found[0].as_c_str()),
    };
    let follow = if place.magic { 0 } else { AT_SYMLINK_NOFOLLOW };
    let mut facts = identity::NO_FACTS;
    if place.seen {
        facts = buffers.seen[0];
    } else {
        backend.statx(dir, path, AT_EMPTY_PATH | follow, &mut facts)?;
    }
    match u32::from(facts.stx_mode) & S_IFMT {
        S_IFREG => {}
        S_IFLNK => return Err(Errno::ELOOP),
        _ => return Err(Errno::EACCES),
    }
    if place.kind == Kind::Mask {
        return Err(Errno::EACCES);
    }
    let truth = match &world.identity {
        Some(identity) if matches!(place.kind, Kind::Tree | Kind::Host) => {
            let (who, at) = (Some(&task.creds), (dir, path));
            let (truth, _) = identity::truth_of(*backend, identity, who, place.kind, at, &facts);
            identity::may(&task.creds, &truth, Want::EXECUTE)?;
            truth
        }
        _ => {
            backend.access(dir, path, X_OK, AT_EMPTY_PATH)?;
            Truth {
                mode: u32::from(facts.stx_mode),
                uid: facts.stx_uid,
                gid: facts.stx_gid,
                ..Truth::default()
            }
        }
    };
    let fd = open_for_reading(*backend, world.identity.as_ref(), (dir, path), &facts)?;
    // The mount flags are read through the open descriptor, so no path is looked up again.
    let mut info = EMPTY_STATFS;
    let flags = backend.statfs(Dir::Held(fd), c"", &mut info).map_or(0, |()| info.f_flags);
    // A file of the image is never open for writing: a process that opens it so gets a copy.
    let is_images = place.kind == Kind::Tree && backend.image_links(facts.stx_ino).is_some();
    let refused = if flags & NO_EXEC != 0 {
        Some(Errno::EACCES)
    } else {
        (!is_images && backend.is_written(fd)).then_some(Errno::ETXTBSY)
    };
    if let Some(errno) = refused {
        backend.close(fd);
        return Err(errno);
    }
    let host = match part {
        Part::Program => &mut buffers.exec.program_host,
        Part::Interpreter => &mut buffers.exec.interpreter_host,
    };
    if backend.opens_by_path() {
        host.clear();
        if place.at == Dir::Root && !place.magic {
            backend.real_path(buffers.found[0].as_c_str(), Purpose::Use, host)?;
        }
    }
    let no_set_id = flags & NO_SET_ID != 0 && place.kind != Kind::Tree;
    let inode = (facts.stx_dev_major, facts.stx_dev_minor, facts.stx_ino);
    Ok(Executable { fd, inode, truth, no_set_id, start: 0 })
}

/// Opens a file for reading that may be executed, even if it may not be read: the kernel needs no
/// read permission to execute. If the file belongs to the caller, its mode is changed for a moment.
fn open_for_reading(
    host: &mut impl Host,
    identity: Option<&Identity>,
    (dir, path): (Dir, &CStr),
    facts: &statx,
) -> Result<HostFd> {
    let opened = host.open(dir, path, O_RDONLY, 0, 0);
    let is_callers = identity.is_some_and(|identity| identity.host_uid == facts.stx_uid);
    if opened != Err(Errno::EACCES) || !is_callers {
        return opened;
    }
    let mode = u32::from(facts.stx_mode) & 0o7777;
    host.chmod(dir, path, mode | 0o400)?;
    let opened = host.open(dir, path, O_RDONLY, 0, 0);
    match (opened, host.chmod(dir, path, mode)) {
        (Ok(file), Err(errno)) => {
            host.close(file);
            Err(errno)
        }
        (opened, _) => opened,
    }
}

/// Reads from an offset of the file into `buffers.input`.
fn read<N: Backend>(
    context: &mut CallContext<'_, N>,
    fd: HostFd,
    offset: u64,
    length: usize,
) -> Result<usize> {
    let buffer = &mut context.buffers.input[..length];
    let mut done = 0;
    while done < length {
        match context.backend.pread(fd, &mut buffer[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

impl Executable {
    /// The first bytes, which show the kind of file to the kernel.
    pub(super) fn line<'d, N: Backend>(&self, context: &'d CallContext<'_, N>) -> &'d [u8] {
        &context.buffers.input[..self.start.min(LINE_MAX)]
    }

    /// The ELF header; `None` if there is none.
    pub(super) fn header<N: Backend>(&self, context: &CallContext<'_, N>) -> Option<Header> {
        Header::read(&context.buffers.input[..self.start])
    }

    /// Calls `look` for every program header until it returns true. `ENOEXEC` if they cannot be
    /// read. Headers that are not in the start of the file overwrite `buffers.input`.
    pub(super) fn segments<N: Backend>(
        &mut self,
        context: &mut CallContext<'_, N>,
        header: &Header,
        mut look: impl FnMut(&Segment) -> bool,
    ) -> Result<()> {
        let length = header.table_length().ok_or(Errno::ENOEXEC)?;
        let start = usize::try_from(header.table).unwrap_or(usize::MAX);
        if let Some(table) =
            context.buffers.input[..self.start].get(start..start.saturating_add(length))
        {
            elf::segments(header.class, table).any(|segment| look(&segment));
            return Ok(());
        }
        let size = header.class.entry_size();
        let room = context.buffers.input.len() / size * size;
        self.start = 0;
        let mut done = 0;
        while done < length {
            let piece = room.min(length - done);
            let offset = header.table.checked_add(done as u64).ok_or(Errno::ENOEXEC)?;
            if read(context, self.fd, offset, piece) != Ok(piece) {
                return Err(Errno::ENOEXEC);
            }
            let table = &context.buffers.input[..piece];
            if elf::segments(header.class, table).any(|segment| look(&segment)) {
                break;
            }
            done += piece;
        }
        Ok(())
    }

    /// Adds the operations that map this file to `operations`, for the loader of 32-bit programs.
    pub(super) fn operations<N: Backend>(
        &mut self,
        context: &mut CallContext<'_, N>,
        header: &Header,
        interpreter: bool,
        operations: &mut Operations,
    ) -> Result<()> {
        let length = header.table_length().ok_or(Errno::ENOEXEC)?;
        if length > context.buffers.input.len() {
            return Err(Errno::ENOEXEC);
        }
        self.start = 0;
        if read(context, self.fd, header.table, length)? != length {
            return Err(Errno::ENOEXEC);
        }
        let segments = elf::segments(header.class, &context.buffers.input[..length]);
        operations.image(header, segments, interpreter).ok_or(Errno::ENOEXEC)
    }

    /// Puts the name of the interpreter in a `PT_INTERP` into `buffers.named[0]`.
    pub(super) fn interpreter<N: Backend>(
        &mut self,
        context: &mut CallContext<'_, N>,
        segment: &Segment,
    ) -> Result<()> {
        if !(2..=4096).contains(&segment.file_size) {
            return Err(Errno::ENOEXEC);
        }
        let length = segment.file_size as usize;
        let start = usize::try_from(segment.offset).unwrap_or(usize::MAX);
        let there = start.checked_add(length).is_some_and(|end| end <= self.start);
        if !there {
            self.start = 0;
            if read(context, self.fd, segment.offset, length)? != length {
                return Err(Errno::EIO);
            }
        }
        let start = if there { start } else { 0 };
        let CallBuffers { input, named: [into, _], .. } = &mut *context.buffers;
        let bytes = &input[start..start + length];
        if bytes.last() != Some(&0) {
            return Err(Errno::ENOEXEC);
        }
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
        into.set(&bytes[..end])
    }

    /// Returns true if the file is too short to hold an ELF header.
    pub(super) const fn is_short(&self) -> bool {
        self.start < elf::HEADER_MAX
    }
}
