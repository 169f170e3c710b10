//! Translates `struct sockaddr` from the guest to the kernel and back: names of sockets in the file
//! system here, addresses of the internet in [`super::inet`].

use super::request::Request;
use super::{abstract_names, inet, interfaces};
use crate::CallContext;
use crate::calls::support::{exists, unless_no_directory};
use crate::errno::{Errno, Result};
use crate::guest::{self, ALIAS_MAX, Backend, Dir, Host, HostFd};
use crate::identity::{self, Truth, Want};
use crate::paths::{Intent, Last, Origin, Place, resolve, reverse, seen_from};
use crate::stored::{ALIASES, ALIASES_DIGITS, LINK_DIGITS};
use crate::text::Text;
use crate::verdict::{After, Verdict};
use abi::calls::Op;
use abi::layout::sockaddr_un::{PATH, PATH_SIZE, SIZE};
use linux_raw_sys::general as raw;

const AF_UNIX: u16 = 1;
/// `sizeof(struct sockaddr_storage)`: the kernel takes no longer address.
const STORAGE: usize = 128;
/// Offset of the length in a scratch buffer for an address.
pub(super) const LENGTH_BEHIND: u64 = STORAGE as u64;

/// Length of the longest path in an address.
const LONGEST: usize = PATH_SIZE - 1;
/// Length of the longest name that fits behind any alias of its directory.
const ROOM: usize = LONGEST - ALIAS_MAX - 1;

/// The purpose of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A new name is made.
    Bind,
    /// An existing socket is used.
    Reach,
}

/// An address for the kernel.
pub(super) struct Address {
    bytes: [u8; SIZE],
    length: usize,
}

impl Address {
    fn new(path: &[u8]) -> Result<Self> {
        let mut bytes = [0; SIZE];
        bytes[..PATH].copy_from_slice(&AF_UNIX.to_le_bytes());
        let length = PATH + path.len() + 1;
        if length > SIZE {
            return Err(Errno::ENAMETOOLONG);
        }
        bytes[PATH..PATH + path.len()].copy_from_slice(path);
        Ok(Self { bytes, length })
    }

    /// That of an abstract name in a container with networks with names; `None` for any other.
    fn abstract_name<N: Backend>(
        context: &mut CallContext<'_, N>,
        at: u64,
        length: u64,
    ) -> Result<Option<Self>> {
        let Some(network) = context.world.network else { return Ok(None) };
        let mut bytes = [0; SIZE];
        let Some(bytes) = bytes.get_mut(..length as u32 as usize) else { return Ok(None) };
        if context.backend.read(at, bytes).is_err() || !abstract_names::is_its(bytes) {
            return Ok(None);
        }
        let (bytes, length) = abstract_names::marked(&network, bytes)?;
        Ok(Some(Self { bytes, length }))
    }

    fn internet(address: core::net::SocketAddr) -> Self {
        let mut spelled = [0; inet::LONGEST];
        let length = inet::spell(address, &mut spelled);
        let mut bytes = [0; SIZE];
        bytes[..length].copy_from_slice(&spelled[..length]);
        Self { bytes, length }
    }

    /// The used bytes of the structure.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Reads an address into `buffers.named[0]`; false if it is not a path, or the kernel would refuse
/// it.
fn read<N: Backend>(context: &mut CallContext<'_, N>, at: u64, length: u64) -> bool {
    let length = length as u32 as usize;
    if length <= PATH || length > SIZE {
        return false;
    }
    let mut bytes = [0; SIZE];
    // If the address is not readable, the kernel reports that. Only paths are translated.
    if context.backend.read(at, &mut bytes[..length]).is_err()
        || u16::from_le_bytes([bytes[0], bytes[1]]) != AF_UNIX
    {
        return false;
    }
    let path = &bytes[PATH..length];
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    end != 0 && context.buffers.named[0].set(&path[..end]).is_ok()
}

/// The address that the kernel gets for one that the guest wants to reach; `None` if the guest's
/// own is right. `from`: the address that a datagram is to come from, if the guest says so.
pub(super) fn forward<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    (at, length): (u64, u64),
    from: Option<core::net::IpAddr>,
) -> Result<Option<Address>> {
    if let Some((network, address)) = internet(context, request.op, at, length) {
        let socket = (request.arguments[0], request.op == Op::Connect);
        let real = inet::reach(context, network, socket, (address, from))?;
        return Ok(real.map(Address::internet));
    }
    if let Some(network) = context.world.network.filter(|_| request.op == Op::Connect) {
        inet::perhaps_disconnects(context, network, request.arguments[0], (at, length));
    }
    if let Some(host) = Address::abstract_name(context, at, length)? {
        return Ok(Some(host));
    }
    if !read(context, at, length) {
        return Ok(None);
    }
    let place = match find(context, Purpose::Reach) {
        // The kernel looks at the family before it looks for the name.
        Err(_) if inet::is_its(context, request.arguments[0]) => return Ok(None),
        found => found?,
    };
    if let Err(error) = may_reach(context, &place) {
        place.close(context.backend);
        return Err(error);
    }
    spell(context, place, Purpose::Reach)
}

