//! A Slurm or Grid Engine whose nodes are containers: jobs bring nodes, nodes without work go, and
//! what dies is made good.

use std::fs;
use std::time::Duration;

use testkit::command::{Finished, until};
use testkit::skip::Outcome;

use crate::cluster::world::{BOX, Lab, port};

/// A case that needs an image of a batch system.
type Case = (&'static str, fn(&Lab<'_>) -> Outcome);

pub(crate) const CASES: &[Case] = &[
    ("farm", farm),
    ("farm_broken", broken),
    ("farm_mended", mended),
    ("farm_stays", stays),
    ("grid", grid),
    ("grid_mended", grid_mended),
];

/// How long nodes take to come and go on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(2);
/// The containers of a batch system without work.
const AT_REST: [&str; 2] = ["farm-control-1", "farm-front-1"];

/// A job on several nodes: Slurm's own way, and MPI's.
const JOB: &str = "#!/bin/sh\nsrun hostname | sort\n\
    mpirun python3 -c 'from mpi4py import MPI; c = MPI.COMM_WORLD; \
    n = c.allreduce(1); c.rank or print(n, \"ranks\")'\n";

/// `[batch]` of a cluster file with a Slurm, whose last key may be followed by others.
pub(crate) fn table(image: &str, most: u32) -> String {
    table_of("slurm", image, most)
}

fn table_of(kind: &str, image: &str, most: u32) -> String {
    format!(
        r#"
[batch]
kind = "{kind}"
front = "{image}"
control = "{image}"
compute = {{ image = "{image}", max = {most}, cpus = 1, idle = "3s" }}
volume = ["./jobs:/jobs"]
"#
    )
}

/// The same with other nodes.
fn with_nodes(table: &str, nodes: &str) -> String {
    let one = table.lines().find(|line| line.starts_with("compute")).expect("a line");
    table.replace(one, nodes)
}

/// A farm with a directory for its jobs, and a key that opens it.
pub(crate) fn farm_of(lab: &Lab<'_>, image: &str, port: u16) {
    farm_with(lab, &table(image, 3), port);
}

fn farm_with(lab: &Lab<'_>, table: &str, port: u16) {
    lab.file(&format!("name = \"farm\"\n{table}publish = [\"127.0.0.1:{port}:2222\"]\n"));
    lab.script(
        "mkdir -p ~/.ssh $(dirname $file)/jobs && \
         { [ -e ~/.ssh/id_farm ] || ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_farm; }",
    )
    .ok();
}

/// A command of the front-end's shell, in the directory of the jobs.
pub(crate) fn front(lab: &Lab<'_>, command: &str) -> Finished {
    lab.cluster("exec", &["-w", "/jobs", "front", "/bin/sh", "-c", command])
}

/// The same by `ssh`.
pub(crate) fn by_ssh(lab: &Lab<'_>, port: u16, command: &str) -> Finished {
    lab.script(&format!(
        "ssh -i ~/.ssh/id_farm -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null \
         -o LogLevel=ERROR -o BatchMode=yes -p {port} 127.0.0.1 'cd /jobs && {command}'"
    ))
}

/// What a job has written.
pub(crate) fn written(lab: &Lab<'_>, name: &str) -> String {
    fs::read_to_string(lab.dir.join("jobs").join(name)).unwrap_or_default()
}

/// What the process that follows the cluster of a name has told.
pub(crate) fn told_of(lab: &Lab<'_>, cluster: &str) -> String {
    let place = lab.world.person.store().join("clusters").join(cluster).join("watch.log");
    fs::read_to_string(place).unwrap_or_default()
}

fn told(lab: &Lab<'_>) -> String {
    told_of(lab, "farm")
}

/// The process that follows the cluster of the case: the oldest of those with its words, which its
/// commands have, too, until they execute their program.
pub(crate) fn follower(lab: &Lab<'_>) -> String {
    let found = lab.script("pgrep -o -u $(id -u) -f \"cluster watch -f $file\"");
    found.ok().out().trim().to_owned()
}

