//! Calls about files: finding the file that a waiting process means, and recording what it asked
//! for.
//!
//! A path is resolved as the process would: from its root, its working directory or one of its
//! descriptors, all reached through `/proc`. An absolute path is confined to its root by the kernel
//! (`RESOLVE_IN_ROOT`). The process could change the path while we look; then it gets the ownership
//! of another of its own files recorded, which it could have asked for directly.
//!
//! Records are the extended attribute `user.coracle.owner` of regular files and directories:
//! `uid:gid:mode:type:major:minor`, the mode in octal. A record that is there follows later changes
//! of the mode. Symbolic links, pipes and sockets cannot have such attributes; they go by path into
//! a table (see `table`).

use super::server::Server;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use sys::fs::resolve::open_in_root;
use sys::peer;
use sys::seccomp::{Answer, Waiting};

/// Attribute with the record of an inode.
const ATTRIBUTE: &str = "user.coracle.owner";
/// Longest path, with some room.
const PATH_LIMIT: usize = 8192;
/// Longest attribute name and value (`XATTR_NAME_MAX`, `XATTR_SIZE_MAX`).
const NAME_LIMIT: usize = 256;
const VALUE_LIMIT: u64 = 65_536;
/// "Leave as it is".
const KEEP: u32 = u32::MAX;
const AT_FDCWD: i32 = -100;

/// How files of waiting processes are reached.
pub(super) struct Files {
    proc: OwnedFd,
    /// When the notifier began, seconds since 1970: a file born later is in no image.
    since: i64,
    /// The container's directory and the name of its ownership table.
    table: Option<(OwnedFd, &'static str)>,
    /// Lines were added to it.
    added: bool,
}

/// A file that was found, with its facts.
struct Found {
    file: OwnedFd,
    mode: u32,
    born: Option<i64>,
}

impl Files {
    /// With a `/proc` that shows our own pid namespace.
    pub(super) fn new(proc: OwnedFd, table: Option<(OwnedFd, &'static str)>) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        Self { proc, since: since as i64, table, added: false }
    }

    /// Opens `/proc/THREAD/NAME` (a root, a directory, a descriptor) as a place, not for use.
    fn of_thread(&self, thread: u32, name: &str) -> Result<OwnedFd, Errno> {
        let path = format!("{thread}/{name}");
        rustix::fs::openat(&self.proc, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
    }

    fn descriptor(&self, thread: u32, descriptor: i32) -> Result<OwnedFd, Errno> {
        if descriptor < 0 {
            return Err(Errno::BADF);
        }
        match self.of_thread(thread, &format!("fd/{descriptor}")) {
            Err(Errno::NOENT) => Err(Errno::BADF),
            result => result,
        }
    }

    /// Opens what a process means by a path.
    fn open(
        &self,
        thread: u32,
        directory: i32,
        path: &Path,
        follow: bool,
    ) -> Result<OwnedFd, Errno> {
        let mut flags = OFlags::PATH | OFlags::CLOEXEC;
        if !follow {
            flags |= OFlags::NOFOLLOW;
        }
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT);
        }
        if let Some(own) = own_descriptor(path, thread).filter(|_| follow) {
            return self.descriptor(thread, own);
        }
        if path.is_absolute() {
            let root = self.of_thread(thread, "root")?;
            return match open_in_root(&root, path, flags, ResolveFlags::empty()) {
                // Kernels before 5.6: our root is the container's, so this is right unless the
                // process has changed its root.
                Err(Errno::NOSYS) => rustix::fs::open(path, flags, Mode::empty()),
                result => result,
            };
        }
        let base = if directory == AT_FDCWD {
            self.of_thread(thread, "cwd")?
        } else {
            self.descriptor(thread, directory)?
        };
        rustix::fs::openat(&base, path, flags, Mode::empty())
    }

    fn facts(file: OwnedFd) -> Result<Found, Errno> {
        let wanted = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::BTIME;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        match rustix::fs::statx(&file, "", flags, wanted) {
            Ok(facts) => {
                let has = facts.stx_mask & StatxFlags::BTIME.bits() != 0;
                let born = has.then_some(facts.stx_btime.tv_sec);
                Ok(Found { file, mode: u32::from(facts.stx_mode), born })
            }
            Err(Errno::NOSYS) => {
                let mode = rustix::fs::fstat(&file)?.st_mode;
                Ok(Found { file, mode, born: None })
            }
            Err(errno) => Err(errno),
        }
    }

    /// Opens a found regular file or directory so that its attributes can be used.
    fn reopen(&self, file: &OwnedFd) -> Result<OwnedFd, Errno> {
        let path = format!("self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.proc, path, flags, Mode::empty())
    }

    /// What is recorded of an open file: owner, kind, device.
    fn recorded(file: &OwnedFd) -> Option<Recorded> {
        let mut value = [0_u8; 96];
        let length = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut value[..]).ok()?;
        let mut parts = std::str::from_utf8(&value[..length]).ok()?.split(':');
        let owner = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let kind = parts.nth(1)?.chars().next()?;
        let device = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Recorded { owner, kind, device })
    }