/// Reads an address of the internet; `None` if it is another, or the kernel's own is right.
fn internet<'a, N: Backend>(
    context: &mut CallContext<'a, N>,
    op: Op,
    at: u64,
    length: u64,
) -> Option<(inet::Network<'a>, core::net::SocketAddr)> {
    let network = context.world.network?;
    let length = length as u32 as usize;
    if length > STORAGE {
        return None;
    }
    let mut bytes = [0; inet::LONGEST];
    let bytes = &mut bytes[..length.min(inet::LONGEST)];
    context.backend.read(at, bytes).ok()?;
    if op != Op::Connect {
        inet::specify(bytes, op == Op::Bind);
    }
    Some((network, inet::given(bytes)?))
}

fn find<N: Backend>(context: &mut CallContext<'_, N>, purpose: Purpose) -> Result<Place> {
    let name = context.buffers.named[0].as_bytes();
    // All peers see the name of a bound socket as it was given, and a long name has no room for a
    // directory: a relative one must stay relative.
    if name.first() != Some(&b'/') && (purpose == Purpose::Bind || name.len() > ROOM) {
        context.buffers.careful = true;
    }
    let intent = match purpose {
        Purpose::Bind => Intent::NAME,
        Purpose::Reach => Intent::FOLLOW,
    };
    resolve(context, Dir::Cwd, 0, intent)
}

/// Checks that the file is a socket, and that the thread has write permission, which connecting
/// requires and the mode on disk may not give.
fn may_reach<N: Backend>(context: &mut CallContext<'_, N>, place: &Place) -> Result<()> {
    let Some(ids) = context.world.identity.filter(|_| !place.magic) else { return Ok(()) };
    let path = context.buffers.found[0].as_c_str();
    let mut facts = identity::files::NO_FACTS;
    let flags = raw::AT_EMPTY_PATH | raw::AT_SYMLINK_NOFOLLOW;
    context.backend.statx(place.at, path, flags, &mut facts)?;
    if !context.task.creds.overrides() {
        let (who, at) = (&context.task.creds, (place.at, path));
        let kind = place.kind;
        let file = identity::truth_of(context.backend, &ids, Some(who), kind, at, &facts).0;
        identity::may(who, &file, Want::WRITE)?;
    }
    let kind = u32::from(facts.stx_mode) & raw::S_IFMT;
    if kind == raw::S_IFSOCK { Ok(()) } else { Err(Errno::ECONNREFUSED) }
}

/// Fits the place in `buffers.found[0]` into the 108 bytes of an address. Closes the place.
fn spell<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: Place,
    purpose: Purpose,
) -> Result<Option<Address>> {
    if context.world.image.is_some() && place.at == Dir::Root {
        let crate::CallBuffers { found: [found, _], spare: [real, _], .. } = &mut *context.buffers;
        let purpose =
            if purpose == Purpose::Bind { guest::Purpose::Make } else { guest::Purpose::Use };
        let known = context.backend.real_path(found.as_c_str(), purpose, real);
        if let Err(errno) = known {
            place.close(context.backend);
            return Err(errno);
        }
        found.copy(real);
    }
    let found = &context.buffers.found[0];
    let short = found.len() < PATH_SIZE;
    match place.at {
        _ if place.direct || (place.at == Dir::Root && found == &context.buffers.named[0]) => {
            place.close(context.backend);
            Ok(None)
        }
        Dir::Root | Dir::Cwd if short => {
            place.close(context.backend);
            Address::new(found.as_bytes()).map(Some)
        }
        Dir::Root => {
            let (parent, name) = split(found.as_bytes());
            if purpose == Purpose::Reach && name.len() > ROOM {
                return itself(context, place);
            }
            place.close(context.backend);
            let [directory, alias] = &mut context.buffers.spare;
            directory.set(parent)?;
            let flags = raw::O_PATH | raw::O_DIRECTORY;
            let held = context.backend.open(Dir::Root, directory.as_c_str(), flags, 0, 0)?;
            behind_alias(context.backend, held, name, alias).map(Some)
        }
        Dir::Held(directory)
            if !found.is_empty() && (purpose == Purpose::Bind || found.len() <= ROOM) =>
        {
            if let Some(file) = place.held {
                context.backend.close(file);
            }
            let alias = &mut context.buffers.spare[1];
            behind_alias(context.backend, directory, found.as_bytes(), alias).map(Some)
        }
        Dir::Cwd | Dir::Guest(_) | Dir::Held(_) if purpose == Purpose::Reach => {
            itself(context, place)
        }
        Dir::Cwd | Dir::Guest(_) | Dir::Held(_) => {
            place.close(context.backend);
            Err(Errno::ENAMETOOLONG)
        }
    }
}

