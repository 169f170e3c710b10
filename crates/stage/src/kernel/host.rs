//! [`view::Host`] for the guest's own process.
//!
//! Calls on files are [`hostfs::Files`] over [`Linux`]. What is here is the rest: what the file
//! says that the container's processes share, other processes, and calls that write into the
//! guest's memory.

use super::linux::{LINUX, Linux};
use super::{Backend, calls, processes};
use crate::{cwd, shared, system, tree};
use abi::shared::Switches;
use core::ffi::CStr;
use hostfs::Kernel;
use hostfs::at::{Process, from_root, start};
use hostfs::inode_log::IndexedLog;
use linux_raw_sys::general::{F_GETFL, F_GETSIG, F_SETSIG, O_PATH, statx};
use view::errno::Result;
use view::guest::{HOST_NAME_MAX, Purpose, Straight};
use view::identity::Truth;
use view::{Dir, Errno, Host, HostFd, Task, Text};

/// The container's log of records of inodes.
fn inode_log() -> IndexedLog<'static, Linux> {
    let index = shared::shared().notes();
    IndexedLog { kernel: &LINUX, path: shared::places().notes, index }
}

/// The image's inodes, as the shared file lists them.
struct SharedImage;

impl hostfs::copy_up::Image for SharedImage {
    fn has(&self, inode: u64) -> bool {
        shared::shared().image().links(inode).is_some()
    }

    fn will_replace(&mut self, inode: u64) {
        shared::shared().image().replace(inode);
    }
}

/// The question about a path in the table of plain directories, which tells apart starts, worlds
/// and kinds; the view's own questions are 0 and 1. `None` where the working directory is not
/// remembered.
#[inline]
fn straight_seed(path: &[u8], what: Straight) -> Option<u64> {
    const FROM_CWD: u64 = 4;
    let start = match path.first() {
        None | Some(b'/') => (u64::from(shared::world_number()) + 1) << 3,
        _ => cwd::digest()? << 3 | FROM_CWD,
    };
    Some(start | what as u64)
}

/// Makes a call that takes a directory and a path, without magic links.
#[inline]
fn by_descriptor(dir: Dir, path: &CStr, call: impl Fn(HostFd, &CStr) -> Result<()>) -> Result<()> {
    match start(dir, path)? {
        Dir::Root => from_root(&LINUX, path, call),
        dir => call(LINUX.descriptor(dir)?.unwrap_or(hostfs::CWD), path),
    }
}

