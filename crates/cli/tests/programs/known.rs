//! Differences from real root that cannot be helped, each with its reason. A case named here must fail, so the list stays true.

use testkit::harness::Known;

/// Parts of case names; a `*` stands for anything.
pub(crate) const KNOWN: &[Known] = &[];

/// Tests of Python that end differently than in a plain chroot, and why.
pub(crate) const PYTHON: &[(&str, &str)] = &[(
    "test_preexec_fork_failure",
    "the limit of processes does not hold for real root, so the test is skipped there; it holds for the user that emulated root is to the kernel, and \
     the test passes",
)];
