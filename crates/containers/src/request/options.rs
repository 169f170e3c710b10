//! Reads the text forms of single options: restart policies, labels, security and log options.

use std::collections::BTreeMap;
use std::path::Path;

use engine::spec::{RestartPolicy, SeccompChoice};
use engine::supervise::Signal;
use oci::Platform;

use super::{LogRequest, SecurityOption, VolumesFrom, ports};
use crate::error::{Error, Result};
use crate::session::Surroundings;
use crate::size;

/// `--restart`.
pub fn restart(text: &str) -> Result<RestartPolicy> {
    Ok(match text {
        "" | "no" => RestartPolicy::No,
        "on-failure" => RestartPolicy::OnFailure(None),
        // By the supervisor: there is no daemon that could start containers after a reboot.
        "always" => RestartPolicy::Always,
        "unless-stopped" => RestartPolicy::UnlessStopped,
        other => match other.strip_prefix("on-failure:").map(str::parse) {
            Some(Ok(times)) => RestartPolicy::OnFailure(Some(times)),
            _ => {
                return Err(Error::invalid(format!("--restart '{text}': unknown policy"))
                    .with_hint("there are no, on-failure[:N], always and unless-stopped"));
            }
        },
    })
}

/// `--add-host NAME:ADDRESS`.
pub fn add_host(text: &str) -> Result<(String, String)> {
    let wrong = || {
        Error::invalid(format!("--add-host '{text}' is not HOST:IP"))
            .with_hint("write --add-host NAME:ADDRESS")
    };
    let (name, address) = text.split_once([':', '=']).ok_or_else(wrong)?;
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    if name.is_empty() || (bare != "host-gateway" && bare.parse::<std::net::IpAddr>().is_err()) {
        return Err(wrong());
    }
    Ok((name.to_owned(), bare.to_owned()))
}

/// `--label KEY[=VALUE]`, added to `labels`.
pub fn add_label(labels: &mut BTreeMap<String, String>, text: &str) -> Result<()> {
    add_pair("--label", labels, text)
}

/// `KEY[=VALUE]` of a flag, added to `labels`.
pub fn add_pair(flag: &str, labels: &mut BTreeMap<String, String>, text: &str) -> Result<()> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if key.is_empty() {
        return Err(Error::invalid(format!("{flag} '{text}' has no key"))
            .with_hint(format!("write {flag} KEY=VALUE")));
    }
    labels.insert(key.to_owned(), value.to_owned());
    Ok(())
}

/// `--sysctl NAME=VALUE`, added to `all`. The name becomes a path below `/proc/sys`.
pub fn add_sysctl(all: &mut BTreeMap<String, String>, text: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    match text.split_once('=') {
        Some((name, value))
            if !name.is_empty()
                && !name.starts_with(['.', '/'])
                && !name.contains("..")
                && name.chars().all(plain) =>
        {
            all.insert(name.to_owned(), value.to_owned());
            Ok(())
        }
        _ => Err(Error::invalid(format!("--sysctl '{text}' is not NAME=VALUE"))
            .with_hint("write --sysctl net.core.somaxconn=1024")),
    }
}

/// `--expose PORT[-PORT][/PROTOCOL]`, each port for itself.
pub fn expose(text: &str) -> Result<Vec<String>> {
    let wrong = || {
        Error::invalid(format!("--expose '{text}' is not a port"))
            .with_hint("write --expose PORT[-PORT][/PROTOCOL]")
    };
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = protocol.to_ascii_lowercase();
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let number = |text: &str| ports::number(text).filter(|port| *port > 0);
    let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
    if first > last || !["tcp", "udp", "sctp"].contains(&&*protocol) {
        return Err(wrong());
    }
    Ok((first..=last).map(|port| format!("{port}/{protocol}")).collect())
}

/// A file of labels, one per line; `#` begins a comment line.
pub fn label_file(labels: &mut BTreeMap<String, String>, file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Error::failed(format!("cannot read --label-file {}", file.display())).cause(error)
    })?;
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .try_for_each(|line| add_label(labels, line))
}

