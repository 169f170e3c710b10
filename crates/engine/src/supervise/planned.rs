//! Implements [`Spawn`] by an engine and its plan.

use std::os::fd::AsFd;

use super::{Failure, Request, Spawn, Spawned, Stdio};
use crate::engines::Engine;
use crate::exit::FAILED;
use crate::launch::streams::{Session, Streams};
use crate::plan::Plan;
use crate::processes;

/// A plan and the engine that executes it, each time it is asked.
#[derive(Clone, Copy)]
pub struct Planned<'a> {
    /// The engine that executes.
    pub engine: &'a dyn Engine,
    /// The plan.
    pub plan: &'a Plan,
    /// Among the processes of this running container's process (`exec`, further runs), instead of
    /// in new namespaces.
    pub enter: Option<u32>,
}

impl Spawn for Planned<'_> {
    fn spawn(&mut self, request: Request) -> Result<Spawned, Failure> {
        let mut streams = match &request.stdio {
            Stdio::Inherit => Streams::default(),
            Stdio::Outputs { stdout, stderr } => Streams {
                stdout: Some(stdout.as_fd()),
                stderr: Some(stderr.as_fd()),
                ..Streams::default()
            },
            Stdio::Pipes { stdin, stdout, stderr } => Streams {
                stdin: Some(stdin.as_fd()),
                stdout: Some(stdout.as_fd()),
                stderr: Some(stderr.as_fd()),
                session: Session::New,
                ..Streams::default()
            },
            Stdio::Terminal { slave, .. } => Streams {
                stdin: Some(slave.as_fd()),
                stdout: Some(slave.as_fd()),
                stderr: Some(slave.as_fd()),
                session: Session::Terminal,
                ..Streams::default()
            },
        };
        streams.tied = request.die_with_parent;
        // An init stays in the process that was forked for the start.
        streams.borrows = request.only && !self.plan.init;
        let child = match self.enter {
            None => self.engine.spawn(self.plan, streams),
            Some(pid) => self.engine.enter(pid, self.plan, streams),
        };
        let child = child.map_err(|error| Failure::of_engine(&error))?;
        let pid = processes::pid(child.pid).ok_or_else(|| Failure {
            exit_code: FAILED,
            message: format!("the engine reported process {}", child.pid),
            hint: None,
        })?;
        let cgroup = self.plan.cgroup.as_ref().map(|group| group.parent.join(&group.name));
        Ok(Spawned { cgroup, pidfd: child.pidfd, master: child.master, ..Spawned::new(pid) })
    }
}
