//! The driver of the cases, with the library's functions and nothing else.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cluster::batch::{self, End, Follower, Job, Request};
use cluster::{Error, Result};

/// `drive VERB STORE ...`
pub(crate) fn drive(verb: &str, words: &[&str]) -> ExitCode {
    let done = match (verb, words) {
        ("submit", [store, file, command @ ..]) => submit(store, file, command),
        ("up", [store, file, command @ ..]) => up(store, file, command),
        ("rows", [store, cluster]) => rows(store, cluster),
        ("down", [store, cluster]) => down(store, cluster),
        ("allocation", [_]) => allocation(),
        _ => Err(Error::new(format!("{verb} {words:?}"))),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("error: {error}\n  hint: {}", error.hint().unwrap_or("none"));
            ExitCode::from(99)
        }
    }
}

fn submitted(store: &str, file: &str, command: &[&str]) -> Result<(Job, bool)> {
    let spec = cluster::spec::read_to_start(Path::new(file))?;
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    Request { spec: &spec, command: &command, store: Path::new(store) }.submit()
}

fn submit(store: &str, file: &str, command: &[&str]) -> Result<u8> {
    let (job, is_new) = submitted(store, file, command)?;
    println!("{} {}", job.id(), if is_new { "new" } else { "old" });
    Ok(0)
}

fn up(store: &str, file: &str, command: &[&str]) -> Result<u8> {
    let (job, _) = submitted(store, file, command)?;
    match job.follow(&mut Shown { stop: Path::new(store).join("stop") })? {
        End::Job(status) => {
            job.forget()?;
            Ok(status)
        }
        End::Cancelled => {
            job.forget()?;
            Ok(130)
        }
    }
}

fn rows(store: &str, cluster: &str) -> Result<u8> {
    match Job::of(Path::new(store), cluster)? {
        Some(job) => {
            job.rows()?.iter().for_each(|row| println!("{} {}", row.id, row.words_with_time()));
        }
        None => println!("nothing"),
    }
    Ok(0)
}

fn down(store: &str, cluster: &str) -> Result<u8> {
    match Job::of(Path::new(store), cluster)? {
        Some(job) => {
            job.cancel()?;
            println!("{}", job.id());
        }
        None => println!("nothing"),
    }
    Ok(0)
}

fn allocation() -> Result<u8> {
    match batch::allocation(|name| std::env::var(name).ok())? {
        Some(of) => {
            let seconds = of.time_left.map(|left| left.as_secs());
            println!("{} {} {} {seconds:?}", of.system.word(), of.id, of.hosts.join(","));
        }
        None => println!("outside"),
    }
    Ok(0)
}

/// Stops following when there is a file.
struct Shown {
    stop: PathBuf,
}

impl Follower for Shown {
    fn state(&mut self, words: &str) {
        eprintln!("{words}");
    }

    fn output(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        std::io::stdout().lock().write_all(bytes)
    }

    fn pause(&mut self, time: Duration) -> bool {
        std::thread::sleep(time);
        self.stop.exists()
    }
}
