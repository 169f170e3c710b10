//! Changes the mode of execution and the GPUs that a container keeps.

use engine::choose;

use super::{convert, networks, record, running};
use crate::error::Result;
use crate::events::Event;
use crate::request::gpus::GpuRequest;
use crate::session::Session;

/// Keeps GPUs for a container: `gpus` as `--gpus` has it, `nvidia` for all.
pub fn set_gpus(session: &Session, name: &str, gpus: Option<&str>, nvidia: bool) -> Result<()> {
    let container = record::find(session, name)?;
    let _lock = container.lock_exclusive()?;
    let mut record = record::read(&container)?;
    record.own.gpus = GpuRequest::new(gpus, nvidia, &record.own.gpus.devices)?;
    container.write(&record)?;
    Ok(())
}

/// The mode of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    /// Its name.
    pub name: String,
    /// The container keeps it; else it would be chosen for this host now.
    pub kept: bool,
    /// The container gets GPUs.
    pub gpus: bool,
}

/// The mode that a container keeps, or else the dialect's usual one, or the one that would be
/// chosen.
pub fn mode(session: &Session, name: &str) -> Result<Mode> {
    let record = record::read(&record::find(session, name)?)?;
    let kept = record.config.exec_mode.as_deref();
    let known = kept.or(session.dialect().usual_mode);
    let chosen = || -> Result<&str> {
        let facts = networks::facts(session, &record.config);
        Ok(choose::choose(&facts, None, &record.config)?.name())
    };
    Ok(Mode {
        name: known.map_or_else(chosen, Ok)?.to_owned(),
        kept: kept.is_some(),
        gpus: !record.own.gpus.gpus.is_empty(),
    })
}

/// Keeps a mode for a container, and brings the container into the form that the mode wants.
/// `force`: also while it runs. A mode that cannot be used on this host is an error, unless the
/// dialect keeps it.
pub fn set_mode(session: &Session, name: &str, mode: &str, force: bool) -> Result<()> {
    let container = record::find(session, name)?;
    let mut record = record::read(&container)?;
    let mut config = record.config.clone();
    config.exec_mode = Some(mode.to_owned());
    let facts = networks::facts(session, &config);
    let engine = match choose::choose(&facts, Some(mode), &record.config) {
        Ok(engine) => Some(engine),
        // It may be usable on the host where the container runs next.
        Err(error @ engine::error::Error::Unusable { .. })
            if session.dialect().keeps_unusable_modes =>
        {
            session.events().event(&Event::Notice(&format!("warning: {error}; it is set anyway")));
            None
        }
        Err(error) => return Err(error.into()),
    };
    running::is_here(&container)?;
    if !force {
        running::not_running(&container)?;
    }
    if let Some(engine) = engine {
        convert::fit(session, session.store()?, &container, &mut record, engine)?;
    }
    let _lock = container.lock_exclusive()?;
    let mut record = record::read(&container)?;
    // As it was asked for: F3 is another name of F2.
    record.config.exec_mode = Some(mode.to_ascii_uppercase());
    container.write(&record)?;
    Ok(())
}
