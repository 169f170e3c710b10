//! Shows users of the host in a container: all of them (`--hostauth`), or the caller by name.
//!
//! The host's `/etc/passwd` and `/etc/group` are bound where they are complete. Users of a
//! directory service (LDAP, SSSD) are not in them: the host's own `getent` is asked for the caller,
//! for the user whom `--user` names and for the caller's groups, and the container gets files of
//! its own with these lines added. A directory that does not answer is told, and the caller has the
//! name and the home of the environment. In a dialect that knows the caller, `--user` of the caller
//! needs no entry in the image: it gets one.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use engine::plan::{Accounts, Overrides};
use engine::spec::{ContainerConfig, MountSpec};
use host::users::{Directory, User, parse_groups, parse_users};

use crate::error::{Error, Result};
use crate::session::Session;

/// How long a directory service may take in all: one that has just been started is slow.
const PATIENCE: Duration = Duration::from_secs(15);

/// The users and groups that a container has in one run, where they are not its image's.
pub struct Known {
    passwd: String,
    group: String,
    /// They are not the host's files as they are: the container gets files of its own.
    is_own: bool,
}

impl Accounts for Known {
    fn passwd(&self) -> engine::error::Result<String> {
        Ok(self.passwd.clone())
    }
    fn group(&self) -> engine::error::Result<String> {
        Ok(self.group.clone())
    }
}

/// The accounts that a container has in a run whose program belongs to `user`; `None` where they
/// are those of the image. `host`: the host's are shown (`--hostauth`).
pub fn effective(
    session: &Session,
    host: bool,
    image: &dyn Accounts,
    user: &str,
) -> Result<Option<Known>> {
    let name = user.split(':').next().unwrap_or_default();
    let Some(mut known) = (if host { Some(of_host()) } else { of_image(image, name)? }) else {
        return Ok(None);
    };
    let directory = Directory::host(&session.host().programs, PATIENCE);
    let caller = &session.host().caller;
    let own = directory.user_by_id(caller.uid)?.or_else(|| by_environment(session, &known));
    let named = |user: &User| user.name == name || user.uid.to_string() == name;
    let mut users: Vec<User> = own.clone().into_iter().collect();
    if !users.iter().any(named) {
        users.extend(directory.user(name).ok());
    }
    // Without the host's, the caller is the only user who may be used without being in the image.
    users.retain(|user| host || (user.uid == caller.uid && named(user)));
    let (passwd, group) = (known.passwd.len(), known.group.len());
    for user in &users {
        add_user(&mut known.passwd, user);
    }
    if host || !users.is_empty() {
        let mut gids = caller.groups.clone();
        gids.push(caller.gid);
        gids.extend(users.iter().map(|user| user.gid));
        let member = own.as_ref().filter(|_| has_one_id(session));
        for (gid, name) in directory.group_names(&gids) {
            let member = member.filter(|own| gid != own.gid && caller.groups.contains(&gid));
            add_group(&mut known.group, gid, &name, member);
        }
    }
    if let Some(why) = directory.failure() {
        session.warn(&format!(
            "{why}: users and groups of the host's directory service are missing in the container"
        ));
    }
    known.is_own = known.passwd.len() > passwd || known.group.len() > group;
    Ok((known.is_own || host).then_some(known))
}

/// The caller by the variables of a login, for when no source of users answers. A name that belongs
/// to somebody else there is not taken.
fn by_environment(session: &Session, known: &Known) -> Option<User> {
    let caller = &session.host().caller;
    let is_field = |text: &&str| !text.contains([':', '\n']);
    let name = session.variable("USER").or_else(|| session.variable("LOGNAME"))?;
    let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    if !is_name || !is_field(&name) || parse_users(&known.passwd).any(|user| user.name == name) {
        return None;
    }
    let path =
        |variable| session.variable(variable).filter(is_field).filter(|path| path.starts_with('/'));
    Some(User {
        name: name.to_owned(),
        uid: caller.uid,
        gid: caller.gid,
        gecos: String::new(),
        home: path("HOME").unwrap_or("/").into(),
        shell: path("SHELL").unwrap_or("/bin/sh").into(),
    })
}

