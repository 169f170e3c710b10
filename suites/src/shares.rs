//! Which cases are rare: of them `cargo xtask ci` runs a third, which the commit's hash chooses.
//!
//! What users get is what a kind of host chooses by itself: N1, with and without subordinate ids,
//! and I1 where namespaces are forbidden. These run always; the other modes are rare, and so are
//! the longest cases.

/// Suites whose cases are named by a mode.
const BY_MODE: [&str; 8] = [
    "contract",
    "differential",
    "sequences",
    "posix",
    "programs",
    "integration",
    "network",
    "servers",
];

/// Beginnings of what follows the suite's name, of the modes that are chosen by themselves.
const CHOSEN: [&str; 6] =
    ["N1::range::", "N1::plain::", "N1::linked::", "I1::plain::", "oracle::", "far::"];

/// The same where one user runs the whole suite, so that names have no user.
const CHOSEN_OF_ONE: [&str; 4] = ["N1", "N1-tap", "I1", "nothing_is_left"];

/// Parts of the names of long cases, with their seconds on two busy processors.
const LONG: &[&str] = &[
    // 125 s
    "cluster::allowed::killed",
    "cluster::forbidden::killed",
    // 120 s
    "programs::I1::python::tests",
    // 65 s
    "cluster::forbidden::elastic",
    // 48 s
    "::farm_broken",
    // 41 s
    "hosts::farm::hosts",
];

/// Whether only a share of the cases with such a name runs.
pub(crate) fn is_rare(name: &str) -> bool {
    LONG.iter().any(|part| name.contains(part)) || !is_chosen(name)
}

fn is_chosen(name: &str) -> bool {
    let Some((suite, case)) = name.split_once("::") else { return true };
    if !BY_MODE.contains(&suite) {
        return true;
    }
    let mode = case.split("::").next().unwrap_or_default();
    CHOSEN.iter().any(|chosen| case.starts_with(chosen))
        || !has_user(case) && CHOSEN_OF_ONE.contains(&mode)
}

/// Whether the second part of a case's name is a kind of user.
fn has_user(case: &str) -> bool {
    let user = case.split("::").nth(1).unwrap_or_default();
    ["plain", "range", "linked"].contains(&user)
}
