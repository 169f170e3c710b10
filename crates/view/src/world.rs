//! What is fixed for a container while it runs.

/// A host file or directory under a name of the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding<'a> {
    /// Guest path: absolute, no `.`, `..`, `//` or trailing slash, symbolic links resolved by whoever made the table; `/` for the root.
    pub guest: &'a [u8],
    /// Host path: absolute and canonical.
    pub host: &'a [u8],
    /// Writing is [`crate::Errno::EROFS`].
    pub read_only: bool,
    /// What kind of files these are.
    pub kind: Kind,
}

/// What lies behind a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The container's own tree: unrecorded files of the caller's belong to root, and regular files may be shared with the image.
    Tree,
    /// A host directory, a volume or memory: unrecorded files of the caller's belong to the container's user.
    Host,
    /// The host's `/proc`: magic links, and files whose text names paths.
    Proc,
    /// Something that hides what is beneath (`/proc/kcore`...): empty.
    Mask,
}

/// The container.
#[derive(Debug, Clone, Copy)]
pub struct World<'a> {
    /// Sorted by guest path (bytewise), at least the root `/`. Later duplicates of a guest path hide earlier ones and have been removed.
    pub bindings: &'a [Binding<'a>],
    /// Ids are emulated: credentials, owners, modes and device nodes are the guest's own. Without it every id is the host's.
    pub identity: Option<Identity>,
    /// Programs of the host that run programs of other architectures.
    pub emulators: &'a [Emulator<'a>],
    /// Which names the bindings consist of.
    names: Names,
}

impl<'a> World<'a> {
    /// A container.
    pub const fn new(
        bindings: &'a [Binding<'a>],
        identity: Option<Identity>,
        emulators: &'a [Emulator<'a>],
    ) -> Self {
        Self { bindings, identity, emulators, names: Names::of(bindings) }
    }

    /// Whether a name is a component of a binding's guest path.
    pub fn is_bound(&self, name: &[u8]) -> bool {
        self.names.may_have(name)
            && self.bindings.iter().any(|binding| {
                binding.guest.split(|byte| *byte == b'/').any(|component| component == name)
            })
    }
}

/// A set of names that may hold more than was put in: a bit for each of 256 classes.
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

/// A user-mode emulator (`qemu-user`, static) for one architecture. It runs in the guest's world, so it finds the program's interpreter there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emulator<'a> {
    /// `e_machine` of the programs it runs; see elf(5).
    pub machine: u16,
    /// Host path of the emulator, for the host's own architecture.
    pub host: &'a [u8],
}

/// How ids of the host appear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The caller's real user id on the host.
    pub host_uid: u32,
    /// The caller's real group id on the host.
    pub host_gid: u32,
    /// The container's user: owner of unrecorded files in bindings of [`Kind::Host`].
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}
