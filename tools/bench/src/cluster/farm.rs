//! Batch systems whose nodes are containers, Slurm and Grid Engine: a job for which nodes have to
//! be started, the same with nodes that are there, nodes that go, and many jobs of several sizes.
//! The peer is a Slurm on the host whose nodes are started by scripts.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use testkit::trees;

use super::batch::{Batch, IDLE, JOB, NODES};
use super::plain::Plain;
use super::{NETWORKS, alone, beside, fact, import_made};
use crate::{Bench, Line, median};
use xtask::shell::Outcome;

const IMAGE: &str = "localhost/bench/farm:1";
/// How many jobs there are of several sizes.
const MANY: usize = 50;
/// Seconds until the job runs: from no node, and with all of them; seconds beyond [`IDLE`] until
/// the last node is gone.
const AIM_COLD: f64 = 10.0;
const AIM_WARM: f64 = 1.0;
const AIM_GONE: f64 = 5.0;
/// It has failed after so long.
const LIMIT: Duration = Duration::from_mins(10);
const GLANCE: Duration = Duration::from_millis(20);

/// How a batch system of containers is spoken to.
struct System {
    /// Its name, and its word in a cluster file.
    name: &'static str,
    kind: &'static str,
    /// Submits the job.
    job: &'static str,
    /// Submits job `$n` of many, on `$nodes` nodes.
    one: &'static str,
    /// Prints the jobs that there are.
    list: &'static str,
    /// The peer is the same system.
    has_peer: bool,
}

const SLURM: System = System {
    name: "Slurm",
    kind: "slurm",
    job: super::batch::SUBMIT,
    one: "sbatch -Q -N $nodes -o done-$n --wrap 'srun sleep 0.2 && echo done'",
    list: super::batch::LIST,
    has_peer: true,
};

const GRID_ENGINE: System = System {
    name: "Grid Engine",
    kind: "gridengine",
    job: "qsub -terse -pe mpi 3 -o met -e err job.sh",
    one: "echo 'sleep 0.2 && echo done' | qsub -terse -pe mpi $nodes -e err -o done-$n",
    list: "qstat",
    has_peer: false,
};

pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !import_made(bench, "farm", trees::batch(), IMAGE)? {
        return Ok(Vec::new());
    }
    let plain = plain(bench).inspect_err(|why| {
        println!("SKIP bench cluster farm, Slurm on the host: {why}");
    });
    let plain = plain.ok();
    let mut lines = Vec::new();
    for system in [&SLURM, &GRID_ENGINE] {
        for (network, words) in NETWORKS {
            let farm = Farm::start(bench, system, words)?;
            let measured = farm.measure(network, plain.as_ref().filter(|_| system.has_peer));
            bench.coracle(&["cluster", "down", "farm"])?;
            lines.extend(measured?);
        }
    }
    Ok(lines)
}

/// The peer's times.
fn plain(bench: &Bench) -> Outcome<Times> {
    let plain = Plain::start(bench)?;
    times(&plain, bench.rounds)
}

/// Medians of seconds.
struct Times {
    /// From no node to a job that runs.
    cold: f64,
    /// The same with nodes that are there.
    warm: f64,
    /// From the job to the end of the last node, beyond [`IDLE`].
    gone: f64,
}

fn times(batch: &dyn Batch, rounds: usize) -> Outcome<Times> {
    let (mut cold, mut warm, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        cold.push(job(batch)?.0);
        ended(batch)?;
        let (seconds, met) = job(batch)?;
        warm.push(seconds);
        after.push(gone(batch, met)? - IDLE);
    }
    let [cold, warm, gone] = [cold, warm, after].map(median);
    Ok(Times { cold, warm, gone })
}

/// Seconds from the call that submits a job until all ranks of the job have met, and that moment.
fn job(batch: &dyn Batch) -> Outcome<(f64, f64)> {
    let met = batch.jobs().join("met");
    let _ = fs::remove_file(&met);
    let (began, limit) = (now()?, Instant::now() + LIMIT);
    batch.submit(batch.job())?;
    while Instant::now() < limit {
        let said = fs::read_to_string(&met).unwrap_or_default();
        if let Some(at) = said.strip_suffix('\n').and_then(|text| text.parse::<f64>().ok()) {
            return Ok((at - began, at));
        }
        std::thread::sleep(GLANCE);
    }
    let errors = fs::read_to_string(batch.jobs().join("err")).unwrap_or_default();
    Err(format!("the job does not run: {errors}"))
}

/// Waits until no job is there any more, so its nodes are free.
fn ended(batch: &dyn Batch) -> Outcome {
    let limit = Instant::now() + LIMIT;
    while !batch.submit(batch.list())?.trim().is_empty() {
        if Instant::now() > limit {
            return Err("jobs are left".to_owned());
        }
        std::thread::sleep(GLANCE);
    }
    Ok(())
}

