//! Decides calls on extended attributes: xattr(7).
//!
//! - The container engine's own attributes (`user.coracle.`) do not exist for the guest. If the
//!   guest sets an attribute with such a name, it is the guest's own, kept under another name:
//!   `user.coracle.x.` + name. A Coracle inside the container keeps the owners of its containers in
//!   this way.
//! - `user.*` belong to the file; the guest's credentials decide about reading and writing.
//! - `security.*`, `trusted.*` and the access lists of acl(5) need a privilege that the caller
//!   lacks. They are kept as `user.coracle.x.` + name, and shown under their own names. On an inode
//!   that cannot have user attributes (links, pipes, a file system without them) they are kept in
//!   its record in the log: [`noted`]. An attribute that the host itself has under such a name (an
//!   SELinux label) is shown if the guest has set none.
//! - An access list sets the mode of the file, and the file's record says that it has one:
//!   [`identity::lists`].
//!
//! Values up to a kilobyte are copied through the view's own memory. For larger ones the guest's
//! own kernel call is made, with the host's path and name.

use super::arguments::Arguments;
use super::stat::place_of;
use super::support::{Target, binding_of, copy_up, is_shared, more_than_a_name, reach, target_of};
use crate::CallContext;
use crate::errno::{Errno, Result};
use crate::guest::{Backend, Dir, Purpose};
use crate::identity::access_list::{self, AccessList};
use crate::identity::lists::{self, LIST_MAX, Which};
use crate::identity::record::{HIDDEN_ATTRIBUTES, OWN_ATTRIBUTES, can_carry};
use crate::identity::{self, Capability, Found, Lists, Truth, Want, noted, rules};
use crate::paths::{self, Intent, Place};
use crate::verdict::{After, Call, Verdict};
use crate::world::{Identity, Kind};
use abi::calls::{Op, Role};
use abi::index::flags;
use linux_raw_sys::general::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, S_IFDIR, S_IFLNK, S_IFREG, S_ISGID, S_ISVTX, XATTR_CREATE,
    XATTR_REPLACE,
};

/// Longest value that the view copies itself, in bytes.
const VALUE_ROOM: usize = 1024;
/// Longest list of names, in bytes: as long as the usual file systems allow.
const LIST_ROOM: usize = 4096;
/// `XATTR_SIZE_MAX`.
const SIZE_MAX: u64 = 65_536;
/// `XATTR_NAME_MAX`.
const NAME_MAX: usize = 255;
/// The attribute that `ls` reads of every file.
const LABEL: &[u8] = b"security.selinux";

/// Returns true if [`rule`] decides this call.
pub(super) const fn concerns(op: Op) -> bool {
    action(op).is_some()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set,
    List,
    Remove,
}

const fn action(op: Op) -> Option<Action> {
    Some(match op {
        Op::Getxattr | Op::Lgetxattr | Op::Fgetxattr | Op::Getxattrat => Action::Get,
        Op::Setxattr | Op::Lsetxattr | Op::Fsetxattr | Op::Setxattrat => Action::Set,
        Op::Listxattr | Op::Llistxattr | Op::Flistxattr | Op::Listxattrat => Action::List,
        Op::Removexattr | Op::Lremovexattr | Op::Fremovexattr | Op::Removexattrat => Action::Remove,
        _ => return None,
    })
}

/// The value of a call: its address, its size, and the flags for setting it.
#[derive(Debug, Clone, Copy)]
struct Value {
    at: u64,
    size: u64,
    flags: u32,
}

