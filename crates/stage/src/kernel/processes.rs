//! Other processes of the container: their programs, their ids, and signals to all of them.
//!
//! A process enters itself into the shared registry ([`abi::shared::processes`]) when it starts a
//! program, and again when its ids change. A child of `fork` that has done neither is recognised by
//! what the kernel says: it executes the stage, has a known parent, and its memory maps its
//! program.

use super::calls::{self, CWD};
use super::linux::LINUX;
use super::path_buffer::Link;
use crate::shared;
use crate::system::Written;
use abi::processes::{self, Life, headers, mapping, number};
use abi::shared::processes::{CREDENTIALS, Entry};
use core::ffi::CStr;
use hostfs::{Kernel, Target};
use linux_raw_sys::general::{
    F_RDLCK, F_SETLEASE, F_SETSIG, F_UNLCK, O_CLOEXEC, O_DIRECTORY, O_RDONLY, SIGURG, statfs64,
};
use view::errno::Result;
use view::identity::Credentials;
use view::paths::{Origin, reverse};
use view::stored::{credentials_from_words, credentials_to_words};
use view::{Errno, HostFd, Task, Text};

/// The entry of this process's program, without a process number: children of `fork` run the same
/// program.
static PROGRAM: Written<Entry> =
    Written::new(Entry { process: 0, since: 0, device: (0, 0), inode: 0, program: 0, world: 0 });

/// How many generations of children may be unknown.
const GENERATIONS: usize = 16;
/// Enters this process, which starts a program: its guest path, and its file. There is one thread.
/// The container's first program enters itself, with its `task`; all others were entered by the
/// program before ([`becomes`]).
pub(crate) fn enter(path: &[u8], inode: (u32, u32, u64), task: Option<&Task>) {
    // SAFETY: no other thread runs in this process yet.
    unsafe { *PROGRAM.get_mut() = program(path, inode) };
    if let Some(task) = task {
        tell(task);
    }
}

/// Enters the program that this process is about to execute: a process that waits for the `execve`
/// may look as soon as the kernel has done it. [`tell`] takes it back.
pub(crate) fn becomes(path: &[u8], inode: (u32, u32, u64), task: &Task) {
    set(&program(path, inode), task);
}

fn program(path: &[u8], (major, minor, inode): (u32, u32, u64)) -> Entry {
    Entry {
        process: 0,
        since: 0,
        device: (major, minor),
        inode,
        program: shared::shared().texts().add(path).unwrap_or(0),
        world: shared::world_number(),
    }
}

/// Enters this process again: its ids have changed.
pub(crate) fn tell(task: &Task) {
    set(PROGRAM.get(), task);
}

/// Takes this process out: what it executes from now on does not belong to the container.
pub(crate) fn forget() {
    let entry = Entry { process: calls::getpid(), since: 0, ..*PROGRAM.get() };
    if shared::shared().processes().get(entry.process).is_some() {
        let ids = credentials_to_words(&Task::new(Credentials::ROOT, 0o22));
        let _ = shared::shared().processes().set(&entry, &ids, |_| false);
    }
}

fn set(program: &Entry, task: &Task) {
    let entry = Entry { process: calls::getpid(), since: calls::boot_time(), ..*program };
    let is_dead = |process| calls::kill(process, 0) == Err(Errno::ESRCH);
    // Without room others do not know of it; it runs all the same.
    let _ = shared::shared().processes().set(&entry, &credentials_to_words(task), is_dead);
}

/// The path of a file of a process's in `/proc`.
fn proc_path(process: u32, name: &[u8]) -> Result<Link> {
    let mut path = Link::new();
    path.push(b"/proc/")?;
    path.push_number(process)?;
    path.push(name)?;
    path.push(b"\0")?;
    Ok(path)
}

