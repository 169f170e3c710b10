//! Tests with hosts from JSON: their findings, and that data of other versions load.

use host::{Barrier, FsKind, Host, Level};

fn load(text: &str) -> Host {
    serde_json::from_str(text).expect("fixtures are facts")
}

/// Lines that need attention, as `level name: value`, with the advice behind an arrow.
fn findings_of(host: &Host) -> String {
    let lines = host.findings().into_iter().filter(|finding| finding.level != Level::Note);
    let lines: Vec<String> = lines
        .map(|finding| {
            let advice = finding.advice.map(|advice| format!(" -> {advice}")).unwrap_or_default();
            format!("{:?} {}: {}{advice}", finding.level, finding.name, finding.value)
        })
        .collect();
    lines.join("\n")
}

#[test]
fn ubuntu_with_apparmor() {
    let host = load(include_str!("fixtures/ubuntu-24.04.json"));
    assert_eq!(host.namespaces.barrier, Some(Barrier::AppArmor));
    assert_eq!(host.security.sysctl("kernel.apparmor_restrict_unprivileged_userns"), Some(1));
    assert!(host.subordinate.any());
    insta::assert_snapshot!(findings_of(&host), @r"
    Bad user namespaces: AppArmor removes the capabilities inside: writing /proc/self/uid_map: EACCES (Permission denied) -> administrator: an AppArmor profile for coracle with `userns,`
    Warn subordinate ids: needs a user namespace
    Warn overlay: needs a user namespace
    Good store can: flock
    Good seccomp filters: work
    Good ptrace: works (Yama scope 1)
    Good systemd user session: answers
    ");
}

#[test]
fn rhel_7_on_lustre() {
    let host = load(include_str!("fixtures/rhel-7.json"));
    assert_eq!(host.namespaces.barrier, Some(Barrier::Limit));
    assert_eq!(host.store.as_ref().map(|disk| disk.kind), Some(FsKind::Lustre));
    insta::assert_snapshot!(findings_of(&host), @r"
    Bad user namespaces: user.max_user_namespaces is 0 or used up: unshare(CLONE_NEWUSER): ENOSPC (No space left on device) -> administrator: sysctl -w user.max_user_namespaces=28633
    Warn overlay: needs a user namespace
    Warn whiteouts: mknod: Operation not permitted -> kernel 5.8 or newer
    Warn store: /lustre/home/ada/.local/share/coracle on lustre (/lustre), 363.7 TiB of 909.4 TiB free -> unpacking many small files is slow on a network file system; set CORACLE_DIR to a local disk, and CORACLE_STORE_RO to a shared store
    Warn store can: not: flock, OFD locks -> symbolic links are used as locks here; do not use one store from many nodes at once
    Good seccomp filters: work
    Warn seccomp listeners: seccomp(SECCOMP_FILTER_FLAG_NEW_LISTENER): EINVAL (Invalid argument)
    Good ptrace: works
    Warn locked memory: 64.0 KiB -> RDMA needs much locked memory; administrator: add '* - memlock unlimited' to /etc/security/limits.conf
    ");
}

#[test]
fn inside_docker() {
    let host = load(include_str!("fixtures/docker.json"));
    assert_eq!(host.namespaces.user.errno(), Some(1));
    insta::assert_snapshot!(findings_of(&host), @r"
    Bad user namespaces: a seccomp filter of the surrounding container refuses: unshare(CLONE_NEWUSER): EPERM (Operation not permitted) -> start the surrounding container with a seccomp profile that allows unshare, clone and mount
    Warn store: /root/.local/share/coracle on overlay (/), 476.8 MiB of 93.1 GiB free -> less than 1 GiB is free; 'coracle prune' removes unused content
    Good store can: flock
    Good seccomp filters: work, under 1 outer filter(s)
    Good ptrace: works
    ");
}

#[test]
fn a_node_with_gpus() {
    let host = load(include_str!("fixtures/gpu-node.json"));
    assert!(host.namespaces.user.is_works());
    assert_eq!(host.programs.find("pasta"), Some("/usr/bin/pasta".into()));
    assert_eq!(host.programs.find("sh"), None, "loaded facts do not look at this machine");
    insta::assert_snapshot!(findings_of(&host), @r"
    Good user namespaces: work, with mounts inside
    Good other namespaces: pid net ipc uts cgroup
    Good fresh /proc: can be mounted
    Good overlay: works unprivileged
    Warn cgroup delegation: /sys/fs/cgroup/job is delegated: memory pids -> limits of cpu do not work here: administrator: set Delegate=cpu memory pids for the user's slice
    Good GPU: NVIDIA H200, driver 570.86.15, device nodes: 3
    Warn GPU: AMD, device nodes: 1 -> no permission to open /dev/kfd; members of the groups render and video often have it
    Good private network: /usr/bin/pasta
    ");
}

#[test]
fn facts_survive_the_way_through_json() {
    for text in [
        include_str!("fixtures/ubuntu-24.04.json"),
        include_str!("fixtures/rhel-7.json"),
        include_str!("fixtures/docker.json"),
        include_str!("fixtures/gpu-node.json"),
    ] {
        let host = load(text);
        let again = load(&serde_json::to_string(&host).unwrap());
        assert_eq!(again, host);
    }
}