impl Value {
    fn of<N: Backend>(
        context: &mut CallContext<'_, N>,
        arguments: &Arguments<'_>,
        action: Action,
    ) -> Result<Self> {
        let none = Self { at: 0, size: 0, flags: 0 };
        if matches!(arguments.op(), Op::Getxattrat | Op::Setxattrat) {
            // `struct xattr_args`: the value's address (64 bits), its size and flags (32 bits
            // each).
            if arguments.word(5) < 16 {
                return Err(Errno::EINVAL);
            }
            let mut bytes = [0; 16];
            context.backend.read(arguments.word(4), &mut bytes)?;
            let size = u64::from(abi::layout::u32_at(&bytes, 8));
            let flags = abi::layout::u32_at(&bytes, 12);
            return Ok(Self { at: abi::layout::u64_at(&bytes, 0), size, flags });
        }
        let Some(at) = arguments.position(Role::Buffer) else { return Ok(none) };
        let flags = if action == Action::Set { arguments.int(at + 2) } else { 0 };
        Ok(Self { at: arguments.word(at), size: arguments.word(at + 1), flags })
    }
}

/// Decides a call of this family.
pub(super) fn rule<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
) -> Result<Verdict> {
    let action = action(arguments.op()).ok_or(Errno::ENOSYS)?;
    let value = Value::of(context, arguments, action)?;
    if action == Action::Set && value.flags & !(XATTR_CREATE | XATTR_REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    if let Some(at) = arguments.position(Role::Attribute) {
        read_name(context, arguments.word(at))?;
    }
    if action == Action::Set && value.size > SIZE_MAX {
        return Err(Errno::E2BIG);
    }
    if arguments.position(Role::Fd) == Some(0) {
        let fd = arguments.int(0) as i32;
        more_than_a_name(context, fd)?;
        let mut place = place_of(Dir::Guest(fd));
        context.buffers.found[0].clear();
        (place.kind, place.read_only) = binding_of(context, Dir::Guest(fd))?;
        return on_place(context, arguments, &place, action, value, Some(fd));
    }
    let flags = match arguments.op() {
        Op::Lgetxattr | Op::Lsetxattr | Op::Llistxattr | Op::Lremovexattr => AT_SYMLINK_NOFOLLOW,
        Op::Getxattrat | Op::Setxattrat | Op::Listxattrat | Op::Removexattrat => arguments.flags(),
        _ => 0,
    };
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let (dir, address) = arguments.path(0)?;
    context.backend.read_text(address, &mut context.buffers.named[0])?;
    if action == Action::Get
        && let Some(errno) = certain_absence(context, dir, flags)
    {
        return Err(errno);
    }
    let intent = Intent::FOLLOW.with_at_flags(flags).held_or_seen();
    let place = super::support::find_named(context, dir, 0, intent)?;
    let result = on_place(context, arguments, &place, action, value, None);
    place.close(context.backend);
    result
}

/// Answers quickly for the attributes that `ls -l` reads of every file and few files have: access
/// lists, and the label. Returns the error if one `statx` shows that an ordinary file of the tree
/// has no such attribute.
fn certain_absence<N: Backend>(
    context: &mut CallContext<'_, N>,
    dir: Dir,
    flags: u32,
) -> Option<Errno> {
    let identity = context.world.identity.filter(|_| context.task.creds.overrides())?;
    let errno = match context.buffers.spare[0].as_bytes() {
        LABEL => context.backend.label_refusal()?,
        name => Which::of(name).map(|_| Errno::ENODATA)?,
    };
    let start = paths::fast_path(context, dir, 0)?;
    let CallContext { backend, buffers, .. } = context;
    let path = start.path(buffers.named[0].with_nul());
    let facts = &mut buffers.seen[0];
    backend.statx(start.dir, path, flags | AT_SYMLINK_NOFOLLOW, facts).ok()?;
    (!identity::files::may_hide(&identity, Kind::Tree, facts)).then_some(errno)
}

/// Reads the attribute's name into `spare[0]`.
fn read_name<N: Backend>(context: &mut CallContext<'_, N>, at: u64) -> Result<()> {
    let name = &mut context.buffers.spare[0];
    match context.backend.read_text(at, name) {
        Err(Errno::ENAMETOOLONG) => return Err(Errno::ERANGE),
        result => result?,
    }
    if name.is_empty() || name.len() > NAME_MAX { Err(Errno::ERANGE) } else { Ok(()) }
}

/// Prefix of attributes for which the kernel's handlers check permissions. For unknown prefixes the
/// mode decides.
const SYSTEM: &[u8] = b"system.";

/// The namespace of an attribute's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Space {
    /// `user.*`
    User,
    /// `security.*`
    Security,
    /// `trusted.*`
    Trusted,
    /// acl(5)
    List(Which),
    /// `user.coracle.*`, and `user.overlay.*` where the container's own layer is marked by that
    Own,
    /// Any other name, which the kernel handles.
    Other,
}

