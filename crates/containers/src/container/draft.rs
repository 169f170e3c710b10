//! Makes the record of a container (`container.json`) from an image and a request.
//!
//! The image says what it would like, the request wins. Nothing is looked up here but paths and
//! devices of the host; named volumes get their place from [`super::volumes`], which needs the
//! store.

use std::path::{Path, PathBuf};

use engine::plan;
use engine::spec::{
    ContainerConfig, DeviceSpec, ImageSource, LogSpec, MountKind, MountSpec, Namespaces,
    NetworkMode, NetworkSpec, Publish, RestartPolicy, Security, UserNamespace,
};
use oci::ImageConfig;

use super::record;
use crate::config::{IdMapping, Settings};
use crate::error::{Error, Result};
use crate::path;
use crate::request::environment::{self, Change};
use crate::request::mounts::{self, MountRequest};
use crate::request::{
    ContainerRequest, FileRequest, LogRequest, NetworkRequest, SecurityOption, SecurityRequest,
    VolumesFrom, command_line, options, ports,
};
use crate::session::Session;

/// What describes the host's own session would be wrong in a container.
const SESSION_VARIABLES: [&str; 7] = ["HOME", "PATH", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME"];

/// A container's record, with what is still to be done for it.
pub struct Draft {
    /// The record; its mounts lack the volumes.
    pub config: ContainerConfig,
    /// Mounts, in the order given.
    pub mounts: Vec<MountRequest>,
}

/// Makes the record. `image` is what it is made from, none for a plain tree. `words` are the
/// command, which is not the request's own where its image is one of its words.
pub fn draft(
    session: &Session,
    request: &ContainerRequest,
    image: Option<(ImageSource, &ImageConfig)>,
    words: &[String],
) -> Result<Draft> {
    let settings = session.settings();
    // Before anything is made; it holds for each start of what was made before.
    if let Some(name) = request.network.hostname.as_deref().filter(|name| !name.is_empty()) {
        plan::check_hostname(name)?;
    }
    let ContainerRequest {
        image: of_image,
        process,
        files,
        network,
        limits,
        security,
        record,
        command: _,
        ineffective,
        strict,
    } = request;
    let mut served = image.as_ref().map_or(&[][..], |(_, config)| config.exposed_ports()).to_vec();
    served.extend_from_slice(&network.expose);
    let mut config = ContainerConfig {
        created: engine::supervise::now(),
        group_add: process.groups.clone(),
        hostname: network.hostname.clone(),
        devices: devices(files)?,
        namespaces: namespaces(security, settings),
        network: network_of(session, network, security, &served)?,
        limits: limits.clone(),
        cap_add: security.cap_add.clone(),
        cap_drop: security.cap_drop.clone(),
        security: confinement(security, settings)?,
        read_only: files.read_only,
        init: process.init,
        tty: process.tty,
        stdin_open: process.interactive,
        auto_remove: record.remove,
        stop_timeout: process.stop_timeout,
        restart: restart(record.restart.unwrap_or_default(), record.remove)?,
        add_host: network.hosts.clone(),
        dns: network.dns.clone(),
        exec_mode: of_image.exec_mode.clone().or_else(|| settings.execmode.clone()),
        log: log(&record.log, settings),
        platform: of_image.platform.as_ref().map(ToString::to_string).unwrap_or_default(),
        join: security.join.clone(),
        umask: process.umask,
        sysctls: security.sysctls.clone(),
        expose: network.expose.clone(),
        annotations: record.annotations.clone(),
        ineffective: ineffective
            .iter()
            .map(|(flag, value)| ((*flag).into(), value.clone()))
            .collect(),
        strict: *strict,
        ..ContainerConfig::default()
    };
    let declared = image.as_ref().map(|(_, image)| *image);
    // A container that exists has them, and keeps its user unless another is named.
    let names_user = image.is_some() || process.user.is_some();
    let empty = Vec::new();
    let (entrypoint, image_command) = image
        .as_ref()
        .map_or((&empty[..], &empty[..]), |(_, image)| (image.entrypoint(), image.cmd()));
    config.command =
        command_line::merge(entrypoint, image_command, process.entrypoint.as_deref(), words);
    if let Some((source, image)) = image {
        image.working_dir().unwrap_or_default().clone_into(&mut config.cwd);
        image.user().unwrap_or_default().clone_into(&mut config.user);
        config.env = image.env().to_vec();
        image.stop_signal().unwrap_or_default().clone_into(&mut config.stop_signal);
        config.labels = image.labels().clone();
        config.platform = image.platform().to_string();
        config.image = Some(source);
    }
    if let Some(directory) = &of_image.rootfs {
        config.rootfs = Some(rootfs(session, directory)?);
    }
    override_image(session, request, &mut config)?;
    if names_user && session.dialect().names_user {
        super::naming::name_user(session, &mut config);
    }
    let mut mounts = mounts(session, files)?;
    if let Some(image) = declared
        && !session.dialect().ignores_image_volumes
    {
        declare(&mut mounts, image.volumes())?;
    }
    Ok(Draft { config, mounts })
}

/// Adds a volume without a name at each path that the image declares (`VOLUME`), unless something
/// is mounted there already.
fn declare(mounts: &mut Vec<MountRequest>, paths: &[String]) -> Result<()> {
    for path in paths {
        let declared = mounts::declared(path).map_err(|why| {
            Error::invalid(format!("the image declares a volume at {path}: {why}"))
        })?;
        if !mounts.iter().any(|known| known.spec.target == declared.spec.target) {
            mounts.push(declared);
        }
    }
    Ok(())
}

/// The network. Who publishes a port and names no network means a private one: on the host's there
/// is nothing to publish.
fn network_of(
    session: &Session,
    network: &NetworkRequest,
    security: &SecurityRequest,
    served: &[String],
) -> Result<NetworkSpec> {
    let mut publish = network.publish.clone();
    if network.publish_all {
        all_published(session, served, &mut publish);
    }
    let asked = &network.networks.mode;
    let joins = asked.is_none() && security.join.is_some();
    let mode = match asked {
        Some(NetworkMode::Container(_)) if !publish.is_empty() => {
            return Err(of_another("network"));
        }
        None if joins && !publish.is_empty() => return Err(of_another("join")),
        None if !publish.is_empty() && !session.dialect().publishes_in_place => {
            NetworkMode::Private
        }
        mode => mode.clone().unwrap_or_default(),
    };
    // Networks with names are put in by `networks::put`, which needs the store.
    let publish_all = network.publish_all;
    Ok(NetworkSpec { mode, publish, publish_all, networks: Vec::new() })
}

/// `-P`: publishes what a container serves.
pub(super) fn all_published(session: &Session, served: &[String], publish: &mut Vec<Publish>) {
    if session.dialect().publishes_in_place {
        // Every port of the host's network is there already.
        return;
    }
    for port in ports::publish_all(served, publish) {
        session.warn(&format!("--publish-all leaves {port} out: tcp and udp can be published"));
    }
}

fn of_another(flag: &str) -> Error {
    let what = format!("--publish is not possible with another container's network (--{flag})");
    Error::invalid(what).with_hint("publish the port when that container is made")
}

/// Puts what the request says in the place of what the image says.
fn override_image(
    session: &Session,
    request: &ContainerRequest,
    config: &mut ContainerConfig,
) -> Result<()> {
    let process = &request.process;
    if let Some(directory) = &process.workdir {
        if !directory.starts_with('/') {
            return Err(Error::invalid(format!("--workdir '{directory}' is not an absolute path"))
                .with_hint(format!("write --workdir /{directory}")));
        }
        config.cwd.clone_from(directory);
    }
    if let Some(user) = &process.user {
        config.user.clone_from(user);
    }
    if let Some(signal) = &process.stop_signal {
        options::signal(signal)?;
        config.stop_signal.clone_from(signal);
    }
    config.env = variables(session, request, std::mem::take(&mut config.env))?;
    let record = &request.record;
    let labels = record.label_files.iter().chain(&record.labels);
    config.labels.extend(labels.map(|(key, value)| (key.clone(), value.clone())));
    Ok(())
}

/// The image's variables, then the session's, those of files, and the request's own.
fn variables(
    session: &Session,
    request: &ContainerRequest,
    image: Vec<String>,
) -> Result<Vec<String>> {
    let host = session.environment();
    let mut all = image;
    let (always, withheld) =
        (&session.dialect().host_variables, &session.dialect().withheld_variables);
    let is_in = |list: &[String], name: &str| list.iter().any(|known| known == name);
    let every = request.process.host_environment;
    if every || !always.is_empty() {
        let pairs = host.iter().filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)));
        let internal = |name: &str| name.starts_with("_CORACLE_") || name.starts_with("LD_");
        let passes = |name: &str| !SESSION_VARIABLES.contains(&name) && !internal(name);
        let changes = pairs
            .filter(|(name, _)| {
                is_in(always, name) || every && passes(name) && !is_in(withheld, name)
            })
            .map(|(name, value)| Change::Set(name.to_owned(), value.to_owned()));
        environment::apply(&mut all, changes);
    }
    if request.files.x11 {
        let mut names = vec![environment::flag("DISPLAY", host)?];
        if let Some(path) = Screen::find(session)?.keys {
            names.push(Change::Set("XAUTHORITY".to_owned(), path::text(&path)?));
        }
        environment::apply(&mut all, names);
    }
    environment::apply(&mut all, request.process.env_files.iter().cloned());
    environment::apply(&mut all, request.process.env.iter().cloned());
    environment::complete(&mut all, &request.process.env_defaults);
    Ok(all)
}

