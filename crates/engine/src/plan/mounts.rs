//! Computes the list of mounts: those of every container, those that the user asked for, and the
//! masks of an isolated one.
//!
//! All of them are done after the container's root has become `/`, so every target is resolved by
//! the kernel inside the container; host sources are opened before. Order: kernel file systems and
//! devices, `/etc` files, the user's mounts by depth (so that a mount never hides a deeper one
//! given earlier), masks, and last the root's own read-only flag, because mount points are made
//! before it.

use super::{EtcFile, Mount, MountFlags, Namespaces, Network, Request, Source};
use crate::error::{Error, Result};
use crate::spec::mount_options::Propagation;
use crate::spec::{ContainerConfig, MountKind, MountSpec, NetworkMode};
use std::net::Ipv4Addr;
use std::path::{Component, Path, PathBuf};

/// Nodes that a private `/dev` has.
const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What Docker hides.
const MASKED: [&str; 10] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/sys/firmware",
];

/// What Docker makes read-only.
const READ_ONLY: [&str; 5] =
    ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

const LOCKED_DOWN: MountFlags =
    MountFlags { read_only: false, noexec: true, nosuid: true, nodev: true, private: false };

/// Everything that is mounted, and the files that must be written for it.
pub(super) fn mounts(
    request: &Request<'_>,
    namespaces: &Namespaces,
    network: &Network,
    hostname: Option<&str>,
    own_terminals: bool,
) -> Result<(Vec<Mount>, Vec<EtcFile>)> {
    let config = request.config;
    let mut list = Vec::new();
    proc_and_sys(config, namespaces, &mut list);
    devices(request, namespaces, own_terminals, &mut list)?;
    let shares_host = namespaces.net == Source::Host;
    let files = etc(request, (hostname, network), shares_host, &mut list)?;
    let mut asked: Vec<&MountSpec> =
        config.mounts.iter().chain(&request.overrides.mounts).collect();
    asked.sort_by_key(|mount| mount.target.components().count());
    for mount in asked {
        list.push(asked_for(mount)?);
    }
    if config.security.isolate {
        list.extend(MASKED.iter().map(|path| Mount::Mask { path: path.into() }));
        list.extend(READ_ONLY.iter().map(|path| Mount::ReadOnly { path: path.into() }));
    }
    if config.read_only {
        list.push(Mount::ReadOnlyRoot);
    }
    Ok((list, files))
}

fn bind(path: &str, optional: bool) -> Mount {
    Mount::Bind { source: path.into(), target: path.into(), flags: MountFlags::default(), optional }
}

fn kernel(kind: &str, target: &str, flags: MountFlags, options: &[(&str, &str)]) -> Mount {
    let options = options.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    Mount::Kernel { kind: kind.into(), target: target.into(), flags, options, or_bind: true }
}

fn proc_and_sys(config: &ContainerConfig, namespaces: &Namespaces, list: &mut Vec<Mount>) {
    let isolate = config.security.isolate;
    list.push(match namespaces.pid {
        Source::Host => bind("/proc", false),
        // The host's would show the wrong processes, so there is no falling back to it.
        Source::New | Source::Of(_) => Mount::Kernel {
            kind: "proc".into(),
            target: "/proc".into(),
            flags: LOCKED_DOWN,
            options: Vec::new(),
            or_bind: false,
        },
    });
    let read_only = MountFlags { read_only: isolate, ..LOCKED_DOWN };
    list.push(match namespaces.net {
        Source::Host if !isolate => bind("/sys", false),
        Source::Host => Mount::Bind {
            source: "/sys".into(),
            target: "/sys".into(),
            flags: read_only,
            optional: false,
        },
        // A sysfs shows the network devices of the namespace it was mounted in.
        Source::New | Source::Of(_) => kernel("sysfs", "/sys", read_only, &[]),
    });
    if namespaces.cgroup == Source::New && namespaces.net != Source::Host {
        list.push(kernel("cgroup2", "/sys/fs/cgroup", read_only, &[]));
    }
}