/// How the names begin of what marks directories of an upper directory.
const OVERLAY: &[u8] = b"user.overlay.";

/// How the names begin that the kernel lets every user set.
const USER: &[u8] = b"user.";

impl Space {
    fn of(name: &[u8]) -> Self {
        match name {
            own if own.starts_with(OWN_ATTRIBUTES) => Self::Own,
            user if user.starts_with(b"user.") => Self::User,
            security if security.starts_with(b"security.") => Self::Security,
            trusted if trusted.starts_with(b"trusted.") => Self::Trusted,
            name => Which::of(name).map_or(Self::Other, Self::List),
        }
    }

    const fn hidden(self) -> bool {
        matches!(self, Self::Security | Self::Trusted | Self::List(_) | Self::Own)
    }
}

fn on_place<N: Backend>(
    context: &mut CallContext<'_, N>,
    arguments: &Arguments<'_>,
    place: &Place,
    action: Action,
    value: Value,
    descriptor: Option<i32>,
) -> Result<Verdict> {
    let found = if let Some(identity) = context.world.identity {
        super::support::look(context, &identity, place, 0)?
    } else {
        let facts = super::support::facts(context, place, 0)?;
        let truth = Truth { mode: u32::from(facts.stx_mode), ..Truth::default() };
        Found { facts, truth, recorded: false }
    };
    if place.directory && !found.truth.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    let identity = context.world.identity.filter(|_| found.emulates(place.kind));
    let writes = matches!(action, Action::Set | Action::Remove);
    if writes && place.read_only {
        return Err(Errno::EROFS);
    }
    let mut request = AttributeCall { arguments, place: *place, value, found, identity };
    if writes {
        let space = request.space(context);
        request.may_write(context, space, action)?;
        let shared = match descriptor {
            None if !is_shared(context, place.kind, &found.facts) => None,
            None if place.magic => Some(Target::Nothing),
            None => Some(Target::CopyUp),
            Some(fd) => Some(target_of(context, fd, &found.facts)?),
        };
        match (shared, descriptor) {
            (Some(Target::CopyUp), None) => return copy_up(context, place, 0),
            (Some(Target::CopyUp), Some(_)) => return Ok(Verdict::CopyUp),
            (Some(Target::Nothing), _) => return Ok(Verdict::Done(0)),
            (Some(Target::Copy), _) => {
                let host = context.buffers.host;
                context.buffers.found[0] = host;
                request.place.at = Dir::Root;
            }
            (Some(Target::Itself) | None, _) => {}
        }
    }
    if let Some(identity) = identity.filter(|identity| {
        request.place.at == place.at && identity::files::is_locked(identity, place.kind, &found)
    }) && !is_shared(context, place.kind, &found.facts)
    {
        let at = reach(context.buffers, place, 0);
        let truth = &found.truth;
        identity::set_truth(context.backend, &identity, place.kind, at, &found, truth)?;
    }
    let closed = identity.filter(|identity| forbids_owner(identity, place.kind, &found));
    let bits = u32::from(found.facts.stx_mode) & 0o7777;
    if closed.is_some() {
        let (dir, path) = reach(context.buffers, place, 0);
        context.backend.chmod(dir, path, bits | 0o600)?;
    }
    let verdict = match action {
        Action::Get => request.get(context),
        Action::Set => request.set(context),
        Action::List => request.list(context),
        Action::Remove => request.remove(context),
    };
    if closed.is_some() {
        let (dir, path) = reach(context.buffers, place, 0);
        // The file belongs to the caller. If it was deleted meanwhile, its mode does not matter.
        let _ = context.backend.chmod(dir, path, bits);
    }
    verdict
}

