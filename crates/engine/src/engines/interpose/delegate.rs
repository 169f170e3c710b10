//! The calls that a backend of the std side leaves to [`HostCalls`](super::host::HostCalls), written once; and [`DynBackend`], by which all of them
//! share one copy of the view's code.

use view::Task;
use view::errno::Result;
use view::guest::{Backend, Guest, Host};
use view::text::Text;

/// Inside an `impl Host`: all calls that only pass on to the field `host`. What depends on who is asking stays with the caller:
/// `pid`, `tid`, `program_of`, `with_task`, `is_executed`, `signal_all`.
macro_rules! delegate_to_host {
    () => {
        crate::engines::interpose::delegate::delegate! {
                fn open(&mut self, dir: view::Dir, path: &std::ffi::CStr, flags: u32, mode: u32, resolve: u64)
                    -> view::errno::Result<view::HostFd>;
                fn close(&mut self, fd: view::HostFd);
                fn statx(&mut self, dir: view::Dir, path: &std::ffi::CStr, flags: u32, into: &mut linux_raw_sys::general::statx)
                    -> view::errno::Result<()>;
                fn readlink(&mut self, dir: view::Dir, path: &std::ffi::CStr, into: &mut view::Text) -> view::errno::Result<()>;
                fn path_of(&mut self, dir: view::Dir, into: &mut view::Text) -> view::errno::Result<()>;
                fn access(&mut self, dir: view::Dir, path: &std::ffi::CStr, mode: u32, flags: u32) -> view::errno::Result<()>;
                fn mkdir(&mut self, dir: view::Dir, path: &std::ffi::CStr, mode: u32) -> view::errno::Result<()>;
                fn mknod(&mut self, dir: view::Dir, path: &std::ffi::CStr, mode: u32) -> view::errno::Result<()>;
                fn unlink(&mut self, dir: view::Dir, path: &std::ffi::CStr, flags: u32) -> view::errno::Result<()>;
                fn rename(&mut self, from: (view::Dir, &std::ffi::CStr), to: (view::Dir, &std::ffi::CStr), flags: u32) -> view::errno::Result<()>;
                fn link(&mut self, from: (view::Dir, &std::ffi::CStr), to: (view::Dir, &std::ffi::CStr), flags: u32) -> view::errno::Result<()>;
                fn symlink(&mut self, target: &std::ffi::CStr, dir: view::Dir, path: &std::ffi::CStr) -> view::errno::Result<()>;
                fn chmod(&mut self, dir: view::Dir, path: &std::ffi::CStr, mode: u32) -> view::errno::Result<()>;
                fn chown(&mut self, dir: view::Dir, path: &std::ffi::CStr, uid: u32, gid: u32, flags: u32)
                    -> view::errno::Result<()>;
                fn utimens(&mut self, dir: view::Dir, path: &std::ffi::CStr,
                    times: Option<&[linux_raw_sys::general::timespec; 2]>, flags: u32) -> view::errno::Result<()>;
                fn truncate(&mut self, dir: view::Dir, path: &std::ffi::CStr, length: u64) -> view::errno::Result<()>;
                fn statfs(&mut self, dir: view::Dir, path: &std::ffi::CStr, into: &mut linux_raw_sys::general::statfs64)
                    -> view::errno::Result<()>;
                fn getxattr(&mut self, dir: view::Dir, path: &std::ffi::CStr, nofollow: bool, name: &std::ffi::CStr, into: &mut [u8])
                    -> view::errno::Result<usize>;
                fn setxattr(&mut self, dir: view::Dir, path: &std::ffi::CStr, nofollow: bool, name: &std::ffi::CStr, value: &[u8],
                    flags: u32) -> view::errno::Result<()>;
                fn listxattr(&mut self, dir: view::Dir, path: &std::ffi::CStr, nofollow: bool, into: &mut [u8])
                    -> view::errno::Result<usize>;
                fn removexattr(&mut self, dir: view::Dir, path: &std::ffi::CStr, nofollow: bool, name: &std::ffi::CStr)
                    -> view::errno::Result<()>;
                fn pread(&mut self, fd: view::HostFd, into: &mut [u8], offset: u64) -> view::errno::Result<usize>;
                fn write_all(&mut self, fd: view::HostFd, from: &[u8]) -> view::errno::Result<()>;
                fn memory_file(&mut self, name: &std::ffi::CStr) -> view::errno::Result<view::HostFd>;
                fn image_links(&mut self, inode: u64) -> Option<u32>;
                fn was_replaced(&mut self, inode: u64) -> bool;
                fn copy_up(&mut self, path: &std::ffi::CStr) -> view::errno::Result<()>;
                fn note(&mut self, key: &[u8], into: &mut [u8]) -> Option<usize>;
                fn set_note(&mut self, key: &[u8], record: Option<&[u8]>) -> view::errno::Result<()>;
                fn only_names(&mut self, descriptor: i32) -> view::errno::Result<bool>;
                fn is_written(&mut self, file: view::HostFd) -> bool;
                fn alias(&mut self, directory: view::HostFd, most: usize, into: &mut view::Text) -> view::errno::Result<()>;
                fn lend(&mut self, file: view::HostFd, into: &mut view::Text) -> view::errno::Result<()>;
                fn changed(&mut self);
        }

        fn has_openat2(&self) -> bool {
            self.host.has_openat2()
        }

        fn is_image_device(&self, major: u32, minor: u32) -> bool {
            self.host.is_image_device(major, minor)
        }
    };
}

/// Calls of one list.
macro_rules! delegate {
    ($(fn $name:ident(&mut self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
        $(fn $name(&mut self $(, $argument: $type)*) $(-> $result)? {
            self.host.$name($($argument),*)
        })*
    };
}

/// Somebody's backend, whoever's they are: the view is compiled for this type alone, which spares the binary a second copy of all rules.
pub(in crate::engines) struct DynBackend<'a> {
    host: &'a mut dyn Backend,
}

impl<'a> DynBackend<'a> {
    pub(in crate::engines) fn new(backend: &'a mut dyn Backend) -> Self {
        Self { host: backend }
    }
}

impl Guest for DynBackend<'_> {
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<()> {
        self.host.read(at, into)
    }

    fn read_some(&mut self, at: u64, into: &mut [u8]) -> Result<usize> {
        self.host.read_some(at, into)
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<()> {
        self.host.write(at, from)
    }

    fn scratch(&mut self, bytes: &[u8], align: usize) -> Result<u64> {
        self.host.scratch(bytes, align)
    }

    fn scratch_room(&mut self, length: usize, align: usize) -> Result<u64> {
        self.host.scratch_room(length, align)
    }

    fn read_text(&mut self, at: u64, into: &mut Text) -> Result<()> {
        self.host.read_text(at, into)
    }
}

impl Host for DynBackend<'_> {
    delegate_to_host!();

    fn pid(&self) -> u32 {
        self.host.pid()
    }

    fn tid(&self) -> u32 {
        self.host.tid()
    }

    fn program_of(&mut self, pid: u32, into: &mut Text) -> bool {
        self.host.program_of(pid, into)
    }

    fn with_task(&mut self, tid: u32, look: &mut dyn FnMut(&Task)) -> bool {
        self.host.with_task(tid, look)
    }

    fn is_executed(&mut self, device: (u32, u32), inode: u64) -> bool {
        self.host.is_executed(device, inode)
    }

    fn signal_all(&mut self, signal: u32) -> Result<()> {
        self.host.signal_all(signal)
    }
}

pub(in crate::engines) use {delegate, delegate_to_host};
