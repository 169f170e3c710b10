//! Measures an image on its way to several hosts, until each has all bytes and has checked them:
//! 460 MB from a registry on a host of its own, over links of 200 Mb/s in both directions, against
//! one host's download. Nothing is unpacked. Beside it all hosts copy from the registry by `skopeo`
//! and by `podman`.
//!
//! This program is the driver: it starts `coracle cluster spread` on each host and tells them of
//! each other, so no launcher's time is in it. `CORACLE_BENCH_HOSTS` (8) says how many hosts get
//! the image besides the one that pulls, `CORACLE_BENCH_LINK` the rate of the links.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::command::{Input, run_with, until};
use testkit::hosts::Hosts;

use super::{Bench, Line, median, milliseconds, pull};
use xtask::shell::{Outcome, check, has};
use xtask::tools;

const PORT: &str = "5000";
/// The greatest ratio of all hosts' time to one download.
const AIM: f64 = 1.4;
/// The greatest ratio of what the registry sends to the image.
const ONCE: f64 = 1.05;
const LIMIT: Duration = Duration::from_mins(30);

/// The hosts; the last one has the registry, the first one drives.
struct Lab<'b> {
    bench: &'b Bench,
    hosts: Hosts,
    image: String,
    registry: Child,
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let _ = self.registry.kill();
        let _ = self.registry.wait();
    }
}

pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !tools::is_root() {
        println!("SKIP bench spread: hosts are made by root only");
        return Ok(Vec::new());
    }
    let size = pull::push(bench)?.1;
    let count = std::env::var("CORACLE_BENCH_HOSTS").ok().and_then(|text| text.parse().ok());
    let count: usize = count.unwrap_or(8);
    let lab = Lab::start(bench, count + 1)?;
    let all: Vec<usize> = (0..=count).collect();
    let (mut one, mut every, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    let mut peers = Vec::new();
    for _ in 0..bench.rounds {
        one.push(lab.spread(&[0])?);
        let before = lab.hosts.sent(count + 1);
        every.push(lab.spread(&all)?);
        sent.push(megabytes(lab.hosts.sent(count + 1) - before));
    }
    for (name, program, words) in [
        ("skopeo copy", "skopeo", ["copy", "--src-tls-verify=false", "docker://", "dir:copy"]),
        ("podman pull", "podman", ["pull", "--tls-verify=false", "", "--quiet"]),
    ] {
        if has(program) {
            match lab.peer(&all[1..], program, &words) {
                Ok(time) => peers.push((name, time)),
                Err(why) => println!("SKIP bench spread {name}: {why}"),
            }
        } else {
            println!("SKIP bench spread {name}: it is not installed");
        }
    }
    let (one, every) = (median(one), median(every));
    let what = format!("image of {} MB to {} hosts", size / 1_000_000, count + 1);
    let line = |against: &str, theirs: f64, aim| Line {
        what: what.clone(),
        against: against.to_owned(),
        ours: milliseconds(every),
        theirs: milliseconds(theirs),
        value: every / theirs,
        aim,
        unit: "",
    };
    let mut lines = vec![line("one host's download", one, AIM)];
    let others =
        peers.iter().map(|(name, time)| line(&format!("{count} x `{name}`"), *time, f64::INFINITY));
    lines.extend(others);
    let sent = median(sent);
    lines.push(Line {
        what: "sent by the registry".to_owned(),
        against: "the image".to_owned(),
        ours: format!("{sent:.1} MB"),
        theirs: format!("{:.1} MB", megabytes(size)),
        value: sent / megabytes(size),
        aim: ONCE,
        unit: "",
    });
    Ok(lines)
}

fn megabytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes / 1000).unwrap_or(u32::MAX)) / 1000.0
}

