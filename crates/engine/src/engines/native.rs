//! N1: the kernel's namespaces and overlay, entered without privilege.

use super::contract::{
    Asked, Begun, CallsBy, Engine, Fit, IdsFrom, MadeFiles, Properties, RootKind,
};
use super::namespaces;
use super::namespaces::run::{Target, here, spawn};
use crate::error::Result;
use crate::exit::Ended;
use crate::facts::Facts;
use crate::launch::streams::{Child, Streams};
use crate::plan::Plan;

/// Mode N1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native;

const N1: Properties = Properties {
    name: "N1",
    aliases: &[],
    about: "user namespaces",
    asked: Asked::Unasked,
    root: RootKind::Mounts,
    ids: IdsFrom::Map,
    calls: CallsBy::Kernel,
    made: MadeFiles::None,
    helper: None,
    caps: namespaces::CAPS,
};

impl Engine for Native {
    fn properties(&self) -> &'static Properties {
        &N1
    }

    fn probe(&self, facts: &Facts) -> Fit {
        match (&facts.no_user_namespace, &facts.no_overlay) {
            (Some(why), _) => Fit::Unusable(why.clone()),
            (None, Some(why)) => {
                Fit::Degraded(format!("each container gets a copy of its image: {why}"))
            }
            (None, None) => Fit::Ready,
        }
    }

    fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        spawn(plan, Target::Container, None, streams)
    }

    fn enter(&self, pid: u32, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        spawn(plan, Target::Process(pid), None, streams)
    }

    fn become_guest(&self, plan: &Plan, begun: Begun<'_>) -> Result<Ended> {
        here(plan, Target::Container, begun)
    }

    fn become_resident(&self, pid: u32, plan: &Plan) -> Result<Ended> {
        here(plan, Target::Process(pid), &mut || {})
    }
}
