//! Users of the host inside: `--hostauth`, and the caller by name.
//!
//! The host's `/etc/passwd` and `/etc/group` are bound where they say all. Users of a directory service (LDAP, SSSD) are not in them; the host's own
//! `getent` is asked for the caller, for who is named by `--user` and for the caller's groups, and the container gets files of its own with these
//! lines added. Under udocker's name `--user` of the caller needs no entry in the image: it gets one.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use engine::plan::{Accounts, Overrides};
use engine::spec::{ContainerConfig, MountSpec};
use host::users::{Directory, User, parse_groups, parse_users};

use crate::context::Context;
use crate::report::Report;

/// How long a directory service may take: one that has just been started is slow.
const PATIENCE: Duration = Duration::from_secs(15);

/// The users that a container has by this run.
pub(crate) struct Known {
    passwd: String,
    group: String,
}

impl Accounts for Known {
    fn passwd(&self) -> engine::error::Result<String> {
        Ok(self.passwd.clone())
    }
    fn group(&self) -> engine::error::Result<String> {
        Ok(self.group.clone())
    }
}

/// Finds out whom the container knows, and mounts that; `None` where it is whom the image knows.
pub(crate) fn given(
    context: &Context,
    hostauth: bool,
    image: &dyn Accounts,
    place: &Path,
    config: &mut ContainerConfig,
    overrides: &mut Overrides,
) -> Result<Option<Known>, Report> {
    let wanted = overrides.user.as_ref().unwrap_or(&config.user).clone();
    let name = wanted.split(':').next().unwrap_or_default();
    let directory = Directory::host(&context.host().programs, PATIENCE);
    let before = if hostauth {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Known { passwd: read("/etc/passwd"), group: read("/etc/group") }
    } else {
        let known = Known { passwd: image.passwd()?, group: image.group()? };
        let is_there = parse_users(&known.passwd).any(|user| user.name == name);
        let number = name.is_empty() || name.bytes().all(|byte| byte.is_ascii_digit());
        if number || name == "root" || is_there {
            return Ok(None);
        }
        known
    };
    let caller = context.host().caller.clone();
    let mut people = Vec::new();
    if hostauth {
        people.extend(directory.user_by_id(caller.uid)?);
        people.extend(directory.user(name).ok());
    } else {
        // Only who calls can be somebody whom the image does not know.
        people.extend(directory.user(name).ok().filter(|user| user.uid == caller.uid));
    }
    let mut gids = caller.groups.clone();
    gids.push(caller.gid);
    gids.extend(people.iter().map(|user| user.gid));
    let mut known = Known { passwd: ended(before.passwd), group: ended(before.group) };
    let (passwd, group) = (known.passwd.len(), known.group.len());
    for user in &people {
        add_user(&mut known.passwd, user);
    }
    if hostauth || !people.is_empty() {
        for (gid, name) in directory.group_names(&gids) {
            if !parse_groups(&known.group).any(|group| group.gid == gid || group.name == name) {
                let _ = writeln!(known.group, "{name}:x:{gid}:");
            }
        }
    }
    let new = known.passwd.len() > passwd || known.group.len() > group;
    if !new && !hostauth {
        return Ok(None);
    }
    let etc = place.join("etc");
    let mut wanted = mounts();
    for (mount, text) in wanted.iter_mut().zip([&known.passwd, &known.group]) {
        if new {
            let name = mount.target.file_name().unwrap_or_default().to_owned();
            mount.source = etc.join(&name);
            write(&etc, &name.to_string_lossy(), text)?;
        }
    }
    for mount in wanted {
        // A run that asks for more than its container has brings the mounts itself.
        let of_run = overrides.mounts.iter_mut().find(|known| known.target == mount.target);
        let at_same = |known: &MountSpec| known.target == mount.target;
        if let Some(known) = of_run {
            known.source = mount.source;
        } else if overrides.user.is_some() && !hostauth && !overrides.exec {
            overrides.mounts.push(mount);
        } else if !config.mounts.iter().any(at_same) {
            config.mounts.push(mount);
        }
    }
    Ok(Some(known))
}

/// The host's users and groups.
pub(crate) fn mounts() -> Vec<MountSpec> {
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

fn write(directory: &Path, name: &str, text: &str) -> Result<(), Report> {
    let failed = |error| {
        Report::new(format!("cannot write {}", directory.join(name).display())).cause(error)
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    // Another run may be reading it.
    let suffix = sys::random::suffix().map_err(failed)?;
    let part = directory.join(format!(".{name}.{suffix}"));
    std::fs::write(&part, text).map_err(failed)?;
    std::fs::rename(&part, directory.join(name)).map_err(failed)
}
