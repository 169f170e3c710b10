//! From the host's name of a file to the guest's.

use super::bindings::{behind, find};
use crate::errno::Result;
use crate::text::Text;
use crate::world::World;

/// Where a host file is for the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// In this binding.
    Inside(usize),
    /// A host path that the guest has no name for.
    Outside,
    /// No path at all: `pipe:[1]`, `anon_inode:[eventpoll]`, `/memfd:x`.
    Unnamed,
}

/// Puts the guest's name of a canonical host path (as `/proc/PID/fd/N`, `/proc/PID/cwd`, `getcwd` give it) into `into`. A ` (deleted)` at
/// the end stays there. Where the answer is not [`Origin::Inside`], `into` is empty.
///
/// If a file has several names by overlapping bindings, the longest host path wins, then the first in the table; a name that another
/// binding hides is no name.
pub fn reverse(world: &World<'_>, host: &[u8], into: &mut Text) -> Result<Origin> {
    into.clear();
    if host.first() != Some(&b'/') || host.starts_with(b"/memfd:") {
        return Ok(Origin::Unnamed);
    }
    let alive = host.strip_suffix(b" (deleted)");
    let mut longest = usize::MAX;
    // Longest host prefix first; each round takes the next shorter length, so that every binding is tried at most once.
    loop {
        let mut next: Option<(usize, &[u8])> = None;
        for (index, binding) in world.bindings.iter().enumerate() {
            let length = binding.host.len();
            if length >= longest
                || next.is_some_and(|(best, _)| world.bindings[best].host.len() >= length)
            {
                continue;
            }
            // The bound file itself may be the deleted one.
            let rest = behind(host, binding.host)
                .or_else(|| (alive == Some(binding.host)).then_some(b" (deleted)"));
            if let Some(rest) = rest {
                next = Some((index, rest));
            }
        }
        let Some((first, _)) = next else { return Ok(Origin::Outside) };
        longest = world.bindings[first].host.len();
        for (index, binding) in world.bindings.iter().enumerate() {
            if binding.host.len() != longest {
                continue;
            }
            let rest = behind(host, binding.host)
                .or_else(|| (alive == Some(binding.host)).then_some(b" (deleted)"));
            let Some(rest) = rest else { continue };
            into.set(binding.guest)?;
            if rest.first() == Some(&b'/') && binding.guest == b"/" {
                into.clear();
            }
            into.push(rest)?;
            if find(world, into.as_bytes()).is_some_and(|(found, _)| found == index)
                || rest == b" (deleted)"
            {
                return Ok(Origin::Inside(index));
            }
        }
        into.clear();
    }
}

/// Turns a guest path into what a task sees whose root is `root` (`chroot(2)`). False, and the path as it was, if it lies outside.
pub fn seen_from(root: &Text, path: &mut Text) -> Result<bool> {
    if root.as_bytes() == b"/" || root.is_empty() {
        return Ok(true);
    }
    let Some(rest) = behind(path.as_bytes(), root.as_bytes()) else { return Ok(false) };
    let length = path.len() - rest.len();
    path.cut_front(length);
    if path.is_empty() {
        path.push(b"/")?;
    }
    Ok(true)
}
