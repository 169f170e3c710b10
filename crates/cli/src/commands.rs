//! One file per command.

pub(crate) mod attach;
pub(crate) mod batch;
pub(crate) mod clone;
pub(crate) mod cluster;
pub(crate) mod config;
pub(crate) mod cp;
pub(crate) mod create;
pub(crate) mod df;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod exec;
pub(crate) mod export;
pub(crate) mod history;
pub(crate) mod images;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod kill;
pub(crate) mod lab;
pub(crate) mod load;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod manifest;
pub(crate) mod migrate;
pub(crate) mod mkrepo;
pub(crate) mod names;
pub(crate) mod network;
pub(crate) mod pause;
pub(crate) mod port;
pub(crate) mod protect;
pub(crate) mod prune;
pub(crate) mod ps;
pub(crate) mod pull;
pub(crate) mod rm;
pub(crate) mod rmi;
pub(crate) mod run;
pub(crate) mod save;
pub(crate) mod search;
pub(crate) mod setup;
pub(crate) mod start;
pub(crate) mod stats;
pub(crate) mod stop;
pub(crate) mod tag;
pub(crate) mod top;
pub(crate) mod update;
pub(crate) mod verify;
pub(crate) mod version;
pub(crate) mod volume;
pub(crate) mod wait;

use crate::report::{Exit, Report};

/// Does something for each of several names. All are tried; every failure is told, and the command
/// fails if there was one.
pub(crate) fn each(
    names: &[String],
    mut act: impl FnMut(&str) -> Result<(), Report>,
) -> Result<Exit, Report> {
    let mut last: Option<Report> = None;
    for name in names {
        if let Err(report) = act(name)
            && let Some(earlier) = last.replace(report)
        {
            earlier.show();
        }
    }
    last.map_or(Ok(Exit::OK), |report| Err(report.exit(Exit(1))))
}
