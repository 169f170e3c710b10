//! The native engine: the kernel's namespaces, entered without privilege.

use crate::choose::{Caps, Child, Ended, Engine, Fit, Streams};
use crate::error::{Error, Result};
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
            tmpfs: true,
            namespaces: true,
            network: true,
            security: true,
            read_only: true,
            enter: true,
            limits: true,
        }
    }

    fn probe(&self, facts: &Facts) -> Fit {
        match &facts.no_user_namespace {
            Some(why) => Fit::Unusable(why.clone()),
            None => Fit::Ready,
        }
    }

    fn spawn(&self, _plan: &Plan, _streams: Streams<'_>) -> Result<Child> {
        Err(Error::NoEngine("not built yet".into()))
    }

    fn enter(&self, _pid: u32, _plan: &Plan, _streams: Streams<'_>) -> Result<Child> {
        Err(Error::NoEngine("not built yet".into()))
    }

    fn become_guest(&self, _plan: &Plan) -> Result<Ended> {
        Err(Error::NoEngine("not built yet".into()))
    }

    fn become_resident(&self, _pid: u32, _plan: &Plan) -> Result<Ended> {
        Err(Error::NoEngine("not built yet".into()))
    }
}
