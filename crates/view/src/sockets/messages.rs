//! Decides `sendmsg`, `recvmsg`, `sendmmsg`, `recvmmsg`: translates names and ids in message
//! headers.
//!
//! The kernel gets copies of the guest's headers if a name has to be replaced, or if the room for a
//! name is small; the vectors and control buffers stay the guest's. Everything that the kernel
//! writes into a header is copied back. At most [`MANY`] messages go in one call: `sendmmsg` and
//! `recvmmsg` may always handle fewer than they are asked for.

use super::address::{self, Shown};
use super::request::Request;
use super::{inet, interfaces, peers};
use crate::CallContext;
use crate::errno::Result;
use crate::guest::Backend;
use crate::verdict::{After, Verdict};
use abi::calls::Arch;
use abi::layout::sockaddr_un::SIZE;
use abi::layout::{Msghdr, UCRED, u32_at};
use core::net::{IpAddr, SocketAddr};

/// The greatest number of messages in one call that is changed.
const MANY: usize = 64;
/// Size of the buffer for a name that the kernel gets.
const NAME: usize = 128;
/// Size of the longest control buffer that is searched. The kernel's limit for sending is that of
/// the socket, some 20 KiB.
const CONTROL: usize = 8192;
/// `SOL_SOCKET`, `SCM_CREDENTIALS`.
const CREDENTIALS: (u32, u32) = (1, 2);
/// Size of the longest part of a control buffer that is translated.
const LONGEST: usize = inet::LONGEST_INFO;
const _: () = assert!(LONGEST >= UCRED);

fn layout_of(request: &Request) -> Msghdr {
    Msghdr::of(if request.is_32_bit() { Arch::I386 } else { Arch::X86_64 })
}

/// `struct msghdr` of either width, with room for `msg_len`.
type Header = [u8; 64];

/// `sendmsg`.
pub(super) fn send<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
) -> Result<Verdict> {
    let layout = layout_of(request);
    let mut header: Header = [0; 64];
    if context.backend.read(request.arguments[1], &mut header[..layout.size]).is_err()
        || !outgoing(context, request, &layout, &mut header)?
    {
        return Ok(Verdict::Pass);
    }
    let mut arguments = request.arguments;
    arguments[1] = context.backend.scratch(&header[..layout.size], 8)?;
    request.instead(context.backend, arguments, After::Nothing)
}

/// `sendmmsg`.
pub(super) fn send_many<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
) -> Result<Verdict> {
    let layout = layout_of(request);
    let asked = request.arguments[2] as u32 as usize;
    let mut count = asked.min(MANY);
    let mut changed = false;
    for index in 0..count {
        let mut header: Header = [0; 64];
        let at = request.arguments[1] + (index * layout.stride) as u64;
        let one = context.backend.read(at, &mut header[..layout.stride]);
        match one.and_then(|()| outgoing(context, request, &layout, &mut header)) {
            Ok(now) => changed |= now,
            // The messages before the bad one are sent; the kernel does not report the error
            // either.
            Err(_) if index > 0 => {
                count = index;
                break;
            }
            Err(error) => return Err(error),
        }
        let slot = index * layout.stride..(index + 1) * layout.stride;
        context.buffers.output[slot].copy_from_slice(&header[..layout.stride]);
    }
    let mut arguments = request.arguments;
    if !changed {
        if count == asked {
            return Ok(Verdict::Pass);
        }
        arguments[2] = count as u64;
        return request.instead(context.backend, arguments, After::Nothing);
    }
    let scratch = context.backend.scratch(&context.buffers.output[..count * layout.stride], 8)?;
    arguments[1] = scratch;
    arguments[2] = count as u64;
    request.instead(context.backend, arguments, After::Sent { scratch, count: count as u32 })
}

