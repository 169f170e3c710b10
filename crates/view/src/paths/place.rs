//! What a call wants of a name ([`Intent`]), and what it got ([`Place`]).

use crate::guest::{Dir, Host, HostFd};
use crate::world::{Kind, World};

/// What a call does with the last component of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The file exists, or the call fails: `stat`, `chmod`, `chdir`, `open` without `O_CREAT`.
    Existing,
    /// The file may be missing, its directory not: `open` with `O_CREAT`.
    Creatable,
    /// A name in a directory is made or removed, and not followed: `mkdir`, `mknod`, `symlink`, `unlink`, `rmdir`, both names of
    /// `rename`, the new name of `link`, `bind`, `open` with `O_CREAT | O_EXCL`.
    Name,
}

/// What a caller does without the held file ([`Intent::hold`]) where the directory of the name is known to be plain, and nothing has to be looked at
/// on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nothing: it is to be held.
    Hold,
    /// It takes facts instead ([`Place::seen`]), and the path. `buffers.position` may be empty where the guest's path is its own canonical name.
    Facts,
    /// It makes its call at once, and finds out by that whether the name is there, or a link ([`Place::unseen`]).
    Later,
}

/// How a path is to be resolved.
#[expect(clippy::struct_excessive_bools, reason = "independent wishes, as the flags of calls are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intent {
    /// What happens to the last component.
    pub end: End,
    /// A symbolic link at the end is followed. No effect on [`End::Name`]. Without it the place may be a link.
    pub follow: bool,
    /// An empty path means the file that it starts from (`AT_EMPTY_PATH`); otherwise it is `ENOENT`.
    pub empty: bool,
    /// The caller wants the file itself, opened with `O_PATH`, in [`Place::held`] where it exists. It costs nothing: the resolver has it
    /// open anyway.
    pub hold: bool,
    /// What is good enough instead of [`Intent::hold`].
    pub look: Look,
    /// The caller does not need to know the binding ([`Place::binding`]) of a relative name where that would cost a call.
    pub light: bool,
    /// `openat2`'s `RESOLVE_*`, 0 otherwise.
    pub resolve: u64,
}

impl Intent {
    /// An existing file, following links: `stat`, `chmod`, `open`.
    pub const FOLLOW: Self = Self {
        end: End::Existing,
        follow: true,
        empty: false,
        hold: false,
        look: Look::Hold,
        light: false,
        resolve: 0,
    };
    /// An existing file or link: `lstat`, `readlink`, `lchown`, the old name of `link`.
    pub const NO_FOLLOW: Self = Self { follow: false, ..Self::FOLLOW };
    /// A file that may be missing: `open` with `O_CREAT`.
    pub const CREATE: Self = Self { end: End::Creatable, ..Self::FOLLOW };
    /// A name in a directory: `mkdir`, `unlink`, `rename`.
    pub const NAME: Self = Self { end: End::Name, follow: false, ..Self::FOLLOW };

    /// With an empty path meaning the start itself.
    #[must_use]
    pub const fn or_empty(mut self) -> Self {
        self.empty = true;
        self
    }

    /// With the file held open.
    #[must_use]
    pub const fn held(mut self) -> Self {
        self.hold = true;
        self
    }

    /// With the file held open, or its facts.
    #[must_use]
    pub const fn held_or_seen(mut self) -> Self {
        self.look = Look::Facts;
        self.held()
    }

    /// Without the binding of relative names.
    #[must_use]
    pub const fn lightly(mut self) -> Self {
        self.light = true;
        self
    }

    /// As the flags of an `*at` call say: `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`.
    #[must_use]
    pub const fn with_at_flags(mut self, flags: u32) -> Self {
        self.follow = flags & linux_raw_sys::general::AT_SYMLINK_NOFOLLOW == 0;
        self.empty = flags & linux_raw_sys::general::AT_EMPTY_PATH != 0;
        self
    }
}

/// How the guest's path ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// A name.
    Name,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// The path was `/` (or only slashes).
    Root,
    /// The path was empty (see [`Intent::empty`]): the file that it starts from.
    Empty,
}

/// Where a path leads. The path itself is in `buffers.found[n]`; use both with the methods of [`Host`]: `(place.at, buffers.found[n])`.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Where `buffers.found[n]` starts. Mostly [`Dir::Root`]; [`Dir::Held`] where the host's name would be too long (then the place owns that
    /// descriptor, see [`Place::close`]); [`Dir::Guest`] or [`Dir::Cwd`] where the guest's own name does.
    pub at: Dir,
    /// The file itself, opened with `O_PATH` (and `O_NOFOLLOW`), where [`Intent::hold`] asked for it and it exists. Owned by the place.
    pub held: Option<HostFd>,
    /// Index in `world.bindings`; `None` outside of all of them, and where [`Intent::light`] spared it.
    pub binding: Option<usize>,
    /// Writing is `EROFS`.
    pub read_only: bool,
    /// What kind of files these are ([`Kind::Host`] outside of all bindings).
    pub kind: Kind,
    /// The place is the root of a binding (or of the guest): removing it, renaming it or over it is `EBUSY`.
    pub mount_point: bool,
    /// Bindings lie below: removing it is `ENOTEMPTY`, renaming it (or over it) would take their mount points away: `EBUSY`.
    pub holds_mounts: bool,
    /// How the path ended, links expanded.
    pub last: Last,
    /// The path ended in `/` or `/.`: only a directory will do.
    pub directory: bool,
    /// With [`End::Creatable`]: there is no such file (yet).
    pub missing: bool,
    /// `buffers.found[n]` ends in a magic link of `/proc`, and following it is the only way to the file (a pipe, a deleted file). The call
    /// must follow links.
    pub magic: bool,
    /// The guest's own relative path leads the kernel to the same file, from the guest's own directory: nothing but names, none of them a
    /// link or a binding.
    pub direct: bool,
    /// What the file is (the last name not followed) is in `buffers.seen[n]`. Nothing is held.
    pub seen: bool,
    /// Nobody has looked at the last name: the call must not follow it, and if it is a link, the path is to be resolved again, with
    /// [`crate::CallBuffers::careful`].
    pub unseen: bool,
}

impl Place {
    /// The file that a descriptor (or the working directory) is, where its binding is not known: for calls that take no path.
    /// `buffers.found[n]` is to be empty.
    pub const fn itself(at: Dir) -> Self {
        Self {
            at,
            held: None,
            binding: None,
            read_only: false,
            kind: Kind::Host,
            mount_point: false,
            holds_mounts: false,
            last: Last::Empty,
            directory: false,
            missing: false,
            magic: false,
            direct: true,
            seen: false,
            unseen: false,
        }
    }

    /// Closes what the place holds. To be called on every path, once, when the place is no longer needed.
    pub fn close(self, host: &mut impl Host) {
        if let Some(fd) = self.held {
            host.close(fd);
        }
        if let Dir::Held(fd) = self.at {
            host.close(fd);
        }
    }

    /// Whether two places are on one mount, as far as the guest is to know: `rename` and `link` are `EXDEV` otherwise.
    pub fn same_mount(&self, other: &Self) -> bool {
        self.binding == other.binding
    }

    /// Says in which binding it lies, and so what kind of files there are.
    pub(crate) fn set_binding(&mut self, world: &World<'_>, binding: Option<usize>) {
        self.binding = binding;
        let found = binding.and_then(|index| world.bindings.get(index));
        self.read_only = found.is_some_and(|found| found.read_only);
        self.kind = found.map_or(Kind::Host, |found| found.kind);
    }
}
