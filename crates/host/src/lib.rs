//! Probes this machine: which features of the kernel and which helper programs a container can use
//! here.
//!
//! [`Host`] is plain data: it serialises, it loads from JSON in tests, and nothing in it is a
//! handle. The engines decide on it (`engine::Engine::probe`), `coracle doctor` prints it.
//!
//! There are two depths:
//! - [`Host::quick`] reads half a dozen small files and tries nothing, since every `run` pays for
//!   it; everything in it is a fact that costs microseconds (identity, subordinate ids, kernel
//!   release). Trials are [`Trial::Untried`].
//! - [`Host::thorough`] tries features, each in a child process that is thrown away: it makes user
//!   namespaces, mounts an overlay on the store's file system, installs a seccomp filter, attaches
//!   with `ptrace`. It takes tens of milliseconds. [`Host::cache_key`] says how long its result may
//!   be kept.
//!
//! A version number never proves a feature: distributions backport, and outer containers forbid.
//! Every feature that can be tried is tried, and a failed trial reports the errno, the reason and
//! an advice ([`Trial`]).
//!
//! This crate does not decide which engine to use (`engine::choose`), does not change the calling
//! process, does not print, and does not read the environment (a [`Context`] comes in from `cli`).
//! It uses no name service: users are looked up in `/etc/passwd` and then by running `getent`
//! ([`users`]), because a static glibc program that calls NSS would load the host's libraries.

mod attempt;
mod batch;
pub mod cdi;
mod cgroup;
mod devices;
mod disk;
pub mod driver;
mod equipment;
mod error;
mod findings;
mod inside;
mod interfaces;
mod kernel;
mod limits;
mod namespaces;
mod network;
mod overlay;
mod programs;
mod ptrace;
mod quick;
mod scratch;
mod seccomp;
mod security;
mod subordinate;
mod trial;
pub mod users;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use batch::{Mpi, MpiKind, Slurm};
pub use cgroup::{Cgroup, CgroupLayout};
pub use devices::{Gpu, GpuVendor, Infiniband, Port};
pub use disk::{Disk, FsKind};
pub use equipment::{Equipment, LOCKED};
pub use error::Error;
pub use findings::{Finding, Level};
pub use inside::{Inside, InsideKind};
pub use interfaces::{Interface, interfaces};
pub use kernel::Kernel;
pub use limits::{Limit, Limits};
pub use namespaces::{Barrier, Namespaces};
pub use network::Networking;
pub use overlay::Overlay;
pub use programs::{PROGRAMS, Program, Programs};
pub use ptrace::Ptrace;
pub use seccomp::{Seccomp, SeccompMode, filters_of_caller};
pub use security::{SYSCTLS, Security};
pub use subordinate::{IdRange, MapHelper, SubordinateIds};
pub use trial::Trial;
pub use users::Caller;

/// The caller's surroundings. Libraries do not read the environment themselves.
#[derive(Debug, Clone)]
pub struct Context {
    /// Directories in which programs are searched: `$PATH`, split. The search adds `/usr/sbin` and
    /// `/sbin`.
    pub search: Vec<PathBuf>,
    /// The environment as far as it is Unicode; the probes read only certain variables (`SLURM_*`,
    /// `PMI_*`, `XDG_RUNTIME_DIR`, `DBUS_SESSION_BUS_ADDRESS`, `CUDA_VISIBLE_DEVICES`, `container`,
    /// `KUBERNETES_SERVICE_HOST`).
    pub env: BTreeMap<String, String>,
    /// The store's directory, which may not exist yet. The file system of the directory, or of the
    /// nearest existing one above it, is probed.
    pub store: Option<PathBuf>,
    /// How long one helper program (`getent`, `mpiexec --version`) may take before it is killed.
    pub timeout: Duration,
}

impl Default for Context {
    fn default() -> Self {
        Context {
            search: programs::default_search(),
            env: BTreeMap::new(),
            store: None,
            timeout: Duration::from_secs(3),
        }
    }
}

/// Depth of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Files were read, nothing was tried.
    #[default]
    Quick,
    /// Everything was tried.
    Thorough,
}

/// Results of running a program in an in-process engine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InsideProcess {
    /// System calls are caught by signals.
    pub signals: Trial,
    /// Call sites are rewritten.
    pub rewriting: Trial,
    /// The machine code of every file is patched, without a filter.
    #[serde(default)]
    pub texts: Trial,
}