/// The host's whole `/dev`, or a small one of its own.
///
/// A small one is made when isolation is asked for, when only some devices are to be seen, and when
/// a device is wanted under another name, since no name can be made in the host's `/dev`.
fn devices(
    request: &Request<'_>,
    namespaces: &Namespaces,
    own_terminals: bool,
    list: &mut Vec<Mount>,
) -> Result<()> {
    let config = request.config;
    for device in &config.devices {
        absolute("--device", &device.source)?;
        absolute("--device", &device.target)?;
    }
    let renamed = |device: &crate::spec::DeviceSpec| {
        device.source != device.target && device.target.starts_with("/dev")
    };
    let own = config.security.isolate || config.own_devices || config.devices.iter().any(renamed);
    let shm_size = match (namespaces.ipc, config.limits.shm_size) {
        (Source::Of(_), Some(size)) => {
            return Err(Error::Invalid {
                what: "--shm-size".into(),
                value: size.to_string(),
                why: "the other container's /dev/shm is used (--ipc, --join), with its size".into(),
            });
        }
        // The host's own, which is large enough: that was checked.
        (_, size) => size.filter(|_| !request.own_ids),
    };
    let shm = |size: Option<u64>| Mount::Tmpfs {
        target: "/dev/shm".into(),
        flags: LOCKED_DOWN,
        options: vec![
            ("mode".into(), "1777".into()),
            ("size".into(), size.unwrap_or(64 << 20).to_string()),
        ],
    };
    if own {
        list.push(Mount::Tmpfs {
            target: "/dev".into(),
            flags: MountFlags { nosuid: true, noexec: true, ..MountFlags::default() },
            options: vec![("mode".into(), "755".into()), ("size".into(), "64k".into())],
        });
        list.extend(NODES.iter().map(|node| bind(&format!("/dev/{node}"), *node == "tty")));
        let links = [("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0")];
        let more = [("stdout", "/proc/self/fd/1"), ("stderr", "/proc/self/fd/2")];
        for (name, to) in links.into_iter().chain(more).chain([("ptmx", "pts/ptmx")]) {
            list.push(Mount::Symlink { path: Path::new("/dev").join(name), to: to.into() });
        }
        list.push(terminals());
        match namespaces.ipc {
            Source::Of(of) => list.push(Mount::Shared { of, path: "/dev/shm".into() }),
            Source::Host if shm_size.is_none() => list.push(bind("/dev/shm", true)),
            Source::Host | Source::New => list.push(shm(shm_size)),
        }
    } else {
        list.push(bind("/dev", false));
        if own_terminals {
            list.push(terminals());
        }
        match namespaces.ipc {
            Source::Of(of) => list.push(Mount::Shared { of, path: "/dev/shm".into() }),
            Source::Host if shm_size.is_none() => {}
            Source::Host | Source::New => list.push(shm(shm_size)),
        }
    }
    if namespaces.ipc != Source::Host {
        list.push(kernel("mqueue", "/dev/mqueue", LOCKED_DOWN, &[]));
    } else if own {
        list.push(bind("/dev/mqueue", true));
    }
    for device in &config.devices {
        if own || device.source != device.target {
            list.push(Mount::Bind {
                source: device.source.clone(),
                target: device.target.clone(),
                flags: MountFlags::default(),
                optional: false,
            });
        }
    }
    Ok(())
}

/// A `/dev/pts` of the container's own.
fn terminals() -> Mount {
    let flags = MountFlags { nosuid: true, noexec: true, ..MountFlags::default() };
    let options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620")];
    kernel("devpts", "/dev/pts", flags, &options)
}

/// `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf`: files of this container, which begin as
/// the host's where nothing else was asked for.
fn etc(
    request: &Request<'_>,
    (hostname, network): (Option<&str>, &Network),
    shares_host: bool,
    list: &mut Vec<Mount>,
) -> Result<Vec<EtcFile>> {
    let config = request.config;
    let own = |name: &str| request.place.join("etc").join(name);
    // What was asked for is shown in a tree without such a file too.
    let files = [
        (
            "hosts",
            hosts(request, shares_host, (hostname, network), own("hosts"))?,
            !config.add_host.is_empty() || network.is_named(),
        ),
        ("resolv.conf", resolv(config, network, own("resolv.conf")), !config.dns.is_empty()),
        ("hostname", name_of_host(hostname, own("hostname")), false),
    ];
    list.extend(files.iter().map(|(name, file, asked)| Mount::Bind {
        source: file.path.clone(),
        target: Path::new("/etc").join(name),
        flags: MountFlags { read_only: config.read_only, ..MountFlags::default() },
        optional: !asked,
    }));
    Ok(files.into_iter().map(|(_, file, _)| file).collect())
}

fn name_of_host(hostname: Option<&str>, path: PathBuf) -> EtcFile {
    let base = hostname.is_none().then(|| "/etc/hostname".into());
    let text = hostname.map(|name| format!("{name}\n")).unwrap_or_default();
    EtcFile { path, base, without: Vec::new(), text }
}

