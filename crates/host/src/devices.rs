//! Finds GPUs and InfiniBand: device nodes, drivers, and the CDI files for them.

use std::path::{Path, PathBuf};

use rustix::fs::Access;
use serde::{Deserialize, Serialize};

use crate::programs::read_trimmed;

/// Vendor of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuVendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
    /// Intel.
    Intel,
    /// Another.
    Other,
}

/// One kind of GPU on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its vendor.
    pub vendor: GpuVendor,
    /// Names of the models, if the driver reports them.
    #[serde(default)]
    pub models: Vec<String>,
    /// Device nodes that belong to it.
    #[serde(default)]
    pub nodes: Vec<PathBuf>,
    /// Nodes of these that the caller cannot open for reading and writing.
    #[serde(default)]
    pub forbidden: Vec<PathBuf>,
    /// The driver's version, if its kernel module reports it.
    #[serde(default)]
    pub driver: Option<String>,
}

/// InfiniBand and RoCE.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Infiniband {
    /// Names under `/sys/class/infiniband` with the state of port 1 (`mlx5_0: 4: ACTIVE`).
    pub devices: Vec<String>,
    /// Nodes under `/dev/infiniband`.
    pub nodes: Vec<PathBuf>,
}

impl Infiniband {
    pub(crate) fn read() -> Infiniband {
        let devices = names_in(Path::new("/sys/class/infiniband"))
            .into_iter()
            .map(|name| {
                let port = format!("/sys/class/infiniband/{name}/ports/1");
                let state = read_trimmed(format!("{port}/state")).unwrap_or_default();
                let link = read_trimmed(format!("{port}/link_layer")).unwrap_or_default();
                format!("{name}: {state} {link}").trim_end().to_owned()
            })
            .collect();
        let directory = Path::new("/dev/infiniband");
        let nodes = names_in(directory).into_iter().map(|name| directory.join(name)).collect();
        Infiniband { devices, nodes }
    }
}

/// Finds every kind of GPU that has a device node.
pub(crate) fn gpus() -> Vec<Gpu> {
    let mut gpus = Vec::new();
    let nvidia: Vec<PathBuf> = names_in(Path::new("/dev"))
        .into_iter()
        .filter(|name| name.starts_with("nvidia") || name == "dxg")
        .map(|name| Path::new("/dev").join(name))
        .filter(|path| !path.is_dir())
        .collect();
    if !nvidia.is_empty() {
        let models = names_in(Path::new("/proc/driver/nvidia/gpus"))
            .into_iter()
            .filter_map(|bus| {
                let path = format!("/proc/driver/nvidia/gpus/{bus}/information");
                let text = read_trimmed(path)?;
                let model = text.lines().find_map(|line| line.strip_prefix("Model:"))?;
                Some(model.trim().to_owned())
            })
            .collect();
        let driver = read_trimmed("/sys/module/nvidia/version")
            .or_else(|| nvidia_version(&read_trimmed("/proc/driver/nvidia/version")?));
        gpus.push(Gpu::new(GpuVendor::Nvidia, models, nvidia, driver));
    }
    gpus.extend(render_nodes());
    gpus
}

/// Parses `NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat ...`
pub(crate) fn nvidia_version(text: &str) -> Option<String> {
    let line = text.lines().next()?;
    line.split_whitespace()
        .find(|word| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit()))
        .map(str::to_owned)
}

/// GPUs of the direct rendering manager, by vendor. NVIDIA's own driver has other nodes, which are
/// found separately.
fn render_nodes() -> Vec<Gpu> {
    let mut found: Vec<Gpu> = Vec::new();
    for name in names_in(Path::new("/dev/dri")) {
        if !name.starts_with("renderD") {
            continue;
        }
        let device = format!("/sys/class/drm/{name}/device");
        let vendor = match read_trimmed(format!("{device}/vendor")).as_deref() {
            Some("0x1002") => GpuVendor::Amd,
            Some("0x8086") => GpuVendor::Intel,
            Some("0x10de") => continue,
            _ => GpuVendor::Other,
        };
        let mut nodes = vec![Path::new("/dev/dri").join(&name)];
        let known = found.iter_mut().find(|gpu| gpu.vendor == vendor);
        let model = read_trimmed(format!("{device}/product_name"));
        if let Some(gpu) = known {
            gpu.models.extend(model);
            gpu.forbidden.extend(forbidden(&nodes));
            gpu.nodes.append(&mut nodes);
            continue;
        }
        if vendor == GpuVendor::Amd && Path::new("/dev/kfd").exists() {
            nodes.push("/dev/kfd".into());
        }
        let module = std::fs::read_link(format!("{device}/driver/module")).ok();
        let driver = module
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .map(|module| match read_trimmed(format!("/sys/module/{module}/version")) {
                Some(version) => format!("{module} {version}"),
                None => module,
            });
        found.push(Gpu::new(vendor, model.into_iter().collect(), nodes, driver));
    }
    found
}

impl Gpu {
    fn new(
        vendor: GpuVendor,
        models: Vec<String>,
        nodes: Vec<PathBuf>,
        driver: Option<String>,
    ) -> Gpu {
        Gpu { vendor, models, forbidden: forbidden(&nodes), nodes, driver }
    }
}

fn forbidden(nodes: &[PathBuf]) -> Vec<PathBuf> {
    let both = Access::READ_OK | Access::WRITE_OK;
    nodes.iter().filter(|node| rustix::fs::access(*node, both).is_err()).cloned().collect()
}

/// Lists the CDI files; the later directory overrides the earlier one, so both are listed.
pub(crate) fn cdi() -> Vec<String> {
    ["/etc/cdi", "/var/run/cdi"]
        .iter()
        .flat_map(|directory| {
            names_in(Path::new(directory))
                .into_iter()
                .filter(|name| [".json", ".yaml", ".yml"].iter().any(|end| name.ends_with(end)))
                .map(move |name| format!("{directory}/{name}"))
        })
        .collect()
}

/// Names in a directory, sorted; none if it cannot be read.
pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_of_nvidia() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12";
        assert_eq!(nvidia_version(closed).as_deref(), Some("535.104.05"));
        let open =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build";
        assert_eq!(nvidia_version(open).as_deref(), Some("570.86.15"));
        assert_eq!(nvidia_version(""), None);
    }
}
