//! Locks made of symbolic links, for file systems without working kernel locks; the parent module
//! describes them.

use std::sync::Arc;

use rustix::fs::FileType;
use sys::machine::{self, Machine, Relation};

use super::{Mode, UNKNOWN};
use crate::error::Result;
use crate::root::{Root, random_hex};

/// A link that this process made; removed when dropped.
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

/// The process that made a link.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Owner {
    machine: Machine,
    pid: u32,
    /// Start time of the process, in clock ticks since boot.
    start: u64,
    /// Time at which the link was made, in seconds since 1970.
    since: u64,
}

impl Owner {
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(' ');
        let mut next = || fields.next();
        let mut machine = Machine {
            name: next()?.to_owned(),
            boot_id: next()?.to_owned(),
            pid_namespace: next()?.parse().ok()?,
            machine_id: String::new(),
        };
        let (pid, start) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let _random = next();
        // Earlier versions wrote no further fields, and compared host names alone.
        let since = next().and_then(|field| field.parse().ok()).unwrap_or(0);
        match next() {
            Some(id) => id.clone_into(&mut machine.machine_id),
            None => machine.machine_id.clone_from(&Machine::here().machine_id),
        }
        Some(Self { machine, pid, start, since })
    }

    /// This process.
    fn me() -> Self {
        let pid = std::process::id();
        Self {
            machine: Machine::here().clone(),
            pid,
            start: sys::life::start_time(pid).unwrap_or(0),
            since: machine::now(),
        }
    }

    fn text(&self) -> Result<String> {
        let Self { machine, pid, start, since } = self;
        let Machine { name, machine_id, boot_id, pid_namespace } = machine;
        // The random part tells two locks of one process apart.
        let random = random_hex(8)?;
        Ok(format!("{name} {boot_id} {pid_namespace} {pid} {start} {random} {since} {machine_id}"))
    }

    /// Returns true if the owner is certainly gone, judged from this process.
    fn is_dead(&self, me: &Self) -> bool {
        match me.machine.relation_to(&self.machine, self.since) {
            Relation::Same => sys::life::start_time(self.pid) != Some(self.start),
            Relation::Earlier => true,
            Relation::Kernel | Relation::Other => false,
        }
    }

    /// Returns true if the owner cannot be judged from here and is on a host of that name.
    fn is_on(&self, host: &str) -> bool {
        let relation = Machine::here().relation_to(&self.machine, self.since);
        self.machine.name == host && matches!(relation, Relation::Kernel | Relation::Other)
    }
}

/// Removes the links in a directory whose owners are on a host that a user declares gone.
pub(super) fn forget(root: &Root, directory: &str, host: &str) -> Result<()> {
    for (name, kind) in root.list(directory)? {
        let rel = format!("{directory}/{name}");
        if kind == FileType::Symlink
            && let Some(text) = root.read_link(&rel)?
            && Owner::parse(&text).is_some_and(|owner| owner.is_on(host))
        {
            root.unlink(&rel)?;
        }
    }
    Ok(())
}

/// Removes the links in a directory that dead processes of this machine have left: only their own
/// machine can tell, and others wait for them.
pub(super) fn clear_own(root: &Arc<Root>, directory: &str) -> Result<()> {
    let me = Owner::me();
    for name in links(root, &format!("{directory}/"))? {
        clear(root, &name, &me)?;
    }
    Ok(())
}

/// Takes the lock if no other process has it.
pub(super) fn try_take(root: &Arc<Root>, rel: &str, mode: Mode) -> Result<Option<Held>> {
    root.refresh(rel.rsplit_once('/').map(|(directory, _)| directory));
    let me = Owner::me();
    let exclusive = format!("{rel}.x");
    match mode {
        Mode::Shared => {
            let name = format!("{rel}.s.{}", random_hex(8)?);
            make(root, &me.text()?, &name)?;
            let held = Held { root: Arc::clone(root), rel: name };
            // A list comes from the file server; that a name is not there may be remembered.
            let is_there = !root.on_network() || links(root, &exclusive)?.contains(&exclusive);
            Ok((!is_there || clear(root, &exclusive, &me)?).then_some(held))
        }
        Mode::Exclusive => {
            if !clear(root, &exclusive, &me)? || !make(root, &me.text()?, &exclusive)? {
                return Ok(None);
            }
            let held = Held { root: Arc::clone(root), rel: exclusive };
            for name in links(root, &format!("{rel}.s."))? {
                if !clear(root, &name, &me)? {
                    return Ok(None);
                }
            }
            Ok(Some(held))
        }
    }
}

