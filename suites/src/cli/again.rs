//! Tests that each flag of `run` on an existing container changes the plan of this run or is
//! refused.

use std::collections::BTreeMap;
use std::path::Path;

use tempfile::TempDir;
use testkit::skip::Outcome;

use crate::cli::{Case, command, coracle, printed, transcript};

pub(super) const CASES: &[(&str, Case)] = &[
    ("each_flag_counts_or_is_refused", each_flag_counts_or_is_refused),
    ("what_is_decided_before_is_named", what_is_decided_before_is_named),
];

/// Flags without an effect on a plan: they concern pulling an image, or the session around the
/// program.
const NOT_IN_A_PLAN: &[&str] = &[
    "--attach",
    "--authfile",
    "--cert-dir",
    "--creds",
    "--detach",
    "--detach-keys",
    "--explain",
    "--help",
    "--interactive",
    "--proxy",
    "--quiet",
    "--registry",
    "--sig-proxy",
    "--tls-verify",
    // The image of `hello` has no settings that could be ignored, and serves no port.
    "--nometa",
    "--publish-all",
    // They change others.
    "--cpu-period",
    "--strict",
    // It replaces the name.
    "--rootfs",
    // Both depend on the running programs.
    "--tty",
    "--join",
];

/// A value that differs from the container's, for each flag that takes one.
fn values() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("--add-host", "a:10.0.0.1"),
        ("--annotation", "a=b"),
        ("--cap-add", "CHOWN"),
        ("--cap-drop", "CHOWN"),
        ("--cgroupns", "private"),
        ("--cidfile", "id"),
        ("--cpu-quota", "5000"),
        ("--cpu-shares", "512"),
        ("--cpus", "1"),
        ("--cpuset-cpus", "0"),
        ("--device", "/dev/null:/dev/other"),
        ("--dns", "10.0.0.1"),
        ("--dns-option", "ndots:3"),
        ("--dns-search", "example.org"),
        ("--entrypoint", "/other"),
        ("--env", "A=1"),
        ("--env-default", "A=1"),
        ("--env-file", "list"),
        ("--execmode", "P1"),
        ("--expose", "80"),
        ("--gpus", "all"),
        ("--group-add", "77"),
        ("--hostname", "other"),
        ("--index", "off"),
        ("--ipc", "private"),
        ("--label", "a=b"),
        ("--label-file", "list"),
        ("--log-driver", "none"),
        ("--log-opt", "max-size=1m"),
        ("--memory", "1g"),
        ("--memory-reservation", "1g"),
        ("--memory-swap", "-1"),
        ("--mount", "type=bind,src=/tmp,dst=/m"),
        ("--name", "other"),
        ("--ip", "10.0.0.1"),
        ("--ip6", "fd00::1"),
        ("--network", "none"),
        ("--network-alias", "other"),
        ("--oom-score-adj", "900"),
        ("--pid", "private"),
        ("--pids-limit", "10"),
        ("--platform", "linux/arm64"),
        ("--publish", "8080:80"),
        ("--pull", "always"),
        ("--restart", "always"),
        ("--security-opt", "no-new-privileges"),
        ("--shm-size", "3m"),
        ("--stop-signal", "HUP"),
        ("--stop-timeout", "1"),
        ("--sysctl", "net.core.somaxconn=7"),
        ("--tmpfs", "/t"),
        ("--ulimit", "core=1"),
        ("--umask", "077"),
        ("--user", "7:8"),
        ("--userns", "host"),
        ("--uts", "private"),
        ("--volume", "/tmp:/m"),
        ("--volumes-from", "other"),
        ("--workdir", "/tmp"),
    ])
}

/// The flags in `run --help`, and true for those that take a value.
fn flags(home: &Path) -> Vec<(String, bool)> {
    let help = printed(home, &["run", "--help"]);
    let options = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let long = line.starts_with("--").then_some(line).or_else(|| {
            let (short, long) = line.split_once(", ")?;
            (short.len() == 2 && short.starts_with('-')).then_some(long)
        })?;
        let name: String =
            long.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        Some((name.clone(), long[name.len()..].starts_with(" <")))
    });
    options.filter(|(name, _)| name.starts_with("--")).collect()
}

fn each_flag_counts_or_is_refused() -> Outcome {
    let home = TempDir::new().unwrap();
    let home = home.path();
    printed(home, &["create", "--name", "here", "--execmode", "I1", "hello"]);
    printed(home, &["create", "--name", "other", "-v", "/var:/m", "hello"]);
    std::fs::write(home.join("list"), "B=2\n").unwrap();
    let explain = |flag: &[&str]| {
        let mut words = vec!["run", "--explain"];
        words.extend(flag);
        words.push("here");
        // For `--hostenv`.
        transcript(
            &command(home, &words).env("A_WORD_OF_THE_HOST", "1").output().expect("it starts"),
        )
    };
    let plain = explain(&[]);
    assert!(plain.ends_with("status 0"), "{plain}");
    let values = values();
    let all = flags(home);
    assert!(all.len() > 60, "{all:?}");
    for (name, takes_value) in &all {
        if NOT_IN_A_PLAN.contains(&name.as_str()) {
            continue;
        }
        let value = values.get(name.as_str()).copied();
        assert_eq!(value.is_some(), *takes_value, "a value for {name}");
        let words: Vec<&str> = std::iter::once(name.as_str()).chain(value).collect();
        assert!(explain(&words) != plain, "{words:?} changes nothing, and nothing is said of it");
    }
    Ok(())
}

fn what_is_decided_before_is_named() -> Outcome {
    let home = TempDir::new().unwrap();
    let home = home.path();
    printed(home, &["create", "--name", "here", "hello"]);
    for flag in [
        ["--shm-size", "3m"],
        ["--stop-signal", "HUP"],
        ["--stop-timeout", "1"],
        ["--dns-search", "x.y"],
        ["--dns-option", "z"],
        ["--log-driver", "none"],
        ["--expose", "80"],
        ["--annotation", "a=b"],
        ["--sysctl", "net.core.somaxconn=7"],
        ["--blkio-weight", "10"],
        ["--health-cmd", "true"],
        ["--log-opt", "max-size=1m"],
    ] {
        let said = transcript(&coracle(home, &["run", flag[0], flag[1], "here"]));
        let reason = format!("error: {} is decided when a container is made", flag[0]);
        assert!(said.starts_with(&reason) && said.ends_with("status 125"), "{said}");
    }
    Ok(())
}
