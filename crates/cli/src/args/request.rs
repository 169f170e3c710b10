//! Turns the flags of `run` and `create` into the core's requests.
//!
//! Each structure of flags is taken apart without `..`, so that a new flag does not compile until
//! it has a meaning here.

use std::collections::BTreeMap;

use containers::Surroundings;
use containers::config::{PullPolicy, SettingValue};
use containers::container::update::Changes;
use containers::request::gpus::GpuRequest;
use containers::request::{
    ContainerRequest, FileRequest, ImageRequest, LogRequest, NetworkRequest, ProcessRequest,
    RecordRequest, RegistryRequest, SecurityRequest, command_line, environment, limits, mounts,
    networks, options, ports,
};
use engine::spec::{DnsSpec, Limits};

use super::images::RegistryFlags;
use super::run::{
    ContainerFlags, FileFlags, ImageFlags, IneffectiveFlags, LimitFlags, NetworkFlags,
    ProcessFlags, RecordFlags, ResourceFlags, SecurityFlags, UdockerFlags,
};
use crate::report::Report;

/// A container by the flags of `run` or `create`, its image and its command. With `--rootfs` the
/// image's word is the command's first.
pub(crate) fn container(
    flags: &ContainerFlags,
    image: Option<&str>,
    words: &[String],
    surroundings: &Surroundings,
) -> Result<ContainerRequest, Report> {
    let ContainerFlags {
        process,
        files: file_flags,
        network: network_flags,
        resources,
        security: security_flags,
        image: image_flags,
        udocker,
        ineffective: ineffective_flags,
        record: record_flags,
    } = flags;
    // What udocker has besides asks for what is so anyway.
    let UdockerFlags { nometa, novol: _, nosysdirs: _, containerauth: _, nvidia, netcoop: _ } =
        udocker;
    let first = image.filter(|_| image_flags.rootfs.is_some()).map(str::to_owned);
    let shm_size = file_flags.shm_size.as_deref();
    Ok(ContainerRequest {
        image: self::image(image_flags, image, *nometa)?,
        command: first.into_iter().chain(words.iter().cloned()).collect(),
        process: self::process(process, surroundings)?,
        files: files(file_flags, *nvidia, surroundings)?,
        network: network(network_flags)?,
        limits: self::limits(resources, shm_size)?,
        security: security(security_flags, surroundings)?,
        record: record(record_flags)?,
        ineffective: ineffective(ineffective_flags),
        strict: resources.strict,
    })
}

/// Flags with their values, in Docker's words.
fn ineffective(flags: &IneffectiveFlags) -> Vec<(&'static str, String)> {
    fn one<T: ToString>(flag: &'static str, value: Option<&T>) -> Vec<(&'static str, String)> {
        value.map(|value| (flag, value.to_string())).into_iter().collect()
    }
    fn many(flag: &'static str, values: &[String]) -> Vec<(&'static str, String)> {
        values.iter().map(|value| (flag, value.clone())).collect()
    }
    let IneffectiveFlags {
        blkio_weight,
        blkio_weight_device,
        device_read_bps,
        device_write_bps,
        device_read_iops,
        device_write_iops,
        device_cgroup_rule,
        cpu_rt_period,
        cpu_rt_runtime,
        cpuset_mems,
        kernel_memory,
        memory_swappiness,
        oom_kill_disable,
        cgroup_parent,
        storage_opt,
        isolation,
        runtime,
        health_cmd,
        health_interval,
        health_timeout,
        health_start_period,
        health_start_interval,
        health_retries,
        no_healthcheck,
    } = flags;
    [
        one("--blkio-weight", blkio_weight.as_ref()),
        many("--blkio-weight-device", blkio_weight_device),
        many("--device-read-bps", device_read_bps),
        many("--device-write-bps", device_write_bps),
        many("--device-read-iops", device_read_iops),
        many("--device-write-iops", device_write_iops),
        many("--device-cgroup-rule", device_cgroup_rule),
        one("--cpu-rt-period", cpu_rt_period.as_ref()),
        one("--cpu-rt-runtime", cpu_rt_runtime.as_ref()),
        one("--cpuset-mems", cpuset_mems.as_ref()),
        one("--kernel-memory", kernel_memory.as_ref()),
        one("--memory-swappiness", memory_swappiness.as_ref()),
        one("--oom-kill-disable", oom_kill_disable.then_some(&true)),
        one("--cgroup-parent", cgroup_parent.as_ref()),
        many("--storage-opt", storage_opt),
        one("--isolation", isolation.as_ref()),
        one("--runtime", runtime.as_ref()),
        one("--health-cmd", health_cmd.as_ref()),
        one("--health-interval", health_interval.as_ref()),
        one("--health-timeout", health_timeout.as_ref()),
        one("--health-start-period", health_start_period.as_ref()),
        one("--health-start-interval", health_start_interval.as_ref()),
        one("--health-retries", health_retries.as_ref()),
        one("--no-healthcheck", no_healthcheck.then_some(&true)),
    ]
    .concat()
}