    /// Records the owner of a file that has no attributes, by its path. Files of other mounts are
    /// the host's affair.
    fn record_by_path(&self, found: &Found, kind: char, owner: (u32, u32)) -> Result<(), Errno> {
        let Some((directory, name)) = &self.table else { return Ok(()) };
        let mount = |file: &OwnedFd| {
            rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)
                .map(|facts| facts.stx_mnt_id)
        };
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if mount(&found.file) != mount(&root) {
            return Ok(());
        }
        let link = format!("self/fd/{}", found.file.as_raw_fd());
        let path = rustix::fs::readlinkat(&self.proc, link, Vec::new())?;
        let path = path.as_bytes().strip_prefix(b"/").ok_or(Errno::NOENT)?;
        super::table::add(directory, name, path, (kind, found.mode), owner)
    }

    /// Records an owner, and what kind of file is meant.
    fn record(
        file: &OwnedFd,
        owner: (u32, u32),
        mode: u32,
        kind: char,
        device: (u32, u32),
    ) -> Result<(), Errno> {
        let mode = mode & 0o7777;
        let text = format!("{}:{}:{mode:o}:{kind}:{}:{}", owner.0, owner.1, device.0, device.1);
        match rustix::fs::fsetxattr(file, ATTRIBUTE, text.as_bytes(), XattrFlags::empty()) {
            // The file system has no attributes, or no room for one: the call succeeds, and the
            // owner is forgotten.
            Err(Errno::OPNOTSUPP | Errno::NOSPC | Errno::RANGE) => Ok(()),
            result => result,
        }
    }
}

/// What an attribute says.
struct Recorded {
    owner: (u32, u32),
    kind: char,
    device: (u32, u32),
}

/// `/proc/self/fd/N` and its like name a descriptor of the process that says so, not one of ours.
fn own_descriptor(path: &Path, thread: u32) -> Option<i32> {
    let text = path.to_str()?;
    let rest = ["/proc/self/", "/proc/thread-self/"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))
        .or_else(|| text.strip_prefix(&format!("/proc/{thread}/")))?;
    rest.strip_prefix("fd/")?.parse().ok()
}

fn path_of(thread: u32, address: u64) -> Result<PathBuf, Errno> {
    use std::os::unix::ffi::OsStringExt;
    let text = peer::read_string(thread, address, PATH_LIMIT)?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(text.into_bytes())))
}

/// Chowning a file.
impl Server {
    pub(super) fn chown_path(&mut self, call: &Waiting, follow: bool) -> Result<Answer, Errno> {
        let path = path_of(call.thread, call.arguments[0])?;
        let file = self.files.open(call.thread, AT_FDCWD, &path, follow)?;
        self.chown(call.thread, file, call.arguments[1] as u32, call.arguments[2] as u32)
    }

    pub(super) fn chown_descriptor(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        let file = self.files.descriptor(call.thread, call.arguments[0] as i32)?;
        self.chown(call.thread, file, call.arguments[1] as u32, call.arguments[2] as u32)
    }

    pub(super) fn chown_at(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        let [directory, address, uid, gid, flags, _] = call.arguments;
        let flags = AtFlags::from_bits_retain(flags as u32);
        let path = path_of(call.thread, address)?;
        let file = if path.as_os_str().is_empty() && flags.contains(AtFlags::EMPTY_PATH) {
            match directory as i32 {
                AT_FDCWD => self.files.of_thread(call.thread, "cwd")?,
                descriptor => self.files.descriptor(call.thread, descriptor)?,
            }
        } else {
            let follow = !flags.contains(AtFlags::SYMLINK_NOFOLLOW);
            self.files.open(call.thread, directory as i32, &path, follow)?
        };
        self.chown(call.thread, file, uid as u32, gid as u32)
    }

