//! Users and groups of the host, without NSS.
//!
//! `/etc/passwd` and `/etc/group` are read first. Other users (LDAP, SSSD, systemd's dynamic users)
//! are looked up by running the host's own `getent` program, which may load any library. `getpwuid`
//! and similar functions are never called: they would load the host's NSS libraries into a static
//! glibc program.
//!
//! Names are bytes on Linux, but every tool that makes users allows ASCII only; lines that are not
//! UTF-8 are read lossily, so that one broken comment field does not hide the other users.

use std::cell::{Cell, OnceCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::programs::ask;
use crate::{Context, Error, Programs};

/// Limit in bytes that are read of a file of users: a container's `/etc/passwd` is untrusted input.
const FILE_LIMIT: u64 = 16 << 20;

/// A line of passwd(5).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct User {
    /// Login name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Id of the primary group.
    pub gid: u32,
    /// Full name and the like.
    pub gecos: String,
    /// Home directory.
    pub home: PathBuf,
    /// Login shell; empty means `/bin/sh`.
    pub shell: PathBuf,
}

/// A line of group(5).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Group {
    /// Name.
    pub name: String,
    /// Group id.
    pub gid: u32,
    /// Names of the users in it, except those with this primary group.
    pub members: Vec<String>,
}

/// The calling user.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Caller {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups, sorted, without duplicates; may hold `gid` too.
    pub groups: Vec<u32>,
    /// Login name, if a source has one for the uid.
    pub name: Option<String>,
    /// Home directory in the user database. `cli` handles `$HOME`.
    pub home: Option<PathBuf>,
    /// Login shell.
    pub shell: Option<PathBuf>,
    /// Primary group in the user database, which `gid` is not after `newgrp`.
    pub primary: Option<u32>,
    /// Names of the caller's groups, as far as they were looked up.
    pub group_names: BTreeMap<u32, String>,
}

impl Caller {
    /// The caller's ids from the kernel and the name from `/etc/passwd`; runs no other program.
    pub fn from_files() -> Caller {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let mut groups: Vec<u32> = rustix::process::getgroups()
            .unwrap_or_default()
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .collect();
        groups.sort_unstable();
        groups.dedup();
        let mut caller = Caller { uid, gid, groups, ..Caller::default() };
        if let Ok(Some(user)) = Directory::files().user_by_id(uid) {
            caller.take(user);
        }
        caller
    }

    /// Looks up missing fields with `getent`, and the names of the groups.
    pub(crate) fn complete(&mut self, context: &Context) {
        let programs = Programs::lazy(context);
        let directory = Directory::host(&programs, context.timeout);
        if self.name.is_none()
            && let Ok(Some(user)) = directory.user_by_id(self.uid)
        {
            self.take(user);
        }
        let mut wanted = self.groups.clone();
        wanted.push(self.gid);
        self.group_names = directory.group_names(&wanted);
    }

    fn take(&mut self, user: User) {
        self.name = Some(user.name);
        self.home = Some(user.home);
        self.shell = Some(user.shell);
        self.primary = Some(user.gid);
    }
}

/// The sources of users and groups.
#[derive(Debug, Clone)]
pub struct Directory {
    passwd: PathBuf,
    group: PathBuf,
    getent: Option<PathBuf>,
    /// What is left of the time for all runs of `getent`.
    left: Cell<Duration>,
    /// Why `getent` is not asked any more.
    failure: OnceCell<String>,
}

impl Directory {
    /// The host's files only.
    pub fn files() -> Directory {
        Directory::at(Path::new("/etc/passwd"), Path::new("/etc/group"))
    }

    /// Two files, for tests.
    pub fn at(passwd: &Path, group: &Path) -> Directory {
        Directory {
            passwd: passwd.to_owned(),
            group: group.to_owned(),
            getent: None,
            left: Cell::new(Duration::ZERO),
            failure: OnceCell::new(),
        }
    }

    /// The host's files, then `getent` if it is installed; all runs of it together take at most
    /// `timeout`. It is not asked again when it has not answered once: a directory service that is
    /// down would take as long for every name.
    pub fn host(programs: &Programs, timeout: Duration) -> Directory {
        let getent = programs.find("getent");
        Directory { getent, left: Cell::new(timeout), ..Directory::files() }
    }

    /// Why `getent` did not answer, if it was asked and did not. (That it knows no such name is an
    /// answer.)
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Looks up a user by name, or by number if no user has such a name.
    pub fn user(&self, name: &str) -> Result<User, Error> {
        let found = match self.search_user(|user| user.name == name, name)? {
            Some(user) => Some(user),
            None => match name.parse() {
                Ok(uid) => self.user_by_id(uid)?,
                Err(_) => None,
            },
        };
        found.ok_or_else(|| Error::NoUser { name: name.into(), getent: self.getent.is_some() })
    }

    /// Looks up a user by number; `None` if no user has it, which is no error: ids need no name.
    pub fn user_by_id(&self, uid: u32) -> Result<Option<User>, Error> {
        self.search_user(|user| user.uid == uid, &uid.to_string())
    }

    /// Looks up a group by name, or by number if no group has such a name.
    pub fn group(&self, name: &str) -> Result<Group, Error> {
        let found = match self.search_group(|group| group.name == name, name)? {
            Some(group) => Some(group),
            None => match name.parse() {
                Ok(gid) => self.group_by_id(gid)?,
                Err(_) => None,
            },
        };
        found.ok_or_else(|| Error::NoGroup { name: name.into(), getent: self.getent.is_some() })
    }

