//! Computes the `config.json` of a bundle from a plan.
//!
//! Pure: the plan holds what has to be known of the host's files. The format is the OCI
//! runtime specification's, `config.md` and `config-linux.md`, version 1.0.2, of which only fields
//! are written that `runc` 1.0 and `crun` 1.0 know.

use crate::error::{Error, Result};
use crate::plan::{Mount, MountFlags, Namespaces, Plan, Source, capability_names};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The version of the specification.
const VERSION: &str = "1.0.2";

/// `config.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Config {
    oci_version: &'static str,
    process: Process,
    root: Root,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    mounts: Vec<OciMount>,
    linux: Linux,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<&'static str, &'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Process {
    terminal: bool,
    user: User,
    args: Vec<String>,
    env: Vec<String>,
    cwd: PathBuf,
    capabilities: Capabilities,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct User {
    uid: u32,
    gid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Capabilities {
    bounding: Vec<String>,
    effective: Vec<String>,
    inheritable: Vec<String>,
    permitted: Vec<String>,
    ambient: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Root {
    path: PathBuf,
    readonly: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct OciMount {
    destination: PathBuf,
    #[serde(rename = "type")]
    kind: String,
    source: PathBuf,
    options: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Linux {
    namespaces: Vec<Namespace>,
    masked_paths: Vec<PathBuf>,
    readonly_paths: Vec<PathBuf>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    sysctl: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Namespace {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
}

/// Devices that a runtime makes by itself in the container's own `/dev` ("Default Devices" in
/// `config-linux.md`).
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Asks `crun` to leave the groups alone; `runc` does that whenever the caller is not root.
const KEEP_GROUPS: (&str, &str) = ("run.oci.keep_original_groups", "1");

/// Values that the plan does not hold.
pub(super) struct Terms<'a> {
    /// The tree that becomes `/`.
    pub(super) root: &'a Path,
    /// The first process: how this program is called in the container.
    pub(super) args: Vec<String>,
    /// Its capabilities, as bits.
    pub(super) capabilities: u64,
    /// Whether flags can be set on a host's file or directory and all mounts beneath at once.
    pub(super) recursive: &'a dyn Fn(&Path) -> bool,
}

impl Config {
    /// The configuration of a plan. Devices and symbolic links that a runtime makes by itself are
    /// left to it.
    pub(super) fn of(plan: &Plan, terms: Terms<'_>) -> Self {
        let Terms { root, args, capabilities, recursive } = terms;
        let names = capability_names(capabilities);
        let dotted = |(path, value): &(String, String)| (path.replace('/', "."), value.clone());
        let mut linux = Linux {
            namespaces: namespaces(&plan.namespaces),
            sysctl: plan.sysctls.iter().map(dotted).collect(),
            ..Linux::default()
        };
        let mut mounts = Vec::new();
        let mut readonly = false;
        let dev = Path::new("/dev");
        let own_dev = plan
            .mounts
            .iter()
            .any(|mount| matches!(mount, Mount::Tmpfs { target, .. } if target == dev));
        for mount in &plan.mounts {
            match mount {
                Mount::Bind { target, .. }
                    if own_dev && DEVICES.iter().any(|name| *target == dev.join(name)) => {}
                Mount::Bind { source, target, flags, optional: _ } => {
                    let propagation = if flags.private { "rprivate" } else { "rslave" };
                    let mut options = vec!["rbind".to_owned(), propagation.to_owned()];
                    options.extend(words(*flags, recursive(source)));
                    mounts.push(mounted(target, "bind", source, options));
                }
                Mount::Tmpfs { target, flags, options } => {
                    mounts.push(kernel("tmpfs", target, *flags, options));
                }
                Mount::Kernel { kind, target, flags, options, or_bind: _ } => {
                    mounts.push(kernel(kind, target, *flags, options));
                }
                // What is shared stands in the bundle as a bind.
                Mount::Symlink { .. } | Mount::Shared { .. } => {}
                Mount::Mask { path } => linux.masked_paths.push(path.clone()),
                Mount::ReadOnly { path } => linux.readonly_paths.push(path.clone()),
                Mount::ReadOnlyRoot => readonly = true,
            }
        }
        Self {
            oci_version: VERSION,
            process: Process {
                terminal: false,
                user: User { uid: 0, gid: 0 },
                args,
                env: plan.process.env.clone(),
                cwd: "/".into(),
                capabilities: Capabilities {
                    bounding: names.clone(),
                    effective: names.clone(),
                    permitted: names,
                    // What is inherited could not be taken from root by its bounding set.
                    inheritable: Vec::new(),
                    ambient: Vec::new(),
                },
            },
            root: Root { path: root.into(), readonly },
            hostname: plan.hostname.clone(),
            mounts,
            linux,
            annotations: plan.process.keeps_groups.then_some(KEEP_GROUPS).into_iter().collect(),
        }
    }

    /// As the runtime reads it.
    pub(super) fn to_json(&self) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(self).map_err(|error| Error::Invalid {
            what: "bundle".into(),
            value: "config.json".into(),
            why: error.to_string(),
        })
    }
}

fn namespaces(wanted: &Namespaces) -> Vec<Namespace> {
    let mut all = vec![Namespace { kind: "mount", path: None }];
    for (source, kind, file) in [
        (wanted.pid, "pid", "pid"),
        (wanted.ipc, "ipc", "ipc"),
        (wanted.uts, "uts", "uts"),
        (wanted.net, "network", "net"),
        (wanted.cgroup, "cgroup", "cgroup"),
    ] {
        match source {
            Source::Host => {}
            Source::New => all.push(Namespace { kind, path: None }),
            Source::Of(pid) => {
                let path = Some(format!("/proc/{pid}/ns/{file}").into());
                all.push(Namespace { kind, path });
            }
        }
    }
    all
}

fn mounted(target: &Path, kind: &str, source: &Path, options: Vec<String>) -> OciMount {
    OciMount { destination: target.into(), kind: kind.into(), source: source.into(), options }
}

fn kernel(kind: &str, target: &Path, flags: MountFlags, data: &[(String, String)]) -> OciMount {
    let mut options: Vec<String> = words(flags, false).collect();
    options.extend(
        data.iter().map(
            |(key, value)| {
                if value.is_empty() { key.clone() } else { format!("{key}={value}") }
            },
        ),
    );
    mounted(target, kind, Path::new(kind), options)
}

/// Flags as options; for everything beneath, where the kernel can.
fn words(flags: MountFlags, recursive: bool) -> impl Iterator<Item = String> {
    let prefix = if recursive { "r" } else { "" };
    [
        (flags.read_only, "ro"),
        (flags.noexec, "noexec"),
        (flags.nosuid, "nosuid"),
        (flags.nodev, "nodev"),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted)
    .map(move |(_, word)| format!("{prefix}{word}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::plan::{NoAccounts, Overrides, PrivateBy, Request, Root, plan};
    use crate::spec::{ContainerConfig, MountKind, MountSpec, NamespaceMode, Namespaces as Asked};

    fn config(container: ContainerConfig) -> serde_json::Value {
        let container =
            ContainerConfig { id: "c".repeat(64), command: vec!["true".into()], ..container };
        let facts = Facts { uid: 1000, gid: 1000, ..Facts::default() };
        let plan = plan(&Request {
            config: &container,
            root: &Root::Directory { path: "/tree".into() },
            place: Path::new("/place"),
            facts: &facts,
            overrides: &Overrides::default(),
            own_ids: false,
            fake_root: false,
            keep_umask: false,
            accounts: &NoAccounts,
            private: PrivateBy::Namespace,
            network: None,
            running: &|_| None,
        })
        .unwrap();
        assert!(!plan.emulate_root);
        let args = vec!["/first".to_owned()];
        let root = Path::new("/b/rootfs");
        let terms = Terms { root, args, capabilities: 1, recursive: &|_| true };
        serde_json::from_slice(&Config::of(&plan, terms).to_json().unwrap()).unwrap()
    }

    #[test]
    fn the_plan_is_the_runtimes() {
        let mounts = vec![MountSpec {
            kind: MountKind::Bind,
            source: "/data/file".into(),
            target: "/etc/file".into(),
            read_only: true,
            ..MountSpec::default()
        }];
        let made =
            config(ContainerConfig { mounts, read_only: true, ..ContainerConfig::default() });
        assert_eq!(made["ociVersion"], VERSION);
        assert_eq!(made["root"], serde_json::json!({"path": "/b/rootfs", "readonly": true}));
        assert_eq!(made["process"]["args"], serde_json::json!(["/first"]));
        assert_eq!(made["process"]["capabilities"]["bounding"], serde_json::json!(["CAP_CHOWN"]));
        // The caller's other namespaces are kept.
        assert_eq!(made["linux"]["namespaces"], serde_json::json!([{"type": "mount"}]));
        let all = made["mounts"].as_array().unwrap();
        let file = all.iter().find(|mount| mount["destination"] == "/etc/file").unwrap();
        assert_eq!(file["source"], "/data/file");
        assert_eq!(file["options"], serde_json::json!(["rbind", "rslave", "rro"]));
    }

    #[test]
    fn namespaces_and_devices_of_its_own() {
        let namespaces = Asked { pid: NamespaceMode::Private, ..Asked::default() };
        let device = crate::spec::DeviceSpec {
            source: "/dev/null".into(),
            target: "/dev/other".into(),
            ..crate::spec::DeviceSpec::default()
        };
        let made = config(ContainerConfig {
            namespaces,
            devices: vec![device],
            hostname: Some("box".into()),
            ..ContainerConfig::default()
        });
        assert_eq!(
            made["linux"]["namespaces"],
            serde_json::json!([{"type": "mount"}, {"type": "pid"}, {"type": "uts"}])
        );
        assert_eq!(made["hostname"], "box");
        let at = |path: &str| {
            let all = made["mounts"].as_array().unwrap();
            all.iter().find(|mount| mount["destination"] == path).cloned()
        };
        assert_eq!(at("/dev").unwrap()["type"], "tmpfs");
        assert_eq!(at("/proc").unwrap()["type"], "proc");
        assert_eq!(at("/dev/other").unwrap()["source"], "/dev/null");
        // The runtime makes it.
        assert_eq!(at("/dev/tty"), None);
    }
}
