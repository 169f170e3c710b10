//! A caught system call ([`Call`]), and the decision on what the backend does with it
//! ([`Verdict`]).

use crate::guest::HostFd;
use crate::world::Kind;

/// A caught call. Its number is the kernel's for the calling architecture; [`abi::calls`] maps it
/// to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// `AUDIT_ARCH_*` of the call (a 64-bit process can make 32-bit calls).
    pub arch: u32,
    /// Number.
    pub number: u32,
    /// Arguments, zero-extended for 32-bit calls.
    pub arguments: [u64; 6],
}

/// What the backend does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel executes the call unchanged. The backend does not look at the result.
    Pass,
    /// The kernel executes the call unchanged; then the backend calls [`crate::calls::leave`] with
    /// this.
    Watch(After),
    /// The kernel does not execute the call; the guest gets this result (a value, or a negative
    /// error number).
    Done(i64),
    /// The kernel executes this call instead, in the guest's process. Afterwards the backend
    /// restores the guest's argument registers, and calls `leave` with the result unless this is
    /// [`After::Nothing`].
    Instead(Call, After),
    /// The guest gets a descriptor of this host file, opened again with these flags (`O_CLOEXEC`,
    /// access mode); the backend closes its own descriptor.
    Give(HostFd, u32),
    /// The file at `buffers.host` belongs to the image. The backend copies it up
    /// ([`crate::guest::Host::copy_up`]), which may take long and may happen in another thread,
    /// then decides the same call again.
    CopyUp,
    /// An `execve` that is allowed: [`crate::exec`] has left the plan in the buffers. The backend
    /// executes its loader.
    Exec,
}

/// What `enter` passes on to `leave`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Nothing to do.
    Nothing,
    /// Close this host descriptor, which was open only for the duration of the call.
    Close(HostFd),
    /// A file was made for `open`: remove it if it was not opened.
    Made,
    /// `open` may have made a new file without a name: record its owner.
    Created {
        /// Its group: the caller's, or that of a directory which passes its own on.
        gid: u32,
        /// What kind of files the binding holds.
        kind: Kind,
        /// Bits of the mode that the file must not keep.
        clear: u32,
    },
    /// The same in a directory with a default list: record its owner, mode and lists.
    Inherited {
        /// The directory. It is closed.
        directory: HostFd,
        /// The mode that was asked for.
        mode: u32,
        /// What kind of files the binding holds.
        kind: Kind,
    },
    /// A file of this binding was opened: note the binding if it is a directory
    /// ([`crate::guest::Host::set_entered`]).
    Entered(usize),
    /// A file whose mode on the host forbids this access was opened: restore this mode, and close.
    Restore(HostFd, u32),
    /// Directory entries were read into the guest's memory, behind the space for bindings that have
    /// no mount point.
    Listing {
        /// Number of bytes left free at the beginning of the guest's buffer.
        room: u32,
    },
    /// A socket address was written: replace it by the guest's name (`address` and `length` point
    /// into the guest's memory).
    Address {
        /// `struct sockaddr *`.
        address: u64,
        /// `socklen_t *`.
        length: u64,
        /// Size of the guest's buffer before the call.
        room: u32,
    },
    /// `recvmsg` filled in a message header.
    Message {
        /// `struct msghdr *`.
        header: u64,
        /// Size of the guest's name buffer before the call.
        room: u32,
    },
    /// The kernel wrote a path into the guest's memory: translate it.
    Path {
        /// Address of the buffer.
        buffer: u64,
        /// Its size.
        room: u64,
    },
    /// A socket address was written to `scratch`, with its length 128 bytes behind it, because the
    /// guest's buffer might be too small for the host's name.
    AddressFrom {
        /// Address of the memory that the kernel wrote to.
        scratch: u64,
        /// `struct sockaddr *` of the guest.
        address: u64,
        /// `socklen_t *` of the guest.
        length: u64,
        /// Size of the guest's buffer before the call.
        room: u32,
    },
    /// `recvmsg` or `recvmmsg` filled in `count` message headers at `scratch`; each has its own
    /// name buffer behind them.
    Messages {
        /// Copies of the guest's headers.
        scratch: u64,
        /// Number of headers.
        count: u32,
    },
    /// `sendmmsg` sent from copies at `scratch`: copy the lengths to the guest's headers.
    Sent {
        /// Copies of the guest's headers.
        scratch: u64,
        /// Number of headers.
        count: u32,
    },
    /// `getsockopt` returned the ids or groups of a peer: translate them.
    Peer,
    /// `bind` made a socket in the file system: record its owner.
    Bound,
    /// The kernel told about itself: put the container's host name into it.
    HostName,
    /// The kernel may have shown addresses of the host's interfaces: put the container's in their
    /// place.
    Interfaces {
        /// Size of the guest's buffer before an `ioctl`.
        room: u32,
    },
    /// The kernel showed the owners of an object of System V: translate them.
    Owners {
        /// `struct ipc64_perm` in the guest's memory.
        buffer: u64,
    },
    /// The guest installed a seccomp filter: count it.
    Filter,
    /// A file was opened for reading by a name that the view did not look at before, and without
    /// following a link: see [`crate::calls::again`]. This happens only in backends that remember
    /// directories ([`crate::guest::Host::plain_generation`]).
    Unseen {
        /// The generation of the directory cache before the call.
        generation: u64,
        /// The path is a single name in a directory of the guest of which nothing is known.
        /// Otherwise its host path is in `buffers.found`.
        alone: bool,
        /// The call opens directories only.
        directory: bool,
        /// As for [`After::FromTree`].
        moves: Option<u64>,
    },
    /// The call starts from the tree's own descriptor ([`crate::guest::Host::tree_descriptor`]),
    /// which the guest may have closed: see [`crate::calls::again`].
    FromTree {
        /// The counter of moved directories before the call was decided: it may be made by the name
        /// that one had. `None` if none had been moved.
        moves: Option<u64>,
    },
    /// The call is made by the name of a directory that may be moved before: see
    /// [`crate::calls::again`].
    ByName {
        /// The counter of moved directories before the call was decided.
        moves: u64,
    },
    /// The guest has a capability that the caller on the host lacks: turn `EPERM` and `EACCES` of
    /// the kernel into success.
    Forgive,
}
