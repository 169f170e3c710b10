//! Forwards the methods of [`view::Host`] to another implementation: [`DynBackend`], by which all
//! backends of this crate share one compiled copy of the view, and the macros that it is made of.

use abi::network::Protocol;
use std::net::{SocketAddr, SocketAddrV4};
use view::HostFd;
use view::Task;
use view::errno::Result;
use view::guest::{Backend, Dir, Guest, Host, SocketKind, SocketOption, Sockets};
use view::text::Text;

/// Inside an `impl Host`: forwards all methods to the field `host` that do not depend on who is
/// asking. Not forwarded: `pid`, `tid`, `program_of`, `with_task`, `is_executed`, `signal_all`,
/// `entered`, `set_entered`, `seek`, `getdents`.
macro_rules! delegate_to_host {
    () => {
        hostfs::delegate_files!(host);

        hostfs::delegate_calls! { host:
            fn memory_file(name: &std::ffi::CStr) -> view::errno::Result<view::HostFd>;
            fn image_links(inode: u64) -> Option<u32>;
            fn was_replaced(inode: u64) -> bool;
            fn copy_up(path: &std::ffi::CStr) -> view::errno::Result<()>;
            fn note(key: &[u8], into: &mut [u8]) -> Option<usize>;
            fn set_note(key: &[u8], record: Option<&[u8]>) -> view::errno::Result<()>;
            fn host_name(into: &mut [u8; view::guest::HOST_NAME_MAX]) -> Option<usize>;
            fn set_host_name(name: &[u8]) -> view::errno::Result<()>;
            fn host_name_file() -> view::errno::Result<view::HostFd>;
            fn only_names(descriptor: i32) -> view::errno::Result<bool>;
            fn is_written(file: view::HostFd) -> bool;
            fn alias(
                directory: view::HostFd, most: usize, into: &mut view::Text
            ) -> view::errno::Result<()>;
            fn lend(file: view::HostFd, into: &mut view::Text) -> view::errno::Result<()>;
            fn changed();
            fn truth_in_image(
                facts: &linux_raw_sys::general::statx
            ) -> Option<view::identity::Truth>;
            fn is_in_image(facts: &linux_raw_sys::general::statx) -> bool;
            fn real_path(
                path: &std::ffi::CStr, purpose: view::guest::Purpose, into: &mut view::Text
            ) -> view::errno::Result<bool>;
            fn to_place(name: &mut view::Text) -> view::errno::Result<()>;
            fn base_of(path: &std::ffi::CStr) -> Option<u32>;
            fn await_move();
        }

        fn is_image_device(&self, major: u32, minor: u32) -> bool {
            self.host.is_image_device(major, minor)
        }
    };
}

/// A backend behind a pointer. The view is compiled for this type alone, which spares the binary a
/// second copy of all rules.
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

    fn entered(&mut self, descriptor: i32) -> Option<usize> {
        self.host.entered(descriptor)
    }

    fn set_entered(&mut self, descriptor: i32, binding: usize) {
        self.host.set_entered(descriptor, binding);
    }

    fn seek(&mut self, dir: Dir, offset: u64, whence: u32) -> Result<u64> {
        self.host.seek(dir, offset, whence)
    }

    fn getdents(&mut self, dir: Dir, into: &mut [u8]) -> Result<usize> {
        self.host.getdents(dir, into)
    }

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

impl Sockets for DynBackend<'_> {
    hostfs::delegate_calls! { host:
        fn hold_socket(descriptor: i32) -> Result<HostFd>;
        fn release_socket(socket: HostFd);
        fn socket_kind(socket: HostFd) -> Result<SocketKind>;
        fn bind_socket(socket: HostFd, address: SocketAddr) -> Result<()>;
        fn socket_name(socket: HostFd, peer: bool) -> Result<SocketAddr>;
        fn socket_cookie(socket: HostFd) -> Result<u64>;
        fn socket_option(socket: HostFd, option: SocketOption) -> Result<bool>;
        fn set_socket_option(socket: HostFd, option: SocketOption, on: bool) -> Result<()>;
        fn twin_socket(socket: HostFd, reuse: bool) -> Result<HostFd>;
        fn close_twin(twin: HostFd);
        fn ask_sockets(request: &[u8], answer: &mut [u8]) -> Result<usize>;
        fn ask_agent(agent: SocketAddrV4, question: &[u8], answer: &mut [u8]) -> Result<usize>;
        fn ask_routes(request: &[u8], answer: &mut [u8]) -> Result<usize>;
        fn is_for_routes(socket: HostFd) -> bool;
        fn socket_protocol(socket: HostFd) -> Result<Option<Protocol>>;
        fn ticks() -> u64;
    }
}

pub(in crate::engines) use delegate_to_host;
