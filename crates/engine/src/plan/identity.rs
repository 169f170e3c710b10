//! Resolves the program's user and groups, and computes the map of ids for them.
//!
//! Names are looked up in the container's own `/etc/passwd` and `/etc/group`, as Docker does; the
//! host's user database is never asked. The files are read only when a name, a group or a home
//! directory is really needed: for root, the usual case, `/etc/group` alone.

use super::{Groups, IdRange, Ids};
use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::spec::{ContainerConfig, UserNamespace};
use std::path::PathBuf;

/// The word of `--group-add` for the caller's own groups, as in Podman.
pub const KEEP_GROUPS: &str = "keep-groups";

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
    /// Groups that the image's `/etc/group` gives the user; none where a group is named.
    pub(super) groups: Vec<u32>,
    /// The numbers that the caller's user and group have inside.
    pub(super) caller: (u32, u32),
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
            Person { uid: facts.uid, gid: facts.gid, home, groups: Vec::new(), caller: (0, 0) }
        }
        "" | "0" | "root" => {
            let groups = if group.is_none() { groups_of("root", accounts)? } else { Vec::new() };
            Person { uid: 0, gid: 0, home: PathBuf::from("/root"), groups, caller: (0, 0) }
        }
        other => lookup(other, keeps, facts, accounts)?,
    };
    if let Some(group) = group.filter(|group| !group.is_empty()) {
        person.gid = group_id(group, accounts)?;
        // As in Docker: who names a group gets no others.
        person.groups.clear();
    }
    possible("user", person.uid)?;
    possible("group", person.gid)?;
    person.caller = caller_inside(text, userns, (facts.uid, facts.gid));
    Ok(person)
}

/// Refuses the number that no process can have: in a system call it means that an id stays.
fn possible(kind: &str, id: u32) -> Result<()> {
    if id == u32::MAX { Err(Error::ImpossibleId { kind: kind.into(), id }) } else { Ok(()) }
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
            let groups = groups_of(&entry.name, accounts)?;
            Ok(Person { uid: entry.uid, gid: entry.gid, home: entry.home, groups, caller: (0, 0) })
        }
        (None, Some(uid)) => {
            let gid = if keeps && uid == facts.uid { facts.gid } else { 0 };
            Ok(Person { uid, gid, home: PathBuf::from("/"), groups: Vec::new(), caller: (0, 0) })
        }
        (None, None) => Err(Error::NoSuchAccount {
            kind: "user".into(),
            name: user.into(),
            file: "/etc/passwd".into(),
        }),
    }
}

/// The groups of which `/etc/group` says that a user is a member.
fn groups_of(user: &str, accounts: &dyn Accounts) -> Result<Vec<u32>> {
    let text = accounts.group()?;
    Ok(host::users::parse_groups(&text)
        .filter(|group| group.members.iter().any(|member| member == user))
        .map(|group| group.gid)
        .collect())
}