impl<'b> Lab<'b> {
    fn start(bench: &'b Bench, count: usize) -> Outcome<Self> {
        let hosts = Hosts::start(count + 1, bench.scratch.path()).map_err(|skip| skip.0)?;
        // A host sees nothing of `/tmp` but this directory.
        let storage = bench.scratch.path().join("spread-registry");
        check(Command::new("cp").arg("-al").arg(bench.registry.storage()).arg(&storage))?;
        let at = format!("{}:{PORT}", hosts.address(count));
        let config = bench.scratch.path().join("spread-registry.yml");
        let text = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
             http:\n  addr: {at}\n  secret: bench\n",
            storage.display()
        );
        std::fs::write(&config, text).map_err(|error| error.to_string())?;
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&config).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let registry = hosts
            .command(count, &command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("no registry: {error}"))?;
        let lab = Self { bench, hosts, image: format!("{at}/bench/big:1"), registry };
        let mut look = Command::new("/bin/bash");
        look.args(["-c", &format!("exec 3<>/dev/tcp/{}/{PORT}", lab.hosts.address(count))]);
        until(Duration::from_secs(30), || {
            let mut look = lab.hosts.command(count, &look);
            (run_with(&mut look, Input::Null, LIMIT).code() == 0).then_some(())
        })
        .ok_or("the registry does not serve")?;
        let link = std::env::var("CORACLE_BENCH_LINK").unwrap_or_else(|_| "200mbit".to_owned());
        for host in 0..=count {
            lab.hosts.limit(host, &link);
            lab.hosts.limit_sent(host, &link);
        }
        Ok(lab)
    }

    fn home(&self, host: usize) -> Outcome<PathBuf> {
        let owner = Some((self.bench.user.uid, self.bench.user.gid));
        let made = self.bench.scratch.dir(&format!("spread-{host}"), owner, 0o700);
        made.map_err(|error| error.to_string())
    }

    /// Empty homes, without data that is still to be written.
    fn clear(&self, hosts: &[usize]) {
        for host in hosts {
            let home = self.bench.scratch.path().join(format!("spread-{host}"));
            let _ = Command::new("rm").arg("-rf").arg(home).status();
        }
        let _ = Command::new("sync").status();
    }

    fn command(&self, host: usize, home: &Path, program: &Path, words: &[&str]) -> Command {
        let mut command = self.bench.user.command(program, home);
        command.args(words);
        self.hosts.command(host, &command)
    }

    /// The seconds until all these hosts have the image. The first one pulls it.
    fn spread(&self, hosts: &[usize]) -> Outcome<f64> {
        let began = Instant::now();
        let mut processes = Vec::new();
        for &host in hosts {
            let address = format!("--address={}", self.hosts.address(host));
            let source = format!("--source={}", self.image);
            let mut words = vec!["--insecure", "cluster", "spread", &address];
            words.extend((host == hosts[0]).then_some(&*source));
            let mut command = self.command(host, &self.home(host)?, &self.bench.coracle, &words);
            processes.push(Process::start(&mut command, self.hosts.address(host).to_string())?);
        }
        let time = told(&mut processes).map(|()| began.elapsed().as_secs_f64());
        drop(processes);
        self.clear(hosts);
        time
    }

    /// The seconds until all these hosts have the image by another program.
    fn peer(&self, hosts: &[usize], program: &str, words: &[&str]) -> Outcome<f64> {
        let homes: Outcome<Vec<PathBuf>> = hosts.iter().map(|&host| self.home(host)).collect();
        let homes = homes?;
        let began = Instant::now();
        let done = std::thread::scope(|scope| {
            let run = |(&host, home): (&usize, &PathBuf)| {
                let image = if words.contains(&"docker://") {
                    format!("docker://{}", self.image)
                } else {
                    self.image.clone()
                };
                let place = format!("dir:{}/copy", home.display());
                let words: Vec<&str> = words
                    .iter()
                    .map(|&word| match word {
                        "docker://" | "" => &*image,
                        "dir:copy" => &*place,
                        word => word,
                    })
                    .collect();
                let mut command = self.command(host, home, Path::new(program), &words);
                scope.spawn(move || run_with(&mut command, Input::Null, LIMIT))
            };
            let threads: Vec<_> = hosts.iter().zip(&homes).map(run).collect();
            let ended = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            ended.collect::<Result<Vec<_>, _>>().map_err(|_| "a thread has ended".to_owned())
        });
        let time = began.elapsed().as_secs_f64();
        self.clear(hosts);
        match done?.iter().find(|done| done.code() != 0) {
            Some(done) => Err(done.err().lines().last().unwrap_or_default().to_owned()),
            None => Ok(time),
        }
    }
}

/// `coracle cluster spread`.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    address: String,
}

impl Process {
    fn start(command: &mut Command, address: String) -> Outcome<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let input = child.stdin.take();
        let output = child.stdout.take().ok_or("no output")?;
        Ok(Self { child, input, lines: BufReader::new(output).lines(), address })
    }

    /// The rest of the next line that begins with a word.
    fn heard(&mut self, word: &str) -> Outcome<String> {
        for line in &mut self.lines {
            let line = line.map_err(|error| error.to_string())?;
            if let Some(rest) = line.strip_prefix(word) {
                return Ok(rest.trim_start().to_owned());
            }
        }
        Err(format!("{} has ended without the word {word}", self.address))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// Tells all of each other, and waits until they have everything.
fn told(processes: &mut [Process]) -> Outcome {
    let mut places = Vec::new();
    for process in &mut *processes {
        let said = process.heard("at ")?;
        let mut words = said.split(' ');
        let (key, port) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        places.push((key.to_owned(), format!("{}:{port}", process.address)));
    }
    let image = processes[0].heard("image ")?;
    for number in (0..processes.len()).rev() {
        let mut text = String::new();
        if number > 0 {
            let _ = writeln!(text, "image {image}");
        }
        for (key, at) in places[..number].iter().rev().take(3) {
            let _ = writeln!(text, "host {key} {at}");
        }
        for (key, _) in places[number + 1..].iter().take(3) {
            let _ = writeln!(text, "guest {key}");
        }
        text.push_str("go\n");
        let input = processes[number].input.as_mut().ok_or("no input")?;
        input.write_all(text.as_bytes()).map_err(|error| error.to_string())?;
    }
    processes.iter_mut().try_for_each(|process| process.heard("whole").map(drop))
}
