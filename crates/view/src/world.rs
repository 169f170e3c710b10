//! The constants of a container while it runs: bindings, ids, emulators, image.

use crate::image::Image;
use crate::sockets::inet::Network;

/// A host file or directory that appears under a name of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding<'a> {
    /// Guest path: absolute, without `.`, `..`, `//` or a trailing slash. The code that made the
    /// table has resolved its symbolic links. `/` for the root.
    pub guest: &'a [u8],
    /// Host path: absolute and canonical.
    pub host: &'a [u8],
    /// Writing fails with [`crate::Errno::EROFS`].
    pub read_only: bool,
    /// What kind of files it holds.
    pub kind: Kind,
}

/// What kind of files a binding holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The container's own tree: files of the caller without an ownership record belong to root,
    /// and regular files may be shared with the image.
    Tree,
    /// A host directory, a volume or memory: files of the caller without an ownership record belong
    /// to the container's user.
    Host,
    /// The host's `/proc`: magic links, and files whose contents name paths.
    Proc,
    /// An empty file or directory that hides the one beneath (`/proc/kcore`...).
    Mask,
    /// The file with the container's host name (`/proc/sys/kernel/hostname`): root writes to it,
    /// although its binding is read-only.
    HostName,
}

/// The container, as the rules see it.
#[derive(Debug, Clone, Copy)]
pub struct World<'a> {
    /// Sorted by guest path (bytewise); contains at least the root `/`. Guest paths are unique: of
    /// duplicates only the last was kept.
    pub bindings: &'a [Binding<'a>],
    /// With it, ids are emulated: credentials, owners, modes and device nodes are the guest's own.
    /// Without it every id is the host's.
    pub identity: Option<Identity>,
    /// Programs of the host that run programs for other architectures.
    pub emulators: &'a [Emulator<'a>],
    /// The host name that the guest sees until a process sets another one
    /// ([`crate::guest::Host::host_name`]); empty for the host's own, which no guest sets.
    pub host_name: &'a [u8],
    /// A directory may have several names for the guest, because one binding's host path contains
    /// another's and their guest paths do not correspond.
    pub(crate) overlaps: bool,
    /// The container has namespaces of its own, whose mounts are its tree: a guest path means to
    /// the kernel what it means to the guest, and the kernel decides about mounts and namespaces.
    pub namespaces: bool,
    /// The image beneath the root binding's directory, where the container's tree has two layers
    /// that the view puts together. Without it that directory is the whole tree.
    pub image: Option<Image<'a>>,
    /// The container's place among those with which it has networks. Without it all addresses
    /// are the host's.
    pub network: Option<Network<'a>>,
    /// The names that the guest paths of the bindings consist of.
    names: Names,
}

impl<'a> World<'a> {
    /// Makes the world of a container.
    pub const fn new(
        bindings: &'a [Binding<'a>],
        identity: Option<Identity>,
        emulators: &'a [Emulator<'a>],
    ) -> Self {
        let (overlaps, names) = (overlap(bindings), Names::of(bindings));
        Self {
            bindings,
            identity,
            emulators,
            host_name: b"",
            overlaps,
            namespaces: false,
            image: None,
            network: None,
            names,
        }
    }

    /// The same in namespaces of its own.
    #[must_use]
    pub const fn in_namespaces(self, namespaces: bool) -> Self {
        Self { namespaces, ..self }
    }

    /// Returns true if a name is a component of a binding's guest path.
    pub fn is_bound(&self, name: &[u8]) -> bool {
        self.names.may_have(name)
            && self.bindings.iter().any(|binding| {
                binding.guest.split(|byte| *byte == b'/').any(|component| component == name)
            })
    }
}

/// Returns true if the host path of one binding contains that of another, and it is not the same
/// directory for the guest (`-v /home/me:/home/me -v /home/me/work:/home/me/work`). What hides
/// files has no directories that a process would enter.
const fn overlap(bindings: &[Binding<'_>]) -> bool {
    let mut one = 0;
    while one < bindings.len() {
        let mut other = 0;
        while other < bindings.len() {
            let (above, below) = (&bindings[one], &bindings[other]);
            if one != other
                && !matches!(above.kind, Kind::Mask)
                && !matches!(below.kind, Kind::Mask)
                && contains(above.host, below.host)
                && !corresponds(above, below)
            {
                return true;
            }
            other += 1;
        }
        one += 1;
    }
    false
}

/// Returns true if a binding within another on the host is at the same place for the guest.
const fn corresponds(above: &Binding<'_>, below: &Binding<'_>) -> bool {
    let start = if above.host.len() == 1 { 0 } else { above.host.len() };
    let guest = if above.guest.len() == 1 { 0 } else { above.guest.len() };
    let rest = below.host.len() - start;
    if rest == 0 || below.guest.len() != guest + rest || !contains(above.guest, below.guest) {
        return false;
    }
    let mut at = 0;
    while at < rest {
        if below.host[start + at] != below.guest[guest + at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Returns true if `below` is the directory `above` or a path in it.
const fn contains(above: &[u8], below: &[u8]) -> bool {
    // The directory `/` ends with its slash, others do without.
    let mut at = if above.len() == 1 { 0 } else { above.len() };
    if at > below.len() || (at < below.len() && below[at] != b'/') {
        return false;
    }
    // From the end: paths that differ mostly begin alike.
    while at > 0 {
        at -= 1;
        if above[at] != below[at] {
            return false;
        }
    }
    true
}

/// A set of names with false positives: one bit for each of 256 classes.
#[derive(Debug, Clone, Copy)]
struct Names([u64; 4]);

impl Names {
    const fn of(bindings: &[Binding<'_>]) -> Self {
        let mut names = Self([0; 4]);
        let mut index = 0;
        while index < bindings.len() {
            let guest = bindings[index].guest;
            let (mut start, mut at) = (0, 0);
            while at <= guest.len() {
                if at == guest.len() || guest[at] == b'/' {
                    if at > start {
                        let class = Self::class(guest[start], guest[at - 1], at - start);
                        names.0[class / 64] |= 1 << (class % 64);
                    }
                    start = at + 1;
                }
                at += 1;
            }
            index += 1;
        }
        names
    }

    const fn class(first: u8, last: u8, length: usize) -> usize {
        (first as usize ^ (last as usize) << 3 ^ length.wrapping_mul(29)) & 0xff
    }

    const fn may_have(&self, name: &[u8]) -> bool {
        let [first, ..] = name else { return false };
        let class = Self::class(*first, name[name.len() - 1], name.len());
        self.0[class / 64] & 1 << (class % 64) != 0
    }
}

/// A user-mode emulator (static `qemu-user`) for one architecture. It runs in the guest's world, so
/// it finds the program's interpreter there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulator<'a> {
    /// `e_machine` of the programs it runs; see elf(5).
    pub machine: u16,
    /// Host path of the emulator, for the host's own architecture.
    pub host: &'a [u8],
}

/// How ids of the host appear in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The caller's real user id on the host.
    pub host_uid: u32,
    /// The caller's real group id on the host.
    pub host_gid: u32,
    /// User id of the container's user, who owns the files without a record in bindings of
    /// [`Kind::Host`].
    pub uid: u32,
    /// The group id of that user.
    pub gid: u32,
}
