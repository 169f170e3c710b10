use super::*;
use crate::plan::{Device, IdRange, Mount, Namespaces, Network, NoAccounts, WayOut};
use crate::spec::{
    Limits, MountKind, NamespaceMode, Namespaces as Asked, NetworkMode, NetworkSpec, Publish,
    Security, Ulimit,
};
use sys::namespace::Kinds;

fn root() -> Root {
    Root::Overlay {
        lowers: vec!["/s/layers/b/tree".into(), "/s/layers/a/tree".into()],
        upper: "/s/containers/x/upper".into(),
        work: "/s/containers/x/work".into(),
        volatile: true,
    }
}

fn config() -> ContainerConfig {
    ContainerConfig {
        id: "0123456789abcdef".repeat(4),
        command: vec!["true".into()],
        ..ContainerConfig::default()
    }
}

fn facts() -> Facts {
    Facts { uid: 1000, gid: 1000, pasta: Some("/usr/bin/pasta".into()), ..Facts::default() }
}

fn planned(config: &ContainerConfig, facts: &Facts, overrides: &Overrides) -> Result<Plan> {
    plan(&Request {
        config,
        root: &root(),
        place: Path::new("/s/containers/x"),
        facts,
        overrides,
        own_ids: false,
        fake_root: true,
        keep_umask: false,
        accounts: &NoAccounts,
        private: PrivateBy::Namespace,
        network: None,
        running: &|name| {
            let own = Kinds::USER.with(Kinds::MOUNT).with(Kinds::PID).with(Kinds::IPC);
            let own = own.with(Kinds::UTS).with(Kinds::NET);
            match name {
                "alive" => Some(Neighbour { pid: 42, own }),
                "open" => Some(Neighbour { pid: 43, own: Kinds::USER.with(Kinds::MOUNT) }),
                _ => None,
            }
        },
    })
}

/// In a mode without network namespaces.
fn translated(
    config: &ContainerConfig,
    facts: &Facts,
    network: Option<&NetworkPlace>,
) -> Result<Plan> {
    plan(&Request {
        config,
        root: &root(),
        place: Path::new("/s/containers/x"),
        facts,
        overrides: &Overrides::default(),
        own_ids: true,
        fake_root: true,
        keep_umask: false,
        accounts: &NoAccounts,
        private: PrivateBy::Translation,
        network,
        running: &|_| None,
    })
}

fn simple(config: &ContainerConfig) -> Plan {
    planned(config, &facts(), &Overrides::default()).unwrap()
}

