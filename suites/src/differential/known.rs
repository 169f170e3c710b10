//! Lines in which an engine is known to differ from native, each with its reason.

use testkit::command::Finished;

use super::native::Who;

/// A difference.
struct Known {
    /// Prefix of the engines' names; empty for all.
    engines: &'static str,
    /// `plain` or `range`, see [`testkit::users`]; empty for both.
    kind: &'static str,
    program: &'static str,
    /// The user, if it matters.
    who: Option<Who>,
    /// Only for Linux older than this.
    before: Option<(u32, u32)>,
    /// How the lines begin, natively and here; empty for all lines of the program.
    lines: &'static [&'static str],
    /// The reason.
    #[expect(dead_code, reason = "for whoever reads this list")]
    reason: &'static str,
}

const ANY: Known =
    Known { engines: "", kind: "", program: "", who: None, before: None, lines: &[""], reason: "" };

/// One mapped id: every file belongs to the program, whatever its ids.
const ONE_ID: &str = "the kernel knows one id here, to which everything belongs; what root changed is remembered, and shown to package managers only";
/// The view answers newer calls by older ones.
const NEWER_CALLS: &str =
    "an interposing engine answers calls that the kernel itself does not know yet";
/// A known gap.
const CALLS_OF_32_BITS: &str = "int 0x80 in 64-bit code is not seen without a filter";
/// The same as with overlay mounts.
const COPIES: &str = "a file with several names inside the image gets its copy under the name that is changed; the others stay the image's";

