//! What the flags of a run change in a container that exists.
//!
//! Each flag of `run` has one of three meanings there. It changes this run alone ([`adapted`]); or
//! it is refused, because the container's other runs share what it decides ([`decided_before`]); or
//! it is about pulling an image, or about the session in front of the program, and needs nothing
//! here. [`decided_before`] takes the structures of flags apart, so that a new flag does not
//! compile until it has one of these meanings.

use engine::plan::Overrides;
use engine::spec::MountKind;

use super::gpus::Wishes;
use super::record::Record;
use super::{accounts, command, ports, spec, volumes};
use crate::args::run::{
    ContainerFlags, FileFlags, ImageFlags, NetworkFlags, ProcessFlags, RecordFlags, ResourceFlags,
    SecurityFlags, UdockerFlags,
};
use crate::context::Context;
use crate::report::Report;
use crate::udocker;

/// An existing container's record with what this run's flags change, for this run only.
pub(crate) fn adapted(
    context: &Context,
    flags: &ContainerFlags,
    mut record: Record,
    words: &[String],
) -> Result<(Record, Overrides), Report> {
    if flags.udocker.nometa {
        without_wishes(context, &mut record)?;
    }
    let draft = spec::draft(context, flags, None, words)?;
    let mut mounts = draft.mounts;
    if mounts.iter().any(|wish| wish.spec.kind == MountKind::Volume && wish.anonymous) {
        return Err(Report::usage("an unnamed volume can only be given to a new container")
            .hint("give it a name: -v NAME:PATH"));
    }
    let (new_mounts, _) = volumes::place(context.store()?, std::mem::take(&mut mounts))?;
    let new = draft.config;
    let config = &mut record.config;
    let process = &flags.process;
    let mut overrides =
        Overrides { mounts: new_mounts, tty: Some(process.tty), ..Overrides::default() };
    if !words.is_empty() || process.entrypoint.is_some() {
        let argv = command::merge(
            &record.own.entrypoint,
            &record.own.cmd,
            process.entrypoint.as_deref(),
            words,
        );
        overrides.command = Some(argv);
    }
    overrides.env.clone_from(&new.env);
    overrides.cwd.clone_from(&process.workdir);
    overrides.user.clone_from(&process.user);
    config.tty = process.tty;
    config.stdin_open = process.interactive;
    config.auto_remove = flags.record.rm;
    config.init |= process.init;
    config.read_only |= flags.files.read_only;
    config.devices.extend(new.devices);
    config.group_add.extend(new.group_add);
    if flags.files.hostauth && !record.own.hostauth {
        record.own.hostauth = true;
        overrides.mounts.extend(accounts::mounts());
    }
    let gpus = spec::gpus(flags)?;
    if flags.files.gpus.is_some() || !gpus.is_empty() {
        record.own.gpus = Wishes { now: true, ..gpus };
    }
    if let Some(list) = new.limits.cpuset_cpus {
        config.limits.cpuset_cpus = Some(list);
    }
    config.limits.cpus = new.limits.cpus.or(config.limits.cpus);
    config.limits.memory = new.limits.memory.or(config.limits.memory);
    config.limits.pids = new.limits.pids.or(config.limits.pids);
    config.limits.ulimits.extend(new.limits.ulimits);
    if flags.image.execmode.is_some() {
        config.exec_mode = new.exec_mode;
    }
    if flags.security.join.is_some() {
        config.join = new.join;
    }
    if flags.network.network.is_some() {
        config.network.mode = new.network.mode;
    }
    if !new.network.publish.is_empty() {
        config.network.publish = new.network.publish;
        ports::choose(&mut config.network.publish)?;
    }
    Ok((record, overrides))
}

/// Passes over, for this run, what the container was told when it was made (`--nometa`).
fn without_wishes(context: &Context, record: &mut Record) -> Result<(), Report> {
    let config = &mut record.config;
    config.env.clear();
    config.cwd.clear();
    config.user.clear();
    record.own.entrypoint.clear();
    record.own.cmd.clear();
    config.command.clear();
    if context.is_udocker() {
        config.command = udocker::command(context)?;
        udocker::name_user(context, config);
    }
    Ok(())
}

