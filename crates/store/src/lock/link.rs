//! Locks made of symbolic links, for file systems without working kernel locks; see the parent's essay.

use std::sync::{Arc, OnceLock};

use rustix::fs::FileType;

use super::{Mode, UNKNOWN};
use crate::error::Result;
use crate::root::{Root, random_hex};

/// A link of ours; removed when dropped.
#[derive(Debug)]
pub(super) struct Held {
    root: Arc<Root>,
    rel: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.root.unlink(&self.rel);
    }
}

/// Who made a link.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    host: String,
    boot: String,
    /// Inode number of the process-number namespace.
    namespace: String,
    pid: u32,
    /// The process' start, in clock ticks since boot.
    start: u64,
}

impl Owner {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        let mut next = || fields.next();
        Some(Self {
            host: next()?.to_owned(),
            boot: next()?.to_owned(),
            namespace: next()?.to_owned(),
            pid: next()?.parse().ok()?,
            start: next()?.parse().ok()?,
        })
    }

    /// This process.
    fn me() -> Self {
        static SAME: OnceLock<(String, String)> = OnceLock::new();
        let (host, boot) = SAME.get_or_init(|| (host_name(), boot_id()));
        let pid = std::process::id();
        Self {
            host: host.clone(),
            boot: boot.clone(),
            namespace: pid_namespace(),
            pid,
            start: start_time(pid).unwrap_or(0),
        }
    }

    fn text(&self) -> Result<String> {
        let Self { host, boot, namespace, pid, start } = self;
        // The random part tells two locks of one process apart.
        Ok(format!("{host} {boot} {namespace} {pid} {start} {}", random_hex(8)?))
    }

    /// Whether the owner is certainly gone.
    fn is_dead(&self, me: &Self) -> bool {
        if self.host != me.host {
            return false;
        }
        if self.boot != me.boot {
            return true;
        }
        self.namespace == me.namespace && start_time(self.pid) != Some(self.start)
    }
}

/// Takes the lock if nobody else has it.
pub(super) fn try_take(root: &Arc<Root>, rel: &str, mode: Mode) -> Result<Option<Held>> {
    let me = Owner::me();
    let exclusive = format!("{rel}.x");
    match mode {
        Mode::Shared => {
            let name = format!("{rel}.s.{}", random_hex(8)?);
            make(root, &me.text()?, &name)?;
            let held = Held { root: Arc::clone(root), rel: name };
            Ok(clear(root, &exclusive, &me)?.then_some(held))
        }
        Mode::Exclusive => {
            if !clear(root, &exclusive, &me)? || !make(root, &me.text()?, &exclusive)? {
                return Ok(None);
            }
            let held = Held { root: Arc::clone(root), rel: exclusive };
            for name in shared_links(root, rel)? {
                if !clear(root, &name, &me)? {
                    return Ok(None);
                }
            }
            Ok(Some(held))
        }
    }
}

/// Makes a link; `false` when the name is taken by somebody else.
fn make(root: &Root, text: &str, name: &str) -> Result<bool> {
    // An NFS server may have made the link and its answer been lost: then the link is ours all the same.
    Ok(root.symlink(text, name)? || root.read_link(name)?.as_deref() == Some(text))
}

fn shared_links(root: &Root, rel: &str) -> Result<Vec<String>> {
    let (parent, base) = rel.rsplit_once('/').unwrap_or((".", rel));
    let prefix = format!("{base}.s.");
    let links = root.list(parent)?.into_iter();
    Ok(links
        .filter(|(name, kind)| *kind == FileType::Symlink && name.starts_with(&prefix))
        .map(|(name, _)| format!("{parent}/{name}"))
        .collect())
}

/// Makes sure that no living process holds this link: `true` when there is none (any more).
fn clear(root: &Arc<Root>, name: &str, me: &Owner) -> Result<bool> {
    let Some(text) = root.read_link(name)? else { return Ok(true) };
    let Some(owner) = Owner::parse(&text) else { return Ok(false) };
    if !owner.is_dead(me) {
        return Ok(false);
    }
    // Two processes may have judged the same link dead; the slower one must not take away the faster one's new link.
    let breaker = format!("{name}.break");
    if !root.symlink(&me.text()?, &breaker)? {
        let dead = root.read_link(&breaker)?.as_deref().and_then(Owner::parse);
        if dead.is_some_and(|owner| owner.is_dead(me)) {
            root.unlink(&breaker)?;
        }
        return Ok(false);
    }
    let _breaker = Held { root: Arc::clone(root), rel: breaker };
    if root.read_link(name)?.as_deref() == Some(text.as_str()) {
        root.unlink(name)?;
    }
    root.read_link(name).map(|left| left.is_none())
}

/// The lock's owner, in words.
pub(super) fn holder(root: &Root, rel: &str) -> String {
    let exclusive = root.read_link(&format!("{rel}.x")).ok().flatten();
    let text = exclusive.or_else(|| {
        let shared = shared_links(root, rel).ok()?;
        shared.first().and_then(|name| root.read_link(name).ok().flatten())
    });
    match text.as_deref().and_then(Owner::parse) {
        Some(owner) => format!("process {} on {}", owner.pid, owner.host),
        None => UNKNOWN.into(),
    }
}

fn host_name() -> String {
    // A space would end the field.
    rustix::system::uname().nodename().to_string_lossy().replace(' ', "_")
}

fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

fn pid_namespace() -> String {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self/ns/pid")
        .map_or_else(|_| "0".into(), |meta| meta.ino().to_string())
}

/// A process' start time in clock ticks since boot; `None` when there is no such process.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows its last parenthesis is numbers.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    // A zombie holds nothing any more.
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_owner_is_replaced_and_a_foreign_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap().unwrap());
        let me = Owner::me();
        let rest = |owner: &Owner| owner.text().unwrap();
        let dead = [
            Owner { pid: 4_194_305, ..me.clone() },
            Owner { start: me.start + 1, ..me.clone() },
            Owner { boot: "earlier".into(), ..me.clone() },
        ];
        for owner in &dead {
            for name in ["thing.x", "thing.s.0"] {
                root.symlink(&rest(owner), name).unwrap();
                assert!(try_take(&root, "thing", Mode::Exclusive).unwrap().is_some(), "{owner:?}");
                assert!(root.list(".").unwrap().is_empty());
            }
        }
        let unknown = [
            me.clone(),
            Owner { host: "elsewhere".into(), pid: 4_194_305, ..me.clone() },
            Owner { namespace: "1".into(), pid: 4_194_305, ..me.clone() },
        ];
        for owner in &unknown {
            for name in ["thing.x", "thing.s.0"] {
                root.symlink(&rest(owner), name).unwrap();
                assert!(try_take(&root, "thing", Mode::Exclusive).unwrap().is_none(), "{owner:?}");
                root.unlink(name).unwrap();
                assert!(root.list(".").unwrap().is_empty());
            }
        }
    }
}