/// A group's number from its name or number.
pub(super) fn group_id(group: &str, accounts: &dyn Accounts) -> Result<u32> {
    if let Ok(number) = group.parse() {
        return possible("group", number).map(|()| number);
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
            let (uid, gid) = person.caller;
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
    facts: &Facts,
    accounts: &dyn Accounts,
) -> Result<Groups> {
    let mut all = person.groups.clone();
    for name in asked {
        if name == KEEP_GROUPS {
            all.extend(callers(facts));
        } else {
            all.push(group_id(name, accounts)?);
        }
    }
    all.push(person.gid);
    all.sort_unstable();
    all.dedup();
    Ok(Groups::Set(all))
}

/// The caller's groups beside the primary one, which is another number inside.
fn callers(facts: &Facts) -> impl Iterator<Item = u32> {
    facts.groups.iter().copied().filter(|group| *group != facts.gid)
}

/// Whether some of these groups are the caller's.
pub(super) fn has_callers(groups: &Groups, facts: &Facts) -> bool {
    match groups {
        Groups::Keep => true,
        Groups::Set(groups) => callers(facts).any(|group| groups.contains(&group)),
    }
}

/// The numbers that the caller's user and group have inside where a range is mapped: 0, unless the
/// caller is kept or named by these very numbers (`-u $(id -u):$(id -g)`). Who names the caller
/// means to write the caller's files.
pub fn caller_inside(text: &str, userns: UserNamespace, caller: (u32, u32)) -> (u32, u32) {
    if userns == UserNamespace::KeepId {
        return caller;
    }
    let (user, group) = text.split_once(':').unwrap_or((text, ""));
    let kept = |text: &str, id: u32| if text.parse() == Ok(id) { id } else { 0 };
    (kept(user, caller.0), kept(group, caller.1))
}

/// The caller at `at`, and the subordinate ids in order from 1. Where the caller is not 0, the two
/// change places: so every other number means the same on disk in all containers. Root, who holds
/// every id, keeps them all as they are.
pub fn range(caller: u32, at: u32, subordinate: &[(u32, u32)]) -> Vec<IdRange> {
    if caller == 0 {
        return subordinate
            .iter()
            .map(|&(first, count)| IdRange { inside: first, outside: first, count })
            .collect();
    }
    let mut lines = vec![IdRange { inside: at, outside: caller, count: 1 }];
    let mut inside = 1;
    let mut add = |inside: u32, outside: u32, count: u32| {
        if count > 0 {
            lines.push(IdRange { inside, outside, count });
        }
    };
    let total = subordinate.iter().fold(0_u32, |sum, &(_, count)| sum.saturating_add(count));
    // Beyond the range nobody has the caller's number, so root gets the last one.
    let partner = if at > total { total } else { at };
    for &(first, count) in subordinate {
        let count = count.min(u32::MAX - inside);
        let before = partner.wrapping_sub(inside);
        if at != 0 && before < count {
            add(inside, first, before);
            add(0, first + before, 1);
            add(partner + 1, first + before + 1, count - before - 1);
        } else {
            add(inside, first, count);
        }
        inside += count;
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

/// Supplementary groups: the image's and those asked for, as in Docker, unless the caller's are
/// kept (`keep-groups`).
///
/// With one id the kernel forbids `setgroups`, so the caller's stay, whatever the plan says; where
/// root is emulated the engine shows those of the plan.
pub(super) fn groups(
    person: &Person,
    config: &ContainerConfig,
    ids: &Ids,
    facts: &Facts,
    accounts: &dyn Accounts,
    warnings: &mut Vec<String>,
) -> Result<Groups> {
    let asked = &config.group_add;
    let keeps = asked.iter().any(|name| name == KEEP_GROUPS);
    if keeps && asked.iter().all(|name| name == KEEP_GROUPS) {
        return Ok(Groups::Keep);
    }
    if keeps && matches!(ids, Ids::Range { .. }) {
        return Err(Error::Invalid {
            what: "--group-add".into(),
            value: asked.join(", "),
            why: "the kernel keeps the caller's groups or sets others, not both".into(),
        });
    }
    let all = any_groups(person, asked, facts, accounts)?;
    if let Ids::Single { .. } = ids {
        let more = asked.iter().any(|name| name != KEEP_GROUPS);
        if more && config.strict {
            return Err(Error::Missing {
                what: "--group-add".into(),
                needs: "subordinate group ids for the caller".into(),
                hint: Some(
                    "an administrator gives them in /etc/subgid; the caller's own groups are kept as they are"
                        .into(),
                ),
            });
        }
        if more {
            warnings.push(
                "--group-add opens no more files: with one id the kernel gives a program the \
                 caller's own groups and no others"
                    .into(),
            );
        }
        return Ok(all);
    }
    let Groups::Set(list) = &all else { return Ok(all) };
    let (_, lines) = ids.lines();
    let mapped = |id: u32| lines.iter().any(|line| id.wrapping_sub(line.inside) < line.count);
    match list.iter().find(|&&id| !mapped(id)) {
        Some(&id) => Err(Error::UnmappedId { kind: "group".into(), id }),
        None => Ok(all),
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
    fn the_number_that_means_none_is_refused() {
        for text in ["4294967295", "4294967295:0", "0:4294967295", "root:4294967295"] {
            let refused = person(text, UserNamespace::Auto, &facts(), &Image).unwrap_err();
            assert!(
                matches!(refused, Error::ImpossibleId { id: u32::MAX, .. }),
                "{text}: {refused}"
            );
            assert!(refused.hint().is_some());
        }
        assert!(group_id("4294967295", &Image).is_err());
        assert!(person("4294967294", UserNamespace::Auto, &facts(), &Image).is_ok());
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
        assert_eq!(uids, swapped());
    }

    /// The caller's number and root's have changed places; all others are as without.
    fn swapped() -> [IdRange; 4] {
        let line = |inside, outside, count| IdRange { inside, outside, count };
        [
            line(0, 101_000, 1),
            line(1, 100_000, 1000),
            line(1001, 1001, 1),
            line(1002, 101_001, 64_535),
        ]
    }

    #[test]
    fn a_caller_named_by_number_is_the_caller() {
        let maps = |text| {
            let me = person(text, UserNamespace::Auto, &facts(), &Image).unwrap();
            ids(&me, UserNamespace::Auto, &facts()).unwrap()
        };
        let Ids::Range { uids, gids, .. } = maps("1001:1002") else { panic!("a range") };
        assert_eq!(uids, swapped());
        assert!(gids.contains(&IdRange { inside: 1002, outside: 1002, count: 1 }));
        // Without a group, the caller's is the one of root.
        let Ids::Range { uids, gids, .. } = maps("1001") else { panic!("a range") };
        assert_eq!(uids, swapped());
        assert_eq!(gids[0], IdRange { inside: 0, outside: 1002, count: 1 });
        let Ids::Range { uids, .. } = maps("1000:1000") else { panic!("a range") };
        assert_eq!(uids[0], IdRange { inside: 0, outside: 1001, count: 1 });
    }

    #[test]
    fn a_caller_beyond_the_range_changes_places_with_its_last_number() {
        let line = |inside, outside, count| IdRange { inside, outside, count };
        assert_eq!(
            range(70_000, 70_000, &[(100_000, 10), (200_000, 10)]),
            [
                line(0, 200_009, 1),
                line(1, 100_000, 10),
                line(11, 200_000, 9),
                line(70_000, 70_000, 1)
            ]
        );
    }

    #[test]
    fn groups_are_the_images() {
        struct Alpine;
        impl Accounts for Alpine {
            fn passwd(&self) -> Result<String> {
                Ok(String::new())
            }
            fn group(&self) -> Result<String> {
                Ok("root:x:0:root\nbin:x:1:root,bin\nwheel:x:10:root\nx:x:20:bin\n".into())
            }
        }
        let get = |text| person(text, UserNamespace::Auto, &facts(), &Alpine).unwrap().groups;
        for root in ["", "0", "root"] {
            assert_eq!(get(root), [0, 1, 10], "{root:?}");
        }
        // Who names a group gets no others.
        assert!(get("root:0").is_empty());
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
