//! What a machine has for parallel programs, besides processors: adapters, devices, and how much
//! memory they may lock.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::devices::{Infiniband, Port, cdi, gpus};
use crate::limits::Limits;

/// Verbs lock the memory of messages; with less than this in bytes they mostly fail.
pub const LOCKED: u64 = 64 << 20;

/// What a machine has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Equipment {
    /// Bytes that a process may lock; `None` is unlimited.
    pub memlock: Option<u64>,
    /// Ports of InfiniBand and RoCE that work.
    pub ports: Vec<Port>,
    /// Nodes of these adapters and of GPUs.
    pub devices: Vec<PathBuf>,
    /// CDI files.
    pub cdi: Vec<String>,
}

impl Equipment {
    /// Reads it. Some small files and directories are read.
    pub fn read() -> Self {
        let Infiniband { ports, nodes, .. } = Infiniband::read();
        let gpus = gpus().into_iter().flat_map(|gpu| gpu.nodes);
        let memlock = Limits::read().memlock.soft;
        Self { memlock, ports, devices: nodes.into_iter().chain(gpus).collect(), cdi: cdi() }
    }

    /// Whether less memory can be locked than the adapters need.
    pub fn is_short_of_locked_memory(&self) -> bool {
        !self.ports.is_empty() && self.memlock.is_some_and(|bytes| bytes < LOCKED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_memory_matters_to_adapters_only() {
        let with = |memlock, ports| Equipment { memlock, ports, ..Equipment::default() };
        let port = || vec![Port::default()];
        assert!(with(Some(64 << 10), port()).is_short_of_locked_memory());
        for enough in [with(None, port()), with(Some(64 << 10), vec![]), with(Some(LOCKED), port())]
        {
            assert!(!enough.is_short_of_locked_memory());
        }
        let read = Equipment::read();
        assert_eq!(read.memlock, Limits::read().memlock.soft);
    }
}