/// Waits until there are these containers.
fn come_to(lab: &Lab<'_>, wanted: &[&str]) {
    let mut last = Vec::new();
    let done = until(LONG, || {
        last = lab.containers();
        (last == wanted).then_some(())
    });
    assert!(done.is_some(), "{last:?} are there: {}", told(lab));
}

/// Waits until all nodes are gone.
fn at_rest(lab: &Lab<'_>) {
    come_to(lab, &AT_REST);
}

/// Jobs bring nodes, by `ssh` as usual; nodes without work go.
fn farm(lab: &Lab<'_>) -> Outcome {
    let (image, (port, _)) = (lab.batch()?, port());
    farm_of(lab, image, port);
    lab.cluster("up", &["-d"]).ok();
    assert_eq!(lab.containers(), AT_REST);
    fs::write(lab.dir.join("jobs/job.sh"), JOB).expect("a job");
    by_ssh(lab, port, "sbatch -Q -N 3 -n 3 -o out -e err job.sh").ok();
    let all = "compute-1\ncompute-2\ncompute-3\n3 ranks\n";
    let done = until(LONG, || (written(lab, "out") == all).then_some(()));
    let said = || format!("{} {} {}", written(lab, "out"), written(lab, "err"), told(lab));
    assert!(done.is_some(), "{}", said());
    let log = told(lab);
    assert!(log.contains("compute-1, compute-2, compute-3: wanted"), "{log}");
    at_rest(lab);

    // More jobs than nodes. None is lost, and there are never more nodes than the file allows.
    front(lab, "sbatch -Q --array=1-7 -o many-%a --wrap 'hostname; sleep 0.5'").ok();
    let mut most = 0;
    let has_run = |number: usize| !written(lab, &format!("many-{number}")).is_empty();
    let done = until(LONG, || {
        let nodes = lab.containers().len().saturating_sub(AT_REST.len());
        most = most.max(nodes);
        (1..=7).all(has_run).then_some(())
    });
    assert!(done.is_some() && most <= 3, "{most} nodes: {}", told(lab));

    for (words, fact) in [
        (["scale", "compute=2"], "Slurm says when nodes of compute are started"),
        (["scale", "control=2"], "a batch system has one control"),
        (["replace", "compute"], "Slurm says when nodes of compute are started"),
    ] {
        let done = lab.cluster(words[0], &words[1..]);
        assert!(done.expect(1).err().contains(fact), "{done:?}");
    }
    at_rest(lab);
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// Submits a job that waits for the file `go`, and one on two nodes that tells their names to the
/// file `later`; then what says why a job waits.
struct Speech {
    waiting: fn(&str) -> String,
    later: &'static str,
    why: &'static str,
}

/// A node that dies, a controller that is replaced, and a lost process that starts nodes: no job is
/// lost. At last there are the containers `left`.
fn make_good(lab: &Lab<'_>, speech: &Speech, left: &[&str]) {
    let wait = "echo begun >>begun; while [ ! -e go ]; do sleep 0.2; done; echo done >done";
    front(lab, &(speech.waiting)(wait)).ok();
    let begun = |count: usize| {
        let done = until(LONG, || (written(lab, "begun").lines().count() >= count).then_some(()));
        assert!(done.is_some(), "not begun {count} times: {}", told(lab));
    };
    begun(1);
    lab.cluster("replace", &["control"]).ok();
    let pid = lab.run(&["inspect", "--format", "{{.State.Pid}}", "farm-compute-1"]).ok().out();
    lab.script(&format!("kill -9 {pid}")).ok();
    begun(2);

    // Nobody starts nodes for a while.
    lab.script(&format!("kill -9 {}", follower(lab))).ok();
    front(lab, speech.later).ok();
    lab.cluster("up", &["-d"]).ok();
    fs::write(lab.dir.join("jobs/go"), "").expect("a file");
    let done = until(LONG, || {
        let lines = written(lab, "later").lines().count();
        (lines == 2 && written(lab, "done") == "done\n").then_some(())
    });
    assert!(done.is_some(), "{}: {}", front(lab, speech.why).out(), told(lab));
    come_to(lab, left);
}

/// What goes wrong with a Slurm is made good.
fn mended(lab: &Lab<'_>) -> Outcome {
    let (image, (port, _)) = (lab.batch()?, port());
    farm_of(lab, image, port);
    lab.cluster("up", &["-d"]).ok();
    let speech = Speech {
        waiting: |wait| format!("sbatch -Q -o job.out --wrap '{wait}'"),
        later: "sbatch -Q -N 2 -o later --wrap 'srun hostname'",
        why: "squeue; sinfo -R",
    };
    make_good(lab, &speech, &AT_REST);
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// The fewest nodes are there without a job, and stay.
fn stays(lab: &Lab<'_>) -> Outcome {
    let (image, (port, _)) = (lab.batch()?, port());
    farm_of(lab, image, port);
    let file = lab.dir.join("lab.toml");
    let text = fs::read_to_string(&file).expect("the file");
    let least = text.replace("max = 3", "min = 1, max = 3");
    lab.file(&least);
    lab.cluster("up", &["-d"]).ok();
    let idle = |count: &str| {
        let done = until(LONG, || {
            let said = front(lab, "sinfo -h -t idle -o '%D %t' | grep -v '~'").out();
            (said.trim() == format!("{count} idle")).then_some(())
        });
        assert!(done.is_some(), "{}: {}", front(lab, "sinfo -N").out(), told(lab));
    };
    idle("1");
    front(lab, "sbatch -Q -N 2 -o two --wrap 'srun hostname'").ok();
    let done = until(LONG, || (written(lab, "two").lines().count() == 2).then_some(()));
    assert!(done.is_some(), "{}: {}", front(lab, "squeue").out(), told(lab));
    idle("1");
    let log = told(lab);
    let is_first = |line: &&str| line.contains("given back") && line.contains("compute-1");
    assert!(!log.lines().any(|line| is_first(&line)), "{log}");
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// A job on several slots of Grid Engine, whose list of hosts MPI reads by itself.
const PARALLEL: &str = "awk '{ print $2 }' $PE_HOSTFILE\n\
    mpirun python3 -c 'from mpi4py import MPI; c = MPI.COMM_WORLD; \
    n = c.allreduce(1); c.rank or print(n, \"ranks\")'\n";

/// Nodes that end as soon as they are started do not keep others from work, and are not started
/// again and again; when nobody asks for them any more they are gone.
fn broken(lab: &Lab<'_>) -> Outcome {
    let image = lab.batch()?;
    let nodes = format!(
        "compute = [{{ image = \"{image}\", max = 1, cpus = 1, idle = \"2s\" }}, \
         {{ name = \"broken\", image = \"{BOX}\", max = 2, cpus = 1, idle = \"2s\" }}]"
    );
    let ways = [
        (
            "slurm",
            "sbatch -Q -p broken --wrap true",
            "sbatch -Q -o slurm --wrap hostname",
            "scancel -u $(id -un)",
        ),
        (
            "gridengine",
            "echo true | qsub -q broken",
            "echo hostname | qsub -j y -o gridengine",
            "qdel '*'",
        ),
    ];
    for (kind, bad, good, cancel) in ways {
        farm_with(lab, &with_nodes(&table_of(kind, image, 1), &nodes), port().0);
        lab.cluster("up", &["-d"]).ok();
        front(lab, bad).ok();
        let ends = || told(lab).matches(": Exited (127)").count();
        let done = until(LONG, || (ends() >= 2).then_some(()));
        assert!(done.is_some(), "{kind}: {} {}", ends(), told(lab));
        assert!(told(lab).contains("not found"), "{kind}: {}", told(lab));
        let before = ends();
        front(lab, good).ok();
        let done = until(LONG, || (!written(lab, kind).is_empty()).then_some(()));
        assert!(done.is_some(), "{kind}: {} {}", front(lab, "squeue; qstat -f").out(), told(lab));
        assert!(ends() - before < 10, "{kind}: {}", told(lab));
        front(lab, cancel).ok();
        at_rest(lab);
        lab.cluster("down", &[]).ok();
    }
    Ok(())
}

/// Jobs of a Grid Engine bring nodes; those of another kind only where a job asks for it, and nodes
/// without work go.
fn grid(lab: &Lab<'_>) -> Outcome {
    let (image, (port, _)) = (lab.batch()?, port());
    let two = format!(
        "compute = [{{ image = \"{image}\", max = 3, cpus = 1, idle = \"3s\" }}, \
         {{ name = \"large\", image = \"{image}\", max = 1, cpus = 4, idle = \"3s\" }}]"
    );
    farm_with(lab, &with_nodes(&table_of("gridengine", image, 3), &two), port);
    lab.cluster("up", &["-d"]).ok();
    assert_eq!(lab.containers(), AT_REST);
    fs::write(lab.dir.join("jobs/job.sh"), PARALLEL).expect("a job");
    by_ssh(lab, port, "qsub -pe mpi 3 -o out -e err job.sh").ok();
    let all = "1\n1\n1\n3 ranks\n";
    let done = until(LONG, || (written(lab, "out") == all).then_some(()));
    let said = || format!("{} {} {}", written(lab, "out"), written(lab, "err"), told(lab));
    assert!(done.is_some(), "{}", said());
    let log = told(lab);
    assert!(log.contains("compute-1, compute-2, compute-3: wanted"), "{log}");

    // More jobs than nodes, and one whose slots are on one node. None is lost.
    front(lab, "echo 'hostname; sleep 0.5' | qsub -t 1-7 -j y -o 'many-$TASK_ID'").ok();
    front(lab, "qsub -pe smp 3 -j y -o one -b y hostname").ok();
    // These never run: they want no node, and the other jobs do not wait for them.
    front(lab, "qsub -pe smp 5 -b y true; qsub -h -b y true; qsub -q 'none*' -b y true").expect(1);
    let mut most = 0;
    let has_run = |name: &str| !written(lab, name).is_empty();
    let done = until(LONG, || {
        let nodes = lab.containers();
        most = most.max(nodes.iter().filter(|name| name.contains("compute")).count());
        ((1..=7).all(|number| has_run(&format!("many-{number}"))) && has_run("one")).then_some(())
    });
    let waits = || front(lab, "qstat -f").out();
    assert!(done.is_some() && most <= 3, "{most} nodes: {}\n{}", waits(), told(lab));
    assert_eq!(written(lab, "one"), "farm-large-1\n");
    for (words, fact) in [
        (["scale", "compute=2"], "Grid Engine says when nodes of compute are started"),
        (["scale", "control=2"], "a batch system has one control"),
    ] {
        let done = lab.cluster(words[0], &words[1..]);
        assert!(done.expect(1).err().contains(fact), "{done:?}");
    }
    at_rest(lab);
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// The same with a Grid Engine, whose first node always stays.
fn grid_mended(lab: &Lab<'_>) -> Outcome {
    let (image, (port, _)) = (lab.batch()?, port());
    let table = table_of("gridengine", image, 3);
    farm_with(lab, &table.replace("max = 3", "min = 1, max = 3"), port);
    lab.cluster("up", &["-d"]).ok();
    let one = ["farm-compute-1", AT_REST[0], AT_REST[1]];
    come_to(lab, &one);
    let speech = Speech {
        waiting: |wait| format!("echo '{wait}' | qsub -j y -o job.out"),
        later: "echo 'cat $PE_HOSTFILE' | qsub -pe mpi 2 -j y -o later",
        why: "qstat -f",
    };
    make_good(lab, &speech, &one);
    lab.cluster("down", &[]).ok();
    Ok(())
}
