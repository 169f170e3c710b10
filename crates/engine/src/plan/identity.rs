//! Resolves the program's user and groups, and computes the map of ids for them.
//!
//! Names are looked up in the container's own `/etc/passwd` and `/etc/group`, as Docker does; the
//! host's user database is never asked. The files are read only when a name, a primary group or a
//! home directory is really needed: for root, the usual case, never.

use super::{Groups, IdRange, Ids};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::spec::UserNamespace;
use std::path::PathBuf;

/// The container's user database.
pub trait Accounts {
    /// Text of `/etc/passwd`, empty where there is none.
    fn passwd(&self) -> Result<String>;
    /// Text of `/etc/group`, empty where there is none.
    fn group(&self) -> Result<String>;
}

/// A container without users.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAccounts;

impl Accounts for NoAccounts {
    fn passwd(&self) -> Result<String> {
        Ok(String::new())
    }
    fn group(&self) -> Result<String> {
        Ok(String::new())
    }
}

/// A user as resolved in the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) home: PathBuf,
    /// Groups that the image's `/etc/group` gives the user (only asked for by name, as Docker
    /// does).
    pub(super) groups: Vec<u32>,
}

/// Resolves `NAME|UID[:GROUP|GID]`.
pub(super) fn person(
    text: &str,
    userns: UserNamespace,
    facts: &Facts,
    accounts: &dyn Accounts,
) -> Result<Person> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let keeps = matches!(userns, UserNamespace::Host | UserNamespace::KeepId);
    let mut person = match user {
        "" if keeps => {
            let home = home_of(facts.uid, accounts)?;
            Person { uid: facts.uid, gid: facts.gid, home, groups: Vec::new() }
        }
        "" | "0" | "root" => {
            Person { uid: 0, gid: 0, home: PathBuf::from("/root"), groups: Vec::new() }
        }
        other => lookup(other, keeps, facts, accounts)?,
    };
    if let Some(group) = group.filter(|group| !group.is_empty()) {
        person.gid = group_id(group, accounts)?;
    }
    Ok(person)
}

/// The home directory of a user, who is resolved as for a plan: `NAME|UID[:GROUP|GID]`.
pub fn home(
    text: &str,
    userns: UserNamespace,
    facts: &Facts,
    accounts: &dyn Accounts,
) -> Result<PathBuf> {
    person(text, userns, facts, accounts).map(|person| person.home)
}

fn home_of(uid: u32, accounts: &dyn Accounts) -> Result<PathBuf> {
    let text = accounts.passwd()?;
    Ok(host::users::parse_users(&text)
        .find(|user| user.uid == uid)
        .map_or_else(|| PathBuf::from("/"), |user| user.home))
}

fn lookup(user: &str, keeps: bool, facts: &Facts, accounts: &dyn Accounts) -> Result<Person> {
    let text = accounts.passwd()?;
    let number = user.parse::<u32>().ok();
    let found = host::users::parse_users(&text)
        .find(|entry| entry.name == user || Some(entry.uid) == number);
    match (found, number) {
        (Some(entry), _) => {
            let groups = host::users::parse_groups(&accounts.group()?)
                .filter(|group| group.members.contains(&entry.name))
                .map(|group| group.gid)
                .collect();
            Ok(Person { uid: entry.uid, gid: entry.gid, home: entry.home, groups })
        }
        (None, Some(uid)) => {
            let gid = if keeps && uid == facts.uid { facts.gid } else { 0 };
            Ok(Person { uid, gid, home: PathBuf::from("/"), groups: Vec::new() })
        }
        (None, None) => Err(Error::NoSuchAccount {
            kind: "user".into(),
            name: user.into(),
            file: "/etc/passwd".into(),
        }),
    }
}

/// A group's number from its name or number.
pub(super) fn group_id(group: &str, accounts: &dyn Accounts) -> Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let text = accounts.group()?;
    host::users::parse_groups(&text)
        .find(|entry| entry.name == group)
        .map(|entry| entry.gid)
        .ok_or_else(|| Error::NoSuchAccount {
            kind: "group".into(),
            name: group.into(),
            file: "/etc/group".into(),
        })
}

