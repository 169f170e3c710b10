//! The life of containers: from a request to a record, from a record to a running process, removal.
//!
//! ```text
//! request + image ─ draft ─► Draft ─ make ─► container.json (Record) ─ root_form ─► Root ─┐
//!                 a run's own request ─ existing ─► Overrides ─── launch ─► process ◄─────┘
//! ```

pub mod accounts;
pub mod attached;
pub mod changes;
pub mod clone;
pub mod control;
pub mod convert;
pub mod copy;
pub mod draft;
pub mod exec;
pub mod existing;
pub mod export;
pub mod gpus;
mod group;
pub mod ids;
pub mod image_index;
pub mod imported;
pub mod inode_log;
pub mod inspect;
pub mod launch;
mod layered;
pub mod list;
pub mod look;
pub mod made;
pub mod make;
mod naming;
pub mod network_agent;
mod network_guard;
pub mod networks;
pub mod port_filter;
pub mod prepare;
pub mod ranks;
pub mod record;
pub mod removal;
pub mod root_form;
pub mod run;
pub mod running;
pub mod setup;
pub mod spool;
pub mod stats;
pub mod told;
pub mod update;
pub mod volume_driver;
pub mod volumes;