    fn chown(&mut self, thread: u32, file: OwnedFd, uid: u32, gid: u32) -> Result<Answer, Errno> {
        let found = Files::facts(file)?;
        let kind = match FileType::from_raw_mode(found.mode) {
            FileType::RegularFile => 'f',
            FileType::Directory => 'd',
            FileType::Symlink => return self.chown_by_path(thread, &found, 'l', (uid, gid)),
            FileType::Fifo => return self.chown_by_path(thread, &found, 'p', (uid, gid)),
            FileType::Socket => return self.chown_by_path(thread, &found, 's', (uid, gid)),
            // A device of the host.
            _ => return Ok(Answer::Value(0)),
        };
        let identity = self.identity(thread);
        let open = match self.files.reopen(&found.file) {
            Ok(open) => open,
            // A file of somebody else's, bound in from the host.
            Err(Errno::ACCESS) => return Err(Errno::PERM),
            Err(errno) => return Err(errno),
        };
        let known = Files::recorded(&open);
        let owner = known.as_ref().map_or((0, 0), |known| known.owner);
        if !identity.may_chown(owner, (uid, gid)) {
            return Err(Errno::PERM);
        }
        // Changes no id, but does what every `chown` does besides: the time of change, and the
        // setuid and setgid bits go.
        rustix::fs::chownat(&found.file, "", None, None, AtFlags::EMPTY_PATH)?;
        let new =
            (if uid == KEEP { owner.0 } else { uid }, if gid == KEEP { owner.1 } else { gid });
        // A new file belongs to root without a record; an old one may have another owner in its
        // image.
        let is_new = found.born.is_some_and(|born| born >= self.files.since);
        let nothing_to_say = known.is_none() && new == (0, 0) && is_new;
        if known.as_ref().map(|known| known.owner) != Some(new) && !nothing_to_say {
            let mode = rustix::fs::fstat(&open)?.st_mode;
            // A device that was made here stays one.
            let (kind, device) = known.map_or((kind, (0, 0)), |known| (known.kind, known.device));
            Files::record(&open, new, mode, kind, device)?;
        }
        Ok(Answer::Value(0))
    }

    fn chown_by_path(
        &mut self,
        thread: u32,
        found: &Found,
        kind: char,
        (uid, gid): (u32, u32),
    ) -> Result<Answer, Errno> {
        // Who owned it before is not looked up, so only root may.
        if !self.identity(thread).is_root() {
            return Err(Errno::PERM);
        }
        // The kernel's part, as below; it also brings the file into the upper directory.
        rustix::fs::chownat(&found.file, "", None, None, AtFlags::EMPTY_PATH)?;
        let is_new = found.born.is_some_and(|born| born >= self.files.since);
        let owner = (if uid == KEEP { 0 } else { uid }, if gid == KEEP { 0 } else { gid });
        if owner != (0, 0) || !is_new || self.files.added {
            self.files.added = true;
            let _ = self.files.record_by_path(found, kind, owner);
        }
        Ok(Answer::Value(0))
    }
}

/// Modes: the kernel changes them, and a record that names one follows.
impl Server {
    pub(super) fn chmod(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        let [address, mode, ..] = call.arguments;
        let path = path_of(call.thread, address)?;
        Ok(self.follow_mode(self.files.open(call.thread, AT_FDCWD, &path, true), mode as u32))
    }

    pub(super) fn chmod_descriptor(&self, call: &Waiting) -> Answer {
        let [descriptor, mode, ..] = call.arguments;
        let file = self.files.descriptor(call.thread, descriptor as i32);
        self.follow_mode(file, mode as u32)
    }

    pub(super) fn chmod_at(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        let [directory, address, mode, ..] = call.arguments;
        let path = path_of(call.thread, address)?;
        let file = self.files.open(call.thread, directory as i32, &path, true);
        Ok(self.follow_mode(file, mode as u32))
    }

    pub(super) fn chmod_at_with_flags(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        // The kernel looks at the flags before it reads the path.
        let known = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        if !known.contains(AtFlags::from_bits_retain(call.arguments[3] as u32)) {
            return Ok(Answer::Continue);
        }
        self.chmod_at(call)
    }

    /// Whatever cannot be followed (a wrong path, an empty one) is answered by the kernel.
    fn follow_mode(&self, file: Result<OwnedFd, Errno>, mode: u32) -> Answer {
        let change = || {
            let open = self.files.reopen(&file?)?;
            let mut value = [0_u8; 96];
            let length = rustix::fs::fgetxattr(&open, ATTRIBUTE, &mut value[..])?;
            let text = std::str::from_utf8(&value[..length]).map_err(|_| Errno::INVAL)?;
            let text = with_mode(text, mode).ok_or(Errno::INVAL)?;
            rustix::fs::fsetxattr(&open, ATTRIBUTE, text.as_bytes(), XattrFlags::empty())
        };
        let _: Result<(), Errno> = change();
        Answer::Continue
    }
}

/// A record with another mode.
fn with_mode(record: &str, mode: u32) -> Option<String> {
    let mut parts: Vec<&str> = record.split(':').collect();
    let mode = format!("{:o}", mode & 0o7777);
    *parts.get_mut(2)? = &mode;
    Some(parts.join(":"))
}

/// Device nodes.
impl Server {
    pub(super) fn mknod(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        let [address, mode, device, ..] = call.arguments;
        self.make_node(call.thread, AT_FDCWD, address, mode as u32, device)
    }