/// Whether a program has the groups that are shown only in name: where a range of ids is mapped,
/// those of a directory are mostly above it, and the kernel would refuse them.
fn has_one_id(session: &Session) -> bool {
    session.host().subordinate.uids.is_empty()
}

/// The host's files as they are.
fn of_host() -> Known {
    let read = |path: &str| ended(std::fs::read_to_string(path).unwrap_or_default());
    Known { passwd: read("/etc/passwd"), group: read("/etc/group"), is_own: false }
}

/// The image's files; `None` where they know the user, or numbers need no entry.
fn of_image(image: &dyn Accounts, name: &str) -> Result<Option<Known>> {
    let known = Known { passwd: image.passwd()?, group: image.group()?, is_own: false };
    let is_there = parse_users(&known.passwd).any(|user| user.name == name);
    let number = name.is_empty() || name.bytes().all(|byte| byte.is_ascii_digit());
    if number || name == "root" || is_there {
        return Ok(None);
    }
    Ok(Some(Known { passwd: ended(known.passwd), group: ended(known.group), is_own: false }))
}

impl Known {
    /// The mounts that show these accounts in a container, whose files are below `place`. Files of
    /// the container's own are written first.
    pub fn mounts(&self, place: &Path) -> Result<Vec<MountSpec>> {
        let mut mounts = host_files();
        if self.is_own {
            let etc = place.join("etc");
            for (mount, text) in mounts.iter_mut().zip([&self.passwd, &self.group]) {
                let name = mount.target.file_name().unwrap_or_default().to_owned();
                mount.source = etc.join(&name);
                write(&etc, &name.to_string_lossy(), text)?;
            }
        }
        Ok(mounts)
    }
}

/// Adds the mounts of accounts to a run. `host`: the host's accounts are shown.
pub fn add_mounts(
    mounts: Vec<MountSpec>,
    host: bool,
    config: &mut ContainerConfig,
    overrides: &mut Overrides,
) {
    for mount in mounts {
        let at_same = |known: &MountSpec| known.target == mount.target;
        // A run that asks for more than its container has brings the mounts itself.
        if let Some(known) = overrides.mounts.iter_mut().find(|known| at_same(known)) {
            known.source = mount.source;
        } else if overrides.user.is_some() && !host && !overrides.exec {
            overrides.mounts.push(mount);
        } else if !config.mounts.iter().any(at_same) {
            config.mounts.push(mount);
        }
    }
}

/// Mounts of the host's users and groups.
pub fn host_files() -> Vec<MountSpec> {
    let bind = |path: &str| MountSpec {
        source: path.into(),
        target: path.into(),
        read_only: true,
        ..MountSpec::default()
    };
    ["/etc/passwd", "/etc/group"].map(bind).into()
}

/// A file whose last line ends.
fn ended(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn add_user(passwd: &mut String, user: &User) {
    if !parse_users(passwd).any(|known| known.name == user.name) {
        let User { name, uid, gid, gecos, home, shell } = user;
        let (home, shell) = (home.display(), shell.display());
        // Writing to a String cannot fail.
        let _ = writeln!(passwd, "{name}:x:{uid}:{gid}:{gecos}:{home}:{shell}");
    }
}

fn add_group(text: &mut String, gid: u32, name: &str, member: Option<&User>) {
    if !parse_groups(text).any(|group| group.gid == gid || group.name == name) {
        let member = member.map_or("", |user| &user.name);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}:x:{gid}:{member}");
    }
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let failed = |error| {
        Error::failed(format!("cannot write {}", directory.join(name).display())).cause(error)
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    // Another run may be reading it.
    let suffix = sys::random::suffix().map_err(failed)?;
    let part = directory.join(format!(".{name}.{suffix}"));
    std::fs::write(&part, text).map_err(failed)?;
    std::fs::rename(&part, directory.join(name)).map_err(failed)
}
