//! From an image and flags to the record of a container (`container.json`).
//!
//! The image says what it would like, flags win. Nothing is looked up here but host paths and variables; named
//! volumes get their place from [`super::volumes`], which needs the store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use engine::spec::{
    ContainerConfig, DeviceSpec, DnsSpec, ImageSource, LogSpec, MountKind, MountSpec, Namespaces,
    NetworkSpec, RestartPolicy, SeccompChoice, Security, UserNamespace,
};
use oci::ImageConfig;

use super::gpus::Wishes;
use super::{command, environment, limits, mounts, ports, record};
use crate::args::run::{ContainerFlags, FileFlags, SecurityFlags};
use crate::config::{IdMapping, Settings};
use crate::context::{self, Context};
use crate::report::Report;

/// A container's record, with what is still to be done for it.
pub(crate) struct Draft {
    /// The record; its mounts lack the volumes.
    pub config: ContainerConfig,
    /// Mounts, in the order given.
    pub mounts: Vec<mounts::Wish>,
}

/// Makes the record. `image` is what it is made from, none for `--rootfs`.
pub(crate) fn draft(
    context: &Context,
    flags: &ContainerFlags,
    image: Option<(ImageSource, &ImageConfig)>,
    words: &[String],
) -> Result<Draft, Report> {
    let settings = context.settings()?;
    let process = &flags.process;
    let mut config = ContainerConfig {
        created: engine::supervise::now(),
        command: words.to_vec(),
        group_add: process.group_add.clone(),
        hostname: flags.network.hostname.clone(),
        devices: devices(&flags.files)?,
        namespaces: namespaces(&flags.security, settings)?,
        network: network(flags)?,
        limits: limits::parse(&flags.resources, &flags.files)?,
        cap_add: flags.security.cap_add.clone(),
        cap_drop: flags.security.cap_drop.clone(),
        security: security(context, &flags.security, settings)?,
        read_only: flags.files.read_only,
        init: process.init,
        tty: process.tty,
        stdin_open: process.interactive,
        auto_remove: flags.record.rm,
        stop_timeout: process
            .stop_timeout
            .map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
        restart: restart(flags.record.restart.as_deref(), flags.record.rm)?,
        add_host: flags
            .network
            .add_host
            .iter()
            .map(|text| add_host(text))
            .collect::<Result<_, _>>()?,
        dns: DnsSpec {
            servers: flags.network.dns.clone(),
            search: flags.network.dns_search.clone(),
            options: flags.network.dns_option.clone(),
        },
        exec_mode: flags.image.execmode.clone().or_else(|| settings.execmode.clone()),
        log: log(flags, settings)?,
        platform: flags.image.platform.clone().unwrap_or_default(),
        join: flags.security.join.clone(),
        ..ContainerConfig::default()
    };
    // A container that is there has them, and keeps its user unless another is named.
    let names_user = image.is_some() || process.user.is_some();
    let empty = Vec::new();
    let (entrypoint, image_command) = image
        .as_ref()
        .map_or((&empty[..], &empty[..]), |(_, image)| (image.entrypoint(), image.cmd()));
    config.command =
        command::merge(entrypoint, image_command, process.entrypoint.as_deref(), words);
    if let Some((source, image)) = image {
        image.working_dir().unwrap_or_default().clone_into(&mut config.cwd);
        image.user().unwrap_or_default().clone_into(&mut config.user);
        config.env = image.env().to_vec();
        image.stop_signal().unwrap_or_default().clone_into(&mut config.stop_signal);
        config.labels = image.labels().clone();
        config.platform = image.platform().to_string();
        config.image = Some(source);
    }
    if let Some(directory) = &flags.image.rootfs {
        config.rootfs = Some(rootfs(context, directory)?);
    }
    overrides(context, flags, &mut config)?;
    if names_user && context.is_udocker() {
        crate::udocker::name_user(context, &mut config);
    }
    let mounts = wishes(context, flags)?;
    Ok(Draft { config, mounts })
}