/// The first flag that is given and decided when a container is made.
pub(crate) fn decided_before(flags: &ContainerFlags) -> Option<&'static str> {
    let ContainerFlags {
        process,
        files,
        network,
        // Limits hold for one program.
        resources: ResourceFlags { cpus: _, cpuset_cpus: _, memory: _, pids_limit: _, ulimit: _ },
        security,
        image,
        // What udocker has besides asks for what is so anyway, or is applied.
        udocker:
            UdockerFlags {
                nometa: _,
                novol: _,
                nosysdirs: _,
                containerauth: _,
                publish_all: _,
                nvidia: _,
                netcoop: _,
            },
        record,
    } = flags;
    let all = [of_process(process), of_files(files), of_network(network)];
    let more = [of_security(security), of_image(image), of_record(record)];
    all.into_iter().chain(more).flatten().next()
}

fn first(given: &[(&'static str, bool)]) -> Option<&'static str> {
    given.iter().find(|(_, given)| *given).map(|(flag, _)| *flag)
}

fn of_process(flags: &ProcessFlags) -> Option<&'static str> {
    let ProcessFlags {
        interactive: _,
        tty: _,
        env: _,
        env_file: _,
        hostenv: _,
        workdir: _,
        user: _,
        group_add: _,
        entrypoint: _,
        init: _,
        // `stop` reads them in the container's record.
        stop_signal,
        stop_timeout,
    } = flags;
    first(&[("--stop-signal", stop_signal.is_some()), ("--stop-timeout", stop_timeout.is_some())])
}

fn of_files(flags: &FileFlags) -> Option<&'static str> {
    let FileFlags {
        volume: _,
        mount: _,
        volumes_from: _,
        tmpfs: _,
        read_only: _,
        device: _,
        gpus: _,
        // All runs of the container share `/dev/shm`.
        shm_size,
        bindhome: _,
        hostauth: _,
        x11: _,
        dri: _,
    } = flags;
    first(&[("--shm-size", shm_size.is_some())])
}

fn of_network(flags: &NetworkFlags) -> Option<&'static str> {
    let NetworkFlags {
        network: _,
        publish: _,
        // The files in `/etc` are the container's.
        hostname,
        add_host,
        dns,
        dns_search,
        dns_option,
    } = flags;
    first(&[
        ("--hostname", hostname.is_some()),
        ("--add-host", !add_host.is_empty()),
        ("--dns", !dns.is_empty()),
        ("--dns-search", !dns_search.is_empty()),
        ("--dns-option", !dns_option.is_empty()),
    ])
}

fn of_security(flags: &SecurityFlags) -> Option<&'static str> {
    let SecurityFlags {
        isolate,
        security_opt,
        cap_add,
        cap_drop,
        pid,
        ipc,
        uts,
        userns,
        cgroupns,
        join: _,
    } = flags;
    first(&[
        ("--isolate", *isolate),
        ("--cap-add", !cap_add.is_empty()),
        ("--cap-drop", !cap_drop.is_empty()),
        ("--security-opt", !security_opt.is_empty()),
        ("--pid", pid.is_some()),
        ("--ipc", ipc.is_some()),
        ("--uts", uts.is_some()),
        ("--userns", userns.is_some()),
        ("--cgroupns", cgroupns.is_some()),
    ])
}

fn of_image(flags: &ImageFlags) -> Option<&'static str> {
    let ImageFlags {
        // The front end judges it: under udocker's name it means another thing.
        pull: _,
        platform,
        // A tree has no container of its name.
        rootfs: _,
        execmode: _,
        registry: _,
    } = flags;
    first(&[("--platform", platform.is_some())])
}

fn of_record(flags: &RecordFlags) -> Option<&'static str> {
    let RecordFlags {
        name,
        label,
        label_file,
        cidfile,
        restart,
        // The front end judges it: it says nothing of the container itself.
        rm: _,
        // `logs` reads the container's log by what its record says.
        log_opt,
        log_driver,
        nobanner: _,
    } = flags;
    first(&[
        ("--name", name.is_some()),
        ("--label", !label.is_empty()),
        ("--label-file", !label_file.is_empty()),
        ("--cidfile", cidfile.is_some()),
        ("--restart", restart.is_some()),
        ("--log-opt", !log_opt.is_empty()),
        ("--log-driver", log_driver.is_some()),
    ])
}
