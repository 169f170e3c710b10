//! Prints the ids of this process, and tries to change them or to get privileges.

use std::fs;
use std::path::Path;

use nix::mount::MsFlags;
use nix::sched::CloneFlags;
use nix::unistd::{Gid, Uid, getgroups, getresgid, getresuid, setgid, setgroups, setuid};
use serde_json::json;

use crate::Answer;

fn said<T>(result: nix::Result<T>) -> Result<T, String> {
    result.map_err(|errno| format!("{errno:?}"))
}

pub(crate) fn facts() -> Answer {
    let users = said(getresuid())?;
    let groups = said(getresgid())?;
    let mut list: Vec<u32> = said(getgroups())?.into_iter().map(Gid::as_raw).collect();
    list.sort_unstable();
    let read = |path: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let map: Vec<Vec<u64>> = text
            .lines()
            .map(|line| line.split_whitespace().filter_map(|n| n.parse().ok()).collect())
            .collect();
        map
    };
    let facts = json!({
        "uid": [users.real.as_raw(), users.effective.as_raw(), users.saved.as_raw()],
        "gid": [groups.real.as_raw(), groups.effective.as_raw(), groups.saved.as_raw()],
        "groups": list,
        "uid_map": read("/proc/self/uid_map"),
        "gid_map": read("/proc/self/gid_map"),
    });
    println!("{facts}");
    Ok(0)
}

/// Changes to another user permanently and prints its ids then.
pub(crate) fn set_user(uid: u32, gid: u32) -> Answer {
    said(setgid(Gid::from_raw(gid)))?;
    said(setuid(Uid::from_raw(uid)))?;
    facts()
}

pub(crate) fn set_groups(list: &[&str]) -> Answer {
    let list: Vec<Gid> = list.iter().filter_map(|n| n.parse().ok()).map(Gid::from_raw).collect();
    said(setgroups(&list))?;
    facts()
}

/// Tries to mount a tmpfs.
pub(crate) fn mount(at: &Path) -> Answer {
    said(nix::mount::mount(Some("none"), at, Some("tmpfs"), MsFlags::empty(), None::<&str>))?;
    println!("mounted");
    Ok(0)
}

/// Tries to make a user namespace.
pub(crate) fn unshare() -> Answer {
    said(nix::sched::unshare(CloneFlags::CLONE_NEWUSER))?;
    println!("unshared");
    Ok(0)
}

pub(crate) fn chroot(to: &Path) -> Answer {
    said(nix::unistd::chroot(to))?;
    println!("changed root");
    Ok(0)
}

pub(crate) fn hostname() -> Answer {
    println!("{}", rustix::system::uname().nodename().to_string_lossy());
    Ok(0)
}

pub(crate) fn set_hostname(name: &str) -> Answer {
    rustix::system::sethostname(name.as_bytes()).map_err(|errno| crate::name_of(&errno.into()))?;
    hostname()
}