impl Host for Backend<'_> {
    hostfs::delegate_files!(files);

    fn memory_file(&mut self, name: &CStr) -> Result<HostFd> {
        self.files.memory_file(name, shared::places().run)
    }

    fn inode_of(&mut self, dir: Dir, into: &mut statx) -> Result<()> {
        let descriptor = LINUX.descriptor(dir)?.ok_or(Errno::EBADF)?;
        let status = calls::fstat(descriptor.0)?;
        (into.stx_dev_major, into.stx_dev_minor) = hostfs::overlay::device(status.st_dev);
        into.stx_ino = status.st_ino;
        into.stx_mode = status.st_mode as u16;
        Ok(())
    }

    fn pause(&mut self, since: i64) -> bool {
        const PATIENCE: i64 = 2;
        let is_new = (0..=PATIENCE).contains(&(system::date() - since));
        if is_new {
            system::sleep();
        }
        is_new
    }

    fn truth_in_image(&mut self, facts: &statx) -> Option<Truth> {
        shared::world().image?.truth_of(facts)
    }

    fn is_in_image(&mut self, facts: &statx) -> bool {
        shared::world().image.is_some_and(|image| image.of_facts(facts).is_some())
    }

    fn real_path(&mut self, path: &CStr, purpose: Purpose, into: &mut Text) -> Result<bool> {
        hostfs::overlay::real_path(&LINUX, path, purpose, into)
    }

    fn to_place(&mut self, name: &mut Text) -> Result<()> {
        hostfs::overlay::to_place(&LINUX, name)
    }

    fn base_of(&mut self, path: &CStr) -> Option<u32> {
        hostfs::overlay::base_of(&LINUX, path)
    }

    fn await_move(&mut self) {
        hostfs::overlay::await_move(&LINUX);
    }

    fn seek(&mut self, dir: Dir, offset: u64, whence: u32) -> Result<u64> {
        LINUX.lseek(LINUX.descriptor(dir)?.ok_or(Errno::EBADF)?, offset, whence)
    }

    fn getdents(&mut self, dir: Dir, into: &mut [u8]) -> Result<usize> {
        LINUX.getdents(LINUX.descriptor(dir)?.ok_or(Errno::EBADF)?, into)
    }

    fn image_links(&mut self, inode: u64) -> Option<u32> {
        match shared::world().image {
            Some(image) => image.links(inode),
            None => shared::shared().image().links(inode),
        }
    }

    fn was_replaced(&mut self, inode: u64) -> bool {
        shared::shared().image().is_replaced(inode)
    }

    fn is_image_device(&self, major: u32, minor: u32) -> bool {
        shared::tree_device() == Some((major, minor))
    }

    fn label_refusal(&mut self) -> Option<Errno> {
        shared::label_refusal()
    }

    fn copy_up(&mut self, path: &CStr) -> Result<()> {
        let note = |key: &[u8], record: &[u8]| inode_log().set(key, Some(record));
        if let Some(result) = hostfs::overlay::copy_up(&LINUX, path, note) {
            return result;
        }
        hostfs::copy_up(&LINUX, shared::places().copy_dir, path, &mut SharedImage)
    }

    fn note(&mut self, key: &[u8], into: &mut [u8]) -> Option<usize> {
        inode_log().get(key, into)
    }

    fn has_notes(&mut self) -> bool {
        !shared::shared().notes().is_empty()
    }

    fn set_note(&mut self, key: &[u8], record: Option<&[u8]>) -> Result<()> {
        inode_log().set(key, record)
    }

    fn host_name(&mut self, into: &mut [u8; HOST_NAME_MAX]) -> Option<usize> {
        if !shared::shared().is_renamed() {
            return None;
        }
        hostfs::host_name::now(&LINUX, shared::places().run, into)
    }

    fn set_host_name(&mut self, name: &[u8]) -> Result<()> {
        shared::shared().set_renamed();
        hostfs::host_name::set(&LINUX, shared::places().run, name)
    }

    fn host_name_file(&mut self) -> Result<HostFd> {
        shared::shared().set_renamed();
        hostfs::host_name::file(&LINUX, shared::places().run)
    }

    fn only_names(&mut self, descriptor: i32) -> Result<bool> {
        calls::fcntl(descriptor, F_GETFL, 0).map(|flags| flags & u64::from(O_PATH) != 0)
    }

    fn is_executed(&mut self, device: (u32, u32), inode: u64) -> bool {
        processes::is_executed(device, inode)
    }

    fn is_written(&mut self, file: HostFd) -> bool {
        processes::is_written(file.0)
    }

    fn opens_by_path(&self) -> bool {
        false
    }

    fn entered(&mut self, descriptor: i32) -> Option<usize> {
        let mark = calls::fcntl(descriptor, F_GETSIG, 0).ok()?;
        usize::try_from(mark).ok()?.checked_sub(1)
    }

    fn set_entered(&mut self, descriptor: i32, binding: usize) {
        let _ = calls::fcntl(descriptor, F_SETSIG, binding as u64 + 1);
    }

    fn pid(&self) -> u32 {
        calls::getpid()
    }

    fn tid(&self) -> u32 {
        calls::gettid()
    }

    fn program_of(&mut self, pid: u32, into: &mut Text) -> bool {
        processes::program_of(pid, into)
    }

    fn with_task(&mut self, tid: u32, look: &mut dyn FnMut(&Task)) -> bool {
        processes::with_task(tid, look)
    }

    fn alias(&mut self, directory: HostFd, most: usize, into: &mut Text) -> Result<()> {
        self.alias_of(directory.0, most, into)
    }

    fn lend(&mut self, file: HostFd, into: &mut Text) -> Result<()> {
        self.lend_to_call(file.0, into)
    }

    fn signal_all(&mut self, signal: u32) -> Result<()> {
        processes::signal_all(signal)
    }

    fn is_plain(&mut self, dir: &[u8], everybody: bool) -> bool {
        shared::shared().plain().is(dir, everybody.into())
    }

    fn plain_generation(&mut self) -> Option<u64> {
        Some(shared::shared().plain().generation())
    }

    fn set_plain(&mut self, dir: &[u8], everybody: bool, generation: u64) {
        shared::shared().plain().set(dir, everybody.into(), generation);
    }

    fn is_straight(&mut self, path: &[u8], what: Straight) -> bool {
        straight_seed(path, what).is_some_and(|seed| shared::shared().plain().is(path, seed))
    }

    fn set_straight(&mut self, path: &[u8], what: Straight, generation: u64) {
        if let Some(seed) = straight_seed(path, what) {
            shared::shared().plain().set(path, seed, generation);
        }
    }

    fn changed(&mut self) {
        shared::shared().plain().changed();
    }

    fn stat_into(
        &mut self,
        dir: Dir,
        path: &CStr,
        flags: u32,
        mask: Option<u32>,
        into: u64,
    ) -> Option<Result<()>> {
        if shared::world().image.is_some() && !path.is_empty() && dir == Dir::Root {
            return None;
        }
        if let Some(mask) = mask {
            if shared::switches().has(Switches::NO_STATX) {
                return None;
            }
            let call = |dir, path: &CStr| calls::statx_into(dir, path, flags, mask, into);
            return Some(by_descriptor(dir, path, call))
                .filter(|result| *result != Err(Errno::ENOSYS) && *result != Err(Errno::EPERM));
        }
        if path.is_empty() {
            return Some(match start(dir, path) {
                Err(errno) => Err(errno),
                Ok(Dir::Held(HostFd(fd)) | Dir::Guest(fd)) => calls::fstat_into(fd, into),
                Ok(Dir::Root | Dir::Cwd) => calls::fstat_into(calls::CWD, into),
            });
        }
        let call = |dir, path: &CStr| calls::newfstatat_into(dir, path, flags, into);
        Some(by_descriptor(dir, path, call))
    }

    fn tree_descriptor(&mut self) -> Option<i32> {
        tree::Held::Tree.descriptor()
    }

    fn upper_descriptor(&mut self) -> Option<i32> {
        tree::Held::Upper.descriptor()
    }

    fn remembered_cwd(&mut self, into: &mut Text) -> bool {
        cwd::name(into)
    }
}