fn hosts(
    request: &Request<'_>,
    shares_host: bool,
    (hostname, network): (Option<&str>, &Network),
    path: PathBuf,
) -> Result<EtcFile> {
    use std::fmt::Write;
    let config = request.config;
    // With another container's network its file is shared, too.
    let shares = matches!(config.network.mode, NetworkMode::Container(_));
    let (mut text, inherit) = (String::new(), shares || *network == Network::Inherit);
    if !inherit {
        text.push_str("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    }
    for (name, address) in &config.add_host {
        let address = if address == "host-gateway" {
            host_gateway(request, shares_host, (name, network))?
        } else {
            address.clone()
        };
        let _ = writeln!(text, "{address}\t{name}");
    }
    let place = network.place();
    // The name in the network stands among the others of the members, if there are networks.
    let is_other = |name: &&str| {
        place.is_none_or(|place| place.name != *name || place.hosts.is_empty() && !shares)
    };
    if let Some(name) = hostname.filter(is_other) {
        let own = place.map_or(Ipv4Addr::new(127, 0, 1, 1), |place| place.address);
        // As Docker: a name with a domain, and the same without it.
        let short = name.split_once('.').map_or_else(String::new, |(host, _)| format!(" {host}"));
        let _ = writeln!(text, "{own}\t{name}{short}");
    }
    text.push_str(place.map_or("", |place| &place.hosts));
    Ok(EtcFile { path, base: inherit.then(|| "/etc/hosts".into()), without: Vec::new(), text })
}

/// The address at which a container reaches the host (`--add-host NAME:host-gateway`).
fn host_gateway(
    request: &Request<'_>,
    shares_host: bool,
    (name, network): (&str, &Network),
) -> Result<String> {
    match (network, request.facts.host_address) {
        (Network::Inherit, _) if shares_host => Ok(Ipv4Addr::LOCALHOST.to_string()),
        // The loopback is the container's own; other addresses are the host's.
        (Network::Names(_), Some(address)) => Ok(address.to_string()),
        // A running container has its file already.
        (Network::Names(_), None) if !request.overrides.exec => Err(Error::Missing {
            what: format!("--add-host {name}:host-gateway"),
            needs: "one address of this host that leads to it: there is no default route".into(),
            hint: Some(format!("give the address: --add-host {name}:ADDRESS")),
        }),
        // pasta shows the host under this address, slirp4netns under its gateway.
        _ => Ok("169.254.1.2".into()),
    }
}

fn resolv(config: &ContainerConfig, network: &Network, path: PathBuf) -> EtcFile {
    use std::fmt::Write;
    let (mut text, mut without) = (String::new(), Vec::new());
    let forwarder = match network {
        Network::Helper(outside) if outside.slirp => Some(super::SLIRP_DNS),
        Network::Helper(_) => Some(super::DNS_FORWARD),
        _ => None,
    };
    if network.place().is_some_and(|place| place.asks) {
        // The agent asks the servers of `--dns`.
        without.push("nameserver".into());
        let _ = writeln!(text, "nameserver {}", abi::network::NAME_SERVER);
    } else if config.dns.servers.is_empty() {
        if let Some(address) = forwarder {
            without.push("nameserver".into());
            let _ = writeln!(text, "nameserver {address}");
        }
    } else {
        without.push("nameserver".into());
        for server in &config.dns.servers {
            let _ = writeln!(text, "nameserver {server}");
        }
    }
    for (word, values) in [("search", &config.dns.search), ("options", &config.dns.options)] {
        if !values.is_empty() {
            without.push(word.into());
            let _ = writeln!(text, "{word} {}", values.join(" "));
        }
    }
    EtcFile { path, base: Some("/etc/resolv.conf".into()), without, text }
}

fn absolute(flag: &str, path: &Path) -> Result<()> {
    let normal = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    if normal {
        return Ok(());
    }
    Err(Error::Invalid {
        what: flag.into(),
        value: path.display().to_string(),
        why: "an absolute path without '..' is needed".into(),
    })
}

/// One mount that the user asked for.
fn asked_for(mount: &MountSpec) -> Result<Mount> {
    let flag = match mount.kind {
        MountKind::Tmpfs => "--tmpfs",
        MountKind::Bind | MountKind::Volume => "--volume",
    };
    absolute(flag, &mount.target)?;
    if mount.target.components().count() < 2 {
        return Err(Error::Invalid {
            what: flag.into(),
            value: mount.target.display().to_string(),
            why: "the root of a container cannot be mounted over".into(),
        });
    }
    let given = &mount.options;
    if let Some(word) = given.unknown.first() {
        return Err(Error::Invalid {
            what: flag.into(),
            value: word.clone(),
            why: "this version does not know the mount option".into(),
        });
    }
    // Memory has the flags that Docker gives it.
    let memory = mount.kind == MountKind::Tmpfs;
    let flags = MountFlags {
        read_only: mount.read_only,
        noexec: given.exec.map_or(memory, |exec| !exec),
        nosuid: given.suid.map_or(memory, |suid| !suid),
        nodev: given.dev.map_or(memory, |dev| !dev),
        private: given.propagation == Some(Propagation::Private),
    };
    Ok(match mount.kind {
        MountKind::Tmpfs => {
            let mut options = given.memory.clone();
            if !options.iter().any(|(key, _)| key == "mode") {
                options.push(("mode".into(), "1777".into()));
            }
            Mount::Tmpfs { target: mount.target.clone(), flags, options }
        }
        MountKind::Bind | MountKind::Volume => {
            absolute(flag, &mount.source)?;
            Mount::Bind {
                source: mount.source.clone(),
                target: mount.target.clone(),
                flags,
                optional: false,
            }
        }
    })
}