fn process(flags: &ProcessFlags, surroundings: &Surroundings) -> Result<ProcessRequest, Report> {
    let ProcessFlags {
        interactive,
        tty,
        env,
        env_file,
        env_default,
        hostenv,
        workdir,
        user,
        group_add,
        umask,
        entrypoint,
        init,
        stop_signal,
        stop_timeout,
    } = flags;
    let (env_files, env) = variables(env_file, env, surroundings)?;
    let defaults = env_default.iter().map(|text| environment::default(text));
    let seconds = |seconds: i64| u32::try_from(seconds).unwrap_or(u32::MAX);
    Ok(ProcessRequest {
        interactive: *interactive,
        tty: *tty,
        env_files,
        env,
        env_defaults: defaults.collect::<containers::Result<_>>()?,
        host_environment: *hostenv,
        workdir: workdir.clone(),
        user: user.clone(),
        groups: group_add.clone(),
        umask: umask.as_deref().map(limits::umask).transpose()?,
        entrypoint: entrypoint.as_deref().map(command_line::entrypoint),
        init: *init,
        stop_signal: stop_signal.clone(),
        stop_timeout: stop_timeout.map(seconds),
    })
}

/// Variables of `--env-file` and of `--env`.
pub(crate) fn variables(
    files: &[std::path::PathBuf],
    flags: &[String],
    surroundings: &Surroundings,
) -> Result<(Vec<environment::Change>, Vec<environment::Change>), Report> {
    let host = &surroundings.environment;
    let mut from_files = Vec::new();
    for file in files {
        from_files.extend(environment::file(file, host)?);
    }
    let from_flags = flags.iter().map(|text| environment::flag(text, host));
    Ok((from_files, from_flags.collect::<containers::Result<_>>()?))
}

fn files(
    flags: &FileFlags,
    nvidia: bool,
    surroundings: &Surroundings,
) -> Result<FileRequest, Report> {
    let FileFlags {
        volume,
        mount,
        volumes_from,
        tmpfs,
        read_only,
        device,
        gpus,
        // It is a limit.
        shm_size: _,
        bindhome,
        hostauth,
        x11,
        dri,
    } = flags;
    // One that is gone is missed by a relative path alone.
    let working = surroundings.directory.as_deref();
    let mut all = Vec::new();
    for text in volume {
        all.push(mounts::volume(text, working)?);
    }
    for text in mount {
        all.push(mounts::mount(text, working)?);
    }
    for text in tmpfs {
        all.push(mounts::tmpfs(text)?);
    }
    let nodes = device.iter().filter(|text| !host::cdi::is_name(text));
    Ok(FileRequest {
        mounts: all,
        volumes_from: volumes_from.iter().map(|text| options::volumes_from(text)).collect(),
        read_only: *read_only,
        devices: nodes.map(|text| mounts::device(text)).collect::<containers::Result<_>>()?,
        gpus: GpuRequest::new(gpus.as_deref(), nvidia, device)?,
        says_gpus: gpus.is_some(),
        bind_home: *bindhome,
        host_accounts: *hostauth,
        x11: *x11,
        graphics: *dri,
    })
}