/// Returns true if the mode of a file forbids its owner access to the attributes. That is possible
/// only in the host's own directories, where the mode on disk is the true one.
fn forbids_owner(identity: &Identity, kind: Kind, found: &Found) -> bool {
    let mode = u32::from(found.facts.stx_mode);
    kind == Kind::Host
        && found.facts.stx_uid == identity.host_uid
        && can_carry(mode)
        && mode & 0o600 != 0o600
}

/// One call on one file.
struct AttributeCall<'c> {
    arguments: &'c Arguments<'c>,
    place: Place,
    value: Value,
    found: Found,
    /// Set if owners and privileges are emulated.
    identity: Option<Identity>,
}

impl AttributeCall<'_> {
    /// The namespace of the name in `spare[0]`.
    fn space<N: Backend>(&self, context: &CallContext<'_, N>) -> Space {
        let name = context.buffers.spare[0].as_bytes();
        let own = self.is_layered(context) && name.starts_with(OVERLAY);
        if own { Space::Own } else { Space::of(name) }
    }

    /// Returns true for a file of a tree with layers, whose directories have attributes of their
    /// own. The guest must neither see them nor, by copying a directory with them, set them.
    fn is_layered<N: Backend>(&self, context: &CallContext<'_, N>) -> bool {
        self.place.kind == Kind::Tree && context.world.image.is_some()
    }

    /// `xattr_permission` of the kernel, for writing.
    fn may_write<N: Backend>(
        &self,
        context: &CallContext<'_, N>,
        space: Space,
        action: Action,
    ) -> Result<()> {
        if self.identity.is_none() {
            return match space {
                // Without emulated ids no attribute is kept under another name.
                Space::Own if action == Action::Set => Err(Errno::EOPNOTSUPP),
                Space::Own => Err(Errno::ENODATA),
                _ => Ok(()),
            };
        }
        let (who, file) = (&context.task.creds, &self.found.truth);
        let name = context.buffers.spare[0].as_bytes();
        let sets = action == Action::Set && self.value.size > 0;
        match space {
            Space::User | Space::Own => {
                user_file(file).ok_or(Errno::EPERM)?;
                if file.is_directory() && file.mode & S_ISVTX != 0 {
                    rules::may_change(who, file)?;
                }
                rules::may(who, file, Want::WRITE)
            }
            Space::Security => {
                let needed = if name == b"security.capability" {
                    Capability::SETFCAP
                } else {
                    Capability::SYS_ADMIN
                };
                if who.has(needed) { Ok(()) } else { Err(Errno::EPERM) }
            }
            Space::Trusted if !who.has(Capability::SYS_ADMIN) => Err(Errno::EPERM),
            Space::List(_) if file.kind() == S_IFLNK => Err(Errno::EOPNOTSUPP),
            Space::List(Which::Default) if !file.is_directory() && sets => Err(Errno::EACCES),
            Space::List(_) => rules::may_change(who, file),
            Space::Other if !name.starts_with(SYSTEM) => rules::may(who, file, Want::WRITE),
            _ => Ok(()),
        }
    }

    /// Puts the name on disk into `spare[1]`.
    fn name_on_disk<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        space: Space,
    ) -> Result<()> {
        let [name, on_disk] = &mut context.buffers.spare;
        on_disk.clear();
        if space.hidden() && self.identity.is_some() {
            on_disk.push(HIDDEN_ATTRIBUTES)?;
        }
        on_disk.push(name.as_bytes())?;
        if on_disk.len() > NAME_MAX { Err(Errno::ERANGE) } else { Ok(()) }
    }

    fn get<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Result<Verdict> {
        let space = self.space(context);
        let (who, file) = (&context.task.creds, &self.found.truth);
        match space {
            Space::List(which) if self.identity.is_some() => return self.get_list(context, which),
            Space::Own if self.identity.is_none() => return Err(Errno::ENODATA),
            Space::User | Space::Own if self.identity.is_some() => {
                user_file(file).ok_or(Errno::ENODATA)?;
                rules::may(who, file, Want::READ)?;
            }
            Space::Trusted if self.identity.is_some() && !who.has(Capability::SYS_ADMIN) => {
                return Err(Errno::ENODATA);
            }
            Space::Other
                if self.identity.is_some()
                    && !context.buffers.spare[0].as_bytes().starts_with(SYSTEM) =>
            {
                rules::may(who, file, Want::READ)?;
            }
            _ => {}
        }
        let facts = &self.found.facts;
        let hidden = self.identity.filter(|_| space.hidden());
        let result = match hidden {
            Some(identity) if !identity::files::may_hide(&identity, self.place.kind, facts) => {
                Err(Errno::ENODATA)
            }
            Some(_) if !can_carry(u32::from(facts.stx_mode)) => self.get_noted(context),
            _ => {
                self.name_on_disk(context, space)?;
                match self.get_named(context, 1) {
                    Err(errno) if self.may_be_in_log(space, errno) => self.get_noted(context),
                    result => result,
                }
            }
        };
        match result {
            // The attribute may be a label that the host's kernel gives.
            Err(Errno::ENODATA | Errno::EOPNOTSUPP | Errno::EPERM)
                if space == Space::Security && self.identity.is_some() =>
            {
                match self.no_label(context) {
                    Some(errno) => Err(errno),
                    None => self.get_named(context, 0),
                }
            }
            Err(Errno::EPERM) if space.hidden() => Err(Errno::ENODATA),
            result => result,
        }
    }

    /// The error for reading a label, if the host labels no file of the container's tree.
    fn no_label<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Option<Errno> {
        let asks = self.place.kind == Kind::Tree && context.buffers.spare[0].as_bytes() == LABEL;
        if asks { context.backend.label_refusal() } else { None }
    }

    /// Returns true if the image's index says that the file has no attributes.
    fn has_none<N: Backend>(&self, context: &CallContext<'_, N>) -> bool {
        let entry = |record| context.world.image?.index.entry(record);
        let entry = self.place.record.and_then(entry);
        entry.is_some_and(|entry| !entry.has(flags::ATTRIBUTES))
    }

    /// Reads the attribute whose name on disk is in `spare[which]`.
    fn get_named<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        which: usize,
    ) -> Result<Verdict> {
        let name = context.buffers.spare[which].as_bytes();
        if name.len() > USER.len() && name.starts_with(USER) && self.has_none(context) {
            return Err(Errno::ENODATA);
        }
        let mut bytes = [0; VALUE_ROOM];
        let (dir, path) = reach(context.buffers, &self.place, 0);
        let name = context.buffers.spare[which].as_c_str();
        let room = (self.value.size.min(SIZE_MAX) as usize).min(VALUE_ROOM);
        match context.backend.getxattr(dir, path, true, name, &mut bytes[..room]) {
            Ok(length) => {
                if room > 0 {
                    context.backend.write(self.value.at, &bytes[..length])?;
                }
                Ok(Verdict::Done(length as i64))
            }
            Err(Errno::ERANGE) if self.value.size > VALUE_ROOM as u64 => {
                self.by_kernel(context, which, Op::Lgetxattr)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Returns true if an attribute that the file system refused may be in the inode's record in
    /// the log.
    fn may_be_in_log(&self, space: Space, errno: Errno) -> bool {
        let refused = match errno {
            Errno::EOPNOTSUPP => true,
            Errno::EPERM | Errno::ENODATA => !can_carry(u32::from(self.found.facts.stx_mode)),
            _ => false,
        };
        refused && space.hidden() && self.identity.is_some()
    }

    fn get_noted<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Result<Verdict> {
        let mut bytes = [0; VALUE_ROOM];
        let room = (self.value.size as usize).min(VALUE_ROOM);
        let name = context.buffers.spare[0].as_bytes();
        let length = noted::get(context.backend, &self.found.facts, name, &mut bytes[..room])?;
        if room > 0 {
            context.backend.write(self.value.at, &bytes[..length])?;
        }
        Ok(Verdict::Done(length as i64))
    }

    fn set<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Result<Verdict> {
        let space = self.space(context);
        if let (Space::List(which), Some(identity)) = (space, self.identity) {
            return self.set_list(context, &identity, which);
        }
        self.name_on_disk(context, space)?;
        let mut bytes = [0; VALUE_ROOM];
        let small = bytes.get_mut(..self.value.size as usize);
        let Some(small) = small else {
            if space.hidden() {
                self.record_hidden(context)?;
            }
            return self.by_kernel(context, 1, Op::Lsetxattr);
        };
        if !small.is_empty() {
            context.backend.read(self.value.at, small)?;
        }
        self.set_bytes(context, small)?;
        if space.hidden() {
            self.record_hidden(context)?;
        }
        Ok(Verdict::Done(0))
    }

    /// Records that the file now has an attribute that only root may set.
    fn record_hidden<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Result<()> {
        let Some(identity) = self.identity else { return Ok(()) };
        let (at, kind) = (reach(context.buffers, &self.place, 0), self.place.kind);
        identity::files::hidden_was_set(context.backend, &identity, kind, at, &self.found)
    }

    fn set_bytes<N: Backend>(&self, context: &mut CallContext<'_, N>, bytes: &[u8]) -> Result<()> {
        let (dir, path) = reach(context.buffers, &self.place, 0);
        let name = context.buffers.spare[1].as_c_str();
        let flags = self.value.flags;
        let space = self.space(context);
        match context.backend.setxattr(dir, path, true, name, bytes, flags) {
            Err(errno) if errno != Errno::ENODATA && self.may_be_in_log(space, errno) => {
                let name = context.buffers.spare[0].as_bytes();
                noted::set(context.backend, &self.found.facts, name, bytes, flags)
            }
            result => result,
        }
    }

    /// The value of an access list, in which the mode of the file stands for the entries that equal
    /// it.
    #[inline(never)]
    fn get_list<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        which: Which,
    ) -> Result<Verdict> {
        let truth = &self.found.truth;
        if !has_list(truth.lists, which) {
            return Err(Errno::ENODATA);
        }
        let mut bytes = [0; LIST_MAX];
        let (dir, path) = reach(context.buffers, &self.place, 0);
        let at = (dir, path, &self.found.facts);
        let length = lists::read(context.backend, at, which, &mut bytes)?;
        let list = &mut bytes[..length];
        if which == Which::Access {
            access_list::set_mode(list, truth.mode);
        }
        if self.value.size > 0 {
            if self.value.size < length as u64 {
                return Err(Errno::ERANGE);
            }
            context.backend.write(self.value.at, list)?;
        }
        Ok(Verdict::Done(length as i64))
    }

    /// Sets an access list: the mode follows it, and one that says no more than a mode is not kept.
    /// As in the kernel, the flags mean nothing.
    #[inline(never)]
    fn set_list<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        identity: &Identity,
        which: Which,
    ) -> Result<Verdict> {
        let mut bytes = [0; LIST_MAX];
        let bytes = bytes.get_mut(..self.value.size as usize).ok_or(Errno::E2BIG)?;
        if !bytes.is_empty() {
            context.backend.read(self.value.at, bytes)?;
        }
        let list = AccessList::parse(bytes)?;
        let mut new = self.found.truth;
        if let Some(list) = list.filter(|_| which == Which::Access) {
            let who = &context.task.creds;
            new.mode = new.mode & !0o777 | list.mode();
            if !who.in_group(new.gid) && !who.has(Capability::FSETID) {
                new.mode &= !S_ISGID;
            }
        }
        let kept = list.filter(|list| which == Which::Default || !list.is_mode());
        self.change_list(context, identity, which, new, kept.map(|_| &*bytes))
    }

    /// Writes or removes a list, and makes the file `new`.
    fn change_list<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        identity: &Identity,
        which: Which,
        mut new: Truth,
        list: Option<&[u8]>,
    ) -> Result<Verdict> {
        let at = reach(context.buffers, &self.place, 0);
        let file = (at.0, at.1, &self.found.facts);
        let had = has_list(new.lists, which);
        match list {
            Some(list) => lists::write(context.backend, file, which, list)?,
            None if had => lists::remove(context.backend, file, which)?,
            None if new == self.found.truth => return Ok(Verdict::Done(0)),
            None => {}
        }
        match which {
            Which::Access => new.lists.access = list.is_some(),
            Which::Default => new.lists.default = list.is_some(),
        }
        let kind = self.place.kind;
        identity::set_truth(context.backend, identity, kind, at, &self.found, &new)?;
        Ok(Verdict::Done(0))
    }

    fn remove<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Result<Verdict> {
        let space = self.space(context);
        if let (Space::List(which), Some(identity)) = (space, self.identity) {
            return self.change_list(context, &identity, which, self.found.truth, None);
        }
        self.name_on_disk(context, space)?;
        let (dir, path) = reach(context.buffers, &self.place, 0);
        let name = context.buffers.spare[1].as_c_str();
        let result = match context.backend.removexattr(dir, path, true, name) {
            Err(errno) if self.may_be_in_log(space, errno) => {
                let name = context.buffers.spare[0].as_bytes();
                noted::remove(context.backend, &self.found.facts, name)
            }
            result => result,
        };
        match result {
            Err(Errno::EPERM) if space.hidden() => Err(Errno::ENODATA),
            result => result.map(|()| Verdict::Done(0)),
        }
    }

    fn list<N: Backend>(&self, context: &mut CallContext<'_, N>) -> Result<Verdict> {
        let mut bytes = [0; LIST_ROOM];
        let (dir, path) = reach(context.buffers, &self.place, 0);
        let on_disk = if self.has_none(context) {
            Ok(0)
        } else {
            context.backend.listxattr(dir, path, true, &mut bytes)
        };
        let trusted = context.task.creds.has(Capability::SYS_ADMIN);
        let lists = self.identity.map(|_| self.found.truth.lists);
        let shown = |name: &[u8]| match (Space::of(name), lists) {
            (Space::Trusted, _) => trusted,
            (Space::List(which), Some(lists)) => has_list(lists, which),
            _ => true,
        };
        let layered = self.is_layered(context);
        let is_own =
            |name: &[u8]| name.starts_with(OWN_ATTRIBUTES) || layered && name.starts_with(OVERLAY);
        let facts = &self.found.facts;
        let may_be_noted = self.identity.is_some()
            && (!can_carry(u32::from(facts.stx_mode)) || on_disk == Err(Errno::EOPNOTSUPP));
        let mut length = match on_disk {
            Err(Errno::EOPNOTSUPP) if may_be_noted => 0,
            result => shown_names(&mut bytes, result?, is_own, shown),
        };
        if may_be_noted {
            length = noted::list(context.backend, facts, &mut bytes, length, shown)?;
        }
        if self.value.size > 0 {
            if self.value.size < length as u64 {
                return Err(Errno::ERANGE);
            }
            context.backend.write(self.value.at, &bytes[..length])?;
        }
        Ok(Verdict::Done(length as i64))
    }

    /// Makes the call in the guest's own process, with the host's path and the name in
    /// `spare[which]`.
    fn by_kernel<N: Backend>(
        &self,
        context: &mut CallContext<'_, N>,
        which: usize,
        op: Op,
    ) -> Result<Verdict> {
        let host = &mut context.buffers.host;
        let dir = self.place.held.map_or(self.place.at, Dir::Held);
        if self.place.at == Dir::Root && self.place.held.is_none() {
            *host = context.buffers.found[0];
        } else {
            context.backend.path_of(dir, host)?;
        }
        if context.world.image.is_some() {
            let crate::CallBuffers { host, link, .. } = &mut *context.buffers;
            if self.place.kind == Kind::Tree && op == Op::Lsetxattr {
                context.backend.copy_up(host.as_c_str())?;
            }
            context.backend.real_path(host.as_c_str(), Purpose::Use, link)?;
            host.copy(link);
        }
        let path = context.backend.scratch(context.buffers.host.with_nul(), 1)?;
        let name = context.backend.scratch(context.buffers.spare[which].with_nul(), 1)?;
        let number = op.entry().number(self.arguments.arch).ok_or(Errno::ENOSYS)?;
        let Value { at, size, flags } = self.value;
        let arguments = [path, name, at, size, u64::from(flags), 0];
        Ok(Verdict::Instead(Call { number, arguments, ..*self.arguments.call }, After::Nothing))
    }
}

