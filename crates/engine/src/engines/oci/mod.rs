//! R1, R2 and R3: the host's OCI runtime (`runc` or `crun`) makes the container.
//!
//! R1 carries out the native engine's plan. User namespace and root are made here, because the
//! overlay has to be mounted and a range of ids mapped before the runtime starts. The runtime gets
//! a bundle ([`bundle`]) and makes the other namespaces, the mounts and the new root. R2 and R3
//! carry out the plan of P1 and P2 in a container whose tree has only what that plan names. So one
//! id is enough for `chown` and the like, and a program that gets around the view does not reach
//! the host.
//!
//! ```text
//!   caller ──fork──► starter: user and mount namespace, root, bundle
//!     ▲                 └──fork──► runc run --detach
//!     │                              └──► first process: Coracle ([`super::external`])
//!     └── parent, once the runtime has ended ◄──┴──► the program
//! ```
//!
//! The runtime does not start the program itself, but Coracle, through a descriptor. Coracle takes
//! the caller's own streams (a runtime copies through pipes, or loses them), terminal, limits, ids
//! and filters as in N1, reports why a program cannot be executed, and dies with its parent where
//! that is asked for. The runtime ends as soon as the container runs, so it costs nothing
//! afterwards and needs no control group. The program is supervised as in the other engines. Bundle
//! and state lie in a memory file system of the starter's own mount namespace: each start has its
//! own, and nothing is left behind.
//!
//! A program that is started in a running container (`exec`, a further run in R1) enters its
//! namespaces. The runtime is not asked: it does not know a container whose first process has
//! ended.

mod around_tracer;
mod bundle;
mod bundle_dir;
mod container;

use super::contract::{
    Asked, Begun, CallsBy, Caps, Engine, Fit, Helper, IdsFrom, MadeFiles, Properties, RootKind,
};
use super::external::handed::Order;
use super::namespaces::run::{self, Target};
use super::{interpose, namespaces};
use crate::error::{Error, Result};
use crate::exit::Ended;
use crate::facts::Facts;
use crate::launch::attend::{adopt_orphans, attend};
use crate::launch::spawn::Ties;
use crate::launch::streams::{Child, Streams};
use crate::plan::{Groups, Ids, Plan};
use crate::records::Records;
use container::Container;
use std::path::PathBuf;

/// What runs in the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The program: R1.
    Plain,
    /// The ptrace engine with a filter: R2.
    Filtered,
    /// The ptrace engine without: R3.
    EveryCall,
}

/// The runtime.
pub const RUNTIME: Helper = Helper {
    key: "oci-runtime",
    names: &["runc", "crun"],
    keeping: Some("crun"),
    is_privileged: |_| false,
};

const R1: Properties = Properties {
    name: "R1",
    aliases: &[],
    about: "runc or crun",
    asked: Asked::ByName,
    root: RootKind::Mounts,
    ids: IdsFrom::Map,
    calls: CallsBy::Kernel,
    made: MadeFiles::None,
    helper: Some(RUNTIME),
    caps: Caps { fake_root: false, ..namespaces::CAPS },
};
const R2: Properties = Properties {
    name: "R2",
    about: "runc or crun, ptrace with seccomp inside",
    root: RootKind::LinkedTree,
    ids: IdsFrom::Engine,
    calls: CallsBy::Tracer,
    caps: Caps { named_networks: false, ..interpose::CAPS },
    ..R1
};
const R3: Properties = Properties { name: "R3", about: "runc or crun, ptrace inside", ..R2 };

impl Engine for Mode {
    fn properties(&self) -> &'static Properties {
        match self {
            Self::Plain => &R1,
            Self::Filtered => &R2,
            Self::EveryCall => &R3,
        }
    }

    fn probe(&self, facts: &Facts) -> Fit {
        if let Some(why) = &facts.no_user_namespace {
            return Fit::Unusable(why.clone());
        }
        if facts.helper(RUNTIME.key).is_none() {
            return Fit::Unusable("neither runc nor crun is in PATH".into());
        }
        match self {
            Self::Plain => Fit::Ready,
            Self::Filtered => interpose::fit_of_tracing(facts, true),
            Self::EveryCall => interpose::fit_of_tracing(facts, false),
        }
    }

    fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        adopt_orphans()?;
        match self {
            Self::Plain => {
                let make = |ties, records: &Records| make_plain(plan, ties, records);
                run::spawn(plan, Target::Container, Some(&make), streams)
            }
            Self::Filtered | Self::EveryCall => around_tracer::spawn(*self, plan, streams),
        }
    }

    fn enter(&self, pid: u32, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        match self {
            Self::Plain => run::spawn(plan, Target::Process(pid), None, streams),
            Self::Filtered | Self::EveryCall => around_tracer::enter(*self, pid, plan, streams),
        }
    }

    fn become_guest(&self, plan: &Plan, begun: Begun<'_>) -> Result<Ended> {
        let streams = Streams { tied: true, ..Streams::default() };
        attend(Some(&plan.place), || self.spawn(plan, streams).inspect(|_| begun()))
    }

    fn become_resident(&self, pid: u32, plan: &Plan) -> Result<Ended> {
        match self {
            Self::Plain => run::here(plan, Target::Process(pid), &mut || {}),
            Self::Filtered | Self::EveryCall => {
                adopt_orphans()?;
                let streams = Streams { tied: true, ..Streams::default() };
                attend(None, || around_tracer::enter(*self, pid, plan, streams))
            }
        }
    }
}

/// Has the runtime make the container of R1.
fn make_plain(plan: &Plan, ties: Ties, records: &Records) -> Result<u32> {
    let runtime = runtime(plan);
    let keeps = plan.process.groups == Groups::Keep && matches!(plan.ids, Ids::Range { .. });
    if keeps && !bundle_dir::is_crun(&runtime) {
        return Err(Error::Missing {
            what: "the caller's groups".into(),
            needs: "crun, as runc sets others".into(),
            hint: Some("CORACLE_RUNTIME names the runtime".into()),
        });
    }
    let first = Order { plan, engine: None, reports: false, ties };
    container::make(&runtime, Container { plan, first }, Some(records))
}

/// The runtime's path.
fn runtime(plan: &Plan) -> PathBuf {
    plan.helpers.get(RUNTIME.key).cloned().unwrap_or_default()
}

impl Mode {
    /// The name of the engine that runs the program in the container.
    const fn engine_inside(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Filtered => Some("P1"),
            Self::EveryCall => Some("P2"),
        }
    }
}
