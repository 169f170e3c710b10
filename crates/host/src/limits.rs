//! Resource limits of the caller.

use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

/// One limit; `None` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Limit {
    /// The limit in force.
    pub soft: Option<u64>,
    /// The maximum of the soft limit.
    pub hard: Option<u64>,
}

/// The limits that matter for containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Bytes that may be locked in memory (`ulimit -l` shows KiB), which RDMA needs.
    pub memlock: Limit,
    /// Open files.
    pub nofile: Limit,
    /// Processes of this user.
    pub nproc: Limit,
    /// Bytes of stack.
    pub stack: Limit,
    /// Bytes of address space.
    pub address_space: Limit,
}

impl Limits {
    pub(crate) fn read() -> Limits {
        let get = |resource| {
            let limit = getrlimit(resource);
            Limit { soft: limit.current, hard: limit.maximum }
        };
        Limits {
            memlock: get(Resource::Memlock),
            nofile: get(Resource::Nofile),
            nproc: get(Resource::Nproc),
            stack: get(Resource::Stack),
            address_space: get(Resource::As),
        }
    }
}