    pub(super) fn mknod_at(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        let [directory, address, mode, device, ..] = call.arguments;
        self.make_node(call.thread, directory as i32, address, mode as u32, device)
    }

    /// An empty file with a record stands for the device.
    fn make_node(
        &mut self,
        thread: u32,
        directory: i32,
        address: u64,
        mode: u32,
        device: u64,
    ) -> Result<Answer, Errno> {
        // Overlay's whiteout, which everybody may make.
        if device == 0 && FileType::from_raw_mode(mode) == FileType::CharacterDevice {
            return Ok(Answer::Continue);
        }
        if !self.identity(thread).is_root() {
            return Err(Errno::PERM);
        }
        let path = path_of(thread, address)?;
        let name = path.file_name().ok_or(Errno::EXIST)?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let parent = self.files.open(thread, directory, parent, true)?;
        let mode_bits = mode & 0o7777 & !self.umask(thread);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o600))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode_bits))?;
        let kind = if FileType::from_raw_mode(mode) == FileType::BlockDevice { 'b' } else { 'c' };
        let numbers = (rustix::fs::major(device), rustix::fs::minor(device));
        Files::record(&file, (0, 0), mode_bits, kind, numbers)?;
        Ok(Answer::Value(0))
    }

    fn umask(&self, thread: u32) -> u32 {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut text = [0_u8; 256];
        rustix::fs::openat(&self.files.proc, format!("{thread}/status"), flags, Mode::empty())
            .and_then(|file| rustix::io::read(&file, &mut text[..]))
            .ok()
            .and_then(|length| std::str::from_utf8(&text[..length]).ok()?.split_once("Umask:"))
            .and_then(|(_, rest)| u32::from_str_radix(rest.lines().next()?.trim(), 8).ok())
            .unwrap_or(0o022)
    }
}

/// Extended attributes that only root may set.
impl Server {
    pub(super) fn set_attribute_path(
        &mut self,
        call: &Waiting,
        follow: bool,
    ) -> Result<Answer, Errno> {
        let name = attribute_name(call)?;
        if !is_roots(&name) {
            return Ok(Answer::Continue);
        }
        let path = path_of(call.thread, call.arguments[0])?;
        let file = self.files.open(call.thread, AT_FDCWD, &path, follow)?;
        self.set_attribute(call, &file, &name)
    }

    pub(super) fn set_attribute_descriptor(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        let name = attribute_name(call)?;
        if !is_roots(&name) {
            return Ok(Answer::Continue);
        }
        let file = self.files.descriptor(call.thread, call.arguments[0] as i32)?;
        self.set_attribute(call, &file, &name)
    }

    /// Tries for real (file capabilities work in a user namespace), and succeeds whatever comes of
    /// it.
    fn set_attribute(
        &mut self,
        call: &Waiting,
        file: &OwnedFd,
        name: &CString,
    ) -> Result<Answer, Errno> {
        let [_, _, value, size, flags, _] = call.arguments;
        if size > VALUE_LIMIT {
            return Err(Errno::TOOBIG);
        }
        if !self.identity(call.thread).is_root() {
            return Err(Errno::PERM);
        }
        let mut bytes = vec![0; size as usize];
        if !bytes.is_empty() {
            peer::read_exact(call.thread, value, &mut bytes)?;
        }
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let done = self
            .files
            .reopen(file)
            .and_then(|open| rustix::fs::fsetxattr(&open, name.as_c_str(), &bytes, flags));
        match done {
            Err(errno @ (Errno::EXIST | Errno::NODATA | Errno::ROFS)) => Err(errno),
            _ => Ok(Answer::Value(0)),
        }
    }
}

fn attribute_name(call: &Waiting) -> Result<CString, Errno> {
    match peer::read_string(call.thread, call.arguments[1], NAME_LIMIT) {
        Err(Errno::NAMETOOLONG) => Err(Errno::RANGE),
        result => result,
    }
}

fn is_roots(name: &CString) -> bool {
    ["security.", "trusted.", "system.posix_acl_"]
        .iter()
        .any(|prefix| name.to_bytes().starts_with(prefix.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_follow_the_mode() {
        assert_eq!(with_mode("1:2:644:f:0:0", 0o104_755).unwrap(), "1:2:4755:f:0:0");
        assert_eq!(with_mode("1", 0), None);
    }

    #[test]
    fn descriptors_by_name_are_those_of_the_process() {
        let get = |text: &str| own_descriptor(Path::new(text), 77);
        assert_eq!(get("/proc/self/fd/5"), Some(5));
        assert_eq!(get("/proc/thread-self/fd/6"), Some(6));
        assert_eq!(get("/proc/77/fd/7"), Some(7));
        assert_eq!(get("/proc/78/fd/7"), None);
        assert_eq!(get("/proc/self/fdinfo/7"), None);
    }
}
