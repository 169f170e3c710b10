//! What this machine allows and offers: plain data, and the probes that gather it.
//!
//! [`Host`] is a value. It serialises, it loads from JSON in tests, and nothing in it is a handle. The engines decide on
//! it (`engine::Engine::probe`), `coracle doctor` prints it.
//!
//! There are two depths:
//! - [`Host::quick`] reads half a dozen small files and tries nothing. It is what `run` pays for; everything in it is a
//!   fact that costs microseconds (identity, subordinate ids, kernel release). Trials are [`Trial::Untried`].
//! - [`Host::thorough`] really tries things, each in a child process that is thrown away: it makes user namespaces, mounts
//!   an overlay on the store's file system, installs a seccomp filter, attaches with `ptrace`. It takes tens of
//!   milliseconds. [`Host::cache_key`] says how long its answer may be kept.
//!
//! A version number is never taken for an ability: distributions backport, and outer containers forbid. Whatever can be
//! tried is tried, and what failed says with which errno, why, and what to do about it ([`Trial`]).
//!
//! What this crate does not do: decide which engine to use (`engine::choose`), change the calling process, print, or
//! read the environment (a [`Context`] comes in from `cli`). It asks no name service: users are looked up in
//! `/etc/passwd` and then by running `getent` ([`users`]), because a static glibc program that calls NSS would load the
//! host's libraries.

mod attempt;
mod batch;
pub mod cdi;
mod cgroup;
mod devices;
mod disk;
pub mod driver;
mod error;
mod findings;
mod inside;
mod kernel;
mod limits;
mod namespaces;
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
pub use devices::{Gpu, GpuVendor, Infiniband};
pub use disk::{Disk, FsKind};
pub use error::Error;
pub use findings::{Finding, Level};
pub use inside::{Inside, InsideKind};
pub use kernel::Kernel;
pub use limits::{Limit, Limits};
pub use namespaces::{Barrier, Namespaces};
pub use overlay::Overlay;
pub use programs::{PROGRAMS, Program, Programs};
pub use ptrace::Ptrace;
pub use seccomp::{Seccomp, SeccompMode};
pub use security::{SYSCTLS, Security};
pub use subordinate::{IdRange, MapHelper, SubordinateIds};
pub use trial::Trial;
pub use users::Caller;

/// What the caller tells the probes about its surroundings. Libraries do not look at the environment themselves.
#[derive(Debug, Clone)]
pub struct Context {
    /// Directories in which programs are looked for: `$PATH`, split. `/usr/sbin` and `/sbin` are added by the search.
    pub search: Vec<PathBuf>,
    /// The environment as far as it is Unicode; only names that a probe knows are looked at (`SLURM_*`, `PMI_*`,
    /// `XDG_RUNTIME_DIR`, `DBUS_SESSION_BUS_ADDRESS`, `CUDA_VISIBLE_DEVICES`, `container`, `KUBERNETES_SERVICE_HOST`).
    pub env: BTreeMap<String, String>,
    /// The store's directory, or where it will be. Its file system is probed; where it does not exist, the nearest
    /// directory above it that does.
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

/// How much was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// Files were read, nothing was tried.
    #[default]
    Quick,
    /// Everything was tried.
    Thorough,
}

/// What came of running a program with an engine inside its process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InsideProcess {
    /// Calls come by signals.
    pub signals: Trial,
    /// Call sites are rewritten.
    pub rewriting: Trial,
    /// The text of every file is changed, without a filter.
    #[serde(default)]
    pub texts: Trial,
}

/// Everything that is known about this machine, from the point of view of the calling user.
///
/// Every field has a default, so a fixture names only what it cares about and data written by an older version loads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// How much was looked at.
    pub depth: Depth,
    /// Kernel release and architecture.
    pub kernel: Kernel,
    /// Who calls.
    pub caller: Caller,
    /// Ranges of ids that the caller may map, and the helpers that map them.
    pub subordinate: SubordinateIds,
    /// Where helper programs are.
    pub programs: Programs,
    /// User namespaces and the ones that are made inside them.
    pub namespaces: Namespaces,
    /// Overlay mounts on the store's file system.
    pub overlay: Overlay,
    /// Seccomp filters.
    pub seccomp: Seccomp,
    /// Tracing.
    pub ptrace: Ptrace,
    /// Programs with an engine inside their process. Tried by whoever has the engine.
    pub inside_process: InsideProcess,
    /// Security modules and hardening switches.
    pub security: Security,
    /// Control groups.
    pub cgroup: Cgroup,
    /// The container that we ourselves run in, if any.
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
    /// The facts that `run` needs: who calls, which ids it may map, the kernel. Reads a few small files and tries nothing.
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

    /// Everything, by really trying. Each trial runs in a child of its own; the calling process is not changed.
    pub fn thorough(context: &Context) -> Host {
        let mut caller = Caller::from_files();
        caller.complete(context);
        let kernel = Kernel::read();
        let programs = Programs::search(context);
        let security = Security::read();
        let namespaces = Namespaces::probe(&security, context.timeout);
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
            overlay,
            security,
        }
    }

    /// A key for a stored copy of a thorough answer: it holds for this boot, kernel and user, in this user namespace.
    pub fn cache_key(&self) -> String {
        format!(
            "{}:{}:{}:{}",
            self.kernel.boot_id, self.kernel.release, self.caller.uid, self.kernel.user_namespace
        )
    }

    /// The control group as it is now: what was probed, or a fresh look where only the quick facts are here.
    pub fn cgroup_now(&self, context: &Context) -> Cgroup {
        match self.depth {
            Depth::Thorough => self.cgroup.clone(),
            Depth::Quick => Cgroup::probe(context, &self.programs),
        }
    }

    /// Everything as lines for a person: one finding per probe, each with what it was found by and what to do about it.
    pub fn findings(&self) -> Vec<Finding> {
        findings::all(self)
    }
}
