//! Describes a container as Docker's `inspect` does, as far as the fields have a meaning here.

use std::collections::BTreeMap;

use engine::mount_options::Propagation;
use engine::spec::{
    ContainerConfig, MountKind, MountSpec, NamespaceMode, NetworkMode, Publish, RestartPolicy,
};
use engine::supervise::state::{self, Observed};
use serde_json::{Map, Value, json};
use store::{ContainerDir, Store};

mod network;

use super::list;
use super::networks;
use super::record::{self, Record};
use super::root_form;
use crate::error::Result;
use crate::request::ineffective;
use crate::session::Session;

/// The time that Docker gives for what has not happened.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// A container. `size`: with the bytes that it has changed.
pub fn container(session: &Session, container: &ContainerDir, size: bool) -> Result<Value> {
    let record = record::read(container)?;
    let config = &record.config;
    let names = container.names()?;
    let (state, main) = state_of(container)?;
    let driver = record.own.root_form.driver.map_or("", rootfs::Driver::name);
    let mut value = json!({
        "Id": container.id(),
        "Created": config.created,
        "Path": config.command.first(),
        "Args": config.command.get(1..).unwrap_or_default(),
        "State": state,
        "Image": config.image.as_ref().map_or("", |image| &image.config),
        "ResolvConfPath": own_file(container, "etc/resolv.conf"),
        "HostnamePath": own_file(container, "etc/hostname"),
        "HostsPath": own_file(container, "etc/hosts"),
        "LogPath": container.join("log.json"),
        "Name": format!("/{}", names.first().map_or("", String::as_str)),
        "Names": names,
        "RestartCount": state::read(&container.path())?.restart_count,
        "Driver": driver,
        "Platform": config.platform.split('/').next().unwrap_or_default(),
        "MountLabel": "",
        "ProcessLabel": "",
        "AppArmorProfile": "",
        "ExecIDs": null,
        "ExecMode": config.exec_mode,
        "HostConfig": host_config(&record),
        "Mounts": mounts(&record),
        "Config": settings(session.store()?, container, &record, main.is_some()),
        "GraphDriver": {"Name": driver, "Data": places(session.store()?, container, &record)?},
        "NetworkSettings": network::settings(session, &record, main),
        "Directory": container.path(),
    });
    if size && let Some(map) = value.as_object_mut() {
        let bytes = session.store()?.container_size(container.id())?;
        map.insert("SizeRw".to_owned(), bytes.into());
        if record.config.rootfs.is_none() {
            let shared = root_form::shared_size(session.store()?, &record)?;
            map.insert("SizeRootFs".to_owned(), (bytes + shared).into());
        }
    }
    Ok(value)
}

/// The path of a file that it has been given, or nothing before its first start.
fn own_file(container: &ContainerDir, name: &str) -> String {
    let path = container.join(name);
    if path.is_file() { path.display().to_string() } else { String::new() }
}

/// The directories of its own files, as Docker's storage drivers show theirs.
fn places(store: &Store, container: &ContainerDir, record: &Record) -> Result<Map<String, Value>> {
    let known = [("UpperDir", "upper"), ("WorkDir", "work"), ("RootDir", "ROOT")];
    let there = known.map(|(key, name)| (key, container.join(name)));
    let lower = root_form::lower(store, record)?.map(|path| ("LowerDir", path));
    Ok(there
        .into_iter()
        .chain(lower)
        .filter(|(_, path)| path.is_dir())
        .map(|(key, path)| (key.to_owned(), path.to_string_lossy().into()))
        .collect())
}