fn rootfs(session: &Session, directory: &Path) -> Result<PathBuf> {
    let path = session.absolute(directory)?;
    let path = path.canonicalize().map_err(|error| {
        Error::failed(format!("cannot use --rootfs {}", directory.display())).cause(error)
    })?;
    if !path.is_dir() {
        return Err(Error::invalid(format!("--rootfs {} is not a directory", directory.display()))
            .with_hint("unpack the archive first, or make an image of it: coracle import"));
    }
    path::text(&path)?;
    Ok(path)
}

fn devices(files: &FileRequest) -> Result<Vec<DeviceSpec>> {
    let mut devices = files.devices.clone();
    if files.graphics {
        let directory = Path::new("/dev/dri");
        let entries = std::fs::read_dir(directory).map_err(|error| {
            Error::unsupported("--dri: this host has no graphics devices").cause(error)
        })?;
        let paths = entries.flatten().map(|entry| entry.path());
        devices.extend(paths.filter(|path| !path.is_dir()).map(|path| DeviceSpec {
            source: path.clone(),
            target: path,
            access: "rwm".into(),
        }));
    }
    Ok(devices)
}

fn namespaces(security: &SecurityRequest, settings: &Settings) -> Namespaces {
    let usual = match settings.userns {
        IdMapping::One => UserNamespace::Single,
        _ => UserNamespace::Auto,
    };
    Namespaces {
        pid: security.pid.clone().unwrap_or_default(),
        ipc: security.ipc.clone().unwrap_or_default(),
        uts: security.uts.clone().unwrap_or_default(),
        cgroup: security.cgroup.clone().unwrap_or_default(),
        user: security.user.unwrap_or(usual),
    }
}