/// Seconds from a moment until no node is left.
fn gone(batch: &dyn Batch, since: f64) -> Outcome<f64> {
    let limit = Instant::now() + LIMIT;
    while batch.nodes()? > 0 {
        if Instant::now() > limit {
            return Err("nodes are left".to_owned());
        }
        std::thread::sleep(GLANCE);
    }
    Ok(now()? - since)
}

struct Farm<'b> {
    bench: &'b Bench,
    system: &'static System,
    jobs: PathBuf,
    /// Seconds of `up`.
    up: f64,
}

impl Batch for Farm<'_> {
    fn jobs(&self) -> &Path {
        &self.jobs
    }

    fn job(&self) -> &'static str {
        self.system.job
    }

    fn list(&self) -> &'static str {
        self.system.list
    }

    /// In the front-end.
    fn submit(&self, command: &str) -> Outcome<String> {
        let words = ["cluster", "exec", "-w", "/jobs", "farm", "front", "/bin/sh", "-c", command];
        self.bench.coracle(&words)
    }

    fn nodes(&self) -> Outcome<usize> {
        let names = self.bench.coracle(&["ps", "-a", "--format", "{{.Names}}"])?;
        Ok(names.lines().filter(|name| name.starts_with("farm-compute-")).count())
    }
}

impl<'b> Farm<'b> {
    fn start(bench: &'b Bench, system: &'static System, words: &str) -> Outcome<Self> {
        let text = |error: std::io::Error| error.to_string();
        let owner = Some((bench.user.uid, bench.user.gid));
        let jobs = bench.scratch.dir("jobs", owner, 0o755).map_err(text)?;
        fs::write(jobs.join("job.sh"), JOB).map_err(text)?;
        let file = bench.scratch.path().join("farm.toml");
        let written = format!(
            "name = \"farm\"\n{words}\n[batch]\nkind = {:?}\nfront = {IMAGE:?}\n\
             control = {IMAGE:?}\ncompute = {{ image = {IMAGE:?}, max = {NODES}, cpus = 1, \
             idle = \"{IDLE}s\" }}\nvolume = [\"{}:/jobs\"]\n",
            system.kind,
            jobs.display()
        );
        fs::write(&file, written).map_err(text)?;
        let began = Instant::now();
        bench.coracle(&["cluster", "up", "-d", "-f", &file.display().to_string()])?;
        Ok(Self { bench, system, jobs, up: began.elapsed().as_secs_f64() })
    }

    fn measure(&self, network: &str, plain: Option<&Times>) -> Outcome<Vec<Line>> {
        let ours = times(self, self.bench.rounds)?;
        let text = |seconds: f64| format!("{seconds:.2} s");
        let line = |what: &str, of: fn(&Times) -> f64, aim: f64| {
            let seconds = of(&ours);
            let line = alone(what, text(seconds), seconds, aim, "s");
            beside(line, "Slurm's power saving on the host", plain.map(|plain| text(of(plain))))
        };
        let name = self.system.name;
        let what = format!("{name}: from no node to a job of MPI on 3, {network}");
        let mut lines = vec![
            line(&what, |times| times.cold, AIM_COLD),
            line("the same with nodes that are there", |times| times.warm, AIM_WARM),
            line("until the last node is gone, beyond `idle`", |times| times.gone, AIM_GONE),
            fact("`up` of the controller and the front-end", text(self.up)),
        ];
        lines.extend(self.many()?);
        Ok(lines)
    }

    /// Jobs of one to four nodes, all at once: how many have not ended well, and the most nodes.
    fn many(&self) -> Outcome<Vec<Line>> {
        let began = Instant::now();
        let script = format!(
            "for n in $(seq {MANY}); do nodes=$((n % {NODES} + 1)); {}; done",
            self.system.one
        );
        self.submit(&script)?;
        let mut most = 0;
        while !self.submit(self.system.list)?.trim().is_empty() {
            most = most.max(self.nodes()?);
            if began.elapsed() > LIMIT {
                return Err("jobs are left".to_owned());
            }
        }
        let took = began.elapsed().as_secs_f64();
        let has_ended = |number: &usize| {
            let said = fs::read_to_string(self.jobs.join(format!("done-{number}")));
            said.is_ok_and(|said| said == "done\n")
        };
        let done = (1..=MANY).filter(has_ended).count();
        for number in 1..=MANY {
            let _ = fs::remove_file(self.jobs.join(format!("done-{number}")));
        }
        let [all, done, most] = [MANY, done, most].map(|count| f64::from(count as u32));
        Ok(vec![
            alone(
                &format!("{MANY} jobs of 1 to {NODES} nodes: all of them by those that ended well"),
                format!("{all}/{done}, after {took:.0} s"),
                all / done,
                1.0,
                "",
            ),
            alone("the most nodes meanwhile", format!("{most}"), most, f64::from(NODES as u32), ""),
        ])
    }
}

/// Seconds of the clock.
fn now() -> Outcome<f64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    Ok(since.as_secs_f64())
}