#[test]
fn default_profile_shares_everything_but_files() {
    let plan = simple(&config());
    assert_eq!(plan.namespaces, Namespaces::default());
    assert_eq!(plan.network, Network::Inherit);
    assert!(plan.emulate_root);
    assert_eq!(plan.process.capabilities, None);
    let one = |inside, outside| IdRange { inside, outside, count: 1 };
    assert_eq!(plan.ids, Ids::Single { uid: one(0, 1000), gid: one(0, 1000) });
    let binds: Vec<_> = plan
        .mounts
        .iter()
        .map(|mount| match mount {
            Mount::Bind { target, .. } => target.display().to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(binds, ["/proc", "/sys", "/dev", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname"]);
    let bases: Vec<_> = plan.files.iter().filter_map(|file| file.base.clone()).collect();
    assert_eq!(bases, ["/etc/hosts", "/etc/resolv.conf", "/etc/hostname"].map(PathBuf::from));
    assert!(plan.files.iter().all(|file| file.path.starts_with(&plan.place)));
}

#[test]
fn isolation_is_dockers() {
    let config =
        ContainerConfig { security: Security { isolate: true, ..Security::default() }, ..config() };
    let plan = simple(&config);
    let new = Source::New;
    assert_eq!(
        plan.namespaces,
        Namespaces { pid: new, ipc: new, uts: new, net: new, cgroup: new, user_of: None }
    );
    assert!(matches!(&plan.network, Network::Helper(outside) if !outside.slirp));
    assert_eq!(plan.hostname.as_deref(), Some("0123456789ab"));
    assert!(plan.process.no_new_privileges);
    assert_eq!(plan.process.seccomp, crate::plan::Seccomp::Docker);
    assert!(plan.mounts.contains(&Mount::Mask { path: "/proc/kcore".into() }));
    let without = Facts { pasta: None, ..facts() };
    assert!(matches!(
        planned(&config, &without, &Overrides::default()),
        Err(Error::Missing { .. })
    ));
}

#[test]
fn networks_with_names_are_devices_of_a_namespace() {
    let mode = NetworkMode::Named("lab".into());
    let named = ContainerConfig {
        network: NetworkSpec { mode: mode.clone(), ..NetworkSpec::default() },
        ..config()
    };
    let packets = |config: &ContainerConfig, facts: &Facts| {
        let plan = planned(config, facts, &Overrides::default()).unwrap();
        assert_eq!(plan.namespaces.net, Source::New);
        let Network::Packets(packets) = plan.network else { panic!("{:?}", plan.network) };
        (*packets, plan.warnings)
    };
    let (open, warnings) = packets(&named, &facts());
    assert_eq!((open.device, warnings.len()), (Device::Tap, 0));
    assert!(matches!(open.outside, Some(WayOut::Helper(outside)) if !outside.slirp));
    let closed = Facts { no_tun: Some("EACCES".into()), ..facts() };
    let (shut, warnings) = packets(&named, &closed);
    assert_eq!((shut.device, warnings.len()), (Device::Veth, 0));
    let because = |outside| match outside {
        Some(WayOut::Switch { because, publish }) => Some((because, publish.len())),
        _ => None,
    };
    assert!(because(shut.outside).is_some_and(|(why, ports)| why.contains("EACCES") && ports == 0));
    let internal = Facts { internal_networks: true, ..closed.clone() };
    assert_eq!(packets(&named, &internal).1, Vec::<String>::new(), "nothing leads out anyway");
    let veth = Facts { link: "veth".into(), ..facts() };
    assert_eq!(packets(&named, &veth).0.device, Device::Veth);
    let odd = Facts { link: "bridge".into(), ..facts() };
    assert!(packets(&named, &odd).1[0].contains("CORACLE_LINK=bridge"));
    let publish = vec![Publish { host: 8080, inside: 80, ..Publish::default() }];
    let published = ContainerConfig {
        network: NetworkSpec { mode, publish, ..NetworkSpec::default() },
        ..config()
    };
    assert!(because(packets(&published, &closed).0.outside).is_some_and(|(_, ports)| ports == 1));
    let mut many = published.clone();
    many.network.publish[0].count = 201;
    assert!(packets(&many, &facts()).0.outside.is_some());
    let error = planned(&many, &closed, &Overrides::default()).unwrap_err();
    assert!(error.to_string().contains("200 at most"), "{error}");
    assert!(packets(&published, &internal).1[0].contains("discarded"));
}

#[test]
fn mounts_are_ordered_by_depth() {
    let mount = |target: &str| MountSpec {
        kind: MountKind::Bind,
        source: "/tmp".into(),
        target: target.into(),
        ..MountSpec::default()
    };
    let config =
        ContainerConfig { mounts: vec![mount("/a/b/c"), mount("/a"), mount("/a/b")], ..config() };
    let targets: Vec<_> = simple(&config)
        .mounts
        .into_iter()
        .filter_map(|mount| match mount {
            Mount::Bind { target, .. } if target.starts_with("/a") => Some(target),
            _ => None,
        })
        .collect();
    assert_eq!(targets, [Path::new("/a"), Path::new("/a/b"), Path::new("/a/b/c")]);
}

#[test]
fn bad_mounts_are_refused() {
    for target in ["relative", "/", "/a/../b"] {
        let mount =
            MountSpec { source: "/tmp".into(), target: target.into(), ..MountSpec::default() };
        let config = ContainerConfig { mounts: vec![mount], ..config() };
        let result = planned(&config, &facts(), &Overrides::default());
        assert!(matches!(result, Err(Error::Invalid { .. })), "{target}");
    }
}

#[test]
fn environment_has_dockers_names_once() {
    let config = ContainerConfig {
        env: vec!["A=1".into(), "PATH=/x".into(), "A=2".into()],
        tty: true,
        ..config()
    };
    let overrides = Overrides { env: vec!["B=3".into()], ..Overrides::default() };
    let plan = planned(&config, &facts(), &overrides).unwrap();
    assert_eq!(plan.process.env, ["A=2", "PATH=/x", "B=3", "HOME=/root", "TERM=xterm"]);
}

/// Many variables take no longer than a few, each.
#[test]
fn an_environment_may_be_large() {
    let variable = |at: usize| format!("V{at}={at}");
    let config = ContainerConfig { env: (0..200_000).map(variable).collect(), ..config() };
    let again = (0..200_000).step_by(7).map(|at| format!("V{at}=again")).collect();
    let overrides = Overrides { env: again, ..Overrides::default() };
    let begun = std::time::Instant::now();
    let env = planned(&config, &facts(), &overrides).unwrap().process.env;
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!(
        (env[0].as_str(), env[7].as_str(), env[70].as_str()),
        ("V0=again", "V7=again", "V70=again")
    );
    assert_eq!((env[71].as_str(), env.len()), ("V71=71", 200_002));
}

#[test]
fn published_ports_need_a_network_of_their_own() {
    let config = ContainerConfig {
        network: NetworkSpec {
            publish: vec![Publish { host: 8080, inside: 80, count: 1, ..Publish::default() }],
            ..NetworkSpec::default()
        },
        ..config()
    };
    assert_eq!(simple(&config).warnings.len(), 1);
}

#[test]
fn joining_takes_the_user_namespace_too() {
    let config = ContainerConfig {
        namespaces: Asked { pid: NamespaceMode::Container("alive".into()), ..Asked::default() },
        ..config()
    };
    let plan = simple(&config);
    assert_eq!(plan.namespaces.pid, Source::Of(42));
    assert_eq!(plan.namespaces.user_of, Some(42));
    // What that container shares with the host is shared without entering anything.
    let open = ContainerConfig { join: Some("open".into()), ..self::config() };
    let plan = simple(&open);
    let expected = Namespaces { user_of: Some(43), ..Namespaces::default() };
    assert_eq!(plan.namespaces, expected);
    let gone = ContainerConfig { join: Some("dead".into()), ..config };
    assert_eq!(
        planned(&gone, &facts(), &Overrides::default()).unwrap_err(),
        Error::NotRunning("dead".into())
    );
}

#[test]
fn limits_take_the_road_that_the_host_has() {
    let config = ContainerConfig {
        limits: Limits { memory: Some(1 << 30), cpus: Some(1.5), ..Limits::default() },
        ..config()
    };
    let nothing = Overrides::default();
    let plan = simple(&config);
    assert_eq!((&plan.cgroup, &plan.wrapper), (&None, &None));
    assert!(plan.warnings[0].contains("--cpus, --memory"), "{:?}", plan.warnings);
    let strict = ContainerConfig { strict: true, ..config.clone() };
    assert!(matches!(planned(&strict, &facts(), &nothing), Err(Error::Missing { .. })));
    let systemd = Facts { systemd_run: Some("/bin/systemd-run".into()), ..facts() };
    let wrapper = planned(&config, &systemd, &nothing).unwrap().wrapper.unwrap();
    assert!(wrapper.contains(&"MemoryMax=1073741824".to_owned()), "{wrapper:?}");
    assert!(wrapper.contains(&"CPUQuota=150%".to_owned()), "{wrapper:?}");
    let delegated = crate::facts::Delegated {
        path: "/sys/fs/cgroup/me".into(),
        controllers: vec!["cpu".into(), "memory".into()],
    };
    let facts = Facts { cgroup: Some(delegated), ..facts() };
    let cgroup = planned(&config, &facts, &nothing).unwrap().cgroup.unwrap();
    assert_eq!(cgroup.settings[0], ("cpu.max".into(), "150000 100000".into()));
    // What a part of the controllers can do is done.
    let more = Limits { pids: Some(7), ..config.limits.clone() };
    let plan = planned(&ContainerConfig { limits: more, ..config }, &facts, &nothing).unwrap();
    assert_eq!(plan.cgroup.unwrap().settings.len(), 2);
    assert!(plan.warnings[0].contains("--pids-limit"), "{:?}", plan.warnings);
}

#[test]
fn memory_and_swap_are_version_twos() {
    let limits = Limits {
        memory: Some(100),
        memory_swap: Some(150),
        memory_reservation: Some(50),
        cpu_shares: Some(1024),
        ..Limits::default()
    };
    let delegated = crate::facts::Delegated {
        path: "/sys/fs/cgroup/me".into(),
        controllers: vec!["cpu".into(), "memory".into()],
    };
    let facts = Facts { cgroup: Some(delegated), ..facts() };
    let of = |limits| {
        let config = ContainerConfig { limits, ..config() };
        planned(&config, &facts, &Overrides::default())
    };
    let cgroup = of(limits.clone()).unwrap().cgroup.unwrap();
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        cgroup.settings,
        [
            pair("cpu.weight", "39"),
            pair("memory.max", "100"),
            pair("memory.low", "50"),
            pair("memory.swap.max", "50"),
        ]
    );
    let less = Limits { memory_swap: Some(99), ..limits.clone() };
    assert!(matches!(of(less), Err(Error::Invalid { .. })));
    let alone = Limits { memory: None, ..limits };
    assert!(matches!(of(alone), Err(Error::Invalid { .. })));
}

#[test]
fn a_limit_above_the_callers_is_the_callers() {
    let ulimit = |soft, hard| Ulimit { name: "nofile".into(), soft, hard };
    let facts = Facts { hard_limits: vec![1000; 16], oom_score_adj: Some(10), ..facts() };
    let of = |ulimits, oom_score_adj, strict| {
        let limits = Limits { oom_score_adj, ulimits, ..Limits::default() };
        let config = ContainerConfig { limits, strict, ..config() };
        planned(&config, &facts, &Overrides::default())
    };
    let plan = of(vec![ulimit(None, None)], Some(9), false).unwrap();
    let limit = plan.process.rlimits[0];
    assert_eq!((limit.soft, limit.hard), (1000, 1000));
    assert_eq!(plan.process.oom_score_adj, None);
    assert_eq!(plan.warnings.len(), 2, "{:?}", plan.warnings);
    let plan = of(vec![ulimit(Some(7), Some(1000))], Some(11), true).unwrap();
    assert_eq!((plan.process.rlimits[0].soft, plan.process.oom_score_adj), (7, Some(11)));
    assert!(plan.warnings.is_empty());
    assert!(of(vec![ulimit(Some(7), None)], None, true).is_err());
    assert!(of(Vec::new(), Some(9), true).is_err());
}

#[test]
fn settings_of_the_kernel_need_namespaces() {
    let sysctls: BTreeMap<_, _> = [("net.core.somaxconn", "7"), ("kernel.msgmax", "8")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let of = |mode, strict| {
        let network = NetworkSpec { mode, ..NetworkSpec::default() };
        let config = ContainerConfig { sysctls: sysctls.clone(), network, strict, ..config() };
        planned(&config, &facts(), &Overrides::default())
    };
    let plan = of(crate::spec::NetworkMode::None, false).unwrap();
    assert_eq!(plan.sysctls, [("net/core/somaxconn".to_owned(), "7".to_owned())]);
    assert_eq!(plan.warnings.len(), 1, "{:?}", plan.warnings);
    let plan = of(crate::spec::NetworkMode::Host, false).unwrap();
    assert!(plan.sysctls.is_empty() && plan.warnings.len() == 2);
    assert!(matches!(of(crate::spec::NetworkMode::None, true), Err(Error::Missing { .. })));
}

#[test]
fn the_mask_of_permissions_is_dockers() {
    assert_eq!(simple(&config()).process.umask, Some(0o22));
    let own = ContainerConfig { umask: Some(0o77), ..config() };
    assert_eq!(simple(&own).process.umask, Some(0o77));
}

#[test]
fn privileged_is_without_filter() {
    let security = Security { privileged: true, ..Security::default() };
    let config = ContainerConfig { security, cap_drop: vec!["ALL".into()], ..config() };
    assert_eq!(simple(&config).process.capabilities, None);
}

#[test]
fn cpu_lists() {
    assert_eq!(limits::cpu_list("0-2,5").unwrap(), [0, 1, 2, 5]);
    assert!(limits::cpu_list("3-1").is_err());
    assert!(limits::cpu_list("").is_err());
}

#[test]
fn a_plan_survives_json() {
    let plan = simple(&config());
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

/// A container with another one's network and hosts file finds itself by that one's name.
#[test]
fn the_host_name_goes_with_the_network() {
    let network = |name: &str| NetworkSpec {
        mode: NetworkMode::Container(name.into()),
        ..NetworkSpec::default()
    };
    let shared = ContainerConfig { network: network("alive"), ..config() };
    let plan = simple(&shared);
    assert_eq!((plan.namespaces.net, plan.namespaces.uts), (Source::Of(42), Source::Of(42)));
    assert_eq!(plan.hostname, None);
    // That one has the host's.
    let plan = simple(&ContainerConfig { network: network("open"), ..config() });
    assert_eq!((plan.namespaces.net, plan.namespaces.uts), (Source::Host, Source::Host));
    let named = ContainerConfig { hostname: Some("box".into()), ..shared.clone() };
    assert_eq!(simple(&named).namespaces.uts, Source::New);
    let asked = Asked { uts: NamespaceMode::Host, ..Asked::default() };
    assert_eq!(
        simple(&ContainerConfig { namespaces: asked, ..shared }).namespaces.uts,
        Source::Host
    );
}

/// Where there are no networks, no line of a network names the container.
#[test]
fn the_own_name_is_in_the_hosts_file() {
    let place = |hosts: &str| NetworkPlace {
        table: "/t".into(),
        slot: 1,
        address: std::net::Ipv4Addr::LOCALHOST,
        name: "db".into(),
        hosts: hosts.into(),
        asks: false,
        switch: None,
    };
    let text = |place: &NetworkPlace| {
        let network = NetworkSpec { mode: NetworkMode::Private, ..NetworkSpec::default() };
        let config = ContainerConfig { network, ..config() };
        let files = translated(&config, &facts(), Some(place)).unwrap().files;
        files.iter().find(|file| file.path.ends_with("hosts")).expect("a file").text.clone()
    };
    assert!(text(&place("")).contains("\n127.0.0.1\tdb\n"));
    let named = text(&place("100.80.0.2\tdb db.lab\n"));
    assert!(!named.contains("127.0.0.1\tdb"), "{named}");
}

#[test]
fn host_names() {
    let label = "a".repeat(63);
    for good in ["a", "A-1", "my_box", "db.lab.example", ""] {
        let config = ContainerConfig { hostname: Some(good.into()), ..config() };
        assert!(planned(&config, &facts(), &Overrides::default()).is_ok(), "{good}");
    }
    check_hostname(&label).unwrap();
    for (bad, part) in [
        ("bad name", "and not ' '"),
        ("a\nb", "and not '\\n'"),
        ("a/b", "and not '/'"),
        ("bücher", "and not 'ü'"),
        ("-bad", "neither begins nor ends"),
        ("a.b-", "neither begins nor ends"),
        ("a..b", "no two beside each other"),
        ("a.", "no dot at its beginning or end"),
        (&"a".repeat(64), "between dots"),
        (&format!("{label}.b"), "at most 64 characters, and this one 65"),
    ] {
        let config = ContainerConfig { hostname: Some(bad.into()), ..config() };
        let error = planned(&config, &facts(), &Overrides::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("--hostname '") && text.contains(part), "{bad}: {text}");
        assert!(!text.contains('\n') && error.hint().is_some(), "{bad}: {text}");
    }
}

/// Without a namespace a port of the container has one place on the host.
#[test]
fn a_port_is_published_once_without_a_namespace() {
    let of = |publish: &[(u16, u16, u16, bool)]| {
        let publish = publish.iter().map(|(host, inside, count, udp)| Publish {
            host: *host,
            inside: *inside,
            count: *count,
            udp: *udp,
            ..Publish::default()
        });
        let (mode, publish) = (NetworkMode::Private, publish.collect());
        let network = NetworkSpec { mode, publish, ..NetworkSpec::default() };
        ContainerConfig { network, ..config() }
    };
    let twice = of(&[(8195, 95, 1, false), (8196, 95, 1, false)]);
    let error = translated(&twice, &facts(), None).unwrap_err();
    assert!(error.to_string().contains("port 95/tcp of the container twice"), "{error}");
    assert!(error.hint().unwrap().contains("N1"));
    let ranges = of(&[(8000, 90, 10, true), (9000, 99, 2, true)]);
    let error = translated(&ranges, &facts(), None).unwrap_err();
    assert!(error.to_string().contains("99/udp"), "{error}");
    simple(&twice);
    translated(&of(&[(8195, 95, 1, false), (8195, 95, 1, true)]), &facts(), None).unwrap();
}

/// The host's address as the container reaches it.
#[test]
fn the_gateway_to_the_host() {
    let of = |mode: NetworkMode| ContainerConfig {
        add_host: vec![("box".into(), "host-gateway".into())],
        network: NetworkSpec { mode, ..NetworkSpec::default() },
        ..config()
    };
    let line = |plan: Plan| {
        let file = plan.files.into_iter().find(|file| file.path.ends_with("hosts")).unwrap();
        file.text.lines().find(|line| line.ends_with("\tbox")).unwrap().to_owned()
    };
    assert_eq!(line(simple(&of(NetworkMode::Host))), "127.0.0.1\tbox");
    assert_eq!(line(simple(&of(NetworkMode::Container("open".into())))), "127.0.0.1\tbox");
    assert_eq!(line(simple(&of(NetworkMode::Container("alive".into())))), "169.254.1.2\tbox");
    assert_eq!(line(simple(&of(NetworkMode::Private))), "169.254.1.2\tbox");
    let routed = Facts { host_address: Some([10, 0, 0, 9].into()), ..facts() };
    let names = of(NetworkMode::Private);
    assert_eq!(line(translated(&names, &routed, None).unwrap()), "10.0.0.9\tbox");
    let error = translated(&names, &facts(), None).unwrap_err();
    assert!(error.to_string().contains("--add-host box:host-gateway"), "{error}");
    assert!(error.hint().unwrap().contains("box:ADDRESS"));
}