/// All facts about this machine, as seen by the calling user.
///
/// Every field has a default, so a fixture names only the fields that it needs, and data of an
/// older version load.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Depth of the probe.
    pub depth: Depth,
    /// Kernel release and architecture.
    pub kernel: Kernel,
    /// The calling user.
    pub caller: Caller,
    /// Ranges of ids that the caller may map, and the helpers that map them.
    pub subordinate: SubordinateIds,
    /// Paths of helper programs.
    pub programs: Programs,
    /// User namespaces, and other namespaces inside them.
    pub namespaces: Namespaces,
    /// What networks of containers need.
    pub networking: Networking,
    /// Overlay mounts on the store's file system.
    pub overlay: Overlay,
    /// Seccomp filters.
    pub seccomp: Seccomp,
    /// Tracing.
    pub ptrace: Ptrace,
    /// Programs in an in-process engine. The engine makes these trials.
    pub inside_process: InsideProcess,
    /// Security modules and hardening switches.
    pub security: Security,
    /// Control groups.
    pub cgroup: Cgroup,
    /// The container in which this process runs, if any.
    pub inside: Option<Inside>,
    /// Graphics and compute devices.
    pub gpus: Vec<Gpu>,
    /// CDI specification files that describe devices (`/etc/cdi`, `/var/run/cdi`).
    pub cdi: Vec<String>,
    /// InfiniBand and RoCE.
    pub infiniband: Infiniband,
    /// The batch system.
    pub slurm: Slurm,
    /// The host's MPI.
    pub mpi: Mpi,
    /// The store's file system.
    pub store: Option<Disk>,
    /// Resource limits of the caller.
    pub limits: Limits,
}

impl Host {
    /// The facts that `run` needs: the caller, the ids that it may map, the kernel. Reads a few
    /// small files and tries nothing.
    pub fn quick(context: &Context) -> Host {
        let caller = Caller::from_files();
        Host {
            depth: Depth::Quick,
            kernel: Kernel::read(),
            subordinate: SubordinateIds::read(&caller),
            programs: Programs::lazy(context),
            security: Security::read_quick(),
            limits: Limits::read(),
            caller,
            ..Host::default()
        }
    }

    /// All facts, by trying. Each trial runs in a child of its own; the calling process is not
    /// changed.
    pub fn thorough(context: &Context) -> Host {
        let mut caller = Caller::from_files();
        caller.complete(context);
        let kernel = Kernel::read();
        let programs = Programs::search(context);
        let security = Security::read();
        let namespaces = Namespaces::probe(&security, context.timeout);
        let networking = Networking::probe(&namespaces.net, context.timeout);
        let mut subordinate = SubordinateIds::read(&caller);
        subordinate.complete(&caller, &programs, &namespaces, &security, context);
        let overlay = Overlay::probe(context, &namespaces, &programs);
        Host {
            depth: Depth::Thorough,
            seccomp: Seccomp::probe(context.timeout),
            ptrace: Ptrace::probe(context.timeout),
            inside_process: InsideProcess::default(),
            cgroup: Cgroup::probe(context, &programs),
            inside: Inside::detect(context),
            gpus: devices::gpus(),
            cdi: devices::cdi(),
            infiniband: Infiniband::read(),
            slurm: Slurm::read(context, &programs),
            mpi: Mpi::probe(context, &programs),
            store: context.store.as_deref().and_then(Disk::probe),
            limits: Limits::read(),
            kernel,
            caller,
            subordinate,
            programs,
            namespaces,
            networking,
            overlay,
            security,
        }
    }

    /// A key for a stored thorough result: it is valid for this boot, kernel, user and user
    /// namespace.
    pub fn cache_key(&self) -> String {
        format!(
            "{}:{}:{}:{}",
            self.kernel.boot_id, self.kernel.release, self.caller.uid, self.kernel.user_namespace
        )
    }

    /// The control group: the probed one, or a new probe if only the quick facts are here.
    pub fn cgroup_now(&self, context: &Context) -> Cgroup {
        match self.depth {
            Depth::Thorough => self.cgroup.clone(),
            Depth::Quick => Cgroup::probe(context, &self.programs),
        }
    }

    /// All facts as text lines: one finding per probe, each with its method and an advice.
    pub fn findings(&self) -> Vec<Finding> {
        findings::all(self)
    }
}
