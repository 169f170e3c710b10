//! Clusters through a batch system from outside of an allocation: submit, look, follow, cancel.
//!
//! The job runs `coracle cluster up -f FILE` on its first host, inside the allocation. Slurm is
//! asked by `sbatch`, `squeue`, `scontrol` and `scancel`; PBS and LSF by the commands of a template
//! that a site can replace. Nothing is submitted twice and nothing is lost: the cluster's
//! directory says what the job carries before it is submitted ([`record`]).
//!
//! The farm of a cluster file, `[batch]`, is another matter: a batch system *in* a cluster.

mod allocation;
mod follow;
mod record;
mod slurm;
mod state;
mod template;
mod tool;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use allocation::{Allocation, System, allocation};
pub use follow::{End, Follower};
pub use state::{Phase, Row, verdict};

use crate::error::{Error, Result};
use crate::spec::{Kind, Spec};
use record::{Folder, Record};
use slurm::Slurm;
use template::Template;

/// How long a cancelled job may take to leave the queue. Slurm's `KillWait` is 30 s, and its
/// `epilog` comes after that.
const LEAVING: Duration = Duration::from_mins(2);
/// How often is looked whether it has left.
const PAUSE: Duration = Duration::from_millis(500);

/// What a submission has come to. An error beside it means that nothing was submitted.
enum Submission {
    /// It has an id.
    Done { id: String, slurm_cluster: Option<String> },
    /// The command has failed. Whether the batch system has taken the job is not known.
    Failed(Error),
}

/// A batch system that is asked.
enum Queue {
    Slurm(Slurm),
    Template(Box<Template>),
}

/// What is to be submitted.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// The cluster's file.
    pub spec: &'r Spec,
    /// What the job runs: a program and its words.
    pub command: &'r [String],
    /// The directory of the store, absolute.
    pub store: &'r Path,
}

/// The job of a cluster.
pub struct Job {
    queue: Queue,
    record: Record,
    id: String,
    directory: PathBuf,
}

/// The batch system that a file asks, `None` for other backends.
pub fn system(spec: &Spec) -> Option<System> {
    match &spec.backends.first()?.kind {
        Kind::Slurm { .. } => Some(System::Slurm),
        Kind::Template { system, .. } if system == "lsf" => Some(System::Lsf),
        Kind::Template { .. } => Some(System::Pbs),
        _ => None,
    }
}

/// A batch system's refusal, in its own words.
fn refused(who: &str, words: &str, hint: Option<&str>) -> Error {
    let error = Error::new(format!("{who}: {words}"));
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

impl Request<'_> {
    /// Submits the job of a cluster, unless it has one that has not ended. Returns it, and whether
    /// it is new.
    ///
    /// # Errors
    /// If the batch system refuses it, in its words, or does not answer.
    pub fn submit(&self) -> Result<(Job, bool)> {
        let system =
            system(self.spec).ok_or_else(|| Error::new("the file asks no batch system"))?;
        if let Some(job) = Job::known(self.store, &self.spec.name)?
            && !have_ended(&job.rows()?)
        {
            return Ok((job, false));
        }
        let template = match system {
            System::Slurm => None,
            System::Pbs | System::Lsf => Some(Template::of(self.spec)?),
        };
        let folder = Folder::take(self.store, &self.spec.name)?;
        if let Some(job) = found(&folder)? {
            if !have_ended(&job.rows()?) {
                return Ok((job, false));
            }
            folder.clear()?;
        }
        let mut random = [0; 8];
        sys::random::fill(&mut random)
            .map_err(|error| Error::new(format!("no random number: {error}")))?;
        let random = format!("{:016x}", u64::from_ne_bytes(random));
        let mut record = Record {
            system,
            tag: format!("coracle:{}:{random}", self.spec.name),
            job_name: template::job_name(&self.spec.name, &random),
            id: None,
            slurm_cluster: None,
            own_output: match &self.spec.backends[0].kind {
                Kind::Slurm { options, .. } => slurm::has_output(options),
                _ => false,
            },
        };
        if let Some(template) = &template {
            folder.write_file("template", template.text.as_bytes())?;
        }
        folder.write(&record)?;
        let (queue, submission) = match self.ask(&record, template, &folder) {
            Ok(asked) => asked,
            Err(error) => {
                folder.remove()?;
                return Err(error);
            }
        };
        match submission {
            Submission::Done { id, slurm_cluster } => {
                record.id = Some(id);
                record.slurm_cluster = slurm_cluster;
            }
            Submission::Failed(error) => match queue.find(&record) {
                Ok(None) => {
                    folder.remove()?;
                    return Err(error);
                }
                Ok(id) => record.id = id,
                Err(_) => {
                    let hint = format!(
                        "the job may be there: 'coracle cluster status {}' shows it",
                        self.spec.name
                    );
                    return Err(error.with_hint(hint));
                }
            },
        }
        let queue = Queue::of(&record, queue.template());
        folder.write(&record)?;
        let job = Job::of_record(record, queue, folder.path())
            .ok_or_else(|| Error::new("the job has no id"))?;
        Ok((job, true))
    }

    fn ask(
        &self,
        record: &Record,
        template: Option<Template>,
        folder: &Folder,
    ) -> Result<(Queue, Submission)> {
        let Some(template) = template else {
            let (tag, output) = (&record.tag, folder.path().join("output"));
            let submission = Slurm::submit(self.spec, self.command, tag, &output, folder.lock())?;
            return Ok((Queue::Slurm(Slurm::new(None)), submission));
        };
        let wanted = template::Wanted {
            spec: self.spec,
            system: record.system,
            command: self.command,
            tag: &record.tag,
            job_name: &record.job_name,
            directory: folder.path(),
            write: &|name, bytes| folder.write_file(name, bytes),
        };
        let submission = template.submit(&wanted, folder.lock())?;
        Ok((Queue::Template(Box::new(template)), submission))
    }
}

