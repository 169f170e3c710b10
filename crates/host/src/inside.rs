//! Detects that this process runs in a container.
//!
//! Each runtime leaves a mark: a file at the root, a variable, a name in the control group. None is
//! certain, and nothing is decided on it; it only tells the user why this host refuses what a host
//! without containers allows.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Context;
use crate::programs::read_trimmed;

/// Kind of the surrounding container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum InsideKind {
    /// Docker, or a runtime that looks like it.
    Docker,
    /// Podman.
    Podman,
    /// A Kubernetes pod.
    Kubernetes,
    /// Apptainer or Singularity.
    Apptainer,
    /// LXC.
    Lxc,
    /// systemd-nspawn.
    Nspawn,
    /// Coracle itself.
    Coracle,
    /// The Windows subsystem for Linux: a virtual machine, but it restricts like a container.
    Wsl,
    /// gVisor: a kernel of its own, which lacks some calls.
    Gvisor,
    /// Any other.
    Other,
}

/// The surrounding container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    /// Its kind.
    pub kind: InsideKind,
    /// The mark by which it was detected.
    pub how: String,
}

impl Inside {
    pub(crate) fn detect(context: &Context) -> Option<Inside> {
        let found = |kind, how: &str| Some(Inside { kind, how: how.into() });
        // Also in a pod or under Docker: what is refused is refused by it.
        if is_gvisor() {
            return found(InsideKind::Gvisor, "/proc/version");
        }
        if context.env.contains_key("KUBERNETES_SERVICE_HOST") {
            return found(InsideKind::Kubernetes, "environment KUBERNETES_SERVICE_HOST");
        }
        let files = [
            ("/run/.containerenv", InsideKind::Podman),
            ("/.dockerenv", InsideKind::Docker),
            ("/.singularity.d", InsideKind::Apptainer),
        ];
        if let Some((file, kind)) = files.into_iter().find(|(file, _)| Path::new(file).exists()) {
            return found(kind, file);
        }
        let named = context
            .env
            .get("container")
            .map(|name| (name.clone(), "environment container"))
            .or_else(|| Some((read_trimmed("/run/systemd/container")?, "/run/systemd/container")));
        if let Some((name, how)) = named.filter(|(name, _)| !name.is_empty()) {
            let kind = kind_of(&name).unwrap_or(InsideKind::Other);
            return Some(Inside { kind, how: format!("{how}={name}") });
        }
        let release = read_trimmed("/proc/sys/kernel/osrelease").unwrap_or_default();
        if release.to_ascii_lowercase().contains("microsoft") {
            return found(InsideKind::Wsl, "/proc/sys/kernel/osrelease");
        }
        let groups = read_trimmed("/proc/1/cgroup").unwrap_or_default();
        let kind = groups
            .lines()
            .filter_map(|line| line.splitn(3, ':').nth(2))
            .find_map(|path| path.split(['/', '-', '.']).find_map(kind_of));
        kind.and_then(|kind| found(kind, "/proc/1/cgroup"))
    }
}

/// The date of the kernel that gVisor claims to be, whatever its version.
const GVISOR: &str = "Sun Jan 10 15:06:54 PST 2016";

/// Returns true if the kernel is gVisor.
pub(crate) fn is_gvisor() -> bool {
    read_trimmed("/proc/version").is_some_and(|text| text.contains(GVISOR))
}

/// Returns the kind for a runtime's name.
fn kind_of(word: &str) -> Option<InsideKind> {
    match word {
        "docker" => Some(InsideKind::Docker),
        "podman" | "libpod" | "oci" => Some(InsideKind::Podman),
        "kubepods" => Some(InsideKind::Kubernetes),
        "lxc" | "lxc-libvirt" => Some(InsideKind::Lxc),
        "systemd-nspawn" => Some(InsideKind::Nspawn),
        "apptainer" | "singularity" => Some(InsideKind::Apptainer),
        "coracle" => Some(InsideKind::Coracle),
        "wsl" => Some(InsideKind::Wsl),
        "gvisor" | "runsc" => Some(InsideKind::Gvisor),
        _ => None,
    }
}
