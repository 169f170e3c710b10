//! The request for a path resolution ([`Intent`]) and its result ([`Place`]).

use crate::guest::{Dir, Host, HostFd};
use crate::world::{Kind, World};

/// What a call does with the last component of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The file exists, or the call fails: `stat`, `chmod`, `chdir`, `open` without `O_CREAT`.
    Existing,
    /// The file may be missing, but not its directory: `open` with `O_CREAT`.
    Creatable,
    /// A name in a directory is made or removed, and not followed: `mkdir`, `mknod`, `symlink`,
    /// `unlink`, `rmdir`, both names of `rename`, the new name of `link`, `bind`, `open` with
    /// `O_CREAT | O_EXCL`.
    Name,
}

/// What a caller accepts instead of the held file ([`Intent::hold`]) if the directory of the name
/// is in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Nothing: the file must be held.
    Hold,
    /// The file's status ([`Place::seen`]) and the path. `buffers.position` may be empty if the
    /// guest's path is its own canonical name.
    Facts,
    /// The path alone. The caller makes its call at once, which shows if the name is missing or a
    /// link ([`Place::unseen`]).
    Later,
}

/// How a path is to be resolved.
#[expect(clippy::struct_excessive_bools, reason = "independent wishes, as the flags of calls are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intent {
    /// What happens to the last component.
    pub end: End,
    /// Follow a symbolic link at the end. Without effect on [`End::Name`]. If it is false, the
    /// place may be a link.
    pub follow: bool,
    /// Accept an empty path, which means the file that it starts from (`AT_EMPTY_PATH`); otherwise
    /// it is `ENOENT`.
    pub empty: bool,
    /// Open the file itself with `O_PATH`, in [`Place::held`], if it exists. This costs nothing:
    /// the resolver has it open anyway.
    pub hold: bool,
    /// What the caller accepts instead of [`Intent::hold`].
    pub look: Look,
    /// Leave out the binding ([`Place::binding`]) of a relative name if it would cost a call.
    pub light: bool,
    /// `RESOLVE_*` of `openat2`, 0 otherwise.
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

    /// Accepts an empty path, which means the start itself.
    #[must_use]
    pub const fn or_empty(mut self) -> Self {
        self.empty = true;
        self
    }

    /// Holds the file open.
    #[must_use]
    pub const fn held(mut self) -> Self {
        self.hold = true;
        self
    }

    /// Holds the file open, or gives its status.
    #[must_use]
    pub const fn held_or_seen(mut self) -> Self {
        self.look = Look::Facts;
        self.held()
    }

    /// Leaves out the binding of relative names.
    #[must_use]
    pub const fn lightly(mut self) -> Self {
        self.light = true;
        self
    }

    /// Takes the flags of an `*at` call: `AT_SYMLINK_NOFOLLOW`, `AT_EMPTY_PATH`.
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

/// The file that a path leads to. The path itself is in `buffers.found[n]`; use both with the
/// methods of [`Host`]: `(place.at, buffers.found[n])`.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The directory that `buffers.found[n]` starts from. Mostly [`Dir::Root`]; [`Dir::Held`] if
    /// the host's name would be too long (the place owns that descriptor, see [`Place::close`]);
    /// [`Dir::Guest`] or [`Dir::Cwd`] if the guest's own name is used.
    pub at: Dir,
    /// The file itself, opened with `O_PATH` (and `O_NOFOLLOW`), if [`Intent::hold`] asked for it
    /// and it exists. The place owns it.
    pub held: Option<HostFd>,
    /// Index in `world.bindings`. `None` outside of all bindings, or if [`Intent::light`] left it
    /// out.
    pub binding: Option<usize>,
    /// Writing is `EROFS`.
    pub read_only: bool,
    /// What kind of files the binding holds ([`Kind::Host`] outside of all bindings).
    pub kind: Kind,
    /// The place is the root of a binding (or the guest's root): removing it, renaming it or
    /// renaming over it is `EBUSY`.
    pub mount_point: bool,
    /// Bindings lie below: removing it is `ENOTEMPTY`. Renaming it, or over it, would remove their
    /// mount points and is `EBUSY`.
    pub holds_mounts: bool,
    /// How the path ended, after links were expanded.
    pub last: Last,
    /// The path ended in `/` or `/.`, so the file must be a directory.
    pub directory: bool,
    /// With [`End::Creatable`]: the file does not exist (yet).
    pub missing: bool,
    /// `buffers.found[n]` ends in a magic link of `/proc`, which is the only way to the file (a
    /// pipe, a deleted file). The call must follow links.
    pub magic: bool,
    /// The guest's own relative path leads the kernel to the same file, from the guest's own
    /// directory: it consists of names only, and none of them is a link or a binding.
    pub direct: bool,
    /// The file's status (with the last component not followed) is in `buffers.seen[n]`. No
    /// descriptor is held.
    pub seen: bool,
    /// The file is the image's, with this record in its index, and no name on the way means
    /// something else in the container.
    pub record: Option<u32>,
    /// The last component was not looked at: the call must not follow it. If it is a link, the path
    /// has to be resolved again, with [`crate::CallBuffers::careful`].
    pub unseen: bool,
}

impl Place {
    /// The file of a descriptor (or the working directory) with an unknown binding, for calls that
    /// take no path. `buffers.found[n]` must be empty.
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
            record: None,
            unseen: false,
        }
    }

    /// Closes the descriptors that the place owns. Callers must call it once on every path, when
    /// they no longer need the place.
    pub fn close(self, host: &mut impl Host) {
        if let Some(fd) = self.held {
            host.close(fd);
        }
        if let Dir::Held(fd) = self.at {
            host.close(fd);
        }
    }

    /// Returns true if the guest sees both places on one mount: otherwise `rename` and `link` are
    /// `EXDEV`.
    pub fn same_mount(&self, other: &Self) -> bool {
        self.binding == other.binding
    }

    /// Sets the binding, and what follows from it.
    pub(crate) fn set_binding(&mut self, world: &World<'_>, binding: Option<usize>) {
        self.binding = binding;
        let found = binding.and_then(|index| world.bindings.get(index));
        self.read_only = found.is_some_and(|found| found.read_only);
        self.kind = found.map_or(Kind::Host, |found| found.kind);
    }
}
