//! Looks into containers: their processes, their logs, their published ports.

use std::net::IpAddr;

use engine::supervise::state::{self, Observed};
use engine::supervise::{self, log};

use super::record;
use crate::error::{Error, Result};
use crate::session::Session;

pub use engine::supervise::log::{Entry, Query, Stream};

/// The processes of a running container, by numbers of the host.
pub fn processes(session: &Session, name: &str) -> Result<Vec<supervise::Process>> {
    let container = record::find(session, name)?;
    supervise::top(&container.path())
        .map_err(|error| Error::from(error).within(format!("cannot list the processes of {name}")))
}

/// The processes of a running container, as the host's `ps` shows them with these options.
pub fn processes_by_ps(session: &Session, name: &str, options: &[String]) -> Result<String> {
    let processes = processes(session, name)?;
    let pids: Vec<String> = processes.iter().map(|process| process.stat.pid.to_string()).collect();
    let answer = std::process::Command::new("ps")
        .args(options)
        .arg("-p")
        .arg(pids.join(","))
        .output()
        .map_err(|error| {
            Error::failed("cannot run the host's ps")
                .cause(error)
                .with_hint("without options no ps is needed")
        })?;
    if !answer.status.success() {
        return Err(
            Error::failed("the host's ps failed").because(String::from_utf8_lossy(&answer.stderr))
        );
    }
    Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
}

/// Reads what a container has written. `show` gets each entry and says whether to go on; so does
/// `goes_on`, which is asked some times a second while nothing is written.
///
/// # Errors
/// [`Error::Cancelled`] if the session was cancelled, [`Error::Unsupported`] if the container keeps
/// no log.
pub fn logs(
    session: &Session,
    name: &str,
    query: &Query,
    goes_on: &dyn Fn() -> bool,
    show: &mut dyn FnMut(Entry) -> bool,
) -> Result<()> {
    let container = record::find(session, name)?;
    if record::read(&container)?.config.log.disabled {
        return Err(Error::unsupported(format!("container {name} keeps no log"))
            .with_hint("it was created with --log-driver=none"));
    }
    let cancel = session.cancel();
    log::read(&container.path(), query, &|| !cancel.is_cancelled() && goes_on(), &mut |entry| {
        !cancel.is_cancelled() && show(entry)
    })?;
    cancel.check()
}

/// A port of a container that is reached by one of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishedPort {
    /// In the container.
    pub inside: u16,
    /// UDP, else TCP.
    pub udp: bool,
    /// The address on the host; `None` for all.
    pub address: Option<IpAddr>,
    /// On the host.
    pub host: u16,
}

/// All published ports, ranges taken apart; none while the container does not run.
pub fn ports(session: &Session, name: &str) -> Result<Vec<PublishedPort>> {
    let container = record::find(session, name)?;
    let config = record::read(&container)?.config;
    let mut ports = Vec::new();
    if !matches!(state::look(&container.path())?.0, Observed::Running(_)) {
        return Ok(ports);
    }
    for publish in config.network.published() {
        ports.extend(publish.pairs().map(|(host, inside)| PublishedPort {
            inside,
            udp: publish.udp,
            address: publish.address,
            host,
        }));
    }
    Ok(ports)
}