/// Translates a header for the kernel; false if it needs no change.
fn outgoing<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    layout: &Msghdr,
    header: &mut Header,
) -> Result<bool> {
    let control = outgoing_control(context, request, layout, header)?;
    let name = layout.word_at(header, layout.name);
    let length = u64::from(u32_at(header, layout.name_length));
    let mut changed = control.changed;
    if name != 0
        && let Some(host) = address::forward(context, request, (name, length), control.from)?
    {
        let at = context.backend.scratch(host.as_bytes(), 2)?;
        layout.put_word(header, layout.name, at);
        let length = host.as_bytes().len() as u32;
        header[layout.name_length..layout.name_length + 4].copy_from_slice(&length.to_le_bytes());
        changed = true;
    }
    Ok(changed)
}

/// What a control buffer says.
#[derive(Default)]
struct Control {
    /// A changed copy is used.
    changed: bool,
    /// The address from which the message is to be sent.
    from: Option<IpAddr>,
}

/// Translates ids and addresses in a control buffer.
fn outgoing_control<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    layout: &Msghdr,
    header: &mut Header,
) -> Result<Control> {
    let control = layout.word_at(header, layout.control);
    let length = layout.word_at(header, layout.control_length) as usize;
    let is_known = context.world.identity.is_none() && context.world.network.is_none();
    if is_known || control == 0 || length > CONTROL {
        return Ok(Control::default());
    }
    if context.backend.read(control, &mut context.buffers.input[..length]).is_err() {
        return Ok(Control::default());
    }
    let mut done = Control::default();
    let mut parts = Parts::new(layout, length);
    while let Some((kind, at, end)) = parts.next(&context.buffers.input) {
        let part = at..end;
        match kind {
            CREDENTIALS if context.world.identity.is_some() && part.len() >= UCRED => {
                let mut ucred = [0; UCRED];
                ucred.copy_from_slice(&context.buffers.input[part][..UCRED]);
                peers::sent(context, &mut ucred)?;
                context.buffers.input[at..at + UCRED].copy_from_slice(&ucred);
                done.changed = true;
            }
            kind if context.world.network.is_some() => {
                let info = inet::taken_source(context, request.arguments[0], (kind, at));
                done.changed |= info.is_some();
                done.from = info.filter(|info| !info.is_unspecified()).or(done.from);
            }
            _ => {}
        }
    }
    if !done.changed {
        return Ok(done);
    }
    let at = context.backend.scratch(&context.buffers.input[..length], 8)?;
    layout.put_word(header, layout.control, at);
    Ok(done)
}

/// Copies the lengths to the guest after `sendmmsg` has returned how many messages it sent.
pub(super) fn sent_many<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    scratch: u64,
    count: u32,
    result: i64,
) -> Result<()> {
    let layout = layout_of(request);
    for index in 0..(result as u64).min(u64::from(count)) {
        let at = index * layout.stride as u64 + layout.size as u64;
        let mut length = [0; 4];
        context.backend.read(scratch + at, &mut length)?;
        context.backend.write(request.arguments[1] + at, &length)?;
    }
    Ok(())
}

/// `recvmsg`.
pub(super) fn receive<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
) -> Result<Verdict> {
    let layout = layout_of(request);
    let header_at = request.arguments[1];
    let mut header: Header = [0; 64];
    if context.backend.read(header_at, &mut header[..layout.size]).is_err() {
        return Ok(Verdict::Pass);
    }
    match interest(context, &layout, &header) {
        Interest::None => Ok(Verdict::Pass),
        Interest::InPlace(room) => Ok(Verdict::Watch(After::Message { header: header_at, room })),
        Interest::Copy => {
            let name = context.backend.scratch(&[0; NAME], 8)?;
            give_room(&layout, &mut header, name);
            let mut arguments = request.arguments;
            let scratch = context.backend.scratch(&header[..layout.size], 8)?;
            arguments[1] = scratch;
            request.instead(context.backend, arguments, After::Messages { scratch, count: 1 })
        }
    }
}

