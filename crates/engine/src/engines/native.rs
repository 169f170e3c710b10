//! The native engine: the kernel's namespaces, entered without privilege.

use super::contract::{Caps, Engine, Fit};
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

impl Engine for Native {
    fn name(&self) -> &'static str {
        "N1"
    }

    fn about(&self) -> &'static str {
        "user and mount namespaces, kernel overlay; native speed"
    }

    fn caps(&self) -> Caps {
        namespaces::CAPS
    }

    fn probe(&self, facts: &Facts) -> Fit {
        match &facts.no_user_namespace {
            Some(why) => Fit::Unusable(why.clone()),
            None => Fit::Ready,
        }
    }

    fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        spawn(plan, Target::Container, None, streams)
    }

    fn enter(&self, pid: u32, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        spawn(plan, Target::Process(pid), None, streams)
    }

    fn become_guest(&self, plan: &Plan) -> Result<Ended> {
        here(plan, Target::Container)
    }

    fn become_resident(&self, pid: u32, plan: &Plan) -> Result<Ended> {
        here(plan, Target::Process(pid))
    }
}
