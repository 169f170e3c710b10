//! Cases of pjdfstest that pass for real root and not in a container, each with its reason. A case
//! that passes must be removed. A `*` matches the beginning of a name.

use testkit::harness::Known;

/// Without namespaces.
const EMULATED: &[Known] = &[Known {
    case: "rmdir::ebusy",
    reason: "it mounts something, for which a container's root has no privilege (mount points of the container itself are EBUSY)",
}];

const DEVICES: &str =
    "no user namespace may make device nodes; where Coracle emulates ids, a record stands for one";

/// In namespaces with a range of ids.
const WITH_RANGE: &[Known] =
    &[Known { case: "*::block", reason: DEVICES }, Known { case: "*::char", reason: DEVICES }];

/// The known failures of a mode for a user with or without a range of ids.
pub(crate) const fn list(mode: &str, range: bool) -> &'static [Known] {
    match (mode.as_bytes(), range) {
        (b"N1", true) => WITH_RANGE,
        // With one id the container's root mounts as any other.
        (b"N1", false) => &[],
        _ => EMULATED,
    }
}

/// Whether an entry is about a case.
pub(crate) fn is_about(known: &Known, case: &str) -> bool {
    known.case.strip_prefix('*').map_or(known.case == case, |end| case.ends_with(end))
}
