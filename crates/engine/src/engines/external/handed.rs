//! Collects the descriptors that the first process of a container finds open when another program
//! starts it.

use super::first_process::{EXPECTED, Instructions};
use crate::error::{Error, Result};
use crate::launch::file_limit;
use crate::launch::report;
use crate::launch::spawn::Ties;
use crate::launch::terminal::Terminal;
use crate::plan::{Ids, Plan};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use sys::process::FIRST;

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::call(doing, errno)
}

/// What the first process is to do.
pub(in crate::engines) struct Order<'a> {
    /// The plan that it carries out.
    pub(in crate::engines) plan: &'a Plan,
    /// The name of the engine that runs the program in the container; `None` for no other.
    pub(in crate::engines) engine: Option<&'a str>,
    /// Its starter will be ended, so it sends its own number.
    pub(in crate::engines) reports: bool,
    pub(in crate::engines) ties: Ties,
}

/// What the first process finds open.
pub(in crate::engines) struct Handed {
    /// Those that it expects, in the order of their numbers.
    expected: [OwnedFd; EXPECTED],
    /// Those that the caller lets a program inherit.
    inherited: Vec<(u32, OwnedFd)>,
}

impl Handed {
    /// `program` is Coracle; `report` is the pipe for its report; it waits at the `gate`.
    pub(in crate::engines) fn new(
        program: OwnedFd,
        report: OwnedFd,
        gate: OwnedFd,
        order: Order<'_>,
    ) -> Result<Self> {
        let Order { plan, engine, reports, ties: Ties { tied, terminal } } = order;
        let copied = call("duplicate a descriptor");
        let copy = |descriptor: BorrowedFd<'_>| {
            rustix::io::fcntl_dupfd_cloexec(descriptor, FIRST as i32).map_err(&copied)
        };
        let (terminal, socket) = match terminal {
            Terminal::Inherited => (None, copy(gate.as_fd())?),
            Terminal::Given => (Some(false), copy(gate.as_fd())?),
            Terminal::Own(socket) => (Some(true), socket),
        };
        // A boundary does not let pass what the caller has open.
        let mut inherited = if plan.isolate {
            Vec::new()
        } else {
            sys::process::inherited().map_err(call("list the descriptors"))?
        };
        // A descriptor whose number is beyond the present limit cannot get that number again.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        inherited.retain(|(number, _)| limit.is_none_or(|limit| u64::from(*number) < limit));
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        let instructions = Instructions {
            engine: engine.map(str::to_owned),
            reports,
            tied,
            terminal,
            inherited: inherited.iter().map(|(number, _)| *number).collect(),
            umask: umask.bits(),
            file_limit: file_limit::callers(),
            plan: nested(plan),
        };
        let text = serde_json::to_vec(&instructions).map_err(|error| Error::Invalid {
            what: "plan".into(),
            value: plan.container.clone(),
            why: error.to_string(),
        })?;
        let instructions = memory("plan", &text)?;
        let stdin = copy(rustix::stdio::stdin())?;
        let stdout = copy(rustix::stdio::stdout())?;
        let stderr = copy(rustix::stdio::stderr())?;
        let expected = [program, report, instructions, gate, stdin, stdout, stderr, socket];
        Ok(Self { expected, inherited })
    }

    /// With the numbers under which the first process finds them.
    pub(in crate::engines) fn numbered(&self) -> Vec<(u32, BorrowedFd<'_>)> {
        let inherited = self.inherited.iter().map(|(_, descriptor)| descriptor);
        let all = self.expected.iter().chain(inherited).map(AsFd::as_fd);
        (FIRST..).zip(all).collect()
    }
}

/// A plan for the container: there the only id is 0, and the host's files have been used.
fn nested(plan: &Plan) -> Plan {
    let mut plan = Plan { files: Vec::new(), cgroup: None, wrapper: None, ..plan.clone() };
    if let Ids::Single { uid, gid } = &mut plan.ids {
        (uid.outside, gid.outside) = (0, 0);
    }
    plan
}

pub(in crate::engines) fn open(path: &Path, flags: OFlags) -> Result<OwnedFd> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| Error::File {
        doing: "open".into(),
        path: path.into(),
        errno: errno.into(),
    })
}

pub(in crate::engines) fn memory(name: &str, text: &[u8]) -> Result<OwnedFd> {
    let failed = call("make a file in memory");
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(&failed)?;
    let mut file = std::fs::File::from(file);
    file.write_all(text)
        .and_then(|()| file.rewind())
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    Ok(file.into())
}

pub(in crate::engines) fn pipe() -> Result<(OwnedFd, std::fs::File)> {
    let (reader, writer) = report::raw_pipe()?;
    Ok((reader, writer.into()))
}