/// Its state, and its main process if that runs on this machine.
fn state_of(container: &ContainerDir) -> Result<(Value, Option<u32>)> {
    let path = container.path();
    let (observed, kept) = state::look(&path)?;
    let running = match &observed {
        Observed::Running(running) => Some(running),
        _ => None,
    };
    let main = running.and_then(|running| running.main());
    // A run without supervisor has written nothing; its processes tell.
    let started = match (running, main) {
        (Some(running), Some(main)) if running.init.is_none() => {
            list::started(main).map_or_else(|| NEVER.to_owned(), |time| time.to_string())
        }
        _ if kept.started.is_empty() => NEVER.to_owned(),
        _ => kept.started.clone(),
    };
    let code = match &observed {
        Observed::Exited { code } => *code,
        // As in Docker, where the end of a program was missed.
        Observed::Ended => 255,
        _ => kept.exit_code.filter(|_| running.is_none()).unwrap_or(0),
    };
    let reason = match &observed {
        Observed::Dead { reason } => reason.clone(),
        _ => kept.error.clone().unwrap_or_default(),
    };
    let here = running.is_some_and(|running| running.elsewhere.is_none());
    let process = main.filter(|_| here).map(|process| process.pid);
    let state = json!({
        "Status": list::status_word(&observed),
        "Running": running.is_some(),
        "Paused": running.is_some_and(|running| running.paused),
        "Restarting": matches!(observed, Observed::Restarting { .. }),
        "OOMKilled": kept.oom_killed,
        "Dead": matches!(observed, Observed::Dead { .. }),
        "Host": list::host(&observed),
        "Elsewhere": running.and_then(|running| running.elsewhere.as_ref()).map(elsewhere),
        "Pid": main.map_or(0, |process| process.pid),
        "Pids": running.map(|running| running.runs.iter().map(|run| run.pid).collect::<Vec<_>>()).unwrap_or_default(),
        "SupervisorPid": running.and_then(|running| running.supervisor.as_ref()).map_or(0, |process| process.pid),
        "ExitCode": code,
        "Error": reason,
        "StartedAt": started,
        "FinishedAt": if kept.finished.is_empty() { NEVER } else { &kept.finished },
        // As Podman has it.
        "StoppedByUser": state::stop_requested(&path),
        "Health": Value::Null,
    });
    Ok((state, process))
}

/// A container that runs on another machine: its process there, since when, and whether a lock
/// proves that it lives.
fn elsewhere(there: &engine::records::Elsewhere) -> Value {
    let since = jiff::Timestamp::from_second(there.since.cast_signed()).map(|at| at.to_string());
    json!({"Host": there.host, "Pid": there.pid, "Since": since.ok(), "LockHeld": there.held})
}

/// Binds and volumes as `-v` has them.
fn binds(record: &Record) -> Vec<String> {
    let lasting = record.config.mounts.iter().filter(|mount| mount.kind != MountKind::Tmpfs);
    lasting
        .map(|mount| {
            let source = mount.name.clone().unwrap_or_else(|| mount.source.display().to_string());
            let read_only = if mount.read_only { ":ro" } else { "" };
            format!("{source}:{}{read_only}", mount.target.display())
        })
        .collect()
}

/// Memory file systems by their targets, with their options.
fn memory_file_systems(record: &Record) -> Map<String, Value> {
    let memory = record.config.mounts.iter().filter(|mount| mount.kind == MountKind::Tmpfs);
    memory
        .map(|mount| (mount.target.display().to_string(), mount.options.words().join(",").into()))
        .collect()
}

fn host_config(record: &Record) -> Value {
    let mut all = host_settings(record);
    if let Some(fields) = all.as_object_mut() {
        fields.extend(further(&record.config));
        fields.extend(ineffective::host_config(&record.config));
    }
    all
}

