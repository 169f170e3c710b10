//! Lines in which an engine is known to differ from native, each with its reason.

/// A difference: how a line begins natively, and what it contains here.
struct Known {
    /// Engines whose name begins so; empty for all.
    engines: &'static str,
    /// `plain` or `range`, see [`testkit::users`]; empty for both.
    kind: &'static str,
    /// Parts of the line, natively.
    native: &'static [&'static str],
    /// Parts of it here.
    here: &'static [&'static str],
    /// What follows in the sequence differs in consequence.
    ends: bool,
    /// Why.
    #[expect(dead_code, reason = "for whoever reads this list")]
    reason: &'static str,
}

/// `CLONE_FS` between processes.
const OWN_ROOT: &str = "inside the process, root and umask are shared with CLONE_FS only by those who share memory as well";

const KNOWN: &[Known] = &[
    Known {
        engines: "I",
        kind: "",
        native: &["chroot(own) = ENOENT"],
        here: &["chroot(own) = 0"],
        ends: true,
        reason: OWN_ROOT,
    },
    Known {
        engines: "I",
        kind: "",
        native: &["umask("],
        here: &["umask("],
        ends: true,
        reason: OWN_ROOT,
    },
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
        kind: "",
        native: &["rename"],
        here: &["= EXDEV"],
        ends: true,
        reason: "an overlay does not move directories of its lower layer",
    },
    Known {
        engines: "",
        kind: "",
        native: &["getpeername", "\"/"],
        here: &["getpeername", "\"/"],
        ends: false,
        reason: "as with getsockname",
    },
    Known {
        engines: "",
        kind: "",
        native: &["connect(", "= 0"],
        here: &["connect(", "= EACCES"],
        ends: true,
        reason: "a socket that was made with a umask against its own owner is closed to the host's user, whom emulated root is to the kernel",
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

/// Sequences of the corpus in which an engine differs where no rule about lines could say so without hiding other faults: engines whose name
/// begins so, mode, seed, why.
const SEEDS: &[(&str, &str, u64, &str)] = &[
    ("P", "files", 56, REPLACED),
    ("I", "files", 56, REPLACED),
    ("I", "files", 32, OWN_ROOT),
    (
        "I",
        "files",
        34,
        "the descriptor that an open gives is 4 instead of 3 once; not explained yet",
    ),
];

const REPLACED: &str = "a descriptor that was opened before its file became the container's own is still the image's file";

/// Why a sequence of the corpus is known to differ.
pub(crate) fn seed(engine: &str, mode: &str, seed: u64) -> Option<&'static str> {
    let mut seeds = SEEDS.iter();
    let known = |(engines, known, number, _): &&(&str, &str, u64, &str)| {
        engine.starts_with(engines) && *known == mode && *number == seed
    };
    seeds.find(known).map(|(.., reason)| *reason)
}

/// A line of what stat says, without the number of links.
fn without_links(line: &str) -> Option<(&str, &str)> {
    let (before, rest) = line.split_once(" links ")?;
    Some((before, rest.split_once(' ')?.1))
}

/// Whether two lines that differ are in the list, and if so, whether the rest of the sequence is still to be compared.
pub(crate) fn is_known(engine: &str, kind: &str, native: &str, here: &str) -> Option<bool> {
    // An overlay shows how many names an inode has in the store.
    if engine == "N1"
        && without_links(native).is_some_and(|parts| without_links(here) == Some(parts))
    {
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
