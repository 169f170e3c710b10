//! Proves that this process has made a container, and so may remove it again.

use engine::processes;
use engine::spec::ProcessId;
use store::ContainerDir;

use super::record;
use crate::error::{Error, Result};
use crate::session::Session;

/// A container that this process has made: the proof that it may remove it again. Only
/// [`super::make::make`] makes one, and [`Made::again`] after the program was executed anew.
#[derive(Debug, Clone)]
pub struct Made(ContainerDir);

/// Says which process has made the container, while that one is executed anew.
const MAKER: &str = "maker";

impl Made {
    /// What this process has just made.
    pub(super) fn new(container: ContainerDir) -> Self {
        Self(container)
    }

    /// Which one.
    pub fn container(&self) -> &ContainerDir {
        &self.0
    }

    /// The container, without the proof that this process made it.
    pub fn into_container(self) -> ContainerDir {
        self.0
    }

    /// Leaves word of this process for [`Made::again`].
    pub fn leave_word(&self) -> Result<()> {
        let path = self.0.join(MAKER);
        let cannot = || Error::failed(format!("cannot write {}", path.display()));
        let maker = processes::identity(std::process::id()).ok_or_else(cannot)?;
        let text = serde_json::to_vec(&maker).map_err(|error| cannot().cause(error))?;
        std::fs::write(&path, text).map_err(|error| cannot().cause(error))
    }

    /// The container of this id, if this very process has made it before it was executed anew, or
    /// one above it that lives. The word counts once.
    pub fn again(session: &Session, id: &str) -> Result<Option<Self>> {
        let Some(container) = record::find_some(session, id)? else { return Ok(None) };
        let path = container.join(MAKER);
        let Ok(text) = std::fs::read(&path) else { return Ok(None) };
        let Ok(maker) = serde_json::from_slice::<ProcessId>(&text) else { return Ok(None) };
        if !processes::alive(&maker) || !processes::is_above(maker.pid, std::process::id()) {
            return Ok(None);
        }
        std::fs::remove_file(&path).map_err(|error| {
            Error::failed(format!("cannot remove {}", path.display())).cause(error)
        })?;
        Ok(Some(Self(container)))
    }
}
