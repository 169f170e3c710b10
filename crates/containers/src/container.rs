//! Containers as the commands see them: from flags to a record, from a record to a run.
//!
//! ```text
//! flags + image ─ spec ─► Draft ─ make ─► container.json (Record) ─ root ─► plan::Root ─┐
//!                                                   run's own flags ─ adapt ─► Overrides ┴─ launch ─► process
//! ```

pub(crate) mod accounts;
pub(crate) mod adapt;
pub(crate) mod cloned;
pub(crate) mod command;
pub(crate) mod convert;
pub(crate) mod environment;
pub(crate) mod gpus;
pub(crate) mod ids;
pub(crate) mod job;
pub(crate) mod launch;
pub(crate) mod limits;
pub(crate) mod make;
pub(crate) mod mounts;
pub(crate) mod notes;
pub(crate) mod ports;
pub(crate) mod record;
pub(crate) mod removal;
pub(crate) mod root;
pub(crate) mod spec;
pub(crate) mod spool;
pub(crate) mod volumes;