/// The address of a name in a directory that is held; takes the directory's descriptor over.
fn behind_alias(
    host: &mut impl Host,
    directory: HostFd,
    name: &[u8],
    work: &mut Text,
) -> Result<Address> {
    host.alias(directory, LONGEST.saturating_sub(name.len() + 1), work)?;
    work.push_component(name)?;
    Address::new(work.as_bytes())
}

/// The address of an existing socket whose name is too long: a link to a descriptor that lasts as
/// long as the call. Closes the place.
fn itself<N: Backend>(context: &mut CallContext<'_, N>, place: Place) -> Result<Option<Address>> {
    let path = context.buffers.found[0].as_c_str();
    let opened = context.backend.open(place.at, path, raw::O_PATH | raw::O_NOFOLLOW, 0, 0);
    place.close(context.backend);
    let link = &mut context.buffers.spare[1];
    context.backend.lend(opened?, link)?;
    Address::new(link.as_bytes()).map(Some)
}

/// Directory and last component, which keeps slashes behind it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len(), |last| last + 1);
    match path[..end].iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b".", path),
    }
}

/// `connect`, `sendto`: the address is argument `at`, its length the next.
pub(super) fn send<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    at: usize,
) -> Result<Verdict> {
    let [address, length] = [request.arguments[at], request.arguments[at + 1]];
    match forward(context, request, (address, length), None)? {
        None => Ok(Verdict::Pass),
        Some(host) => with_address(context, request, at, &host, After::Nothing),
    }
}

fn with_address<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    at: usize,
    host: &Address,
    after: After,
) -> Result<Verdict> {
    let mut arguments = request.arguments;
    arguments[at] = context.backend.scratch(host.as_bytes(), 2)?;
    arguments[at + 1] = host.length as u64;
    request.instead(context.backend, arguments, after)
}

/// `bind`: the kernel makes the socket with the guest's own umask. Afterwards its owner is
/// recorded, if it needs a record.
pub(super) fn bind<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
) -> Result<Verdict> {
    let [descriptor, address, length, ..] = request.arguments;
    if let Some((network, address)) = internet(context, request.op, address, length) {
        return inet::bind(context, network, descriptor, address);
    }
    if let Some(host) = Address::abstract_name(context, address, length)? {
        return with_address(context, request, 1, &host, After::Nothing);
    }
    if !read(context, address, length) {
        return Ok(Verdict::Pass);
    }
    let place = find(context, Purpose::Bind)?;
    let after = match new_socket(context, &place) {
        Ok(true) => After::Bound,
        Ok(false) => After::Nothing,
        Err(error) => {
            // The kernel checks if the name exists before it checks permissions.
            let taken = exists(context, &place, 0);
            place.close(context.backend);
            return Err(if taken { Errno::EADDRINUSE } else { error });
        }
    };
    match (spell(context, place, Purpose::Bind)?, after) {
        (Some(host), after) => with_address(context, request, 1, &host, after),
        (None, After::Nothing) => Ok(Verdict::Pass),
        (None, after) => Ok(Verdict::Watch(after)),
    }
}

/// Checks that the thread may make a socket at the place; returns true if the socket's owner has to
/// be recorded.
fn new_socket<N: Backend>(context: &mut CallContext<'_, N>, place: &Place) -> Result<bool> {
    if place.directory && place.last == Last::Name {
        return Err(unless_no_directory(context, place, 0, Errno::ENOENT));
    }
    if place.read_only {
        return Err(Errno::EROFS);
    }
    let Some((parent, new)) = truth_of_new(context, place)? else { return Ok(false) };
    identity::may_create(&context.task.creds, &parent)?;
    let Some(ids) = &context.world.identity else { return Ok(false) };
    identity::open_parent(context, ids, place, 0)?;
    Ok(!identity::files::is_plain_new(ids, place.kind, &new))
}