/// Limits and options that few containers have.
fn further(config: &ContainerConfig) -> Map<String, Value> {
    let limits = &config.limits;
    let pairs = [
        ("MemorySwap", limits.memory_swap.unwrap_or(0).into()),
        ("MemoryReservation", limits.memory_reservation.unwrap_or(0).into()),
        ("CpuShares", limits.cpu_shares.unwrap_or(0).into()),
        ("OomScoreAdj", limits.oom_score_adj.unwrap_or(0).into()),
        ("Privileged", config.security.privileged.into()),
        ("Sysctls", json!(config.sysctls)),
        ("Annotations", json!(config.annotations)),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn host_settings(record: &Record) -> Value {
    let config = &record.config;
    let (restart, retries) = match config.restart {
        RestartPolicy::No => ("no", 0),
        RestartPolicy::Always => ("always", 0),
        RestartPolicy::UnlessStopped => ("unless-stopped", 0),
        RestartPolicy::OnFailure(times) => ("on-failure", times.unwrap_or(0)),
    };
    let devices: Vec<Value> = config
        .devices
        .iter()
        .map(|device| json!({"PathOnHost": device.source, "PathInContainer": device.target, "CgroupPermissions": device.access}))
        .collect();
    let ulimits: Vec<Value> = config
        .limits
        .ulimits
        .iter()
        .map(|limit| json!({"Name": limit.name, "Soft": limit.soft.map_or(-1, |n| n as i64), "Hard": limit.hard.map_or(-1, |n| n as i64)}))
        .collect();
    let hosts: Vec<String> =
        config.add_host.iter().map(|(name, address)| format!("{name}:{address}")).collect();
    json!({
        "Binds": binds(record),
        "NetworkMode": String::from(network_mode(config)),
        "PortBindings": port_bindings(&config.network.publish),
        "PublishAllPorts": config.network.publish_all,
        "RestartPolicy": {"Name": restart, "MaximumRetryCount": retries},
        "AutoRemove": config.auto_remove,
        "CapAdd": config.cap_add,
        "CapDrop": config.cap_drop,
        "Dns": config.dns.servers,
        "DnsOptions": config.dns.options,
        "DnsSearch": config.dns.search,
        "ExtraHosts": hosts,
        "GroupAdd": config.group_add,
        "IpcMode": namespace(config, &config.namespaces.ipc, "private"),
        "PidMode": namespace(config, &config.namespaces.pid, ""),
        "UTSMode": match config.hostname {
            Some(_) => String::new(),
            None => namespace(config, &config.namespaces.uts, ""),
        },
        "CgroupnsMode": namespace(config, &config.namespaces.cgroup, "private"),
        "UsernsMode": serde_json::to_value(config.namespaces.user).unwrap_or_default(),
        "Isolate": config.security.isolate,
        "ReadonlyRootfs": config.read_only,
        "Tmpfs": memory_file_systems(record),
        "ShmSize": config.limits.shm_size.unwrap_or(0),
        "Memory": config.limits.memory.unwrap_or(0),
        "NanoCpus": config.limits.cpus.map_or(0, |cpus| (cpus * 1e9) as i64),
        "PidsLimit": config.limits.pids,
        "CpusetCpus": config.limits.cpuset_cpus.clone().unwrap_or_default(),
        "Ulimits": ulimits,
        "Devices": devices,
        "DeviceRequests": requests(record),
        "Init": config.init,
        "LogConfig": {"Type": if config.log.disabled { "none" } else { "json-file" }, "Config": {}},
    })
}

/// GPUs and CDI devices, as Docker tells them.
fn requests(record: &Record) -> Vec<Value> {
    let gpus = &record.own.gpus;
    let mut requests = Vec::new();
    if !gpus.gpus.is_empty() {
        requests
            .push(json!({"Driver": "", "Options": {"gpus": gpus.gpus}, "Capabilities": [["gpu"]]}));
    }
    if !gpus.devices.is_empty() {
        requests.push(json!({"Driver": "cdi", "DeviceIDs": gpus.devices}));
    }
    requests
}

fn port_bindings(publish: &[Publish]) -> Value {
    let mut map: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for publish in publish {
        let protocol = if publish.udp { "udp" } else { "tcp" };
        for (host, inside) in publish.pairs() {
            let address =
                publish.address.map_or_else(|| "0.0.0.0".to_owned(), |address| address.to_string());
            let binding = json!({"HostIp": address, "HostPort": host.to_string()});
            map.entry(format!("{inside}/{protocol}")).or_default().push(binding);
        }
    }
    json!(map)
}

/// In Docker's word: without an option the host's later mounts appear.
fn propagation(mount: &MountSpec) -> &'static str {
    match (mount.kind, mount.options.propagation) {
        (MountKind::Tmpfs, _) => "",
        (_, Some(Propagation::Private)) => "rprivate",
        (_, Some(Propagation::Slave) | None) => "rslave",
    }
}

fn mounts(record: &Record) -> Vec<Value> {
    let mounts = record.config.mounts.iter();
    mounts
        .map(|mount| {
            let kind = match mount.kind {
                MountKind::Bind => "bind",
                MountKind::Volume => "volume",
                MountKind::Tmpfs => "tmpfs",
            };
            let mut value = json!({
                "Type": kind,
                "Source": mount.source,
                "Destination": mount.target,
                "Mode": mount.options.words().join(","),
                "RW": !mount.read_only,
                "Propagation": propagation(mount),
            });
            if let (Some(name), Some(map)) = (&mount.name, value.as_object_mut()) {
                map.insert("Name".to_owned(), name.clone().into());
            }
            value
        })
        .collect()
}

/// The host name as programs see it: `runs`, now, else when it is started again.
fn host_name(container: &ContainerDir, config: &ContainerConfig, runs: bool) -> String {
    let given = config.hostname.clone().filter(|name| !name.is_empty());
    let of_network = || {
        let is_named = matches!(network_mode(config), NetworkMode::Named(_));
        let title = record::title(container);
        (is_named && !runs).then(|| net::hosts::name(&title, container.id()).to_owned())
    };
    given
        .or_else(of_network)
        .or_else(|| networks::host_name(container))
        .unwrap_or_else(|| container.short_id().to_owned())
}

fn settings(store: &Store, container: &ContainerDir, record: &Record, runs: bool) -> Value {
    let config = &record.config;
    json!({
        "Hostname": host_name(container, config, runs),
        "Domainname": "",
        "User": config.user,
        "AttachStdin": config.stdin_open,
        "AttachStdout": true,
        "AttachStderr": true,
        "Tty": config.tty,
        "OpenStdin": config.stdin_open,
        "Env": config.env,
        "Cmd": record.own.cmd,
        "Image": list::image_name(record),
        "WorkingDir": if config.cwd.is_empty() { "/" } else { &config.cwd },
        "Entrypoint": if record.own.entrypoint.is_empty() { Value::Null } else { json!(record.own.entrypoint) },
        "Labels": config.labels,
        "StopSignal": if config.stop_signal.is_empty() { "SIGTERM" } else { &config.stop_signal },
        "StopTimeout": config.stop_timeout,
        "ExposedPorts": exposed(store, config),
        "Healthcheck": ineffective::health(config),
    })
}

/// As in Docker, the ports that are published count too.
fn exposed(store: &Store, config: &ContainerConfig) -> Map<String, Value> {
    let image = config.image.as_ref().map(|image| &*image.config);
    let mut ports = list::exposed(store, &config.expose, image);
    for publish in &config.network.publish {
        let protocol = if publish.udp { "udp" } else { "tcp" };
        let last = publish.inside.saturating_add(publish.count.max(1) - 1);
        ports.extend((publish.inside..=last).map(|port| format!("{port}/{protocol}")));
    }
    ports.sort_unstable();
    ports.into_iter().map(|port| (port, json!({}))).collect()
}

/// In Docker's words, what a namespace is; `private` is Docker's word for one of its own.
fn namespace(config: &ContainerConfig, mode: &NamespaceMode, private: &str) -> String {
    match (mode, &config.join) {
        (NamespaceMode::Default, Some(name)) | (NamespaceMode::Container(name), _) => {
            format!("container:{name}")
        }
        (NamespaceMode::Default, None) if config.security.isolate => private.to_owned(),
        (NamespaceMode::Private, _) => private.to_owned(),
        (NamespaceMode::Default | NamespaceMode::Host, _) => "host".to_owned(),
    }
}

fn network_mode(config: &ContainerConfig) -> NetworkMode {
    match (&config.network.mode, &config.join) {
        (NetworkMode::Default, Some(name)) => NetworkMode::Container(name.clone()),
        _ => list::network_mode(&config.network, config.security.isolate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In Docker's form: one port of the container may have several places on the host.
    #[test]
    fn a_port_that_is_published_twice() {
        let publish = |host, inside, udp| Publish { host, inside, udp, ..Publish::default() };
        let all = [publish(8195, 95, false), publish(8196, 95, false), publish(8195, 95, true)];
        let at = |port: &str| json!({"HostIp": "0.0.0.0", "HostPort": port});
        assert_eq!(
            port_bindings(&all),
            json!({"95/tcp": [at("8195"), at("8196")], "95/udp": [at("8195")]})
        );
    }

    #[test]
    fn namespaces_in_dockers_words() {
        let mut config = ContainerConfig::default();
        let pid = |config: &ContainerConfig| namespace(config, &config.namespaces.pid, "");
        let ipc = |config: &ContainerConfig| namespace(config, &config.namespaces.ipc, "private");
        assert_eq!((pid(&config).as_str(), ipc(&config).as_str()), ("host", "host"));
        assert_eq!(network_mode(&config), NetworkMode::Host);
        config.security.isolate = true;
        assert_eq!((pid(&config).as_str(), ipc(&config).as_str()), ("", "private"));
        assert_eq!(network_mode(&config), NetworkMode::Private);
        config.join = Some("db".into());
        assert_eq!(
            (pid(&config).as_str(), ipc(&config).as_str()),
            ("container:db", "container:db")
        );
        assert_eq!(network_mode(&config), NetworkMode::Container("db".into()));
        config.namespaces.pid = NamespaceMode::Host;
        assert_eq!(pid(&config), "host");
    }
}