/// What flags put in the place of the image's wishes.
fn overrides(
    context: &Context,
    flags: &ContainerFlags,
    config: &mut ContainerConfig,
) -> Result<(), Report> {
    let process = &flags.process;
    if let Some(directory) = &process.workdir {
        if !directory.starts_with('/') {
            return Err(Report::usage(format!("--workdir '{directory}' is no absolute path"))
                .hint(format!("write --workdir /{directory}")));
        }
        config.cwd.clone_from(directory);
    }
    if let Some(user) = &process.user {
        config.user.clone_from(user);
    }
    if let Some(signal) = &process.stop_signal {
        check_signal(signal)?;
        config.stop_signal.clone_from(signal);
    }
    config.env = variables(context, flags, std::mem::take(&mut config.env))?;
    for file in &flags.record.label_file {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Report::new(format!("cannot read --label-file {}", file.display())).cause(error)
        })?;
        let lines =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        add_labels(&mut config.labels, lines)?;
    }
    add_labels(&mut config.labels, flags.record.label.iter().map(String::as_str))
}

/// Whether a signal's name is one.
pub(crate) fn check_signal(name: &str) -> Result<engine::supervise::Signal, Report> {
    name.parse().map_err(|_| {
        Report::usage(format!("'{name}' is no signal"))
            .hint("write a name as TERM or SIGTERM, or a number")
    })
}