fn confinement(request: &SecurityRequest, settings: &Settings) -> Result<Security> {
    let (isolate, privileged) = (request.isolate || settings.isolate, request.privileged);
    if isolate && privileged {
        return Err(Error::invalid("--privileged and --isolate exclude each other")
            .with_hint("give what the program needs: --cap-add, --device, --security-opt"));
    }
    let mut security = Security { isolate, privileged, ..Security::default() };
    for option in &request.options {
        match option {
            SecurityOption::NoNewPrivileges(on) => security.no_new_privileges = Some(*on),
            SecurityOption::Seccomp(choice) => security.seccomp = choice.clone(),
            SecurityOption::Nothing => {}
        }
    }
    Ok(security)
}

fn restart(policy: RestartPolicy, remove: bool) -> Result<RestartPolicy> {
    if remove && policy != RestartPolicy::No {
        return Err(Error::invalid("--restart and --rm exclude each other"));
    }
    Ok(policy)
}

fn log(request: &LogRequest, settings: &Settings) -> LogSpec {
    let files = || u32::try_from(settings.log_max_file.get()).unwrap_or(u32::MAX);
    LogSpec {
        disabled: request.kept == Some(false),
        max_size: request.max_size.or(settings.log_max_size.0).unwrap_or(u64::MAX),
        max_files: request.max_files.unwrap_or_else(files),
    }
}