/// Makes a link; `false` when another process has the name.
fn make(root: &Root, text: &str, name: &str) -> Result<bool> {
    // An NFS server may have made the link while its answer was lost: then the link is this
    // process's own.
    Ok(root.symlink(text, name)? || root.read_link(name)?.as_deref() == Some(text))
}

/// The links whose names begin so.
fn links(root: &Root, begin: &str) -> Result<Vec<String>> {
    let (parent, prefix) = begin.rsplit_once('/').unwrap_or((".", begin));
    let links = root.list(parent)?.into_iter();
    Ok(links
        .filter(|(name, kind)| *kind == FileType::Symlink && name.starts_with(prefix))
        .map(|(name, _)| format!("{parent}/{name}"))
        .collect())
}

/// Removes the link if its owner is dead; `true` if no living process holds it.
fn clear(root: &Arc<Root>, name: &str, me: &Owner) -> Result<bool> {
    let Some(text) = root.read_link(name)? else { return Ok(true) };
    let Some(owner) = Owner::parse(&text) else { return Ok(false) };
    if !owner.is_dead(me) {
        return Ok(false);
    }
    // Two processes may have judged the same link dead; the slower one must not remove the faster
    // one's new link.
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
        let shared = links(root, &format!("{rel}.s.")).ok()?;
        shared.first().and_then(|name| root.read_link(name).ok().flatten())
    });
    match text.as_deref().and_then(Owner::parse) {
        Some(owner) => format!("process {} on {}", owner.pid, owner.machine.name),
        None => UNKNOWN.into(),
    }
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
        let elsewhere = |change: fn(&mut Machine)| {
            let mut machine = me.machine.clone();
            change(&mut machine);
            Owner { machine, pid: 4_194_305, since: 1, ..me.clone() }
        };
        let mut dead = vec![
            Owner { pid: 4_194_305, ..me.clone() },
            Owner { start: me.start + 1, ..me.clone() },
        ];
        let earlier = elsewhere(|machine| machine.boot_id = "earlier".into());
        // Skipped where this machine cannot be told apart from others.
        if me.machine.relation_to(&earlier.machine, 1) == Relation::Earlier {
            dead.push(earlier);
        }
        for owner in &dead {
            for name in ["thing.x", "thing.s.0"] {
                root.symlink(&rest(owner), name).unwrap();
                assert!(try_take(&root, "thing", Mode::Exclusive).unwrap().is_some(), "{owner:?}");
                assert!(root.list(".").unwrap().is_empty());
            }
        }
        let unknown = [
            me.clone(),
            elsewhere(|machine| {
                machine.boot_id = "other".into();
                machine.name = "elsewhere".into();
            }),
            elsewhere(|machine| machine.pid_namespace = 1),
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

    #[test]
    fn links_of_a_host_that_is_declared_gone_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap().unwrap());
        let mut owner = Owner::me();
        owner.machine.boot_id = "other".into();
        for (host, rel) in [("gone", "locks/a.x"), ("gone", "locks/a.s.1"), ("alive", "locks/b.x")]
        {
            host.clone_into(&mut owner.machine.name);
            root.symlink(&owner.text().unwrap(), rel).unwrap();
        }
        forget(&root, "locks", "gone").unwrap();
        let left: Vec<String> =
            root.list("locks").unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(left, ["b.x"]);
        assert_eq!(Owner::parse(&owner.text().unwrap()), Some(owner));
    }

    #[test]
    fn a_machine_removes_what_its_own_dead_left() {
        let directory = tempfile::tempdir().unwrap();
        let root = Arc::new(Root::open(directory.path()).unwrap().unwrap());
        let me = Owner::me();
        let dead = Owner { pid: 4_194_305, ..me.clone() };
        let mut foreign = dead.clone();
        foreign.machine.boot_id = "other".into();
        foreign.machine.name = "elsewhere".into();
        for (owner, name) in [(&me, "a.x"), (&dead, "b.s.1"), (&dead, "c.x"), (&foreign, "d.x")] {
            root.symlink(&owner.text().unwrap(), &format!("locks/{name}")).unwrap();
        }
        clear_own(&root, "locks").unwrap();
        let mut left: Vec<String> =
            root.list("locks").unwrap().into_iter().map(|(name, _)| name).collect();
        left.sort();
        assert_eq!(left, ["a.x", "d.x"]);
    }

    #[test]
    fn a_link_of_an_earlier_version_is_read() {
        let here = Machine::here();
        let text = format!("node {} 7 12 34 0123abcd", here.boot_id);
        let owner = Owner::parse(&text).unwrap();
        assert_eq!((owner.pid, owner.start, owner.since), (12, 34, 0));
        assert_eq!(owner.machine.machine_id, here.machine_id);
    }
}
