//! Work on files of subordinate users: done as root of a user namespace in which they are mapped.

use std::path::Path;

use engine::facts::Facts;
use engine::spec::ContainerConfig;
use sys::userns::Maps;

use crate::context::Context;

/// The ids that containers of this user have, where they have a range; root needs no namespace for that.
pub(crate) fn maps(facts: &Facts) -> Option<Maps> {
    if facts.uid == 0 || !facts.has_range() {
        return None;
    }
    let lines = |caller: u32, subordinate: &[(u32, u32)]| {
        let mut lines = vec![(0, caller, 1)];
        let mut inside = 1;
        for &(first, count) in subordinate {
            lines.push((inside, first, count));
            inside += count;
        }
        lines
    };
    Some(Maps {
        uids: lines(facts.uid, &facts.subuids),
        gids: lines(facts.gid, &facts.subgids),
        helpers: facts.newuidmap.clone().zip(facts.newgidmap.clone()),
    })
}

/// Deletes a directory tree, files of subordinate users included.
pub(crate) fn delete(
    context: &Context,
    path: &Path,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let first = store::remove_owned(path);
    if first.is_ok() {
        return first;
    }
    let facts = Facts::of(context.host(), &context.probing(), &ContainerConfig::default());
    let Some(maps) = maps(&facts) else { return first };
    let answer = sys::userns::run(&maps, false, || match store::remove_owned(path) {
        Ok(()) => Vec::new(),
        Err(error) => error.to_string().into_bytes(),
    })?;
    if answer.is_empty() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&answer).into_owned().into())
    }
}