const KNOWN: &[Known] = &[
    Known {
        program: "paths",
        before: Some((5, 8)),
        lines: &["syscall(SYS_faccessat2,", "faccessat(f, \"\", F_OK, AT_EMPTY_PATH)"],
        reason: NEWER_CALLS,
        ..ANY
    },
    Known {
        program: "paths",
        before: Some((5, 7)),
        lines: &[".", "/", "f/. ", "d/.", "ld/."],
        reason: "making a new file under the name of a directory that ends in a dot was EISDIR or ENOTDIR; interposing engines say EEXIST, as newer kernels do",
        ..ANY
    },
    Known {
        program: "execs",
        before: Some((5, 1)),
        lines: &["execve script-longer:"],
        reason: "a script's first line that is too long was cut; interposing engines refuse it, as newer kernels do",
        ..ANY
    },
    Known {
        program: "execs",
        before: Some((6, 14)),
        lines: &["  comm="],
        reason: "a program that was executed by its descriptor was named after the descriptor's number; interposing engines name it after its file, as newer kernels do",
        ..ANY
    },
    Known {
        program: "opens",
        before: Some((5, 6)),
        lines: &["how(", "stat how-made", "syscall(SYS_openat2,"],
        reason: NEWER_CALLS,
        ..ANY
    },
    Known {
        program: "stats",
        before: Some((4, 11)),
        lines: &["syscall(SYS_statx,"],
        reason: NEWER_CALLS,
        ..ANY
    },
    Known {
        engines: "P2",
        program: "tasks",
        lines: &[
            "filters: ",
            "  filters: ",
            "filters_",
            "  filters_",
            "  in the sandbox",
            "  filtered: ",
            "thread_filters: ",
            "  thread_filters: ",
        ],
        reason: "a call that the tracer answers never reaches the guest's own filters, which the kernel would ask after the tracer",
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "plain",
        program: "sites",
        who: Some(Who::User),
        lines: &["kind(page, LONG)(0, (long)\"/etc/passwd\", 0, 0)"],
        reason: ONE_ID,
        ..ANY
    },
    Known {
        engines: "I",
        program: "opens",
        lines: &["fcntl(fd, F_GETFL)"],
        reason: "a file is opened with O_NOFOLLOW, so that one call finds out whether it is a link; the flag stays with the descriptor",
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "plain",
        program: "tasks",
        lines: &["traced_plain", "  traced_plain"],
        reason: "a tracer inside sees the calls of the stage too",
        ..ANY
    },
    Known {
        program: "procs",
        lines: &["/proc/self/mountinfo: text"],
        reason: "as with Docker it names the directory of the host where the container's files of /etc lie",
        ..ANY
    },
    Known {
        engines: "I",
        program: "spaces",
        lines: &["ulimit -n"],
        reason: "a program is loaded by descriptors, so execve fails where there are none",
        ..ANY
    },
    Known {
        program: "spaces",
        lines: &["open(\"/none\", O_RDONLY)"],
        reason: "of two errors (no descriptor, no such file) another one is found first where the view looks at the file before the kernel opens it",
        ..ANY
    },
    Known {
        engines: "P",
        program: "spaces",
        lines: &["ulimit -n"],
        reason: "a program is loaded by descriptors, so it does not start where there are none",
        ..ANY
    },
    Known {
        program: "leaks",
        lines: &["io_uring without parameters"],
        reason: "a ring opens files without a call that could be caught, so interposing engines have none; natively the call gets as far as its parameters",
        ..ANY
    },
    Known {
        program: "procs",
        lines: &["/proc/self/mountstats"],
        reason: "not every engine has statistics of mounts",
        ..ANY
    },
    Known {
        program: "opens",
        lines: &["open(\"/dev/stdout\""],
        reason: "standard output is a pipe that the suite made as root, and another host user may not open it again",
        ..ANY
    },
    Known { program: "links", lines: &["stat /shared/"], reason: COPIES, ..ANY },
    Known {
        engines: "N1",
        program: "procs",
        lines: &[
            "/proc/self/mounts",
            "/proc/self/mountinfo",
            "/proc/mounts",
            "Seccomp",
            "prctl(PR_GET_SECCOMP)",
            "Groups",
        ],
        reason: "the kernel's own mounts and filters, which name what they are made of",
        ..ANY
    },
    Known {
        engines: "N1",
        program: "threads",
        lines: &["newuser", "getcwd"],
        reason: "the other root is the container's, not a chroot: user namespaces may be made in it",
        ..ANY
    },
    Known {
        engines: "N1",
        program: "others",
        lines: &["newuser", "getcwd"],
        reason: "the other root is the container's, not a chroot: user namespaces may be made in it",
        ..ANY
    },
    Known {
        engines: "P",
        program: "tasks",
        lines: &["  nobody is traced"],
        reason: "every process has a tracer, and can have but one",
        ..ANY
    },
    Known {
        engines: "N1",
        program: "tasks",
        lines: &["  filters", "filters", "  in the sandbox", "  strict", "strict"],
        reason: "the kernel's own filters, beside which there is no strict mode",
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "plain",
        program: "tasks",
        lines: &[
            "  setresuid",
            "  owner of",
            "  thread_ids",
            "thread_ids",
            "  fork_ids",
            "fork_ids",
        ],
        reason: ONE_ID,
        ..ANY
    },
    Known { engines: "N1", kind: "plain", program: "stats", reason: ONE_ID, ..ANY },
    Known {
        engines: "N1",
        program: "stats",
        lines: &["/etc/passwd: 100644", "/shared/"],
        reason: "an overlay shows how many names an inode has in the store, and a flattened tree of the image for the other engines gives it more",
        ..ANY
    },
    Known { engines: "N1", kind: "plain", program: "identity", reason: ONE_ID, ..ANY },
    Known { engines: "N1", kind: "plain", program: "attributes", reason: ONE_ID, ..ANY },
    Known {
        engines: "N1",
        kind: "plain",
        program: "paths",
        who: Some(Who::User),
        reason: ONE_ID,
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "plain",
        program: "dynamic",
        who: Some(Who::User),
        reason: ONE_ID,
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "plain",
        program: "other",
        who: Some(Who::User),
        reason: ONE_ID,
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "plain",
        program: "links",
        who: Some(Who::User),
        reason: ONE_ID,
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "plain",
        program: "sockets",
        who: Some(Who::User),
        reason: ONE_ID,
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "plain",
        program: "execs",
        who: Some(Who::User),
        reason: ONE_ID,
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "range",
        program: "stats",
        lines: &["/dev/null"],
        reason: "the host's devices belong to an id that the namespace does not have",
        ..ANY
    },
    Known {
        engines: "F2",
        program: "spaces",
        lines: &["mapped code: bad"],
        reason: "who overwrites half of a call site in text of a file leaves half of a jump there",
        ..ANY
    },
    Known {
        engines: "F",
        program: "spaces",
        lines: &["open of what only the host has"],
        reason: CALLS_OF_32_BITS,
        ..ANY
    },
    Known {
        engines: "F",
        program: "leaks",
        lines: &["i386 ", "mode 100644", "cwd /"],
        reason: CALLS_OF_32_BITS,
        ..ANY
    },
    Known {
        engines: "F",
        program: "tasks",
        lines: &[
            "filters",
            "  filters",
            "filters_hot",
            "  filters_hot",
            "  in the sandbox",
            "filters_list",
            "  filters_list",
            "strict",
            "  strict",
            "big_filter",
            "  big_filter",
            "thread_filters",
            "  thread_filters",
            "  filtered",
            "  nobody is traced",
        ],
        reason: "a host that refuses filters and tracing refuses the guest's own too",
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "range",
        program: "attributes",
        lines: &[
            "setxattr(\"f\", \"trusted.x\"",
            "getxattr(\"f\", \"trusted.x\"",
            "removexattr(\"f\", \"trusted.x\"",
            "f: security.capability",
        ],
        reason: "trusted attributes are the host's root's",
        ..ANY
    },
    Known {
        engines: "N1",
        kind: "range",
        program: "identity",
        who: Some(Who::Root),
        reason: "ids beyond the range and devices are refused by the kernel to a namespace's root",
        ..ANY
    },
];

/// Returns true if an engine correctly reports that it does not run a program: the in-process one
/// does not load 32-bit programs.
pub(super) fn is_refused(engine: &str, program: &str, done: &Finished) -> bool {
    let words = done.err();
    engine.starts_with(['I', 'F'])
        && program == "narrow"
        && done.code() == 126
        && words.contains("is a 32-bit program")
        && words.contains("--execmode=P1")
}

/// Major and minor number of the running kernel.
fn linux() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(u32::MAX));
    (numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(u32::MAX))
}

/// Returns true if a line (`- native` or `+ here`) is in the list.
pub(super) fn is_known(engine: &str, kind: &str, program: &str, who: Who, line: &str) -> bool {
    let line = line.get(2..).unwrap_or_default();
    // An engine inside the process too, as F2 is; with a range it is the kernel alone.
    let is_inside = engine == "N1" && kind == "plain";
    KNOWN.iter().any(|known| {
        let inside = known.engines == "I" && (engine.starts_with('F') || is_inside);
        let of_f = is_inside && known.engines.starts_with('F');
        (engine.starts_with(known.engines) || inside || of_f)
            && kind.starts_with(known.kind)
            && program == known.program
            && known.who.is_none_or(|only| only == who)
            && known.before.is_none_or(|version| linux() < version)
            && known.lines.iter().any(|begin| line.starts_with(begin))
    })
}
