//! `cluster up`, `status` and `down` of a cluster that a batch system starts.

use std::ffi::OsString;
use std::io::Write as _;
use std::time::Duration;

use cluster::batch::{self, End, Follower, Job, Request};
use cluster::spec::Spec;
use serde_json::{Value, json};
use sys::event::SignalFd;

use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use crate::terminal::note;

/// Whether a file asks a batch system, and this process is not in an allocation of one.
pub(crate) fn is_outside(context: &Context, spec: &Spec) -> Result<bool, Report> {
    let environment = context.texts();
    let variable = |name: &str| {
        environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    };
    Ok(batch::system(spec).is_some() && batch::allocation(variable)?.is_none())
}

/// Submits the job of a cluster and prints its id, or follows it to its end. `program` is this
/// program with its options.
pub(crate) fn up(
    context: &Context,
    spec: &Spec,
    program: Vec<OsString>,
    detach: bool,
    signals: &SignalFd,
) -> Result<Exit, Report> {
    let session = context.session()?;
    let file = session.absolute(&spec.path)?.into_os_string();
    let words = program.into_iter().chain(["cluster", "up", "-f"].map(OsString::from));
    let command: Result<Vec<String>, OsString> =
        words.chain([file]).map(OsString::into_string).collect();
    let command = command.map_err(|word| {
        let fact = format!("{} cannot be written into a batch script", word.display());
        Report::new(fact).hint("use paths in UTF-8")
    })?;
    // The store is made before anything is kept in its directory.
    context.store()?;
    let store = session.absolute(session.store_path()?)?;
    let (job, is_new) = Request { spec, command: &command, store: &store }.submit()?;
    let mut shown = Shown { signals, is_quiet: context.is_quiet(), signal: 0 };
    let what = if is_new { "submitted" } else { "there already" };
    let job_name = format!("job {} of {}", job.id(), job.system().word());
    shown.say(&format!("cluster {}: {job_name}, {what}", spec.name));
    if detach {
        output::line(job.id())?;
        return Ok(Exit::OK);
    }
    match job.follow(&mut shown) {
        Ok(End::Job(status)) => {
            job.forget()?;
            Ok(Exit(status))
        }
        Ok(End::Cancelled) => {
            job.forget()?;
            Ok(Exit(128 + shown.signal))
        }
        Err(error) => {
            // One that cannot be followed does not stay behind; of one that has ended, the output
            // stays.
            let rows = job.rows()?;
            if !rows.iter().all(|row| row.phase == batch::Phase::Ended) {
                job.cancel()?;
            }
            Err(error.into())
        }
    }
}

/// Rows of `cluster status`.
pub(crate) fn rows(context: &Context, cluster: &str) -> Result<Vec<Value>, Report> {
    let session = context.session()?;
    let store = session.absolute(session.store_path()?)?;
    let Some(job) = Job::of(&store, cluster)? else { return Ok(Vec::new()) };
    let row = |row: &batch::Row| {
        json!({
            "Name": format!("job {}", row.id),
            "Role": job.system().word(),
            "State": row.state(),
            "Status": row.words_with_time(),
            "Image": "",
            "Ports": "",
        })
    };
    Ok(job.rows()?.iter().map(row).collect())
}

/// Cancels the job of a cluster. Returns whether there was one.
pub(crate) fn down(context: &Context, cluster: &str) -> Result<bool, Report> {
    let session = context.session()?;
    let store = session.absolute(session.store_path()?)?;
    let Some(job) = Job::of(&store, cluster)? else { return Ok(false) };
    job.cancel()?;
    if !context.is_quiet() {
        note(&format!("job {} of {} has left the queue", job.id(), job.system().word()));
    }
    Ok(true)
}

/// What the user sees of a job, and the signals that end it.
struct Shown<'s> {
    signals: &'s SignalFd,
    is_quiet: bool,
    signal: u8,
}

impl Shown<'_> {
    fn say(&self, text: &str) {
        if !self.is_quiet {
            note(text);
        }
    }
}

impl Follower for Shown<'_> {
    fn state(&mut self, words: &str) {
        self.say(words);
    }

    fn output(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush())
    }

    fn pause(&mut self, time: Duration) -> bool {
        match self.signals.next_within(time) {
            Ok(Some(signal)) => {
                self.signal = signal.number as u8;
                true
            }
            _ => false,
        }
    }
}
