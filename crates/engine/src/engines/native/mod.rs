//! The native engine: the kernel's namespaces, entered without privilege.

pub(super) mod assistant;
pub mod cgroup;
mod descriptor;
mod emulate;
pub(super) mod enter;
pub mod members;
mod network;
pub(super) mod program;
pub mod sealed;
mod seccomp_profile;
pub(super) mod start;
pub(super) mod terminal;
pub(super) mod tree;
mod typing;

pub use tree::mounted;

use crate::choose::{Caps, Child, Ended, Engine, Fit, Streams};
use crate::error::Result;
use crate::facts::Facts;
use crate::plan::Plan;

/// Mode N1.
#[derive(Debug, Clone, Copy, Default)]
pub struct Native;

impl Engine for Native {
    fn name(&self) -> &'static str {
        "N1"
    }

    fn about(&self) -> &'static str {
        "user and mount namespaces, kernel overlay; native speed"
    }

    fn caps(&self) -> Caps {
        Caps {
            fake_root: true,
            binds: true,
            private_binds: true,
            tmpfs: true,
            namespaces: true,
            network: true,
            security: true,
            read_only: true,
            enter: true,
            limits: true,
            own_ids: false,
            bare: false,
            keeps_texts: false,
        }
    }

    fn probe(&self, facts: &Facts) -> Fit {
        match &facts.no_user_namespace {
            Some(why) => Fit::Unusable(why.clone()),
            None => Fit::Ready,
        }
    }

    fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        start::spawn(plan, start::Into::Container, streams)
    }

    fn enter(&self, pid: u32, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        start::spawn(plan, start::Into::Process(pid), streams)
    }

    fn become_guest(&self, plan: &Plan) -> Result<Ended> {
        start::here(plan, start::Into::Container)
    }

    fn become_resident(&self, pid: u32, plan: &Plan) -> Result<Ended> {
        start::here(plan, start::Into::Process(pid))
    }
}