/// Chooses the map of ids for this user.
pub(super) fn ids(person: &Person, userns: UserNamespace, facts: &Facts) -> Result<Ids> {
    let one = |inside, outside| IdRange { inside, outside, count: 1 };
    let ids = match userns {
        UserNamespace::Host => {
            Ids::Single { uid: one(facts.uid, facts.uid), gid: one(facts.gid, facts.gid) }
        }
        UserNamespace::Auto | UserNamespace::KeepId if facts.has_range() => {
            let keep = userns == UserNamespace::KeepId;
            let (uid, gid) = if keep { (facts.uid, facts.gid) } else { (0, 0) };
            Ids::Range {
                uids: range(facts.uid, uid, &facts.subuids),
                gids: range(facts.gid, gid, &facts.subgids),
                helpers: match (facts.uid, &facts.newuidmap, &facts.newgidmap) {
                    (1.., Some(uid), Some(gid)) => Some((uid.clone(), gid.clone())),
                    _ => None,
                },
            }
        }
        _ => Ids::Single { uid: one(person.uid, facts.uid), gid: one(person.gid, facts.gid) },
    };
    let (uids, gids) = ids.lines();
    for (kind, id, lines) in [("user", person.uid, uids), ("group", person.gid, gids)] {
        if !lines.iter().any(|line| id.wrapping_sub(line.inside) < line.count) {
            return Err(Error::UnmappedId { kind: kind.into(), id });
        }
    }
    Ok(ids)
}

/// The map for engines that keep ids themselves: the user that was asked for, on top of the caller.
pub(super) fn single(person: &Person, facts: &Facts) -> Ids {
    let one = |inside, outside| IdRange { inside, outside, count: 1 };
    Ids::Single { uid: one(person.uid, facts.uid), gid: one(person.gid, facts.gid) }
}

/// The caller as root, in a namespace in which ids are emulated.
pub(super) fn root_alone(facts: &Facts) -> Ids {
    let one = |outside| IdRange { inside: 0, outside, count: 1 };
    Ids::Single { uid: one(facts.uid), gid: one(facts.gid) }
}

/// For engines that keep ids themselves: the groups that the image gives and those asked for. (What
/// the caller's own groups open on the host stays open, whatever is shown.)
pub(super) fn any_groups(
    person: &Person,
    asked: &[String],
    accounts: &dyn Accounts,
) -> Result<Groups> {
    let mut all = person.groups.clone();
    for name in asked.iter().filter(|name| *name != "keep-groups") {
        all.push(group_id(name, accounts)?);
    }
    all.push(person.gid);
    all.sort_unstable();
    all.dedup();
    Ok(Groups::Set(all))
}

/// The caller at `at`, the subordinate ids filling the numbers around it in order. Root, who holds
/// every id, keeps them all as they are.
fn range(caller: u32, at: u32, subordinate: &[(u32, u32)]) -> Vec<IdRange> {
    if caller == 0 {
        return subordinate
            .iter()
            .map(|&(first, count)| IdRange { inside: first, outside: first, count })
            .collect();
    }
    let mut lines = vec![IdRange { inside: at, outside: caller, count: 1 }];
    let mut inside = u32::from(at == 0);
    for &(first, count) in subordinate {
        let (mut first, mut left) = (first, count);
        while left > 0 && inside < u32::MAX {
            let room = if inside < at { at - inside } else { u32::MAX - inside };
            let count = left.min(room);
            lines.push(IdRange { inside, outside: first, count });
            inside += count;
            first = first.saturating_add(count);
            left -= count;
            if inside == at {
                inside += 1;
            }
        }
    }
    lines.sort_by_key(|line| line.inside);
    lines
}

impl Ids {
    /// The lines of both maps.
    pub fn lines(&self) -> (&[IdRange], &[IdRange]) {
        match self {
            Self::Single { uid, gid } => (std::slice::from_ref(uid), std::slice::from_ref(gid)),
            Self::Range { uids, gids, .. } => (uids, gids),
        }
    }
}

