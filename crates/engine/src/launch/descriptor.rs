//! Sends a descriptor from one process to another over a socket, see unix(7).

use crate::error::{Error, Result};
use abi::network::members::{MEMBERSHIPS, SOCKETS};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Two connected sockets, both closed by `execve`.
pub(crate) fn sockets() -> Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)
        .map_err(|errno| Error::Call { doing: "make a socket pair".into(), errno: errno.into() })
}

/// Keeps a descriptor open in the queue of a socket, which is closed by `execve` and closes it
/// then. So it has no number, and no link in `/proc` leads to it.
pub(crate) fn park(descriptor: impl Into<OwnedFd>) -> Result<OwnedFd> {
    let descriptor = descriptor.into();
    let (queue, sender) = sockets()?;
    send(&sender, descriptor.as_fd()).map_err(|errno| Error::Call {
        doing: "put a descriptor away".into(),
        errno: errno.into(),
    })?;
    Ok(queue)
}

/// Sends one.
pub(crate) fn send(socket: &OwnedFd, descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(Errno::NOBUFS);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL)
        .map(drop)
}

/// The most descriptors that [`send_with`] sends with a message.
const MANY: usize = MEMBERSHIPS + 2 + SOCKETS;

/// Sends a message and these descriptors.
pub(crate) fn send_with(
    socket: &OwnedFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MANY))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(message)], &mut ancillary, SendFlags::NOSIGNAL)
        .map(drop)
}

/// Receives a message, of which the length is returned, and its descriptors; `None` when the other
/// end was closed.
pub(crate) fn receive_with(socket: &OwnedFd, buffer: &mut [u8]) -> Option<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MANY))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut pieces = [IoSliceMut::new(buffer)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let receive = || rustix::net::recvmsg(socket, &mut pieces, &mut ancillary, flags);
    let length = rustix::io::retry_on_intr(receive).ok()?.bytes;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            descriptors.extend(all);
        }
    }
    Some((length, descriptors))
}

/// Receives one; `None` when the other end was closed without sending.
pub(crate) fn receive(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })
    .ok()?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message {
            return descriptors.next();
        }
    }
    None
}
