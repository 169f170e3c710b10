//! Applies a request to a container that exists, for one run.
//!
//! Each field of a request has one of three meanings there. It changes this run alone
//! ([`adapted`]); or it is refused, because the container's other runs share what it decides
//! ([`decided_before`]); or it is about pulling an image, or about the session in front of the
//! program, and needs nothing here. [`decided_before`] takes the request apart, so that a new field
//! does not compile until it has one of these meanings.

use engine::plan::Overrides;
use engine::spec::{DnsSpec, Limits, NetworkMode};
use store::ContainerDir;

use super::record::Record;
use super::{accounts, draft, list, naming, networks, volumes};
use crate::error::{Error, Result};
use crate::request::gpus::GpuRequest;
use crate::request::networks::Networks;
use crate::request::{
    ContainerRequest, FileRequest, ImageRequest, LogRequest, NetworkRequest, ProcessRequest,
    RecordRequest, SecurityRequest, command_line, ports,
};
use crate::session::Session;

/// An existing container's record with what a run's request changes, for this run only.
pub fn adapted(
    session: &Session,
    request: &ContainerRequest,
    mut record: Record,
) -> Result<(Record, Overrides)> {
    if request.image.ignore_config {
        ignore_config(session, &mut record);
    }
    let draft = draft::draft(session, request, None, &request.command)?;
    if draft.mounts.iter().any(|mount| mount.spec.unnamed) {
        return Err(Error::invalid("an unnamed volume can only be given to a new container")
            .with_hint("give it a name: -v NAME:PATH"));
    }
    let (mounts, _) = volumes::place(session, draft.mounts)?;
    let new = draft.config;
    let overrides = overrides(request, &record, mounts, &new.env);
    let ContainerRequest { process, files, .. } = request;
    let config = &mut record.config;
    config.tty = process.tty;
    config.stdin_open = process.interactive;
    config.auto_remove = request.record.remove;
    config.init |= process.init;
    config.read_only |= files.read_only;
    config.devices.extend(new.devices);
    config.group_add.extend(new.group_add);
    config.umask = new.umask.or(config.umask);
    config.strict |= new.strict;
    limit(&mut config.limits, new.limits);
    if request.image.exec_mode.is_some() {
        config.exec_mode = new.exec_mode;
    }
    if request.security.join.is_some() {
        config.join = new.join;
    }
    let mut network = new.network;
    if request.network.publish_all {
        let image = config.image.as_ref().map(|image| &*image.config);
        let served = list::exposed(session.store()?, &config.expose, image);
        draft::all_published(session, &served, &mut network.publish);
        if !network.publish.is_empty() && network.mode == NetworkMode::Default {
            network.mode = NetworkMode::Private;
        }
        config.network.publish_all = true;
    }
    let publishes = !network.publish.is_empty();
    let asked = &request.network.networks;
    if asked.mode.is_some() || publishes && config.network.mode == NetworkMode::Default {
        config.network.mode = network.mode;
        networks::put(&mut config.network, networks::resolve(session, &asked.named)?);
    }
    if publishes {
        config.network.publish = network.publish;
        ports::choose(&mut config.network.publish)?;
    }
    if files.host_accounts {
        record.own.hostauth = true;
    }
    if files.says_gpus || !files.gpus.is_empty() {
        record.own.gpus = GpuRequest { now: true, ..files.gpus.clone() };
    }
    Ok((record, overrides))
}

/// What differs from the record in this run's program.
fn overrides(
    request: &ContainerRequest,
    record: &Record,
    mut mounts: Vec<engine::spec::MountSpec>,
    env: &[String],
) -> Overrides {
    let process = &request.process;
    if request.files.host_accounts && !record.own.hostauth {
        mounts.extend(accounts::host_files());
    }
    let says_command = !request.command.is_empty() || process.entrypoint.is_some();
    let command = says_command.then(|| {
        let (entrypoint, cmd) = (&record.own.entrypoint, &record.own.cmd);
        command_line::merge(entrypoint, cmd, process.entrypoint.as_deref(), &request.command)
    });
    Overrides {
        mounts,
        tty: Some(process.tty),
        command,
        env: env.to_vec(),
        cwd: process.workdir.clone(),
        user: process.user.clone(),
        ..Overrides::default()
    }
}

/// Limits of this run; those that it does not name stay.
fn limit(limits: &mut Limits, new: Limits) {
    limits.cpuset_cpus = new.cpuset_cpus.or_else(|| limits.cpuset_cpus.take());
    limits.cpus = new.cpus.or(limits.cpus);
    limits.memory = new.memory.or(limits.memory);
    limits.memory_swap = new.memory_swap.or(limits.memory_swap);
    limits.memory_reservation = new.memory_reservation.or(limits.memory_reservation);
    limits.cpu_shares = new.cpu_shares.or(limits.cpu_shares);
    limits.oom_score_adj = new.oom_score_adj.or(limits.oom_score_adj);
    limits.pids = new.pids.or(limits.pids);
    limits.ulimits.extend(new.ulimits);
}

/// Passes over, for this run, what the container was told when it was made.
fn ignore_config(session: &Session, record: &mut Record) {
    let config = &mut record.config;
    config.env.clear();
    config.cwd.clear();
    config.user.clear();
    record.own.entrypoint.clear();
    record.own.cmd.clear();
    config.command.clone_from(&session.dialect().default_command);
    if session.dialect().names_user {
        naming::name_user(session, config);
    }
}

