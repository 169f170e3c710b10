//! Much output of eight containers at once: nothing is lost or mixed, and the driver stays small.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use testkit::command::until;
use testkit::person::LIMIT;

use crate::cluster::Case;
use crate::cluster::world::{BOX, Lab};

pub(crate) const CASES: &[Case] = &[("flood_of_logs", logs), ("flood_of_a_run", run)];

const NODES: usize = 8;
/// A line has so many bytes.
const LINE: usize = 1000;
/// The most memory of a command that only passes output on, in kB.
const MOST: u64 = 80_000;

/// How many seconds each container writes 10 MB.
fn seconds() -> usize {
    if testkit::share::is_whole() { 10 } else { 1 }
}

/// Writes 10 MB in lines with a number, then waits for the next second.
fn writer() -> String {
    let (width, lines) = (LINE - 9, 10_000_000 / LINE);
    format!(
        "busybox awk 'BEGIN {{ for (s = 0; s < {}; s++) {{ for (i = 0; i < {lines}; i++) \
         printf \"%07d %0{width}d\\n\", s * {lines} + i, 0; fflush(); system(\"sleep 1\") }} }}'",
        seconds()
    )
}

fn lines() -> usize {
    seconds() * (10_000_000 / LINE)
}

/// Runs a command whose output goes to a file. Returns the most memory that it has had, in kB.
fn to_file(command: &mut Command, path: &Path) -> u64 {
    let out = File::create(path).expect("a file");
    let mut child = command.stdin(Stdio::null()).stdout(out).spawn().expect("the program");
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    let limit = LIMIT + Duration::from_secs(60 * seconds() as u64);
    let ended = until(limit, || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        most = most.max(now.unwrap_or(0));
        child.try_wait().expect("its end")
    });
    if ended.is_none() {
        let _ = child.kill();
        let _ = child.wait();
    }
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
    most
}

fn logs(lab: &Lab<'_>) {
    let file = lab.file(&format!(
        "name = \"flood\"\nimage = \"{BOX}\"\n[service.w]\nreplicas = {NODES}\nrestart = \"no\"\n\
         command = '''{}'''\n",
        writer()
    ));
    // A log keeps no more than a size, whatever has been shown of it: on a busy machine `logs -f`
    // is slower than eight such programs.
    lab.script("CORACLE_LOG_MAX_SIZE=200m $coracle cluster -f $file up -d").ok();
    let path = lab.dir.join("out");
    let most = to_file(&mut lab.command(&["cluster", "logs", "--file", &file, "-f"]), &path);
    let text = fs::read_to_string(&path).expect("the output");
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text.lines() {
        let (name, line) = line.split_once(" | ").unwrap_or_else(|| panic!("{line:?}"));
        let next = next.entry(name.trim()).or_default();
        assert!(line.len() == LINE - 1 && line.starts_with(&format!("{next:07} 0")), "{line:?}");
        *next += 1;
    }
    let names = (1..=NODES).map(|number| format!("w-{number}")).collect::<Vec<_>>();
    let all: BTreeMap<&str, usize> = names.iter().map(|name| (&**name, lines())).collect();
    assert_eq!(next, all);
    assert!(most < MOST, "it had {most} kB");
    lab.cluster("down", &[]).ok();
}

/// The driver is the way from all nodes to the first, and from there to its own output.
fn run(lab: &Lab<'_>) {
    let file = lab.file(&format!(
        "name = \"flood\"\nimage = \"{BOX}\"\nnodes = {NODES}\n[run]\ncommand = [\"sh\", \"-c\", '''
         cat > /tmp/writer <<'END'\n{}\nEND\n\
         for node in $(seq {NODES}); do
             /run/coracle/rsh node$node \"$(cat /tmp/writer)\" > /tmp/$node & eval p$node=$!
         done
         for node in $(seq {NODES}); do eval wait \\$p$node || echo node$node has failed; done
         for node in $(seq {NODES}); do cat /tmp/$node; done''']\n",
        writer()
    ));
    let path = lab.dir.join("out");
    let most = to_file(&mut lab.command(&["cluster", "up", "-f", &file]), &path);
    let text = fs::read_to_string(&path).expect("the output");
    for (at, line) in text.lines().enumerate() {
        let number = at % lines();
        assert!(line.len() == LINE - 1 && line.starts_with(&format!("{number:07} 0")), "{line:?}");
    }
    assert_eq!(text.lines().count(), NODES * lines());
    assert!(most < MOST, "it had {most} kB");
}