/// Returns `Some` if a file can have user attributes.
const fn user_file(file: &Truth) -> Option<()> {
    match file.kind() {
        S_IFREG | S_IFDIR => Some(()),
        _ => None,
    }
}

const fn has_list(lists: Lists, which: Which) -> bool {
    match which {
        Which::Access => lists.access,
        Which::Default => lists.default,
    }
}

/// Turns a list of names on disk into the one that the guest sees, in place, and returns its
/// length: of those that are not the container engine's own, those for which `shown` returns true.
/// The order stays; a name that occurs twice (the host's and the guest's own) is shown
/// once.
fn shown_names(
    bytes: &mut [u8],
    length: usize,
    is_own: impl Fn(&[u8]) -> bool,
    shown: impl Fn(&[u8]) -> bool,
) -> usize {
    let (mut from, mut to) = (0, 0);
    while from < length {
        let size = bytes[from..length]
            .iter()
            .position(|byte| *byte == 0)
            .map_or(length - from, |nul| nul + 1);
        let name = &bytes[from..from + size];
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        let start = match name.strip_prefix(HIDDEN_ATTRIBUTES) {
            Some(true_name) if shown(true_name) => Some(from + HIDDEN_ATTRIBUTES.len()),
            None if !is_own(name) && shown(name) => Some(from),
            _ => None,
        };
        if let Some(start) = start {
            let end = from + size;
            let known =
                bytes[..to].split_inclusive(|byte| *byte == 0).any(|old| *old == bytes[start..end]);
            if !known {
                bytes.copy_within(start..end, to);
                to += end - start;
            }
        }
        from += size;
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_names_are_those_that_the_guest_set() {
        let all = b"user.a\0user.coracle.owner\0user.coracle.x.trusted.b\0user.coracle.x.security.c\0security.c\0";
        let shown = |trusted| {
            let mut bytes = all.to_vec();
            let shown = |name: &[u8]| trusted || !name.starts_with(b"trusted.");
            let is_own = |name: &[u8]| name.starts_with(OWN_ATTRIBUTES);
            let length = shown_names(&mut bytes, all.len(), is_own, shown);
            bytes.truncate(length);
            bytes
        };
        assert_eq!(shown(true), b"user.a\0trusted.b\0security.c\0");
        assert_eq!(shown(false), b"user.a\0security.c\0");
    }
}
