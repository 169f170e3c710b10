//! Tests of message passing: ranks of Open MPI and MPICH in one container, and ranks that each are
//! a container of their own, started by the host's `mpiexec` or by Slurm.
//!
//! Ranks find each other by descriptors, environment, files and sockets, share memory below
//! `/dev/shm`, and copy large data directly from one process's memory to another's
//! (`process_vm_readv`), if the kernel allows it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use testkit::command::{Finished, Input, run_with};
use testkit::person::usable;
use testkit::scratch::Scratch;
use testkit::skip;
use testkit::skip::{Outcome, need_program};
use testkit::slurm::Cluster;

use crate::programs::languages::guest;
use crate::programs::stage::{Case, Container, IMAGE, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] =
    &[("open_mpi", open_mpi), ("mpich", mpich), ("from_outside", from_outside), ("slurm", slurm)];

const RING: &str = "token 2 of 2 ranks, in the container: 1\n0 bytes right\n8 bytes right\n1024 bytes right\n65536 bytes right\n1048576 bytes right\n";
const COPIED: &str = "copied from memory to memory\n";

/// Builds the ranks' programs, in the container.
fn build(c: &Container<'_>, kind: &str) {
    c.feed("cat > /ring.c", guest("ring.c")).ok();
    c.feed("cat > /count_copies.c", guest("count_copies.c")).ok();
    let script = "touch /in-the-container; cc -shared -fPIC /count_copies.c -o /count_copies.so";
    c.sh(&format!("{script}; mpicc.{kind} -O1 /ring.c -o /ring")).ok();
}

/// Checks the first rank's output in order; each rank's last line is about copies, which come in
/// any order.
#[track_caller]
fn right(done: &Finished) {
    let out = done.ok().out();
    assert_eq!(out.replace(COPIED, ""), RING, "{done:?}");
    // A kernel that restricts tracing (Yama) restricts this as well; then ranks copy twice.
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if matches!(scope.trim(), "" | "0") {
        assert!(out.contains(COPIED), "nothing was copied from memory to memory: {done:?}");
    }
}

fn open_mpi(w: &World) -> Outcome {
    let c = w.container();
    build(&c, "openmpi");
    // On fewer processors than ranks, waiting ranks yield.
    let settings = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1";
    let run = "mpiexec.openmpi --oversubscribe";
    right(&c.sh(&format!("{settings}; {run} -x LD_PRELOAD=/count_copies.so -n 2 /ring")));
    let done = c.sh(&format!("{settings}; {run} -n 4 /ring"));
    assert_eq!(done.ok().out(), "token 7 of 4 ranks, in the container: 1\n", "{done:?}");
    Ok(())
}

fn mpich(w: &World) -> Outcome {
    let c = w.container();
    build(&c, "mpich");
    right(&c.sh("mpiexec.mpich -genv LD_PRELOAD /count_copies.so -n 2 /ring"));
    Ok(())
}

/// The ready ones of these modes; the mode that is chosen last, and never automatically here, works
/// wherever the others do.
fn ready(w: &World, wanted: &[&'static str]) -> Vec<&'static str> {
    let mut missing = Vec::new();
    let ready = usable(&w.coracle(&["doctor", "--format", "json"]), "", &mut missing);
    let is_ready =
        |mode: &&&str| mode.starts_with('F') || ready.iter().any(|ready| ready == **mode);
    wanted.iter().filter(is_ready).copied().collect()
}

/// The ranks' programs, built inside, in a directory outside.
fn programs(w: &World, scratch: &Scratch) -> PathBuf {
    let ranks = w.directory(scratch, "ranks");
    for kind in ["mpich", "openmpi"] {
        let c = w.container();
        build(&c, kind);
        let place = ranks.join(kind);
        fs::write(&place, c.sh("cat /ring").ok().stdout.clone()).expect("the program");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("a program");
    }
    ranks
}

/// The command line that starts a rank: it has no options for ranks.
fn rank(w: &World, mode: &str, ranks: &Path, kind: &str) -> Vec<String> {
    let (coracle, bound) = (w.program().display(), ranks.display());
    let text = format!(
        "{coracle} run --rm --execmode={mode} -v {bound}:/in-the-container {IMAGE} /in-the-container/{kind}"
    );
    text.split(' ').map(str::to_owned).collect()
}

/// Each rank is a run of its own; launchers that are detected by their variables need no options.
fn from_outside(w: &World) -> Outcome {
    need_program("mpiexec.mpich")?;
    need_program("mpiexec.openmpi")?;
    let scratch = Scratch::new("ranks").expect("a directory");
    let ranks = programs(w, &scratch);
    let job = w.directory(&scratch, "job");
    let modes: &[_] = if w.engine == "I1" { &["I1", "F2", "N1"] } else { &["P1"] };
    for mode in ready(w, modes) {
        for (kind, options) in [("mpich", &[][..]), ("openmpi", &["--oversubscribe"])] {
            let mut command = w.other(format!("mpiexec.{kind}"));
            command.args(options).args(["-n", "2"]).args(rank(w, mode, &ranks, kind));
            let done = run_with(command.env("TMPDIR", &job), Input::Null, LIMIT);
            assert_eq!(done.ok().out(), RING, "{mode}, {kind}: {done:?}");
        }
    }
    Ok(())
}

/// Steps of Slurm: Open MPI's ranks by `PMIx` on one node, MPICH's by PMI-2 on two.
fn slurm(w: &World) -> Outcome {
    if w.engine != "I1" {
        skip!("a batch system starts what mpiexec starts, which from_outside shows");
    }
    let cluster = Cluster::start(w.user())?;
    let scratch = Scratch::new("ranks").expect("a directory");
    let ranks = programs(w, &scratch);
    for mode in ready(w, &["I1", "N1"]) {
        for (kind, options) in
            [("openmpi", ["--mpi=pmix", "-N1", "-n2"]), ("mpich", ["--mpi=pmi2", "-N2", "-n2"])]
        {
            let mut step = cluster.command(w.user(), "srun", w.home());
            step.args(["-Q", "-D", "/"]).args(options).args(rank(w, mode, &ranks, kind));
            let done = run_with(&mut step, Input::Null, LIMIT);
            assert_eq!(done.ok().out(), RING, "{mode}, {kind}: {done:?}");
        }
    }
    Ok(())
}