/// Opens a file of a process's in `/proc`.
fn open(process: u32, name: &[u8]) -> Result<i32> {
    let path = proc_path(process, name)?;
    calls::openat(CWD, path.as_c_str()?, O_RDONLY | O_CLOEXEC, 0)
}

/// Reads the beginning of a file of a process's in `/proc`.
fn read_first(process: u32, name: &[u8], into: &mut [u8]) -> Result<usize> {
    let file = open(process, name)?;
    let length = calls::pread(file, into, 0);
    calls::close(file);
    length
}

/// How often `stat` is read at most while it shows a thread that is being removed.
const LOOKS: usize = 8;

/// A process's life, if it is there.
fn life(process: u32) -> Option<Life> {
    let mut bytes = [0; 1024];
    let mut look = || {
        let length = read_first(process, b"/stat", &mut bytes).ok()?;
        Life::read(&bytes[..length])
    };
    let mut life = look()?;
    for _ in 1..LOOKS {
        if !life.is_passing() {
            break;
        }
        life = look()?;
    }
    Some(life)
}

/// The entry of a process that lives.
fn entry_of(process: u32) -> Option<(Entry, [u64; CREDENTIALS])> {
    let known = shared::shared().processes().get(process)?;
    lives(&known.0).then_some(known)
}

/// Whether an entry's process is alive, and still the same.
fn lives(entry: &Entry) -> bool {
    life(entry.process)
        .is_some_and(|life| !life.is_over() && life.start * Life::TICK <= entry.since)
}

/// Whether a process executes the container's stage.
fn executes_stage(process: u32) -> bool {
    let mut link = [0; 512];
    let path = proc_path(process, b"/exe");
    let read = path.and_then(|path| calls::readlinkat(CWD, path.as_c_str()?, &mut link));
    let Ok(length) = read else { return false };
    let stage = shared::places().stage;
    // Another version of us has put its own there since.
    let link = link[..length].strip_suffix(b" (deleted)").unwrap_or(&link[..length]);
    !stage.is_empty() && link == stage
}

/// The entry of a process, or of its nearest ancestor with one, as long as they execute the stage.
fn nearest_known_ancestor(process: u32) -> Option<(Entry, [u64; CREDENTIALS])> {
    let mut process = process;
    for _ in 0..GENERATIONS {
        if let Some(known) = entry_of(process) {
            return Some(known);
        }
        if !executes_stage(process) {
            return None;
        }
        process = life(process)?.parent;
    }
    None
}

/// The guest path of the program that a process runs; false for a process of another container. A
/// program without a name in the guest is `/`.
pub(super) fn program_of(process: u32, into: &mut Text) -> bool {
    let texts = shared::shared().texts();
    let mut known =
        |number: u32| into.fill(|bytes| texts.read(number, bytes).ok_or(Errno::ENOENT)).is_ok();
    if process == calls::getpid() && known(PROGRAM.get().program) {
        return true;
    }
    match entry_of(process) {
        Some((entry, _)) if known(entry.program) => return true,
        None if !executes_stage(process) => return false,
        _ => {}
    }
    if !mapped_program(process, into) {
        *into = Text::ROOT;
    }
    true
}

/// The file in which a process has its program headers, as a guest path.
fn mapped_program(process: u32, into: &mut Text) -> bool {
    let mut auxiliary = [0; 1024];
    let length = read_first(process, b"/auxv", &mut auxiliary).unwrap_or(0);
    let headers = headers(&auxiliary[..length], true);
    let (Some(headers), Ok(file)) = (headers, open(process, b"/maps")) else { return false };
    let found = lines(file, |line| {
        let (from, to, path) = mapping(line)?;
        (from..to)
            .contains(&headers)
            .then(|| matches!(reverse(shared::world(), path, into), Ok(Origin::Inside(_))))
    });
    calls::close(file);
    found == Some(true)
}

