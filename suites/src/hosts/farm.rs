//! Batch systems of containers on several hosts: a job has nodes on all of them, and one of Slurm
//! whose host is lost runs again on the others.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use testkit::command::{Finished, Input, run_with, until};
use testkit::skip::Outcome;

use crate::hosts::failures::fail;
use crate::hosts::lab::{COUNT, Case, HOME, LIMIT, Lab};

pub(crate) const CASES: &[(&str, Case)] = &[("farm::hosts", hosts)];

const IMAGE: &str = "lab/batch:1";
const FILE: &str = r#"
name = "farm"
network = "names"
backend = [{ kind = "ssh", options = ["-F", "CONFIG", "-o", "ConnectTimeout=3"],
    hosts = ["host1", "host2", "host3"] }]

[batch]
kind = "KIND"
front = "IMAGE"
control = "IMAGE"
compute = { image = "IMAGE", max = 6, cpus = 1, idle = "5s" }
volume = ["JOBS:/jobs"]
"#;

fn hosts(lab: &Lab) -> Outcome {
    let own = lab.shared.join("batch.tar");
    fs::copy(testkit::trees::batch()?, &own).expect("a copy");
    lab.run(0, &["import", "-q", &own.display().to_string(), IMAGE]).ok();
    fs::remove_file(&own).expect("its end");
    let jobs = lab.shared.join("jobs");
    fs::create_dir(&jobs).expect("a directory");
    lab.people[0].give(&jobs);
    slurm(lab, &jobs)?;
    grid_engine(lab, &jobs);
    fs::remove_dir_all(&jobs).expect("its end");
    for host in 0..COUNT {
        lab.run(host, &["rmi", "-f", IMAGE]).ok();
    }
    Ok(())
}

/// The cluster is up. Returns its file.
fn up(lab: &Lab, kind: &str, jobs: &Path) -> String {
    let text = FILE
        .replace("KIND", kind)
        .replace("IMAGE", IMAGE)
        .replace("CONFIG", &lab.shared.join("config").display().to_string())
        .replace("JOBS", &jobs.display().to_string());
    let file = lab.file("farm.toml", &text);
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    file
}

fn slurm(lab: &Lab, jobs: &Path) -> Outcome {
    let file = up(lab, "slurm", jobs);
    front(lab, "sbatch -Q -N 3 -o hosts --wrap 'srun hostname | sort'").ok();
    let written = |name: &str| fs::read_to_string(jobs.join(name)).unwrap_or_default();
    let all = "compute-1\ncompute-2\ncompute-3\n";
    let done = until(LIMIT, || (written("hosts") == all).then_some(()));
    assert!(done.is_some(), "{}: {}", written("hosts"), told(lab));

    if testkit::share::is_whole() {
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
    Ok(())
}

/// The ranks of an MPI job are on all hosts, and the nodes go after it.
fn grid_engine(lab: &Lab, jobs: &Path) {
    let file = up(lab, "gridengine", jobs);
    front(lab, "echo 'mpirun hostname | sort' | qsub -pe mpi 3 -o ranks -e wrong").ok();
    let written = |name: &str| fs::read_to_string(jobs.join(name)).unwrap_or_default();
    let all = "farm-compute-1\nfarm-compute-2\nfarm-compute-3\n";
    let done = until(LIMIT, || (written("ranks") == all).then_some(()));
    assert!(done.is_some(), "{} {}: {}", written("ranks"), written("wrong"), told(lab));
    let nodes = || lab.run(0, &["cluster", "status", "-f", &file]).ok().out();
    let places: BTreeSet<String> = nodes()
        .lines()
        .filter(|line| line.contains("compute-"))
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with("host")))
        .map(str::to_owned)
        .collect();
    assert_eq!(places.len(), COUNT, "{places:?}: {}", nodes());
    let done = until(LIMIT, || (!nodes().contains("compute-")).then_some(()));
    assert!(done.is_some(), "{}: {}", nodes(), told(lab));
    lab.run(0, &["cluster", "down", "-f", &file]).ok();
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