/// Image's, host's (`--hostenv`), files', flags'.
fn variables(
    context: &Context,
    flags: &ContainerFlags,
    image: Vec<String>,
) -> Result<Vec<String>, Report> {
    let host = context.environment();
    let mut all = image;
    let (valid, invalid) = crate::udocker::host_variables(context)?;
    let is_in = |list: &[String], name: &str| list.iter().any(|known| known == name);
    if flags.process.hostenv || !valid.is_empty() {
        // What describes the host's own session would be wrong inside.
        let left_out = ["HOME", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME"];
        let pairs = host.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
        let ours = |name: &str| name.starts_with("_CORACLE_") || name.starts_with("LD_");
        let passes = |name: &str| !left_out.contains(&name) && !ours(name);
        let changes = pairs
            .filter(|(name, _)| {
                is_in(&valid, name)
                    || flags.process.hostenv && passes(name) && !is_in(&invalid, name)
            })
            .map(|(name, value)| environment::Change::Set(name.to_owned(), value.to_owned()));
        environment::apply(&mut all, changes.collect());
    }
    if flags.files.x11 {
        let mut names = vec![environment::flag("DISPLAY", host)?];
        if let Some(path) = Screen::find(context)?.keys {
            names.push(environment::Change::Set("XAUTHORITY".to_owned(), context::text(&path)?));
        }
        environment::apply(&mut all, names);
    }
    for file in &flags.process.env_file {
        environment::apply(&mut all, environment::file(file, host)?);
    }
    let changes = flags
        .process
        .env
        .iter()
        .map(|text| environment::flag(text, host))
        .collect::<Result<_, _>>()?;
    environment::apply(&mut all, changes);
    Ok(all)
}

fn add_labels<'a>(
    labels: &mut BTreeMap<String, String>,
    texts: impl Iterator<Item = &'a str>,
) -> Result<(), Report> {
    for text in texts {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        if key.is_empty() {
            return Err(Report::usage(format!("--label '{text}' has no key"))
                .hint("write --label KEY=VALUE"));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(())
}

fn rootfs(context: &Context, directory: &Path) -> Result<PathBuf, Report> {
    let path = context.absolute(directory)?;
    let path = path.canonicalize().map_err(|error| {
        Report::new(format!("cannot use --rootfs {}", directory.display())).cause(error)
    })?;
    if !path.is_dir() {
        return Err(Report::new(format!("--rootfs {} is no directory", directory.display()))
            .hint("unpack the archive first, or make an image of it: coracle import"));
    }
    context::text(&path)?;
    Ok(path)
}

/// What is found anew at each start.
pub(crate) fn gpus(flags: &ContainerFlags) -> Result<Wishes, Report> {
    Wishes::new(flags.files.gpus.as_deref(), flags.udocker.nvidia, &flags.files.device)
}

fn devices(flags: &FileFlags) -> Result<Vec<DeviceSpec>, Report> {
    let nodes = flags.device.iter().filter(|text| !host::cdi::is_name(text));
    let mut devices = nodes.map(|text| mounts::device(text)).collect::<Result<Vec<_>, _>>()?;
    if flags.dri {
        let directory = Path::new("/dev/dri");
        let entries = std::fs::read_dir(directory).map_err(|error| {
            Report::new("--dri: this host has no graphics devices").cause(error)
        })?;
        for entry in
            entries.flatten().filter(|entry| entry.path().is_file() || !entry.path().is_dir())
        {
            devices.push(DeviceSpec {
                source: entry.path(),
                target: entry.path(),
                access: "rwm".into(),
            });
        }
    }
    Ok(devices)
}

fn namespaces(flags: &SecurityFlags, settings: &Settings) -> Result<Namespaces, Report> {
    fn read<T: std::str::FromStr<Err = String> + Default>(
        name: &str,
        value: Option<&str>,
    ) -> Result<T, Report> {
        value.map_or_else(
            || Ok(T::default()),
            |value| value.parse().map_err(|why| Report::usage(format!("--{name}: {why}"))),
        )
    }
    let user = match flags.userns.as_deref() {
        Some(mode) => read("userns", Some(mode))?,
        None => match settings.userns {
            IdMapping::One => UserNamespace::Single,
            _ => UserNamespace::Auto,
        },
    };
    Ok(Namespaces {
        pid: read("pid", flags.pid.as_deref())?,
        ipc: read("ipc", flags.ipc.as_deref())?,
        uts: read("uts", flags.uts.as_deref())?,
        cgroup: read("cgroupns", flags.cgroupns.as_deref())?,
        user,
    })
}

fn network(flags: &ContainerFlags) -> Result<NetworkSpec, Report> {
    let flags = &flags.network;
    let mode = match flags.network.as_deref() {
        None => engine::spec::NetworkMode::Default,
        Some(mode) => mode.parse().map_err(|why| Report::usage(format!("--network: {why}")))?,
    };
    let publish = flags.publish.iter().map(|text| ports::parse(text)).collect::<Result<_, _>>()?;
    Ok(NetworkSpec { mode, publish })
}

fn security(
    context: &Context,
    flags: &SecurityFlags,
    settings: &Settings,
) -> Result<Security, Report> {
    let mut security =
        Security { isolate: flags.isolate || settings.isolate, ..Security::default() };
    for option in &flags.security_opt {
        let (key, value) =
            option.split_once(['=', ':']).map_or((option.as_str(), None), |(k, v)| (k, Some(v)));
        match (key, value) {
            ("no-new-privileges", None | Some("true")) => security.no_new_privileges = Some(true),
            ("no-new-privileges", Some("false")) => security.no_new_privileges = Some(false),
            ("seccomp", Some("unconfined")) => security.seccomp = SeccompChoice::Unconfined,
            ("seccomp", Some("builtin" | "default")) => security.seccomp = SeccompChoice::Docker,
            ("seccomp", Some(file)) => {
                let path = context.absolute(Path::new(file))?;
                let text = std::fs::read_to_string(&path).map_err(|error| {
                    Report::new(format!("cannot read the seccomp profile {}", path.display()))
                        .cause(error)
                })?;
                security.seccomp = SeccompChoice::Profile(text);
            }
            // Nothing is confined by these here, so switching them off is what holds already.
            ("label", Some("disable")) | ("apparmor" | "systempaths", Some("unconfined")) => {}
            _ => {
                return Err(Report::usage(format!("--security-opt '{option}' is not known"))
                    .hint("there are no-new-privileges, seccomp=FILE|unconfined|default, label=disable, apparmor=unconfined"));
            }
        }
    }
    Ok(security)
}

fn restart(policy: Option<&str>, remove: bool) -> Result<RestartPolicy, Report> {
    let wrong =
        |why: &str| Report::usage(format!("--restart '{}': {why}", policy.unwrap_or_default()));
    let policy = match policy {
        None | Some("" | "no") => RestartPolicy::No,
        Some("on-failure") => RestartPolicy::OnFailure(None),
        // By the supervisor: there is no daemon that could start containers after a reboot.
        Some("always") => RestartPolicy::Always,
        Some("unless-stopped") => RestartPolicy::UnlessStopped,
        Some(other) => match other.strip_prefix("on-failure:").map(str::parse) {
            Some(Ok(times)) => RestartPolicy::OnFailure(Some(times)),
            _ => {
                return Err(wrong("unknown policy")
                    .hint("there are no, on-failure[:N], always and unless-stopped"));
            }
        },
    };
    if remove && policy != RestartPolicy::No {
        return Err(Report::usage("--restart and --rm exclude each other"));
    }
    Ok(policy)
}

fn add_host(text: &str) -> Result<(String, String), Report> {
    let wrong = || {
        Report::usage(format!("--add-host '{text}' is no HOST:IP"))
            .hint("write --add-host NAME:ADDRESS")
    };
    let (name, address) = text.split_once([':', '=']).ok_or_else(wrong)?;
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    if name.is_empty() || (bare != "host-gateway" && bare.parse::<std::net::IpAddr>().is_err()) {
        return Err(wrong());
    }
    Ok((name.to_owned(), bare.to_owned()))
}

fn log(flags: &ContainerFlags, settings: &Settings) -> Result<LogSpec, Report> {
    let mut log = LogSpec {
        disabled: false,
        max_size: settings.log_max_size.0.unwrap_or(u64::MAX),
        max_files: u32::try_from(settings.log_max_file.get()).unwrap_or(u32::MAX),
    };
    match flags.record.log_driver.as_deref() {
        None | Some("json-file" | "k8s-file" | "local") => {}
        Some("none") => log.disabled = true,
        Some(other) => {
            return Err(Report::usage(format!("--log-driver '{other}' is not there"))
                .hint("there are json-file and none"));
        }
    }
    for option in &flags.record.log_opt {
        let wrong = || {
            Report::usage(format!("--log-opt '{option}' is not known"))
                .hint("there are max-size=SIZE and max-file=N")
        };
        match option.split_once('=').ok_or_else(wrong)? {
            ("max-size", text) => {
                log.max_size =
                    crate::output::size::parse(text).filter(|size| *size > 0).ok_or_else(wrong)?;
            }
            ("max-file", text) => {
                log.max_files = text.parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
            }
            _ => return Err(wrong()),
        }
    }
    Ok(log)
}

/// All mounts that flags ask for, host paths checked.
fn wishes(context: &Context, flags: &ContainerFlags) -> Result<Vec<mounts::Wish>, Report> {
    let files = &flags.files;
    let working = context.working_directory()?;
    let mut wishes = Vec::new();
    for text in &files.volume {
        wishes.push(mounts::volume(text, working)?);
    }
    for text in &files.mount {
        wishes.push(mounts::mount(text, working)?);
    }
    for text in &files.tmpfs {
        wishes.push(mounts::tmpfs(text)?);
    }
    for text in files.volumes_from.iter().filter(|_| !context.is_udocker()) {
        let further = volumes_from(context, text)?;
        let new = further
            .into_iter()
            .filter(|wish| !wishes.iter().any(|known| known.spec.target == wish.spec.target));
        wishes.extend(new.collect::<Vec<_>>());
    }
    if files.bindhome {
        let home =
            context.home().ok_or_else(|| Report::new("--bindhome: there is no home directory"))?;
        wishes.push(bind(home, false));
    }
    if files.x11 {
        let Screen { sockets, keys } = Screen::find(context)?;
        wishes.extend(sockets.map(|path| bind(path, false)));
        wishes.extend(keys.map(|path| bind(path, true)));
    }
    wishes.iter().try_for_each(check_source)?;
    Ok(wishes)
}

/// A path of the host's at the same place.
fn bind(path: PathBuf, read_only: bool) -> mounts::Wish {
    let spec = MountSpec { source: path.clone(), target: path, read_only, ..MountSpec::default() };
    mounts::Wish { spec, no_copy: false, anonymous: false }
}

/// What `--x11` shows of the host, where it is there.
struct Screen {
    /// The directory with the sockets of local screens.
    sockets: Option<PathBuf>,
    /// The file with the keys to them.
    keys: Option<PathBuf>,
}

impl Screen {
    fn find(context: &Context) -> Result<Self, Report> {
        if context.variable("DISPLAY").is_none() {
            return Err(Report::new("--x11: there is no screen")
                .because("DISPLAY is not set")
                .hint("over ssh, 'ssh -X' sets it"));
        }
        let named = context.variable("XAUTHORITY").map(PathBuf::from);
        let keys = named.or_else(|| context.home().map(|home| home.join(".Xauthority")));
        let there = |path: &PathBuf| path.exists();
        let sockets = Some(PathBuf::from("/tmp/.X11-unix"));
        Ok(Self { sockets: sockets.filter(there), keys: keys.filter(there) })
    }
}

/// `--volumes-from CONTAINER[:ro]`: what is mounted in another container, at the same places.
fn volumes_from(context: &Context, text: &str) -> Result<Vec<mounts::Wish>, Report> {
    let (name, read_only) = match text.rsplit_once(':') {
        Some((name, "ro")) => (name, true),
        Some((name, "rw" | "z" | "Z")) => (name, false),
        _ => (text, false),
    };
    let record = record::read(&record::find(context, name)?)?;
    let lasting = record.config.mounts.into_iter().filter(|mount| mount.kind != MountKind::Tmpfs);
    let wish = |mut spec: MountSpec| {
        spec.read_only |= read_only;
        mounts::Wish { spec, no_copy: true, anonymous: false }
    };
    Ok(lasting.map(wish).collect())
}

fn check_source(wish: &mounts::Wish) -> Result<(), Report> {
    let source = &wish.spec.source;
    if wish.spec.kind != MountKind::Bind {
        return Ok(());
    }
    context::text(source)?;
    std::fs::metadata(source).map(|_| ()).map_err(|error| {
        let report = Report::new(format!("cannot mount {}", source.display()));
        if error.kind() == std::io::ErrorKind::NotFound {
            report
                .because("there is no such file or directory on the host")
                .hint(format!("make it first: mkdir -p {}", source.display()))
        } else {
            report.cause(error)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_policies() {
        assert_eq!(restart(None, true).unwrap(), RestartPolicy::No);
        assert_eq!(
            restart(Some("on-failure:3"), false).unwrap(),
            RestartPolicy::OnFailure(Some(3))
        );
        assert_eq!(restart(Some("on-failure"), false).unwrap(), RestartPolicy::OnFailure(None));
        assert_eq!(restart(Some("always"), false).unwrap(), RestartPolicy::Always);
        assert!(restart(Some("always"), true).is_err());
        assert!(restart(Some("on-failure"), true).is_err());
        assert!(restart(Some("on-failure:x"), false).is_err());
    }

    #[test]
    fn hosts() {
        assert_eq!(add_host("a:1.2.3.4").unwrap(), ("a".into(), "1.2.3.4".into()));
        assert_eq!(add_host("a:::1").unwrap(), ("a".into(), "::1".into()));
        assert_eq!(add_host("a:[::1]").unwrap(), ("a".into(), "::1".into()));
        assert!(
            add_host("a").is_err() && add_host("a:b").is_err() && add_host(":1.2.3.4").is_err()
        );
    }
}
