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
    /// Names under `/sys/class/infiniband` with the state of each port (`mlx5_0: 4: ACTIVE`).
    pub devices: Vec<String>,
    /// Their ports that work.
    pub ports: Vec<Port>,
    /// Nodes under `/dev/infiniband`.
    pub nodes: Vec<PathBuf>,
}

/// A port of an adapter that is connected to a network.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    /// Adapter and number, as UCX and NCCL write it: `mlx5_0:1`.
    pub name: String,
    /// It is one of Ethernet (RoCE), else of InfiniBand.
    pub is_ethernet: bool,
    /// The network interface that it belongs to, if the kernel tells.
    pub interface: Option<String>,
}

impl Infiniband {
    /// Reads what the kernel tells of adapters.
    pub fn read() -> Self {
        Self::of(Path::new("/sys/class/infiniband"), Path::new("/dev/infiniband"))
    }

    fn of(adapters: &Path, nodes: &Path) -> Self {
        let (mut devices, mut ports) = (Vec::new(), Vec::new());
        for name in names_in(adapters) {
            let directory = adapters.join(&name).join("ports");
            let mut states = Vec::new();
            for number in names_in(&directory) {
                let port = directory.join(&number);
                let read = |file: &str| read_trimmed(port.join(file)).unwrap_or_default();
                let (state, link) = (read("state"), read("link_layer"));
                states.push(format!("{state} {link}").trim_end().to_owned());
                // "4: ACTIVE" (`enum ib_port_state` of the kernel).
                if state.starts_with("4:") {
                    let interface = Some(read("gid_attrs/ndevs/0")).filter(|name| !name.is_empty());
                    let is_ethernet = link == "Ethernet";
                    ports.push(Port { name: format!("{name}:{number}"), is_ethernet, interface });
                }
            }
            devices.push(format!("{name}: {}", states.join(", ")).trim_end().to_owned());
        }
        let nodes = names_in(nodes).into_iter().map(|name| nodes.join(name)).collect();
        Self { devices, ports, nodes }
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

    /// As the kernel shows two adapters, the second with two ports.
    #[test]
    fn ports_of_adapters() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (port, state, link) in [
            ("mlx5_0/ports/1", "4: ACTIVE", "InfiniBand"),
            ("mlx5_1/ports/1", "1: DOWN", "InfiniBand"),
            ("mlx5_1/ports/2", "4: ACTIVE", "Ethernet"),
        ] {
            write(&format!("ib/{port}/state"), &format!("{state}\n"));
            write(&format!("ib/{port}/link_layer"), &format!("{link}\n"));
        }
        write("ib/mlx5_1/ports/2/gid_attrs/ndevs/0", "eth2\n");
        write("dev/uverbs0", "");
        let found = Infiniband::of(&root.path().join("ib"), &root.path().join("dev"));
        let devices =
            ["mlx5_0: 4: ACTIVE InfiniBand", "mlx5_1: 1: DOWN InfiniBand, 4: ACTIVE Ethernet"];
        assert_eq!(found.devices, devices);
        let port = |name: &str, interface: Option<&str>| Port {
            name: name.to_owned(),
            is_ethernet: interface.is_some(),
            interface: interface.map(str::to_owned),
        };
        assert_eq!(found.ports, [port("mlx5_0:1", None), port("mlx5_1:2", Some("eth2"))]);
        assert_eq!(found.nodes, [root.path().join("dev/uverbs0")]);
    }

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
