//! Who lives in a container, whatever its records say: they know of programs that were started, not
//! of what these left behind.

use std::path::Path;

use super::processes;
use crate::engines::{inprocess, native};
use crate::spec::ProcessId;

/// Everybody, by number. At least one of the engines knows of none.
pub(crate) fn all(dir: &Path) -> Vec<ProcessId> {
    let mut all = inprocess::members::all(dir);
    all.extend(native::members::all(dir));
    processes::sort(&mut all);
    all
}

/// Those who stand for the others, because what started them lives there no longer; the oldest
/// first.
pub(crate) fn roots(dir: &Path) -> Vec<ProcessId> {
    processes::roots(&all(dir))
}