/// `--security-opt`. A profile is read from its file; relative paths begin at the working
/// directory.
pub fn security(text: &str, surroundings: &Surroundings) -> Result<SecurityOption> {
    let (key, value) = text.split_once(['=', ':']).map_or((text, None), |(k, v)| (k, Some(v)));
    Ok(match (key, value) {
        ("no-new-privileges", None | Some("true")) => SecurityOption::NoNewPrivileges(true),
        ("no-new-privileges", Some("false")) => SecurityOption::NoNewPrivileges(false),
        ("seccomp", Some("unconfined")) => SecurityOption::Seccomp(SeccompChoice::Unconfined),
        ("seccomp", Some("builtin" | "default")) => SecurityOption::Seccomp(SeccompChoice::Docker),
        ("seccomp", Some(file)) => {
            let path = surroundings.absolute(Path::new(file))?;
            let text = std::fs::read_to_string(&path).map_err(|error| {
                Error::failed(format!("cannot read the seccomp profile {}", path.display()))
                    .cause(error)
            })?;
            SecurityOption::Seccomp(SeccompChoice::Profile(text))
        }
        // Nothing is confined by these here, so switching them off is what holds already.
        ("label", Some("disable")) | ("apparmor" | "systempaths", Some("unconfined")) => {
            SecurityOption::Nothing
        }
        _ => {
            return Err(Error::invalid(format!("--security-opt '{text}' is not known")).with_hint(
                "there are no-new-privileges, seccomp=FILE|unconfined|default, label=disable, \
                 apparmor=unconfined",
            ));
        }
    })
}

/// `--log-driver`: whether a log is kept.
pub fn log_driver(text: &str) -> Result<bool> {
    match text {
        "json-file" | "k8s-file" | "local" => Ok(true),
        "none" => Ok(false),
        other => Err(Error::invalid(format!("--log-driver '{other}' is not there"))
            .with_hint("there are json-file and none")),
    }
}

/// `--log-opt`, added to `log`.
pub fn log_option(log: &mut LogRequest, text: &str) -> Result<()> {
    let wrong = || {
        Error::invalid(format!("--log-opt '{text}' is not known"))
            .with_hint("there are max-size=SIZE and max-file=N")
    };
    match text.split_once('=').ok_or_else(wrong)? {
        ("max-size", text) => {
            let bytes = size::parse(text).filter(|size| *size > 0);
            log.max_size = Some(bytes.ok_or_else(wrong)?);
        }
        ("max-file", text) => {
            let count = text.parse().ok().filter(|count| *count > 0);
            log.max_files = Some(count.ok_or_else(wrong)?);
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

/// `--volumes-from CONTAINER[:ro]`.
pub fn volumes_from(text: &str) -> VolumesFrom {
    let (container, read_only) = match text.rsplit_once(':') {
        Some((name, "ro")) => (name, true),
        Some((name, "rw" | "z" | "Z")) => (name, false),
        _ => (text, false),
    };
    VolumesFrom { container: container.to_owned(), read_only }
}

/// `--platform OS/ARCHITECTURE[/VARIANT]`.
pub fn platform(text: &str) -> Result<Platform> {
    text.parse().map_err(|error: oci::Error| {
        Error::from(error)
            .with_hint("write OS/ARCHITECTURE[/VARIANT], as linux/arm64 or linux/arm/v7")
    })
}

/// A mode of namespaces, networks or ids, as `--pid` and `--network` take it.
pub fn mode<T: std::str::FromStr<Err = String>>(flag: &str, text: &str) -> Result<T> {
    text.parse().map_err(|why| Error::invalid(format!("{flag}: {why}")))
}

/// The name or number of a signal.
pub fn signal(name: &str) -> Result<Signal> {
    name.parse().map_err(|_| {
        Error::invalid(format!("'{name}' is not a signal"))
            .with_hint("write a name as TERM or SIGTERM, or a number")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_policies() {
        assert_eq!(restart("no").unwrap(), RestartPolicy::No);
        assert_eq!(restart("on-failure:3").unwrap(), RestartPolicy::OnFailure(Some(3)));
        assert_eq!(restart("on-failure").unwrap(), RestartPolicy::OnFailure(None));
        assert_eq!(restart("always").unwrap(), RestartPolicy::Always);
        assert!(restart("on-failure:x").is_err());
    }

    #[test]
    fn exposed_ports() {
        assert_eq!(expose("80").unwrap(), ["80/tcp"]);
        assert_eq!(expose("7-8/udp").unwrap(), ["7/udp", "8/udp"]);
        for wrong in ["", "0", "x", "8-7", "80/x", "70000"] {
            assert!(expose(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_of_the_kernel() {
        let mut all = BTreeMap::new();
        add_sysctl(&mut all, "net.core.somaxconn=1024").unwrap();
        assert_eq!(all.get("net.core.somaxconn").map(String::as_str), Some("1024"));
        for wrong in ["net.core.somaxconn", "=1", "net/../../etc/x=1", "/etc/x=1", "a b=1"] {
            assert!(add_sysctl(&mut all, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts() {
        assert_eq!(add_host("a:1.2.3.4").unwrap(), ("a".into(), "1.2.3.4".into()));
        assert_eq!(add_host("a:::1").unwrap(), ("a".into(), "::1".into()));
        assert_eq!(add_host("a:[::1]").unwrap(), ("a".into(), "::1".into()));
        assert!(
            add_host("a").is_err() && add_host("a:b").is_err() && add_host(":1.2.3.4").is_err()
        );
    }
}