fn network(flags: &NetworkFlags) -> Result<NetworkRequest, Report> {
    let NetworkFlags {
        network,
        network_alias,
        ip,
        ip6,
        publish,
        publish_all,
        expose,
        hostname,
        add_host,
        dns,
        dns_search,
        dns_option,
    } = flags;
    let hosts = add_host.iter().map(|text| options::add_host(text));
    let exposed = expose.iter().map(|text| options::expose(text));
    let published = publish.iter().map(|text| ports::parse(text));
    Ok(NetworkRequest {
        networks: networks::parse(network, network_alias, (ip.as_deref(), ip6.as_deref()))?,
        publish: published.collect::<containers::Result<_>>()?,
        publish_all: *publish_all,
        hostname: hostname.clone(),
        hosts: hosts.collect::<containers::Result<_>>()?,
        dns: DnsSpec {
            servers: dns.clone(),
            search: dns_search.clone(),
            options: dns_option.clone(),
        },
        expose: exposed.collect::<containers::Result<Vec<_>>>()?.concat(),
    })
}

fn limits(flags: &ResourceFlags, shm_size: Option<&str>) -> Result<Limits, Report> {
    let ResourceFlags {
        limits,
        oom_score_adj,
        ulimit,
        // It is the whole request's.
        strict: _,
    } = flags;
    let ulimits = ulimit.iter().map(|text| limits::ulimit(text));
    let given = changes(limits)?;
    Ok(Limits {
        cpus: given.cpus.flatten(),
        memory_swap: given.memory_swap.flatten(),
        memory_reservation: given.memory_reservation.flatten(),
        cpu_shares: given.cpu_shares.flatten(),
        oom_score_adj: oom_score_adj.map(limits::oom_score).transpose()?,
        memory: given.memory.flatten(),
        pids: given.pids.flatten(),
        cpuset_cpus: given.cpuset_cpus.flatten(),
        ulimits: ulimits.collect::<containers::Result<_>>()?,
        shm_size: shm_size.map_or(Ok(None), |text| limits::bytes("--shm-size", text))?,
    })
}

/// The limits that are given, and those that are lifted.
pub(crate) fn changes(flags: &LimitFlags) -> Result<Changes, Report> {
    let LimitFlags {
        cpus,
        cpu_shares,
        cpu_quota,
        cpu_period,
        cpuset_cpus,
        memory,
        memory_swap,
        memory_reservation,
        pids_limit,
    } = flags;
    let bytes = |flag, text: &Option<String>| {
        text.as_deref().map(|text| limits::bytes(flag, text)).transpose()
    };
    let has_cpus = cpus.is_some() || cpu_quota.is_some() || cpu_period.is_some();
    let cpus = cpus.as_deref().map(limits::cpus).transpose()?.flatten();
    let quota = limits::quota(*cpu_quota, *cpu_period, cpus)?;
    Ok(Changes {
        cpus: has_cpus.then_some(quota),
        cpu_shares: cpu_shares.map(|shares| (shares > 0).then_some(shares)),
        cpuset_cpus: cpuset_cpus.clone().map(|list| (!list.is_empty()).then_some(list)),
        memory: bytes("--memory", memory)?,
        memory_swap: memory_swap.as_deref().map(limits::swap).transpose()?,
        memory_reservation: bytes("--memory-reservation", memory_reservation)?,
        pids: pids_limit.map(limits::pids),
        restart: None,
    })
}