/// Whether a job of Slurm has ended.
///
/// # Errors
/// If Slurm does not answer.
pub fn has_ended(id: &str) -> Result<bool> {
    Ok(have_ended(&Slurm::new(None).rows(id)?))
}

fn have_ended(rows: &[Row]) -> bool {
    rows.iter().all(|row| row.phase == Phase::Ended)
}

/// The job of a directory. One that was being submitted by a killed process is looked for; the
/// record of one that was not submitted is removed.
fn found(folder: &Folder) -> Result<Option<Job>> {
    let Some(mut record) = folder.read()? else { return Ok(None) };
    let queue = Queue::read(&record, folder.path())?;
    if record.id.is_none() {
        record.id = queue.find(&record)?;
        if record.id.is_none() {
            folder.clear()?;
            return Ok(None);
        }
        folder.write(&record)?;
    }
    Ok(Job::of_record(record, queue, folder.path()))
}

impl Queue {
    fn of(record: &Record, template: Option<Template>) -> Self {
        match template {
            Some(template) => Self::Template(Box::new(template)),
            None => Self::Slurm(Slurm::new(record.slurm_cluster.clone())),
        }
    }

    /// The batch system of a record; its template is that of the submission.
    fn read(record: &Record, directory: &Path) -> Result<Self> {
        if record.system == System::Slurm {
            return Ok(Self::of(record, None));
        }
        let path = directory.join("template");
        let text = std::fs::read_to_string(&path)
            .map_err(|error| Error::new(format!("cannot read {}: {error}", path.display())))?;
        Ok(Self::of(record, Some(Template::parse(&path.display().to_string(), &text)?)))
    }

    fn template(self) -> Option<Template> {
        match self {
            Self::Slurm(_) => None,
            Self::Template(template) => Some(*template),
        }
    }

    fn find(&self, record: &Record) -> Result<Option<String>> {
        match self {
            Self::Slurm(slurm) => slurm.find(&record.tag),
            Self::Template(template) => template.find(&record.tag, &record.job_name),
        }
    }
}

impl Job {
    fn of_record(record: Record, queue: Queue, directory: &Path) -> Option<Self> {
        let id = record.id.clone()?;
        Some(Self { queue, record, id, directory: directory.to_owned() })
    }

    /// The job of a cluster whose id is known. This needs no lock.
    fn known(store: &Path, cluster: &str) -> Result<Option<Self>> {
        let directory = record::directory(store, cluster);
        let Some(record) = record::read(&directory)? else { return Ok(None) };
        if record.id.is_none() {
            return Ok(None);
        }
        let queue = Queue::read(&record, &directory)?;
        Ok(Self::of_record(record, queue, &directory))
    }

    /// The job of a cluster, `None` if it has none.
    ///
    /// # Errors
    /// If the batch system must be asked for it and does not answer.
    pub fn of(store: &Path, cluster: &str) -> Result<Option<Self>> {
        if record::read(&record::directory(store, cluster))?.is_none() {
            return Ok(None);
        }
        if let Some(job) = Self::known(store, cluster)? {
            return Ok(Some(job));
        }
        found(&Folder::take(store, cluster)?)
    }

    /// Its id in the batch system.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who runs it.
    pub const fn system(&self) -> System {
        self.record.system
    }

    /// Where it prints to.
    pub fn output(&self) -> PathBuf {
        let own = match &self.queue {
            Queue::Slurm(slurm) if self.record.own_output => slurm.output(&self.id),
            _ => None,
        };
        own.unwrap_or_else(|| self.directory.join("output"))
    }

    /// Its state: one row, or one for each task of an array.
    ///
    /// # Errors
    /// If the batch system does not answer.
    pub fn rows(&self) -> Result<Vec<Row>> {
        match &self.queue {
            Queue::Slurm(slurm) => slurm.rows(&self.id),
            Queue::Template(template) => template.rows(&self.id, &self.directory.join("status")),
        }
    }

    /// Cancels it, waits until it has left the queue, and forgets it. All is well if it has ended.
    ///
    /// # Errors
    /// If the batch system refuses, does not answer, or the job stays.
    pub fn cancel(&self) -> Result<()> {
        self.end(|| Ok(()))?;
        self.forget()
    }

    /// Cancels it and waits until it has left the queue; does something again and again meanwhile.
    fn end(&self, mut meanwhile: impl FnMut() -> Result<()>) -> Result<()> {
        let end = Instant::now() + LEAVING;
        let mut rows = self.rows()?;
        if !have_ended(&rows) {
            match &self.queue {
                Queue::Slurm(slurm) => slurm.cancel(&self.id)?,
                Queue::Template(template) => template.cancel(&self.id)?,
            }
        }
        while !have_ended(&rows) {
            if Instant::now() >= end {
                let words = rows.first().map(Row::words).unwrap_or_default();
                let fact = format!("job {} was cancelled and is still {words}", self.id);
                return Err(Error::new(fact).with_hint("try again, or ask an administrator"));
            }
            std::thread::sleep(PAUSE);
            meanwhile()?;
            rows = self.rows()?;
        }
        meanwhile()
    }

    /// Removes what is kept of it, if that is of this job still.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn forget(&self) -> Result<()> {
        let Some(cluster) = self.directory.parent() else { return Ok(()) };
        let (Some(store), Some(name)) =
            (cluster.parent().and_then(Path::parent), cluster.file_name().and_then(|n| n.to_str()))
        else {
            return Ok(());
        };
        let folder = Folder::take(store, name)?;
        if folder.read()?.is_none_or(|record| record.tag == self.record.tag) {
            folder.remove()?;
        }
        Ok(())
    }
}