/// `recvmmsg`. The kernel overwrites the room for names, so a caller that wants names gets copies
/// of the headers.
pub(super) fn receive_many<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
) -> Result<Verdict> {
    let layout = layout_of(request);
    let count = (request.arguments[2] as u32 as usize).min(MANY);
    let mut wanted = false;
    for index in 0..count {
        let slot = index * layout.stride..(index + 1) * layout.stride;
        let at = request.arguments[1] + slot.start as u64;
        if context.backend.read(at, &mut context.buffers.output[slot.clone()]).is_err() {
            return Ok(Verdict::Pass);
        }
        let mut header: Header = [0; 64];
        header[..layout.stride].copy_from_slice(&context.buffers.output[slot]);
        wanted |= interest(context, &layout, &header) != Interest::None;
    }
    if !wanted {
        return Ok(Verdict::Pass);
    }
    context.buffers.input[..count * NAME].fill(0);
    let names = context.backend.scratch(&context.buffers.input[..count * NAME], 8)?;
    for index in 0..count {
        let header =
            &mut context.buffers.output[index * layout.stride..(index + 1) * layout.stride];
        if layout.word_at(header, layout.name) != 0
            && i32::try_from(u32_at(header, layout.name_length)).is_ok()
        {
            give_room(&layout, header, names + (index * NAME) as u64);
        }
    }
    let scratch = context.backend.scratch(&context.buffers.output[..count * layout.stride], 8)?;
    let mut arguments = request.arguments;
    arguments[1] = scratch;
    arguments[2] = count as u64;
    request.instead(context.backend, arguments, After::Messages { scratch, count: count as u32 })
}

/// What has to be translated in a header for receiving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interest {
    None,
    /// The guest's own header is used: it has enough room for every name, this much.
    InPlace(u32),
    /// A copy is used, because a name might be cut.
    Copy,
}

fn interest<N: Backend>(context: &CallContext<'_, N>, layout: &Msghdr, header: &[u8]) -> Interest {
    let room = u32_at(header, layout.name_length);
    let named = layout.word_at(header, layout.name) != 0;
    if named && room > i32::MAX as u32 {
        return Interest::None;
    }
    let known = context.world.identity.is_some() || context.world.network.is_some();
    let control = known && layout.word_at(header, layout.control) != 0;
    match named {
        true if (room as usize) < SIZE => Interest::Copy,
        true => Interest::InPlace(room),
        false if control => Interest::InPlace(0),
        false => Interest::None,
    }
}

fn give_room(layout: &Msghdr, header: &mut [u8], name: u64) {
    layout.put_word(header, layout.name, name);
    let room = (NAME as u32).to_le_bytes();
    header[layout.name_length..layout.name_length + 4].copy_from_slice(&room);
}

/// Translates the guest's own header after `recvmsg`. Returns the result for the guest.
pub(super) fn received<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    (at, room): (u64, u32),
    result: i64,
) -> Result<i64> {
    let layout = layout_of(request);
    let mut header: Header = [0; 64];
    context.backend.read(at, &mut header[..layout.size])?;
    let name = layout.word_at(&header, layout.name);
    let whole = u32_at(&header, layout.name_length) as usize;
    let mut sender = None;
    if name != 0 && whole != 0 && room != 0 {
        let length = whole.min(room as usize);
        sender = address::sender(context, name, length);
        let shown = Shown::of(context, request, name, (length, whole))?;
        if shown.changed {
            let length = (shown.whole as u32).to_le_bytes();
            context.backend.write(at + layout.name_length as u64, &length)?;
            shown.write(context, name, room as usize)?;
        }
    }
    incoming_control(context, request, (&layout, &header), sender)?;
    let whole = if name == 0 { 0 } else { whole };
    Ok(interfaces::received_message(context, request, (whole, at), result))
}