/// The directory, and the new socket in it, as the guest sees them.
fn truth_of_new<N: Backend>(
    context: &mut CallContext<'_, N>,
    place: &Place,
) -> Result<Option<(Truth, Truth)>> {
    let Some(ids) = context.world.identity else { return Ok(None) };
    let parent = identity::look_parent(context, &ids, place, 0)?;
    // The kernel applies the umask to a socket even if the directory has a default list.
    let mode = raw::S_IFSOCK | (0o777 & !context.task.umask);
    let mode = identity::limited_by_parent(context, place, &parent, mode)?;
    let new = identity::new_file(&context.task.creds, &parent.truth, mode, (0, 0));
    Ok(Some((parent.truth, new)))
}

/// Records the owner after the kernel has made the socket.
pub(super) fn bound<N: Backend>(context: &mut CallContext<'_, N>, request: &Request) -> Result<()> {
    let [_, address, length, ..] = request.arguments;
    if !read(context, address, length) {
        return Ok(());
    }
    let place = find(context, Purpose::Bind)?;
    let noted = truth_of_new(context, &place).and_then(|truths| {
        let (Some(ids), Some((_, new))) = (&context.world.identity, truths) else { return Ok(()) };
        identity::inherit_lists(context, &place, 0, &new)?;
        let file = (place.at, context.buffers.found[0].as_c_str());
        identity::created(context.backend, ids, place.kind, file, &new)
    });
    place.close(context.backend);
    noted
}

/// Decides a call that returns an address in argument `at`: `accept`, `getsockname`, `getpeername`,
/// `recvfrom`.
pub(super) fn receive<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    at: usize,
) -> Result<Verdict> {
    let (address, length) = (request.arguments[at], request.arguments[at + 1]);
    let mut room = [0; 4];
    if address == 0 || length == 0 || context.backend.read(length, &mut room).is_err() {
        return Ok(Verdict::Pass);
    }
    let room = u32::from_le_bytes(room);
    if room > i32::MAX as u32 {
        return Ok(Verdict::Pass);
    }
    if room as usize >= SIZE {
        return Ok(Verdict::Watch(After::Address { address, length, room }));
    }
    let mut buffer = [0; STORAGE + 4];
    buffer[STORAGE..].copy_from_slice(&(STORAGE as u32).to_le_bytes());
    let scratch = context.backend.scratch(&buffer, 8)?;
    let mut arguments = request.arguments;
    arguments[at] = scratch;
    arguments[at + 1] = scratch + LENGTH_BEHIND;
    let after = After::AddressFrom { scratch, address, length, room };
    request.instead(context.backend, arguments, after)
}

/// Translates an address that the kernel wrote at `from` (address and length) for the guest, who
/// wants it at `to`, where there is room for `room` bytes. The length is written first, as the
/// kernel does it, even if the address then cannot be written. Returns the result for the guest.
pub(super) fn received<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    (from, to): ((u64, u64), (u64, u64)),
    room: u32,
    result: i64,
) -> Result<i64> {
    let mut length = [0; 4];
    context.backend.read(from.1, &mut length)?;
    let whole = u32::from_le_bytes(length) as usize;
    let in_place = from == to;
    let there = if in_place { whole.min(room as usize) } else { whole };
    let shown = Shown::of(context, request, from.0, (there, whole))?;
    if !in_place || shown.changed {
        context.backend.write(to.1, &(shown.whole as u32).to_le_bytes())?;
        shown.write(context, to.0, room as usize)?;
    }
    let is_received = request.op == Op::Recvfrom;
    Ok(if is_received { interfaces::received(context, request, whole, result) } else { result })
}

/// The sender of a message that the kernel has written, if it is one of the internet.
pub(super) fn sender<N: Backend>(
    context: &mut CallContext<'_, N>,
    at: u64,
    length: usize,
) -> Option<core::net::SocketAddr> {
    context.world.network?;
    let mut bytes = [0; inet::LONGEST];
    let bytes = &mut bytes[..length.min(inet::LONGEST)];
    context.backend.read(at, bytes).ok()?;
    inet::given(bytes)
}

/// An address as the guest is to see it.
pub(super) struct Shown {
    bytes: [u8; STORAGE],
    length: usize,
    /// Its true length.
    pub(super) whole: usize,
    /// It differs from what the kernel wrote.
    pub(super) changed: bool,
}

impl Shown {
    /// Translates the address of `there` bytes at `from` (`whole` is the length before it was cut).
    pub(super) fn of<N: Backend>(
        context: &mut CallContext<'_, N>,
        request: &Request,
        from: u64,
        (there, whole): (usize, usize),
    ) -> Result<Self> {
        let mut bytes = [0; STORAGE];
        let there = there.min(STORAGE);
        if there != 0 {
            context.backend.read(from, &mut bytes[..there])?;
        }
        Ok(match backward(context, request, &mut bytes, there)? {
            Some(length) => Self { bytes, length, whole: length, changed: true },
            None => Self { bytes, length: there, whole, changed: false },
        })
    }

