//! [`view::Host`] for a process that makes calls for guests: the tracer, and the first process of
//! the in-process engine.
//!
//! Calls on files are [`hostfs::Files`] over [`HostKernel`]. What is here is the rest: the
//! container's lists and logs, and files that are kept open for the guests' own calls.

use super::common::Perhaps;
use super::image_inodes::ImageInodes;
use super::inode_log::InodeLog;
use super::kernel::{HostKernel, errno};
use super::layers::Mapped;
use hostfs::at::MagicLink;
use hostfs::copy_up::Image;
use hostfs::files::is_openat2_refused;
use hostfs::{CWD, Feature, Files, Kernel};
use linux_raw_sys::general::{AT_SYMLINK_NOFOLLOW, statx};
use rustix::fs::OFlags;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use view::errno::Result;
use view::guest::{HOST_NAME_MAX, Purpose};
use view::identity::Truth;
use view::{Dir, Errno, Host, HostFd, Text};

/// What belongs to one container.
#[derive(Debug)]
pub struct Parts {
    /// The inodes of the tree that are the image's.
    pub images: ImageInodes,
    /// Records of inodes without attributes.
    pub inode_log: InodeLog,
    /// A directory on the file system of the tree, where copies and temporary files are made.
    pub run: PathBuf,
    /// The layers of the tree, if it has two.
    pub layers: Option<Rc<Mapped>>,
}

/// How many files are lent to guests' calls at most; one call may need 64 (`sendmmsg`).
const LENT_MAX: usize = 256;

/// Calls on the host's files for the guests of one container.
#[derive(Debug)]
pub struct HostCalls {
    files: Files<HostKernel>,
    parts: Parts,
    /// The file that is shared with processes that have the backend inside.
    common: Perhaps,
    /// Directories that stay open as long as the container runs, by device and inode.
    aliases: HashMap<(u64, u64), HostFd>,
    /// Files that guests' calls name, the last at the end. No event tells when such a call ends.
    lent: VecDeque<HostFd>,
    /// Inodes of the image whose name a copy has taken.
    replaced: HashSet<u64>,
}

impl HostCalls {
    /// For a container. Asks the kernel whether it has `openat2`.
    pub fn new(mut parts: Parts) -> Self {
        parts.inode_log = parts.inode_log.indexed(Perhaps::in_directory(&parts.run));
        let mut process = HostKernel::default();
        process.set_layers(parts.layers.clone());
        if is_openat2_refused(&process) {
            process.set_lacking(Feature::Openat2);
        }
        Self {
            files: Files { process },
            common: Perhaps::in_directory(&parts.run),
            parts,
            aliases: HashMap::new(),
            lent: VecDeque::new(),
            replaced: HashSet::new(),
        }
    }

    /// The image beneath the container's own changes, if the tree has two layers.
    pub fn image(&self) -> Option<view::image::Image<'_>> {
        self.parts.layers.as_ref()?.image()
    }

    fn kernel(&self) -> &HostKernel {
        &self.files.process
    }

    /// Holds the root of the container's tree open, because most paths begin with it: its own path
    /// is not walked each time.
    pub fn rooted_at(&mut self, root: &[u8]) {
        self.files.process.set_tree(root);
    }

    /// The calls are for this thread from now on.
    pub fn serve(&mut self, thread: u32) {
        self.kernel().serve(thread);
    }

    /// A copy is about to take the place of this file (an absolute path), made by another process
    /// for this one.
    pub fn will_copy(&mut self, path: &CStr) {
        let status = self.kernel().fstatat(CWD, path, AT_SYMLINK_NOFOLLOW);
        if let Ok(status) = status {
            let Self { parts, common, replaced, .. } = self;
            SharedImage { list: &parts.images, replaced, common }.will_replace(status.st_ino);
        }
    }

    /// A guest is about to set the host name.
    fn will_rename(&mut self) {
        if let Some(common) = self.common.get() {
            common.shared().set_renamed();
        }
    }

    /// Lets a program that this process executes inherit a held file.
    pub fn hand_on(&self, fd: HostFd) -> Result<()> {
        let none = rustix::io::FdFlags::empty();
        self.kernel().with(fd, |file| rustix::io::fcntl_setfd(file, none))
    }
}

/// The image's inodes, and where it is noted that one has lost a name.
struct SharedImage<'a> {
    list: &'a ImageInodes,
    replaced: &'a mut HashSet<u64>,
    common: &'a mut Perhaps,
}

impl Image for SharedImage<'_> {
    fn has(&self, inode: u64) -> bool {
        self.list.links(inode).is_some()
    }

    fn will_replace(&mut self, inode: u64) {
        self.replaced.insert(inode);
        if let Some(common) = self.common.get() {
            common.shared().image().replace(inode);
        }
    }
}

impl Host for HostCalls {
    hostfs::delegate_files!(files);

    fn memory_file(&mut self, name: &CStr) -> Result<HostFd> {
        self.files.memory_file(name, self.parts.run.as_os_str().as_bytes())
    }

    fn truth_in_image(&mut self, facts: &statx) -> Option<Truth> {
        self.image()?.truth_of(facts)
    }

    fn is_in_image(&mut self, facts: &statx) -> bool {
        self.image().is_some_and(|image| image.of_facts(facts).is_some())
    }

    fn real_path(&mut self, path: &CStr, purpose: Purpose, into: &mut Text) -> Result<bool> {
        hostfs::overlay::real_path(self.kernel(), path, purpose, into)
    }

    fn to_place(&mut self, name: &mut Text) -> Result<()> {
        hostfs::overlay::to_place(self.kernel(), name)
    }