/// All mounts of a request, host paths checked.
fn mounts(session: &Session, files: &FileRequest) -> Result<Vec<MountRequest>> {
    let mut mounts = files.mounts.clone();
    if files.bind_home {
        let home = session
            .home()
            .ok_or_else(|| Error::unsupported("--bindhome: there is no home directory"))?;
        mounts.push(bind(home, false));
    }
    if files.x11 {
        let Screen { sockets, keys } = Screen::find(session)?;
        mounts.extend(sockets.map(|path| bind(path, false)));
        mounts.extend(keys.map(|path| bind(path, true)));
    }
    if !session.dialect().mounts_over_mounts {
        mounts = mounts::distinct(mounts)?;
    }
    if !session.dialect().ignores_volumes_from {
        for from in &files.volumes_from {
            let further = volumes_from(session, from)?;
            let is_new = |mount: &MountRequest| {
                !mounts.iter().any(|known| known.spec.target == mount.spec.target)
            };
            let new: Vec<MountRequest> = further.into_iter().filter(is_new).collect();
            mounts.extend(new);
        }
    }
    if session.dialect().refuses_missing_sources {
        for mount in &mut mounts {
            mount.spec.create_source = false;
        }
    }
    mounts.iter().try_for_each(check_source)?;
    Ok(mounts)
}

/// A path of the host's at the same place.
fn bind(path: PathBuf, read_only: bool) -> MountRequest {
    let spec = MountSpec { source: path.clone(), target: path, read_only, ..MountSpec::default() };
    MountRequest { spec, no_copy: false }
}

/// What `--x11` shows of the host, where it exists.
struct Screen {
    /// The directory with the sockets of local screens.
    sockets: Option<PathBuf>,
    /// The file with the keys to them.
    keys: Option<PathBuf>,
}

impl Screen {
    fn find(session: &Session) -> Result<Self> {
        if session.variable("DISPLAY").is_none() {
            return Err(Error::unsupported("--x11: there is no screen")
                .because("DISPLAY is not set")
                .with_hint("over ssh, 'ssh -X' sets it"));
        }
        let named = session.variable("XAUTHORITY").map(PathBuf::from);
        let keys = named.or_else(|| session.home().map(|home| home.join(".Xauthority")));
        let exists = |path: &PathBuf| path.exists();
        let sockets = Some(PathBuf::from("/tmp/.X11-unix"));
        Ok(Self { sockets: sockets.filter(exists), keys: keys.filter(exists) })
    }
}

/// What is mounted in another container, at the same places.
fn volumes_from(session: &Session, from: &VolumesFrom) -> Result<Vec<MountRequest>> {
    let record = record::read(&record::find(session, &from.container)?)?;
    let lasting = record.config.mounts.into_iter().filter(|mount| mount.kind != MountKind::Tmpfs);
    let request = |mut spec: MountSpec| {
        spec.read_only |= from.read_only;
        MountRequest { spec, no_copy: true }
    };
    Ok(lasting.map(request).collect())
}

fn check_source(mount: &MountRequest) -> Result<()> {
    let source = &mount.spec.source;
    if mount.spec.kind != MountKind::Bind {
        return Ok(());
    }
    path::text(source)?;
    let checked = std::fs::metadata(source).map(|_| ());
    checked.or_else(|error| {
        let cannot = format!("cannot mount {}", source.display());
        if error.kind() != std::io::ErrorKind::NotFound {
            return Err(Error::failed(cannot).cause(error));
        }
        if mount.spec.create_source {
            // A start makes it.
            return Ok(());
        }
        Err(Error::not_found(cannot)
            .because("there is no such file or directory on the host")
            .with_hint(format!("make it first: mkdir -p {}", source.display())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_that_goes_cannot_be_restarted() {
        assert!(restart(RestartPolicy::Always, true).is_err());
        assert!(restart(RestartPolicy::OnFailure(None), true).is_err());
        assert_eq!(restart(RestartPolicy::No, true).unwrap(), RestartPolicy::No);
    }
}