/// Looks at a file's lines until one gives something.
fn lines<T>(file: i32, mut look: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let mut bytes = [0; 8192];
    let (mut length, mut offset) = (0, 0);
    loop {
        let got = calls::pread(file, &mut bytes[length..], offset).ok().filter(|got| *got != 0)?;
        offset += got as u64;
        length += got;
        let mut start = 0;
        while let Some(end) = bytes[start..length].iter().position(|byte| *byte == b'\n') {
            if let Some(found) = look(&bytes[start..start + end]) {
                return Some(found);
            }
            start += end + 1;
        }
        bytes.copy_within(start..length, 0);
        length -= start;
        if length == bytes.len() {
            // No line of a path's length is that long.
            return None;
        }
    }
}

/// Shows what is known of another thread's ids.
pub(super) fn with_task(thread: u32, look: &mut dyn FnMut(&Task)) -> bool {
    if crate::tasks::look(thread, look) {
        return true;
    }
    let known = nearest_known_ancestor(thread).or_else(|| nearest_known_ancestor(leader(thread)?));
    let Some((_, credentials)) = known else { return false };
    let mut task = Task::new(Credentials::ROOT, 0o22);
    credentials_from_words(&credentials, &mut task);
    look(&task);
    true
}

/// The process of a thread that is not its first one.
fn leader(thread: u32) -> Option<u32> {
    let mut bytes = [0; 512];
    let length = read_first(thread, b"/status", &mut bytes).ok()?;
    processes::leader(&bytes[..length]).filter(|leader| *leader != thread)
}

/// Whether a process of the container executes a file.
pub(super) fn is_executed(device: (u32, u32), inode: u64) -> bool {
    let own = PROGRAM.get();
    let is = |entry: &Entry| entry.inode == inode && entry.device == device;
    is(own) || shared::shared().processes().all().any(|entry| is(&entry) && lives(&entry))
}

/// Whether any process has a regular file open for writing, which is open for reading only here:
/// asks for a lease and gives it back. False where the kernel does not tell.
pub(super) fn is_written(file: i32) -> bool {
    /// ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, overlay. Network file systems give leases for other
    /// reasons.
    const LOCAL: [i64; 6] =
        [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0x794c_7630];
    // A process that opens the file for writing in between makes the kernel ask for the lease by a
    // signal: by one that is ignored.
    if calls::fcntl(file, F_SETSIG, SIGURG.into()).is_err() {
        return false;
    }
    match calls::fcntl(file, F_SETLEASE, F_RDLCK.into()) {
        Ok(_) => {
            let _ = calls::fcntl(file, F_SETLEASE, F_UNLCK.into());
            false
        }
        Err(errno) => {
            // SAFETY: numbers.
            let mut facts: statfs64 = unsafe { core::mem::zeroed() };
            errno == Errno::EAGAIN
                && LINUX.statfs(Target::File(HostFd(file)), &mut facts).is_ok()
                && LOCAL.contains(&facts.f_type)
        }
    }
}

/// A signal to every process of the container but this one.
pub(super) fn signal_all(signal: u32) -> Result<()> {
    let own = calls::getpid();
    let mut result = Err(Errno::ESRCH);
    let directory = calls::openat(CWD, c"/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)?;
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = calls::getdents(directory, &mut bytes) {
        let mut rest = &bytes[..length];
        // struct linux_dirent64: the length of an entry at 16, its name at 19.
        while let Some(entry) =
            rest.get(16..18).map(|two| usize::from(two[0]) | usize::from(two[1]) << 8)
            && let Some(name) = rest.get(19..entry)
        {
            rest = &rest[entry..];
            let name = CStr::from_bytes_until_nul(name).unwrap_or(c"").to_bytes();
            let Some(process) = number(name).map(|process| process as u32) else { continue };
            if process != own
                && (executes_stage(process) || entry_of(process).is_some())
                && calls::kill(process, signal).is_ok()
            {
                result = Ok(());
            }
        }
    }
    calls::close(directory);
    result
}