    fn base_of(&mut self, path: &CStr) -> Option<u32> {
        hostfs::overlay::base_of(self.kernel(), path)
    }

    fn await_move(&mut self) {
        hostfs::overlay::await_move(self.kernel());
    }

    fn seek(&mut self, dir: Dir, offset: u64, whence: u32) -> Result<u64> {
        let Dir::Held(file) = dir else { return Err(Errno::EBADF) };
        self.kernel().lseek(file, offset, whence)
    }

    fn getdents(&mut self, dir: Dir, into: &mut [u8]) -> Result<usize> {
        let Dir::Held(file) = dir else { return Err(Errno::EBADF) };
        self.kernel().getdents(file, into)
    }

    fn image_links(&mut self, inode: u64) -> Option<u32> {
        match self.image() {
            Some(image) => image.links(inode),
            None => self.parts.images.links(inode),
        }
    }

    fn is_image_device(&self, major: u32, minor: u32) -> bool {
        self.kernel().tree_device() == Some((major, minor))
    }

    fn was_replaced(&mut self, inode: u64) -> bool {
        self.replaced.contains(&inode)
            || self.common.mapped().is_some_and(|common| common.shared().image().is_replaced(inode))
    }

    fn copy_up(&mut self, path: &CStr) -> Result<()> {
        let (kernel, log) = (&self.files.process, &mut self.parts.inode_log);
        let note = |key: &[u8], record: &[u8]| log.set(key, Some(record));
        if let Some(result) = hostfs::overlay::copy_up(kernel, path, note) {
            return result;
        }
        let Self { files, parts, common, replaced, .. } = self;
        let directory = parts.run.as_os_str().as_bytes();
        let mut image = SharedImage { list: &parts.images, replaced, common };
        hostfs::copy_up(&files.process, directory, path, &mut image)
    }

    fn note(&mut self, key: &[u8], into: &mut [u8]) -> Option<usize> {
        let record = self.parts.inode_log.get(key)?;
        into.get_mut(..record.len())?.copy_from_slice(record);
        Some(record.len())
    }

    fn set_note(&mut self, key: &[u8], record: Option<&[u8]>) -> Result<()> {
        self.parts.inode_log.set(key, record)
    }

    fn host_name(&mut self, into: &mut [u8; HOST_NAME_MAX]) -> Option<usize> {
        // It stays while this process lives, once it is there. Without it, nothing tells.
        if self.common.mapped().is_none() {
            self.common.get();
        }
        let may_differ = self.common.mapped().is_none_or(|common| common.shared().is_renamed());
        let run = self.parts.run.as_os_str().as_bytes();
        if may_differ { hostfs::host_name::now(&self.files.process, run, into) } else { None }
    }

    fn set_host_name(&mut self, name: &[u8]) -> Result<()> {
        self.will_rename();
        hostfs::host_name::set(self.kernel(), self.parts.run.as_os_str().as_bytes(), name)
    }

    fn host_name_file(&mut self) -> Result<HostFd> {
        self.will_rename();
        hostfs::host_name::file(self.kernel(), self.parts.run.as_os_str().as_bytes())
    }

    fn only_names(&mut self, descriptor: i32) -> Result<bool> {
        let link = MagicLink::of(self.kernel(), Dir::Guest(descriptor));
        let status = match self.kernel().fstatat(CWD, link.as_c_str(), AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => return Err(Errno::EBADF),
            result => result?,
        };
        // The link's mode says whether the file may be read and written by it.
        if status.st_mode & 0o700 != 0 {
            return Ok(false);
        }
        // Neither by `O_PATH` nor by access mode 3, which is for `ioctl` alone.
        let path = format!("/proc/{}/fdinfo/{descriptor}", self.kernel().thread());
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        Ok(flags.is_none_or(|flags| flags & OFlags::PATH.bits() != 0))
    }

    /// The tracer knows what its processes execute; this does not.
    fn is_executed(&mut self, _device: (u32, u32), _inode: u64) -> bool {
        false
    }

    fn is_written(&mut self, file: HostFd) -> bool {
        let asked = self.kernel().with(file, |file| Ok(sys::fs::calls::is_open_for_writing(file)));
        asked.unwrap_or(false)
    }

    fn pid(&self) -> u32 {
        self.kernel().thread()
    }

    fn tid(&self) -> u32 {
        self.kernel().thread()
    }

    /// Processes with the backend inside remember what they know of directories; this looks each
    /// time.
    fn changed(&mut self) {
        if let Some(common) = self.common.get() {
            common.shared().plain().changed();
        }
    }

    /// The tracer knows its processes; this does not.
    fn program_of(&mut self, _pid: u32, _into: &mut Text) -> bool {
        false
    }

    fn alias(&mut self, directory: HostFd, _most: usize, into: &mut Text) -> Result<()> {
        let Some(file) = self.kernel().take(directory) else { return Err(Errno::EBADF) };
        let stat = rustix::fs::fstat(&file).map_err(errno)?;
        let kernel = &self.files.process;
        let kept =
            *self.aliases.entry((stat.st_dev, stat.st_ino)).or_insert_with(|| kernel.hold(file));
        magic_link(kept, into)
    }

    fn lend(&mut self, file: HostFd, into: &mut Text) -> Result<()> {
        if self.lent.len() == LENT_MAX
            && let Some(oldest) = self.lent.pop_front()
        {
            self.close(oldest);
        }
        self.lent.push_back(file);
        magic_link(file, into)
    }
}

/// The path by which guests reach a file of this process.
fn magic_link(file: HostFd, into: &mut Text) -> Result<()> {
    into.set(format!("/proc/{}/fd/{}", std::process::id(), file.0).as_bytes())
}

#[cfg(test)]
mod tests;
