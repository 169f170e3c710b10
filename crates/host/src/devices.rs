//! GPUs and InfiniBand: device nodes, drivers, and the CDI files that describe what a container needs of them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Who made the GPU.
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
    /// Who made it.
    pub vendor: GpuVendor,
    /// Names of the models, where the driver tells.
    #[serde(default)]
    pub models: Vec<String>,
    /// Device nodes that belong to it.
    #[serde(default)]
    pub nodes: Vec<PathBuf>,
    /// Nodes of these that the caller cannot open for reading and writing.
    #[serde(default)]
    pub forbidden: Vec<PathBuf>,
    /// The driver's version, if its kernel module tells.
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
        Infiniband::default()
    }
}

pub(crate) fn gpus() -> Vec<Gpu> {
    Vec::new()
}

pub(crate) fn cdi() -> Vec<String> {
    Vec::new()
}
