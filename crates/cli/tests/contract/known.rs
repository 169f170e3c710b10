//! Differences between engines and users that cannot be helped, or not yet, each with its reason.
//!
//! A case named here must fail; the suite complains when it passes, so the list stays true.

use testkit::harness::Known;

/// Parts of case names.
pub(crate) const KNOWN: &[Known] = &[];
