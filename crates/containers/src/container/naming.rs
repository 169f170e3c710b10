//! Sets the variables by which programs learn their user and their container, as udocker does.

use std::path::PathBuf;

use engine::facts::Facts;
use engine::plan::{Accounts, Overrides, Root};
use engine::spec::ContainerConfig;
use store::ContainerDir;

use crate::dialect::uuid;
use crate::error::Result;
use crate::path;
use crate::session::Session;

/// Sets variables that name the user inside, and the one who started the container. Those that are
/// set already stay.
pub(super) fn name_user(session: &Session, config: &mut ContainerConfig) {
    let name = config.user.split(':').next().unwrap_or_default();
    let inside = if matches!(name, "" | "0") { "root" } else { name };
    let outside = session.variable("USER").or_else(|| session.variable("LOGNAME"));
    // A bare number has no name, and the image may have one for it.
    let inside = Some(inside).filter(|name| !name.bytes().all(|byte| byte.is_ascii_digit()));
    let variables =
        [("USER", inside), ("LOGNAME", inside), ("USERNAME", inside), ("container_ruser", outside)];
    let mut set = Vec::with_capacity(variables.len());
    for (variable, value) in variables {
        set.extend(value.map(|value| (variable, value.to_owned())));
    }
    set_missing(config, &set);
}

/// Sets variables that name the container.
pub(super) fn name_container(
    config: &mut ContainerConfig,
    container: &ContainerDir,
    user: Option<&str>,
    mode: &str,
) -> Result<()> {
    let id = container.id();
    let tree = config.rootfs.clone().unwrap_or_else(|| container.path().join("ROOT"));
    let user = user.unwrap_or(&config.user).split(':').next().unwrap_or_default();
    let sign = if matches!(user, "" | "0" | "root") { "#" } else { "\\$" };
    let variables = [
        ("PS1", format!("{}{sign} ", &id[..id.len().min(8)])),
        ("SHLVL", "0".to_owned()),
        ("container_root", tree.to_string_lossy().into_owned()),
        ("container_uuid", uuid(id)),
        ("container_execmode", mode.to_owned()),
        ("container_names", container.names()?.join(",")),
    ];
    set_missing(config, &variables);
    Ok(())
}

/// The home directory of the user, where a program starts if neither the image nor the request says
/// and the container has that directory.
pub(super) fn home(
    config: &ContainerConfig,
    overrides: &Overrides,
    (facts, accounts): (&Facts, &dyn Accounts),
    root: &Root,
) -> Result<Option<String>> {
    if !config.cwd.is_empty() || overrides.cwd.is_some() || overrides.exec {
        return Ok(None);
    }
    let user = overrides.user.as_ref().unwrap_or(&config.user);
    let home = engine::plan::home(user, config.namespaces.user, facts, accounts)?;
    let Ok(inside) = home.strip_prefix("/") else { return Ok(None) };
    let has = |tree: &PathBuf| tree.join(inside).symlink_metadata().is_ok();
    let exists = match root {
        Root::Overlay { lowers, upper, .. } => has(upper) || lowers.iter().any(has),
        Root::Directory { path } => has(path),
    };
    let mut mounts = config.mounts.iter().chain(&overrides.mounts);
    let known = exists || mounts.any(|mount| mount.target == home);
    known.then(|| path::text(&home)).transpose()
}

fn set_missing(config: &mut ContainerConfig, variables: &[(&str, String)]) {
    for (variable, value) in variables {
        let is_it = |text: &String| text.split('=').next() == Some(*variable);
        if !config.env.iter().any(is_it) {
            config.env.push(format!("{variable}={value}"));
        }
    }
}
