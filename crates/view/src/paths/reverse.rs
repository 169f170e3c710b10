//! Translates a host path to the guest's path of the same file.

use super::bindings::{behind, find};
use crate::errno::Result;
use crate::text::Text;
use crate::world::World;

/// How the guest can name a host file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// By a path in this binding.
    Inside(usize),
    /// Not at all: the host path is in no binding.
    Outside,
    /// The file has no path: `pipe:[1]`, `anon_inode:[eventpoll]`, `/memfd:x`.
    Unnamed,
}

/// Puts the guest's name of a canonical host path (from `/proc/PID/fd/N`, `/proc/PID/cwd` or
/// `getcwd`) into `into`. A ` (deleted)` at the end is kept. If the result is not
/// [`Origin::Inside`], `into` is empty.
///
/// If bindings overlap and the file has several names, the binding with the longest host path wins,
/// then the first in the table. A name that another binding hides does not count.
pub fn reverse(world: &World<'_>, host: &[u8], into: &mut Text) -> Result<Origin> {
    reverse_by(world, host, || None, into)
}

/// As [`reverse`], for a directory that was entered by a known binding. If several bindings contain
/// the directory, `entered` is asked for that binding's index, and its name is the one that the
/// kernel would show if each binding were a mount.
pub fn reverse_by(
    world: &World<'_>,
    host: &[u8],
    entered: impl FnOnce() -> Option<usize>,
    into: &mut Text,
) -> Result<Origin> {
    into.clear();
    if world.overlaps
        && world.bindings.iter().filter(|one| behind(host, one.host).is_some()).nth(1).is_some()
        && let Some(index) = entered()
        && let Some(binding) = world.bindings.get(index)
        && let Some(rest) = behind(host, binding.host)
    {
        into.set(if rest.is_empty() || binding.guest != b"/" { binding.guest } else { b"" })?;
        into.push(rest)?;
        if find(world, into.as_bytes()).is_some_and(|(found, _)| found == index) {
            return Ok(Origin::Inside(index));
        }
        into.clear();
    }
    // A file of the image that is open, or mapped, where it lies.
    if let Some(path) = world.image.and_then(|image| image.in_lower(host)) {
        into.set(b"/")?;
        into.push(path)?;
        return Ok(Origin::Inside(0));
    }
    if host.first() != Some(&b'/') || host.starts_with(b"/memfd:") {
        return Ok(Origin::Unnamed);
    }
    let alive = host.strip_suffix(b" (deleted)");
    let mut longest = usize::MAX;
    // Longest host prefix first. Each round takes the next shorter length, so every binding is
    // tried at most once.
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

/// Turns a guest path into the path that a task with the root `root` (`chroot(2)`) sees. Returns
/// false and leaves the path unchanged if it lies outside of that root.
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
