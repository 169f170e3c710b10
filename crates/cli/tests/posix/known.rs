//! Cases of pjdfstest that pass for real root and not in a container, each with its reason. A case
//! that passes must be removed.

use testkit::harness::Known;

pub(crate) const KNOWN: &[Known] = &[Known {
    case: "rmdir::ebusy",
    reason: "it mounts something, for which a container's root has no privilege (mount points of the container itself are EBUSY)",
}];