/// Copies headers to the guest, translated, after `recvmsg` or `recvmmsg` has written into copies.
/// Returns the result for the guest.
pub(super) fn received_many<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    scratch: u64,
    count: u32,
    result: i64,
) -> Result<i64> {
    let layout = layout_of(request);
    let one = request.op == abi::calls::Op::Recvmsg;
    let (stride, filled) =
        if one { (layout.size, 1) } else { (layout.stride, (result as u64).min(u64::from(count))) };
    let mut told = result;
    for index in 0..filled {
        let offset = index * stride as u64;
        let (mut guest, mut copy): (Header, Header) = ([0; 64], [0; 64]);
        let to = request.arguments[1] + offset;
        context.backend.read(scratch + offset, &mut copy[..stride])?;
        context.backend.read(to, &mut guest[..stride])?;
        let room = u32_at(&guest, layout.name_length) as usize;
        let (from, name) =
            (layout.word_at(&copy, layout.name), layout.word_at(&guest, layout.name));
        let whole = u32_at(&copy, layout.name_length) as usize;
        let mut sender = None;
        if name != 0 {
            sender = address::sender(context, from, whole);
            let shown = Shown::of(context, request, from, (whole, whole))?;
            shown.write(context, name, room)?;
            let length = (shown.whole as u32).to_le_bytes();
            guest[layout.name_length..layout.name_length + 4].copy_from_slice(&length);
        }
        let after = layout.control_length..layout.control_length + layout.word;
        guest[after.clone()].copy_from_slice(&copy[after]);
        guest[layout.flags..layout.flags + 4]
            .copy_from_slice(&copy[layout.flags..layout.flags + 4]);
        if !one {
            guest[layout.size..layout.size + 4]
                .copy_from_slice(&copy[layout.size..layout.size + 4]);
        }
        context.backend.write(to, &guest[..stride])?;
        incoming_control(context, request, (&layout, &guest), sender)?;
        let received = if one { result } else { u32_at(&copy, layout.size).into() };
        let from = (if name == 0 { 0 } else { whole }, to);
        let shown = interfaces::received_message(context, request, from, received);
        if one {
            told = shown;
        } else if shown != received {
            let shown = u32::try_from(shown).unwrap_or_default();
            context.backend.write(to + layout.size as u64, &shown.to_le_bytes())?;
        }
    }
    Ok(told)
}

/// Translates ids and addresses in a received control buffer. `sender`: the message's, as the
/// kernel has it.
fn incoming_control<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    (layout, header): (&Msghdr, &Header),
    sender: Option<SocketAddr>,
) -> Result<()> {
    let control = layout.word_at(header, layout.control);
    let length = (layout.word_at(header, layout.control_length) as usize).min(CONTROL);
    let is_known = context.world.identity.is_none() && context.world.network.is_none();
    if is_known || control == 0 || length == 0 {
        return Ok(());
    }
    context.backend.read(control, &mut context.buffers.input[..length])?;
    let mut parts = Parts::new(layout, length);
    while let Some((kind, at, end)) = parts.next(&context.buffers.input) {
        let mut part = [0; LONGEST];
        let part = &mut part[..(end - at).min(LONGEST)];
        part.copy_from_slice(&context.buffers.input[at..][..part.len()]);
        let changed = match (kind, context.world.network) {
            (CREDENTIALS, _) if context.world.identity.is_some() => {
                if let Some(ucred) = part.first_chunk_mut::<UCRED>() {
                    *ucred = peers::translated(context, *ucred);
                }
                true
            }
            (kind, Some(network)) => {
                inet::translate(context, network, request.arguments[0], (kind, sender), part)
            }
            _ => false,
        };
        if changed {
            context.backend.write(control + at as u64, part)?;
        }
    }
    Ok(())
}

/// Iterates over a control buffer as cmsg(3) does.
struct Parts<'l> {
    layout: &'l Msghdr,
    at: usize,
    length: usize,
}

impl<'l> Parts<'l> {
    const fn new(layout: &'l Msghdr, length: usize) -> Self {
        Self { layout, at: 0, length }
    }

    /// The next part: level and type, and the range of its data. One that claims to be longer than
    /// the buffer ends the iteration.
    fn next(&mut self, bytes: &[u8]) -> Option<((u32, u32), usize, usize)> {
        if self.at + self.layout.control_header > self.length {
            return None;
        }
        let start = self.at;
        let size = usize::try_from(self.layout.word_at(bytes, start)).ok()?;
        let end = start.checked_add(size)?;
        if size < self.layout.control_header || end > self.length {
            return None;
        }
        self.at = end.next_multiple_of(self.layout.word);
        let kind = start + self.layout.word;
        let kind = (u32_at(bytes, kind), u32_at(bytes, kind + 4));
        Some((kind, start + self.layout.control_header, end))
    }
}
