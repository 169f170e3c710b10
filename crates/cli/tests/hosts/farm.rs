//! A Slurm of containers on several hosts: a job has nodes on all of them, and one whose host is
//! lost runs again on the others.

use std::fs;
use std::path::Path;

use testkit::command::{Finished, Input, run_with, until};
use testkit::person::ALL;
use testkit::skip::Outcome;

use crate::failures::fail;
use crate::lab::{COUNT, Case, HOME, LIMIT, Lab};

pub(crate) const CASES: &[(&str, Case)] = &[("farm::hosts", hosts)];

const IMAGE: &str = "lab/slurm:1";
const FILE: &str = r#"
name = "farm"
network = "names"
backend = [{ kind = "ssh", options = ["-F", "CONFIG", "-o", "ConnectTimeout=3"],
    hosts = ["host1", "host2", "host3"] }]

[batch]
kind = "slurm"
front = "IMAGE"
control = "IMAGE"
compute = { image = "IMAGE", max = 6, cpus = 1, idle = "5s" }
volume = ["JOBS:/jobs"]
"#;

fn hosts(lab: &Lab) -> Outcome {
    let own = lab.shared.join("slurm.tar");
    fs::copy(testkit::trees::batch()?, &own).expect("a copy");
    lab.run(0, &["import", "-q", &own.display().to_string(), IMAGE]).ok();
    fs::remove_file(&own).expect("its end");
    let jobs = lab.shared.join("jobs");
    fs::create_dir(&jobs).expect("a directory");
    lab.people[0].give(&jobs);
    let text = FILE
        .replace("IMAGE", IMAGE)
        .replace("CONFIG", &lab.shared.join("config").display().to_string())
        .replace("JOBS", &jobs.display().to_string());
    let file = lab.file("farm.toml", &text);
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    front(lab, "sbatch -Q -N 3 -o hosts --wrap 'srun hostname | sort'").ok();
    let written = |name: &str| fs::read_to_string(jobs.join(name)).unwrap_or_default();
    let all = "compute-1\ncompute-2\ncompute-3\n";
    let done = until(LIMIT, || (written("hosts") == all).then_some(()));
    assert!(done.is_some(), "{}: {}", written("hosts"), told(lab));

    if std::env::var_os(ALL).is_some() {
        let job = "srun hostname | sort >>begun; while [ ! -e go ]; do sleep 0.2; done; echo >done";
        front(lab, &format!("sbatch -Q -N 3 -o lost --wrap '{job}'")).ok();
        let begun = |lines: &str| {
            let done = until(LIMIT, || (written("begun") == lines).then_some(()));
            assert!(done.is_some(), "{}: {}", written("begun"), told(lab));
        };
        begun(all);
        fail(lab, 1);
        begun(&format!("{all}compute-1\ncompute-3\ncompute-4\n"));
        fs::write(jobs.join("go"), "").expect("a file");
        let done = until(LIMIT, || (!written("done").is_empty()).then_some(()));
        assert!(done.is_some(), "{}", told(lab));
        lab.mend_servers()?;
        // Nodes there can be asked for again.
        fs::remove_file(jobs.join("hosts")).expect("its end");
        front(lab, "sbatch -Q -w compute-2 -o hosts --wrap hostname").ok();
        let done = until(LIMIT, || (written("hosts") == "compute-2\n").then_some(()));
        assert!(done.is_some(), "{} {}", front(lab, "sinfo -N; sinfo -R").out(), told(lab));
    }
    lab.run(0, &["cluster", "down", "-f", &file]).ok();
    fs::remove_dir_all(&jobs).expect("its end");
    for host in 0..COUNT {
        lab.run(host, &["rmi", "-f", IMAGE]).ok();
    }
    Ok(())
}

/// A command of the front-end, in the directory of the jobs.
fn front(lab: &Lab, command: &str) -> Finished {
    lab.run(0, &["cluster", "exec", "-w", "/jobs", "farm", "front", "/bin/sh", "-c", command])
}

/// What the process that follows the cluster has told.
fn told(lab: &Lab) -> String {
    let path = format!("{HOME}/.local/share/coracle/clusters/farm/watch.log");
    run_with(&mut lab.command(0, Path::new("/bin/cat"), &[&path]), Input::Null, LIMIT).out()
}