fn security(flags: &SecurityFlags, surroundings: &Surroundings) -> Result<SecurityRequest, Report> {
    let SecurityFlags {
        isolate,
        privileged,
        sysctl,
        security_opt,
        cap_add,
        cap_drop,
        pid,
        ipc,
        uts,
        userns,
        cgroupns,
        join,
    } = flags;
    let mode = |flag, text: &Option<String>| {
        text.as_deref().map(|text| options::mode(flag, text)).transpose()
    };
    let mut sysctls = BTreeMap::new();
    sysctl.iter().try_for_each(|text| options::add_sysctl(&mut sysctls, text))?;
    let read = security_opt.iter().map(|text| options::security(text, surroundings));
    Ok(SecurityRequest {
        isolate: *isolate,
        privileged: *privileged,
        sysctls,
        options: read.collect::<containers::Result<_>>()?,
        cap_add: cap_add.clone(),
        cap_drop: cap_drop.clone(),
        pid: mode("--pid", pid)?,
        ipc: mode("--ipc", ipc)?,
        uts: mode("--uts", uts)?,
        cgroup: mode("--cgroupns", cgroupns)?,
        user: userns.as_deref().map(|text| options::mode("--userns", text)).transpose()?,
        join: join.clone(),
    })
}

fn image(
    flags: &ImageFlags,
    name: Option<&str>,
    ignore_config: bool,
) -> Result<ImageRequest, Report> {
    let ImageFlags { pull, platform, rootfs, execmode, index, registry: registry_flags } = flags;
    let (reuse, pull) = match pull.as_deref() {
        None => (false, None),
        // udocker's word: what is there is used, which `run NAME` does anyway.
        Some("reuse") => (true, Some(PullPolicy::Missing)),
        Some(text) => {
            let policy = <PullPolicy as SettingValue>::from_text(text).map_err(|_| {
                Report::usage(format!("--pull '{text}' is not a policy"))
                    .hint("there are always, missing, never and newer")
            })?;
            (false, Some(policy))
        }
    };
    Ok(ImageRequest {
        name: name.filter(|_| rootfs.is_none()).map(str::to_owned),
        pull,
        reuse,
        platform: platform.as_deref().map(options::platform).transpose()?,
        registry: registry(registry_flags),
        rootfs: rootfs.clone(),
        exec_mode: execmode.clone(),
        index: index.as_deref().map_or(Ok(None), index_of)?,
        ignore_config,
    })
}

/// The value of `--index`. udocker's is the address of an index, which is the registry itself here.
fn index_of(text: &str) -> Result<Option<bool>, Report> {
    match <bool as SettingValue>::from_text(text) {
        Ok(index) => Ok(Some(index)),
        Err(_) if text.contains(['.', ':', '/']) => Ok(None),
        Err(_) => Err(Report::usage(format!("--index '{text}' is neither on nor off"))),
    }
}

/// How a registry is reached, by the flags of all commands that talk to one.
pub(crate) fn registry(flags: &RegistryFlags) -> RegistryRequest {
    let RegistryFlags { tls_verify, cert_dir, authfile, creds, proxy, host } = flags;
    RegistryRequest {
        tls_verify: *tls_verify,
        cert_dir: cert_dir.clone(),
        authfile: authfile.clone(),
        creds: creds.clone(),
        proxy: proxy.clone(),
        host: host.clone(),
    }
}

fn record(flags: &RecordFlags) -> Result<RecordRequest, Report> {
    let RecordFlags {
        name,
        label,
        label_file,
        annotation,
        cidfile,
        restart,
        rm,
        log_opt,
        log_driver,
        // The terminal shows the banner, or does not.
        nobanner: _,
    } = flags;
    let (mut label_files, mut labels) = (BTreeMap::new(), BTreeMap::new());
    label_file.iter().try_for_each(|file| options::label_file(&mut label_files, file))?;
    label.iter().try_for_each(|text| options::add_label(&mut labels, text))?;
    let mut annotations = BTreeMap::new();
    let add = |text: &String| options::add_pair("--annotation", &mut annotations, text);
    annotation.iter().try_for_each(add)?;
    let kept = log_driver.as_deref().map(options::log_driver).transpose()?;
    let mut log = LogRequest { kept, ..LogRequest::default() };
    log_opt.iter().try_for_each(|text| options::log_option(&mut log, text))?;
    Ok(RecordRequest {
        name: name.clone(),
        label_files,
        labels,
        annotations,
        cidfile: cidfile.clone(),
        restart: restart.as_deref().map(options::restart).transpose()?,
        remove: *rm,
        log,
    })
}
