//! Differences between engines and users that cannot be helped, or not yet, each with its reason.
//!
//! A case named here must fail; the suite complains when it passes, so the list stays true.

use testkit::harness::Known;

/// Parts of case names.
pub(crate) const KNOWN: &[Known] = &[Known {
    case: "::env::arguments_need_not_be_utf8",
    reason: "a container's record is JSON, and so is OCI's: words must be UTF-8, and others are refused with that reason",
}];
