use super::*;
use crate::plan::{IdRange, Mount, Namespaces, Network, NoAccounts};
use crate::spec::{MountKind, NamespaceMode, Namespaces as Asked, NetworkSpec, Publish, Security};
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
        accounts: &NoAccounts,
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
            Mount::Bind { source, .. } => source.display().to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(binds, ["/proc", "/sys", "/dev", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname"]);
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
    assert!(matches!(plan.network, Network::Helper { slirp: false, .. }));
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
    assert!(matches!(planned(&config, &facts(), &nothing), Err(Error::Missing { .. })));
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
}

#[test]
fn cpu_lists() {
    assert_eq!(cpu_list("0-2,5").unwrap(), [0, 1, 2, 5]);
    assert!(cpu_list("3-1").is_err());
    assert!(cpu_list("").is_err());
}

#[test]
fn a_plan_survives_json() {
    let plan = simple(&config());
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}
