//! Which cases are rare: of them `cargo xtask ci` runs a third, which the commit's hash chooses.
//!
//! What users get is what a kind of host chooses by itself: N1, with and without subordinate ids,
//! and I1 where namespaces are forbidden. These run always; the other modes are rare, and so are
//! the longest cases.

use testkit::share::Rarity;

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

/// The longest cases, with their seconds on two busy processors. They take turns in this order, so
/// each share has about as much of them; what two users or hosts show is in two shares.
const LONG: [&str; 27] = [
    // 125 s each
    "cluster::allowed::killed",
    "cluster::forbidden::killed",
    // 120 s
    "programs::I1::python::tests",
    // 106 s
    "contract::N1::plain::large::packages",
    // 73 s
    "hosts::ranks::slurm",
    // 65 s each
    "cluster::forbidden::elastic",
    "cluster::allowed::elastic",
    // 63 s
    "programs::I1::apt::install",
    // 53 s
    "contract::I1::plain::large::packages",
    // 50 s each
    "crash::plain::kill::one_command_alone",
    "crash::range::kill::one_command_alone",
    "cluster::forbidden::farm",
    "cluster::allowed::farm",
    // 48 s each
    "cluster::allowed::farm_broken",
    "cluster::forbidden::farm_broken",
    // 46 s
    "contract::N1::range::large::packages",
    // 44 s
    "cluster::forbidden::open_mpi",
    // 43 s each
    "cluster::forbidden::grid_mended",
    "hosts::images::by_sbcast",
    // 41 s each
    "hosts::farm::hosts",
    "network::I1::far_sentinel",
    // 39 s
    "cluster::allowed::open_mpi",
    // 36 s each
    "servers::I1::far_open_mpi",
    "crash::plain::full::disk",
    "cluster::allowed::farm_mended",
    // 33 s
    "hosts::kills::points",
    // 32 s
    "cluster::allowed::grid",
];

/// Groups of long cases in worlds that are chosen by themselves: 5 s to half a minute each.
const LONG_GROUPS: [(&str, &str); 6] = [
    ("contract", "large"),
    ("contract", "nest"),
    ("crash", "full"),
    ("crash", "kill"),
    ("crash", "losses"),
    ("crash", "pairs"),
];

/// In which shares the case with such a name runs.
pub(crate) fn rarity(name: &str) -> Rarity {
    if !is_chosen(name) {
        return Rarity::ByName;
    }
    let place = (0..).zip(LONG).find(|(_, long)| *long == name).map(|(place, _)| place);
    let usual = if is_in_long_group(name) { Rarity::ByName } else { Rarity::Always };
    place.map_or(usual, Rarity::ByPlace)
}

fn is_in_long_group(name: &str) -> bool {
    let words: Vec<&str> = name.split("::").collect();
    let [suite, .., group, _] = words[..] else { return false };
    LONG_GROUPS.contains(&(suite, group))
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
