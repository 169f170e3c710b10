//! Docker's and udocker's flags that Coracle does not have, and what to do in their place.
//!
//! A flag is never accepted and ignored: who typed it learns here why it is not there.

const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "--privileged",
        "a user's container can never have more rights than the user; see --cap-add, --security-opt, --device",
    ),
    (
        "--volume-driver",
        "volumes are directories of the store; -v HOST:CONTAINER mounts anything else",
    ),
    ("--link", "containers share the host's network by default and reach each other at 127.0.0.1"),
    ("--network-alias", "there are no networks with names; see --network and --add-host"),
    ("--ip", "there are no networks with addresses of one's own; see --network"),
    ("--ip6", "there are no networks with addresses of one's own; see --network"),
    ("--mac-address", "there are no networks with addresses of one's own; see --network"),
    ("--domainname", "give the whole name: --hostname NAME.DOMAIN"),
    ("--memory-swap", "only --memory is there"),
    ("--memory-reservation", "only --memory is there"),
    ("--memory-swappiness", "only --memory is there"),
    ("--kernel-memory", "only --memory is there"),
    ("--oom-kill-disable", "only --memory is there"),
    ("--oom-score-adj", "lowering it needs root; use 'choom' before coracle"),
    ("--cpu-shares", "use --cpus or --cpuset-cpus"),
    ("--cpu-quota", "use --cpus"),
    ("--cpu-period", "use --cpus"),
    ("--cpu-rt-period", "use --cpus"),
    ("--cpu-rt-runtime", "use --cpus"),
    ("--cpuset-mems", "use 'numactl --membind' before coracle"),
    ("--cgroup-parent", "limits go to the delegated control group of the session"),
    ("--blkio-weight", "there are no limits on input and output"),
    ("--device-read-bps", "there are no limits on input and output"),
    ("--device-write-bps", "there are no limits on input and output"),
    ("--device-cgroup-rule", "name the devices: --device"),
    ("--health-cmd", "health checks are not run"),
    ("--health-interval", "health checks are not run"),
    ("--health-retries", "health checks are not run"),
    ("--health-timeout", "health checks are not run"),
    ("--health-start-period", "health checks are not run"),
    ("--no-healthcheck", "health checks are never run"),
    ("--storage-opt", "use your quota"),
    ("--sysctl", "the host's values hold; changing them needs root"),
    ("--isolation", "--isolate gives Docker's isolation"),
    ("--runtime", "use --execmode; see 'coracle doctor'"),
    ("--annotation", "use --label"),
    (
        "--disable-content-trust",
        "signatures are not checked; pull by digest (NAME@sha256:...) to be sure",
    ),
    ("--kernel", "the host's kernel release is shown"),
    ("--checkpoint", "there are no checkpoints"),
    ("--use-api-socket", "there is no API socket"),
];

/// What to do in place of `flag`, where it is known and left out.
pub(super) fn advice(flag: &str) -> Option<&'static str> {
    let name = flag.split('=').next().unwrap_or(flag);
    UNSUPPORTED.iter().find(|(known, _)| *known == name).map(|(_, advice)| *advice)
}
