//! Known differences from real root, each with its reason. A case listed here must fail, so the
//! list stays correct.

use testkit::harness::Known;

/// Parts of case names; a `*` matches anything.
pub(crate) const KNOWN: &[Known] = &[
    Known {
        case: "N1::debug::calls_are_shown",
        reason: "without a filter a call that is caught enters the kernel only as what is made of it, so a tracer sees that one",
    },
    Known {
        case: "N1::debug::debuggers_see_the_program",
        reason: "the mappings of changed text have the names of its files, which the kernel mounts below /proc/fs/nfsd",
    },
];

/// Tests of Python that end differently than in a plain chroot, with the reason.
pub(crate) const PYTHON: &[(&str, &str)] = &[(
    "test_preexec_fork_failure",
    "the limit of processes does not hold for real root, so the test is skipped there; it holds for the user that emulated root is to the kernel, and \
     the test passes",
)];
