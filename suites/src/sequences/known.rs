//! Lines in which an engine is known to differ from native, each with its reason.

/// A difference: how a line begins natively, and what it contains here.
struct Known {
    /// Prefix of the engines' names; empty for all.
    engines: &'static str,
    /// `plain` or `range`, see [`testkit::users`]; empty for both.
    kind: &'static str,
    /// Parts of the line, natively.
    native: &'static [&'static str],
    /// Parts of the line, here.
    here: &'static [&'static str],
    /// The rest of the sequence differs in consequence.
    ends: bool,
    /// The reason.
    #[expect(dead_code, reason = "for whoever reads this list")]
    reason: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        engines: "I",
        kind: "",
        native: &["F_GETFL("],
        here: &["F_GETFL("],
        ends: false,
        reason: "a path without links is opened with O_NOFOLLOW, which the kernel keeps among the flags",
    },
    Known {
        engines: "N1",
        kind: "plain",
        native: &["F_GETFL("],
        here: &["F_GETFL("],
        ends: false,
        reason: "as in I",
    },
    Known {
        engines: "N1",
        kind: "plain",
        native: &["rename", "= EXDEV"],
        here: &["rename", "= E"],
        ends: false,
        reason: "the kernel compares the mounts of two directories before it looks for names in them; what is mounted is not known to the view",
    },
    Known {
        engines: "N1",
        kind: "",
        native: &["rename"],
        here: &["= EXDEV"],
        ends: true,
        reason: "an overlay does not move directories of its lower layer",
    },
    Known {
        engines: "N1",
        kind: "",
        native: &["chmod"],
        here: &["chmod", "= EEXIST"],
        ends: true,
        reason: "an overlay cannot copy up a file that is open and whose name another one has taken",
    },
    Known {
        engines: "",
        kind: "",
        native: &["access", "/fd/", "= EACCES"],
        here: &["access", "/fd/", "= 0"],
        ends: false,
        reason: "a process that has changed its ids may not look into its own /proc; to the kernel it has not changed them",
    },
    Known {
        engines: "",
        kind: "",
        native: &["access", "/fd/", "= 0"],
        here: &["access", "/fd/", "= EACCES"],
        ends: false,
        reason: "a link below /proc/self/fd cannot be written, but by the host's root",
    },
    Known {
        engines: "",
        kind: "",
        native: &["linkat(", "1000) = ENOENT"],
        here: &["linkat("],
        ends: false,
        reason: "with AT_EMPTY_PATH the kernel asks whether the descriptor was opened with these very credentials, before it looks what that is",
    },
    Known {
        engines: "",
        kind: "",
        native: &["getpeername", "= 0"],
        here: &["getpeername", "= 0"],
        ends: false,
        reason: "as with getsockname",
    },
    Known {
        engines: "N1",
        kind: "",
        native: &["copy("],
        here: &["copy(", "= EXDEV"],
        ends: true,
        reason: "a bound directory lies on another file system than an overlay",
    },
    Known {
        engines: "N1",
        kind: "",
        native: &["copy(", "= EINVAL"],
        here: &["copy(", "= EBADF"],
        ends: false,
        reason: "the kernel says so of an overlay's directories",
    },
    Known {
        engines: "",
        kind: "",
        native: &["pread("],
        here: &["pread("],
        ends: false,
        reason: "who has a file of the image open reads what it was then, not its copy that was changed since",
    },
    Known {
        engines: "",
        kind: "",
        native: &["getsockname", "= 0"],
        here: &["getsockname", "= 0"],
        ends: false,
        reason: "the kernel keeps the host's name of a socket, from which the guest's is made anew, without its detours",
    },
];

/// Sequences of the corpus in which an engine differs, where a rule about lines would hide other
/// faults: prefix of the engines' names, mode, seed, reason.
const SEEDS: &[(&str, &str, u64, &str)] = &[
    (
        "I",
        "files",
        5_507_000_241,
        "who has executed another program shares root and umask no more with those who made it by CLONE_FS: the umask that it sets is the kernel's for all \
         of them, but nobody is told",
    ),
    (
        "N1",
        "files",
        812_000_020,
        "without a filter fork is not caught: a child of a process that shares its root by CLONE_FS begins with the root that its parent knew last",
    ),
    (
        "I",
        "files",
        200_000_298,
        "a directory of the image that the container has changed since it was opened is listed by the view: its position is not the file system's, \
         and sendfile finds another error first",
    ),
    (
        "P",
        "files",
        200_000_298,
        "a directory of the image that the container has changed since it was opened is listed by the view: its position is not the file system's, \
         and sendfile finds another error first",
    ),
];

/// Returns the reason why a sequence of the corpus is known to differ.
pub(crate) fn seed(engine: &str, mode: &str, seed: u64) -> Option<&'static str> {
    let mut seeds = SEEDS.iter();
    let known = |(engines, known, number, _): &&(&str, &str, u64, &str)| {
        engine.starts_with(engines) && *known == mode && *number == seed
    };
    seeds.find(known).map(|(.., reason)| *reason)
}

/// Splits a line with the output of stat, without the number of links.
fn without_links(line: &str) -> Option<(&str, &str)> {
    let (before, rest) = line.split_once(" links ")?;
    Some((before, rest.split_once(' ')?.1))
}

/// Splits a line with a mode (six octal digits): text before it, the mode, and text after it.
fn with_mode(line: &str) -> Option<(&str, u32, &str)> {
    let (before, rest) = line.split_once(": ")?;
    let (mode, rest) = rest.split_at_checked(6)?;
    Some((before, u32::from_str_radix(mode, 8).ok()?, rest))
}

/// Returns true if two lines differ only in set-id bits, which the second one lacks.
fn loses_set_ids(native: &str, here: &str) -> bool {
    with_mode(native).zip(with_mode(here)).is_some_and(|(right, ours)| {
        let lost = right.1 & !ours.1;
        right.1 == ours.1 | lost && lost & !0o6000 == 0 && (right.0, right.2) == (ours.0, ours.2)
    })
}

/// Returns `None` if two differing lines are not in the list, else true if the rest of the sequence
/// is still to be compared.
pub(crate) fn is_known(engine: &str, kind: &str, native: &str, here: &str) -> Option<bool> {
    // An overlay shows the number of links that an inode has in the store.
    if engine == "N1"
        && without_links(native).is_some_and(|parts| without_links(here) == Some(parts))
    {
        return Some(true);
    }
    // In other engines a file of the image that has lost its name in the container still has those
    // of the image.
    if native.contains(" links 0 ")
        && without_links(native).is_some_and(|parts| without_links(here) == Some(parts))
    {
        return Some(true);
    }
    // Writing removes set-id bits for everybody but the host's root, whoever is root in a
    // namespace.
    if engine == "N1" && loses_set_ids(native, here) {
        return Some(true);
    }
    // In other engines root keeps them. A user's file loses them when it is opened for writing;
    // later writes to a file that got the bits afterwards, or when it was made, are not checked.
    if (engine != "N1" || kind == "plain") && loses_set_ids(here, native) {
        return Some(true);
    }
    let all = |parts: &[&str], line: &str| parts.iter().all(|part| line.contains(part));
    let mut known = KNOWN.iter();
    let known = known.find(|known| {
        engine.starts_with(known.engines)
            && kind.starts_with(known.kind)
            && all(known.native, native)
            && all(known.here, here)
    })?;
    Some(!known.ends)
}
