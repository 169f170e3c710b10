//! A call that was caught, and what is to be done with it.

use crate::guest::HostFd;
use crate::world::Kind;

/// A caught call. Its number is the kernel's, of the calling architecture; [`abi::calls`] says which operation that is.
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
    /// The kernel does it as it stands, and the result needs no look.
    Pass,
    /// The kernel does it as it stands; then [`crate::calls::leave`] is called with this.
    Watch(After),
    /// The kernel does not do it; the guest gets this (a value, or a negative error number).
    Done(i64),
    /// The kernel does this call instead, in the guest; afterwards the guest's argument registers are as they were. `leave` is called
    /// with the result, unless it is [`After::Nothing`].
    Instead(Call, After),
    /// The guest gets a descriptor of this host file, opened anew with these flags (`O_CLOEXEC`, access mode); the backend closes
    /// its own.
    Give(HostFd, u32),
    /// The file at `buffers.host` belongs to the image. The backend copies it up ([`crate::guest::Host::copy_up`]; it may take
    /// long and may be done elsewhere meanwhile), then asks again with the same call.
    CopyUp,
    /// An `execve` that may go ahead: the plan is what [`crate::exec`] left. The backend executes its loader.
    Exec,
}

/// What `leave` has to know from `enter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Nothing to do.
    Nothing,
    /// Close this host descriptor, which was kept only for the duration of the call.
    Close(HostFd),
    /// `open` made a file that was not there before: note its owner.
    Created {
        /// Its group (of the caller, or of a directory that passes its own on).
        gid: u32,
        /// What kind of files there are.
        kind: Kind,
        /// Bits of the mode that it does not keep.
        clear: u32,
    },
    /// A file was opened whose mode on the host would not have allowed it: give it this mode again, and close.
    Restore(HostFd, u32),
    /// Directory entries were read into the guest's memory, behind room for bindings that have no mount point.
    Listing {
        /// Bytes left free at the beginning of the guest's buffer.
        room: u32,
    },
    /// An address of a socket was written: show the guest's name (`address` and `length` point into the guest's memory).
    Address {
        /// `struct sockaddr *`.
        address: u64,
        /// `socklen_t *`.
        length: u64,
        /// Size of the guest's buffer before the call.
        room: u32,
    },
    /// A message header was filled in by `recvmsg`.
    Message {
        /// `struct msghdr *`.
        header: u64,
        /// Size of the guest's name buffer before the call.
        room: u32,
    },
    /// The result is a path that the kernel wrote into the guest's memory.
    Path {
        /// Where.
        buffer: u64,
        /// Its size.
        room: u64,
    },
    /// An address of a socket was written to `scratch` (with its length 128 bytes behind it), because the guest's buffer might be too small
    /// for the host's name.
    AddressFrom {
        /// Where the kernel wrote.
        scratch: u64,
        /// `struct sockaddr *` of the guest.
        address: u64,
        /// `socklen_t *` of the guest.
        length: u64,
        /// Size of the guest's buffer before the call.
        room: u32,
    },
    /// `recvmsg` or `recvmmsg` filled in message headers at `scratch`, `count` of them, each with a name buffer of its own behind them.
    Messages {
        /// Copies of the guest's headers.
        scratch: u64,
        /// How many.
        count: u32,
    },
    /// `sendmmsg` sent from copies at `scratch`: the guest wants the lengths.
    Sent {
        /// Copies of the guest's headers.
        scratch: u64,
        /// How many.
        count: u32,
    },
    /// `getsockopt` told the ids or groups of a peer.
    Peer,
    /// `bind` made a socket in the file system: note its owner.
    Bound,
    /// A seccomp filter was installed.
    Filter,
    /// A file was opened for reading by a name that nobody has looked at, without following it: see [`crate::calls::again`]. Only
    /// backends that remember directories ([`crate::guest::Host::plain_generation`]) meet it.
    Unseen {
        /// The generation before.
        generation: u64,
        /// It is a name alone, in a directory of the guest's of which nothing is known. Otherwise its path is in `buffers.found`.
        alone: bool,
        /// Nothing but a directory is to be opened.
        directory: bool,
    },
    /// The call starts from the tree's own descriptor ([`crate::guest::Host::tree_descriptor`]), which may be gone: see
    /// [`crate::calls::again`].
    FromTree,
    /// The guest has a capability that the host's caller lacks: `EPERM` and `EACCES` of the kernel become success.
    Forgive,
}