    /// Looks up a group by number; `None` if no group has it.
    pub fn group_by_id(&self, gid: u32) -> Result<Option<Group>, Error> {
        self.search_group(|group| group.gid == gid, &gid.to_string())
    }

    /// Names of many groups at once; those without a name are left out. `getent` is run at most
    /// once.
    pub fn group_names(&self, gids: &[u32]) -> BTreeMap<u32, String> {
        let text = read_limited(&self.group).unwrap_or_default();
        let mut names: BTreeMap<u32, String> = parse_groups(&text)
            .filter(|group| gids.contains(&group.gid))
            .map(|group| (group.gid, group.name))
            .collect();
        let missing: Vec<String> =
            gids.iter().filter(|gid| !names.contains_key(gid)).map(u32::to_string).collect();
        if let Some(getent) = self.getent.as_deref().filter(|_| !missing.is_empty()) {
            let mut arguments = vec!["group"];
            arguments.extend(missing.iter().map(String::as_str));
            // It fails where one of the groups has no name.
            if let Some((_, answer)) = self.run(getent, &arguments) {
                names.extend(
                    parse_groups(&answer)
                        .filter(|group| gids.contains(&group.gid))
                        .map(|group| (group.gid, group.name)),
                );
            }
        }
        names
    }

    fn search_user(
        &self,
        wanted: impl Fn(&User) -> bool,
        key: &str,
    ) -> Result<Option<User>, Error> {
        let text = read_limited(&self.passwd)?;
        if let Some(user) = parse_users(&text).find(&wanted) {
            return Ok(Some(user));
        }
        Ok(self.getent("passwd", key).and_then(|answer| parse_users(&answer).find(&wanted)))
    }

    fn search_group(
        &self,
        wanted: impl Fn(&Group) -> bool,
        key: &str,
    ) -> Result<Option<Group>, Error> {
        let text = read_limited(&self.group)?;
        if let Some(group) = parse_groups(&text).find(&wanted) {
            return Ok(Some(group));
        }
        Ok(self.getent("group", key).and_then(|answer| parse_groups(&answer).find(&wanted)))
    }

    /// Runs `getent`; `None` if the name is not known or it fails, which callers treat alike.
    fn getent(&self, database: &str, key: &str) -> Option<String> {
        // A key that looks like an option is not a user's name, and must not reach the helper's
        // option parser.
        let getent = self.getent.as_deref().filter(|_| !key.is_empty() && !key.starts_with('-'))?;
        self.run(getent, &[database, key]).and_then(|(is_found, answer)| is_found.then_some(answer))
    }

    /// Runs `getent` in the time that is left; `None` if it does not answer.
    fn run(&self, getent: &Path, arguments: &[&str]) -> Option<(bool, String)> {
        if self.failure.get().is_some() {
            return None;
        }
        let begun = Instant::now();
        let answer = ask(getent, arguments, &[], self.left.get());
        self.left.set(self.left.get().saturating_sub(begun.elapsed()));
        answer.map_err(|error| self.failure.get_or_init(|| error.to_string())).ok()
    }
}

/// Reads a file's text; a missing file is an empty one (minimal containers have neither).
fn read_limited(path: &Path) -> Result<String, Error> {
    use std::io::Read;
    let error = |source| Error::Read { path: path.to_owned(), source };
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(String::new()),
        Err(source) => return Err(error(source)),
    };
    // Enough for most files: they are read at every start of a container.
    let mut bytes = Vec::with_capacity(4096);
    file.take(FILE_LIMIT).read_to_end(&mut bytes).map_err(error)?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(broken) => String::from_utf8_lossy(broken.as_bytes()).into_owned(),
    })
}

/// Parses users from text in the form of passwd(5). Comments, NIS markers (`+`, `-`) and broken
/// lines are skipped, as in glibc.
pub fn parse_users(text: &str) -> impl Iterator<Item = User> + '_ {
    text.lines().filter_map(|line| {
        let mut fields = entry(line)?;
        let name = fields.next().filter(|name| !name.is_empty())?;
        let _password = fields.next()?;
        Some(User {
            name: name.into(),
            uid: fields.next()?.parse().ok()?,
            gid: fields.next()?.parse().ok()?,
            gecos: fields.next().unwrap_or_default().into(),
            home: fields.next().unwrap_or_default().into(),
            shell: fields.next().unwrap_or_default().into(),
        })
    })
}

/// Parses groups from text in the form of group(5).
pub fn parse_groups(text: &str) -> impl Iterator<Item = Group> + '_ {
    text.lines().filter_map(|line| {
        let mut fields = entry(line)?;
        let name = fields.next().filter(|name| !name.is_empty())?;
        let _password = fields.next()?;
        Some(Group {
            name: name.into(),
            gid: fields.next()?.parse().ok()?,
            members: fields
                .next()
                .unwrap_or_default()
                .split(',')
                .map(str::trim)
                .filter(|member| !member.is_empty())
                .map(str::to_owned)
                .collect(),
        })
    })
}

fn entry(line: &str) -> Option<std::str::Split<'_, char>> {
    let line = line.trim();
    (!line.is_empty() && !line.starts_with(['#', '+', '-'])).then(|| line.split(':'))
}