/// Supplementary groups.
///
/// With one id the kernel forbids `setgroups`, so the caller's stay: they are what gives access to
/// a project's shared files. With a range they stay too while the program is root and nothing else
/// is asked for; the isolated profile and other users get the image's.
pub(super) fn groups(
    person: &Person,
    asked: &[String],
    isolate: bool,
    ids: &Ids,
    accounts: &dyn Accounts,
) -> Result<Groups> {
    let asked: Vec<&String> = asked.iter().filter(|name| *name != "keep-groups").collect();
    if let Ids::Single { gid, .. } = ids {
        let mut wrong = None;
        for name in &asked {
            if group_id(name, accounts)? != gid.inside {
                wrong = Some((*name).clone());
            }
        }
        return match wrong {
            None => Ok(Groups::Keep),
            Some(group) => Err(Error::Missing {
                what: format!("--group-add {group}"),
                needs: "subordinate group ids for the caller".into(),
                hint: Some(
                    "an administrator gives them in /etc/subgid; the caller's own groups are kept as they are"
                        .into(),
                ),
            }),
        };
    }
    if asked.is_empty() && person.groups.is_empty() && person.uid == 0 && !isolate {
        return Ok(Groups::Keep);
    }
    let mut all = person.groups.clone();
    for name in asked {
        all.push(group_id(name, accounts)?);
    }
    all.push(person.gid);
    all.sort_unstable();
    all.dedup();
    let (_, lines) = ids.lines();
    match all
        .iter()
        .find(|&&id| !lines.iter().any(|line| id.wrapping_sub(line.inside) < line.count))
    {
        Some(&id) => Err(Error::UnmappedId { kind: "group".into(), id }),
        None => Ok(Groups::Set(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Image;
    impl Accounts for Image {
        fn passwd(&self) -> Result<String> {
            Ok("root:x:0:0::/root:/bin/sh\nana:x:1000:100:Ana:/home/ana:/bin/sh\n".into())
        }
        fn group(&self) -> Result<String> {
            Ok("root:x:0:\nusers:x:100:\nvideo:x:44:ana\n".into())
        }
    }

    fn facts() -> Facts {
        Facts {
            uid: 1001,
            gid: 1002,
            subuids: vec![(100_000, 65_536)],
            subgids: vec![(200_000, 65_536)],
            newuidmap: Some("/usr/bin/newuidmap".into()),
            newgidmap: Some("/usr/bin/newgidmap".into()),
            ..Facts::default()
        }
    }

    #[test]
    fn names_and_numbers_are_looked_up_in_the_image() {
        let get = |text| person(text, UserNamespace::Auto, &facts(), &Image);
        let ana = get("ana").unwrap();
        assert_eq!((ana.uid, ana.gid, ana.groups.as_slice()), (1000, 100, [44].as_slice()));
        assert_eq!(ana.home, PathBuf::from("/home/ana"));
        assert_eq!(get("1000").unwrap(), ana);
        assert_eq!(get("ana:video").unwrap().gid, 44);
        assert_eq!(get("7").unwrap().gid, 0);
        assert_eq!(get("").unwrap().uid, 0);
        assert!(matches!(get("bob"), Err(Error::NoSuchAccount { .. })));
        assert!(matches!(get("ana:x"), Err(Error::NoSuchAccount { .. })));
    }

    #[test]
    fn a_range_puts_the_caller_at_zero_and_the_rest_after() {
        let root = person("", UserNamespace::Auto, &facts(), &Image).unwrap();
        let Ids::Range { uids, helpers, .. } = ids(&root, UserNamespace::Auto, &facts()).unwrap()
        else {
            panic!("a range was expected")
        };
        assert!(helpers.is_some());
        assert_eq!(
            uids,
            [
                IdRange { inside: 0, outside: 1001, count: 1 },
                IdRange { inside: 1, outside: 100_000, count: 65_536 }
            ]
        );
    }

    #[test]
    fn keep_id_leaves_the_caller_in_place() {
        let me = person("", UserNamespace::KeepId, &facts(), &Image).unwrap();
        let Ids::Range { uids, .. } = ids(&me, UserNamespace::KeepId, &facts()).unwrap() else {
            panic!("a range was expected")
        };
        assert_eq!(
            uids,
            [
                IdRange { inside: 0, outside: 100_000, count: 1001 },
                IdRange { inside: 1001, outside: 1001, count: 1 },
                IdRange { inside: 1002, outside: 101_001, count: 64_535 }
            ]
        );
    }

    #[test]
    fn one_id_maps_whoever_is_asked_for() {
        let facts = Facts { subuids: Vec::new(), ..facts() };
        let ana = person("ana", UserNamespace::Auto, &facts, &Image).unwrap();
        assert_eq!(
            ids(&ana, UserNamespace::Auto, &facts).unwrap(),
            Ids::Single {
                uid: IdRange { inside: 1000, outside: 1001, count: 1 },
                gid: IdRange { inside: 100, outside: 1002, count: 1 }
            }
        );
    }

    #[test]
    fn ids_outside_the_range_are_refused() {
        let big = person("70000", UserNamespace::Auto, &facts(), &Image).unwrap();
        assert!(matches!(
            ids(&big, UserNamespace::Auto, &facts()),
            Err(Error::UnmappedId { id: 70_000, .. })
        ));
    }
}