/// Drops from a request what some dialects pass over for a container that exists; the request's
/// name becomes a further name of the container.
pub fn drop_decided(request: &mut ContainerRequest, container: &mut ContainerDir) -> Result<()> {
    if let Some(name) = request.record.name.take() {
        container.add_name(&name)?;
    }
    request.image.platform = None;
    request.network.dns.servers.clear();
    request.network.dns.search.clear();
    Ok(())
}

/// The first field that is given and decided when a container is made, as its flag is called.
pub fn decided_before(request: &ContainerRequest) -> Option<&'static str> {
    let ContainerRequest {
        image,
        command: _,
        process,
        files,
        network,
        // Limits hold for one program. All runs of the container share `/dev/shm`.
        limits:
            Limits {
                cpus: _,
                memory: _,
                memory_swap: _,
                memory_reservation: _,
                cpu_shares: _,
                oom_score_adj: _,
                pids: _,
                cpuset_cpus: _,
                ulimits: _,
                shm_size,
            },
        security,
        record,
        ineffective,
        strict: _,
    } = request;
    let shm = first(&[("--shm-size", shm_size.is_some())]);
    let all = [of_process(process), of_files(files).or(shm), of_network(network)];
    let more = [of_security(security), of_image(image), of_record(record)];
    let ineffective = ineffective.first().map(|(flag, _)| *flag);
    all.into_iter().chain(more).flatten().next().or(ineffective)
}

fn first(effective: &[(&'static str, bool)]) -> Option<&'static str> {
    effective.iter().find(|(_, effective)| *effective).map(|(flag, _)| *flag)
}

fn of_process(request: &ProcessRequest) -> Option<&'static str> {
    let ProcessRequest {
        interactive: _,
        tty: _,
        env_files: _,
        env: _,
        // The container has its variables.
        env_defaults,
        host_environment: _,
        workdir: _,
        user: _,
        groups: _,
        umask: _,
        entrypoint: _,
        init: _,
        // `stop` reads them in the container's record.
        stop_signal,
        stop_timeout,
    } = request;
    first(&[
        ("--env-default", !env_defaults.is_empty()),
        ("--stop-signal", stop_signal.is_some()),
        ("--stop-timeout", stop_timeout.is_some()),
    ])
}

fn of_files(request: &FileRequest) -> Option<&'static str> {
    let FileRequest {
        mounts: _,
        volumes_from: _,
        read_only: _,
        devices: _,
        gpus: _,
        says_gpus: _,
        bind_home: _,
        host_accounts: _,
        x11: _,
        graphics: _,
    } = request;
    None
}

fn of_network(request: &NetworkRequest) -> Option<&'static str> {
    let NetworkRequest {
        networks: Networks { mode: _, named: _ },
        publish: _,
        publish_all: _,
        // The files in `/etc` are the container's.
        hostname,
        hosts,
        dns: DnsSpec { servers, search, options },
        expose,
    } = request;
    first(&[
        ("--hostname", hostname.is_some()),
        ("--add-host", !hosts.is_empty()),
        ("--dns", !servers.is_empty()),
        ("--dns-search", !search.is_empty()),
        ("--dns-option", !options.is_empty()),
        ("--expose", !expose.is_empty()),
    ])
}

fn of_security(request: &SecurityRequest) -> Option<&'static str> {
    let SecurityRequest {
        isolate,
        options,
        privileged,
        sysctls,
        cap_add,
        cap_drop,
        pid,
        ipc,
        uts,
        user,
        cgroup,
        join: _,
    } = request;
    first(&[
        ("--isolate", *isolate),
        ("--privileged", *privileged),
        ("--sysctl", !sysctls.is_empty()),
        ("--cap-add", !cap_add.is_empty()),
        ("--cap-drop", !cap_drop.is_empty()),
        ("--security-opt", !options.is_empty()),
        ("--pid", pid.is_some()),
        ("--ipc", ipc.is_some()),
        ("--uts", uts.is_some()),
        ("--userns", user.is_some()),
        ("--cgroupns", cgroup.is_some()),
    ])
}

fn of_image(request: &ImageRequest) -> Option<&'static str> {
    let ImageRequest {
        name: _,
        // `run` judges them: they say when an image is pulled.
        pull: _,
        reuse: _,
        platform,
        registry: _,
        // A tree has no container of its name.
        rootfs: _,
        exec_mode: _,
        index,
        ignore_config: _,
    } = request;
    first(&[("--platform", platform.is_some()), ("--index", index.is_some())])
}

fn of_record(request: &RecordRequest) -> Option<&'static str> {
    let RecordRequest {
        name,
        label_files,
        labels,
        annotations,
        cidfile,
        restart,
        // `run` judges it: it says nothing of the container itself.
        remove: _,
        // `logs` reads the container's log by what its record says.
        log: LogRequest { kept, max_size, max_files },
    } = request;
    first(&[
        ("--name", name.is_some()),
        ("--label", !labels.is_empty()),
        ("--label-file", !label_files.is_empty()),
        ("--annotation", !annotations.is_empty()),
        ("--cidfile", cidfile.is_some()),
        ("--restart", restart.is_some()),
        ("--log-opt", max_size.is_some() || max_files.is_some()),
        ("--log-driver", kept.is_some()),
    ])
}