    /// Writes as much of it as there is room for.
    pub(super) fn write<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        to: u64,
        room: usize,
    ) -> Result<()> {
        let shown = &self.bytes[..self.length.min(room)];
        if shown.is_empty() { Ok(()) } else { context.backend.write(to, shown) }
    }
}

/// Translates a host's address to the guest's in place. Returns its length, or `None` if it stays
/// unchanged.
fn backward<N: Backend>(
    context: &mut CallContext<'_, N>,
    request: &Request,
    bytes: &mut [u8; STORAGE],
    length: usize,
) -> Result<Option<usize>> {
    if let Some(network) = context.world.network
        && let Some(real) = inet::given(&bytes[..length])
    {
        let role = match request.op {
            Op::Getsockname => inet::Role::Own,
            Op::Getpeername => inet::Role::Other,
            _ => request.accepted.map_or(inet::Role::Sender, inet::Role::Accepted),
        };
        let shown = inet::shown(context, network, (request.arguments[0], role), real);
        return Ok(shown.map(|shown| {
            let mut spelled = [0; inet::LONGEST];
            let length = inet::spell(shown, &mut spelled);
            bytes[..length].copy_from_slice(&spelled[..length]);
            length
        }));
    }
    if length <= PATH || u16::from_le_bytes([bytes[0], bytes[1]]) != AF_UNIX {
        return Ok(None);
    }
    if let Some(network) = context.world.network
        && let Some(length) = abstract_names::unmarked(&network, bytes, length)
    {
        return Ok(Some(length));
    }
    let path = &bytes[PATH..length];
    let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
    if path.first() != Some(&b'/') {
        return Ok(None);
    }
    let [host, guest] = &mut context.buffers.spare;
    host.set(&path[..end])?;
    unalias(context.backend, host, guest)?;
    if !matches!(reverse(context.world, host.as_bytes(), guest)?, Origin::Inside(_)) {
        return Ok(None);
    }
    seen_from(&context.task.root, guest)?;
    let shown = guest.len().min(PATH_SIZE);
    bytes[PATH..PATH + shown].copy_from_slice(&guest.as_bytes()[..shown]);
    let length = (PATH + shown + 1).min(SIZE);
    bytes[PATH + shown..length].fill(0);
    Ok(Some(length))
}

/// Replaces a directory's alias by its path. An alias of a tracer that has ended leads nowhere;
/// then the name stays unchanged.
fn unalias(host: &mut impl Host, path: &mut Text, work: &mut Text) -> Result<()> {
    let Some((alias, name)) = split_alias(path.as_bytes()) else { return Ok(()) };
    // An alias longer than this was not read from the kernel: other threads may write to the
    // guest's memory meanwhile.
    let mut link = [0; STORAGE];
    let Some(room) = link[..STORAGE - 1].get_mut(..alias.len()) else { return Ok(()) };
    room.copy_from_slice(alias);
    let Ok(link) = core::ffi::CStr::from_bytes_until_nul(&link) else { return Ok(()) };
    if host.readlink(Dir::Root, link, work).is_ok() && work.as_bytes().first() == Some(&b'/') {
        work.push_component(name)?;
        *path = *work;
    }
    Ok(())
}

/// Splits off an alias: `/proc/N/fd/M`, or a link in a directory of links
/// ([`crate::stored::Places::aliases`]).
fn split_alias(path: &[u8]) -> Option<(&[u8], &[u8])> {
    const LINK: usize = ALIASES.len() + ALIASES_DIGITS;
    const END: usize = LINK + 1 + LINK_DIGITS;
    let are_digits = |text: &[u8]| text.iter().all(u8::is_ascii_hexdigit);
    if path.len() > END + 1
        && path.starts_with(ALIASES)
        && are_digits(&path[ALIASES.len()..LINK])
        && path[LINK] == b'/'
        && are_digits(&path[LINK + 1..END])
        && path[END] == b'/'
    {
        return Some((&path[..END], &path[END + 1..]));
    }
    let end = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').nth(4)?.0;
    let mut parts = path[..end].split(|byte| *byte == b'/').skip(1);
    let number = |part: Option<&[u8]>| {
        part.is_some_and(|part| !part.is_empty() && part.iter().all(u8::is_ascii_digit))
    };
    let is_alias = parts.next() == Some(b"proc")
        && number(parts.next())
        && parts.next() == Some(b"fd")
        && number(parts.next());
    is_alias.then_some((&path[..end], &path[end + 1..]))
}
