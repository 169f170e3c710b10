//! Message passing: ranks of Open MPI and MPICH in one container, and ranks that each are a container of their own, started by the host's `mpiexec`.
//!
//! Ranks find each other by descriptors, environment, files and sockets, share memory below `/dev/shm`, and copy what is large straight from one
//! process's memory to another's (`process_vm_readv`), where the kernel lets them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use testkit::command::{Finished, Input, run_with};
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, need_program};

use crate::languages::guest;
use crate::stage::{Case, Container, IMAGE, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] =
    &[("open_mpi", open_mpi), ("mpich", mpich), ("from_outside", from_outside)];

const RING: &str = "token 2 of 2 ranks, in the container: 1\n0 bytes right\n8 bytes right\n1024 bytes right\n65536 bytes right\n1048576 bytes right\n";
const COPIED: &str = "copied from memory to memory\n";

/// Builds the ranks, in the container.
fn build(c: &Container<'_>, kind: &str) {
    c.feed("cat > /ring.c", guest("ring.c")).ok();
    c.feed("cat > /count_copies.c", guest("count_copies.c")).ok();
    let script = "touch /in-the-container; cc -shared -fPIC /count_copies.c -o /count_copies.so";
    c.sh(&format!("{script}; mpicc.{kind} -O1 /ring.c -o /ring")).ok();
}

/// The first rank's words, in order; each rank's last word is about copies, which come when they come.
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
    // On fewer processors than ranks, those that wait give way.
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

/// Each rank is a run of its own; they have the host's `/dev/shm`, and for Open MPI the host's directory of the job and the caller's id.
fn from_outside(w: &World) -> Outcome {
    need_program("mpiexec.mpich")?;
    need_program("mpiexec.openmpi")?;
    let scratch = Scratch::new("ranks").expect("a directory");
    let ranks = w.directory(&scratch, "ranks");
    let bound = format!("{}:/in-the-container", ranks.display());
    let job = format!("{0}:{0}", w.directory(&scratch, "job").display());
    for (kind, launcher, options) in [
        ("mpich", &["mpiexec.mpich"][..], &[][..]),
        ("openmpi", &["mpiexec.openmpi", "--oversubscribe"], &["--userns=host", "-v", &job]),
    ] {
        let c = w.container();
        build(&c, kind);
        let program = c.sh("cat /ring").ok().stdout.clone();
        let place = ranks.join(kind);
        fs::write(&place, program).expect("the program");
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).expect("a program");
        let (mode, rank) =
            (format!("--execmode={}", w.engine), format!("/in-the-container/{kind}"));
        let mut words = [launcher, &["-n", "2"]].concat();
        let coracle = w.program().display().to_string();
        words.extend([coracle.as_str(), "run", "--rm", "--hostenv", &mode, "-v", &bound]);
        words.extend(options.iter().copied().chain([IMAGE, &rank]));
        let mut command = w.other(words[0]);
        command.args(&words[1..]);
        command.env("TMPDIR", scratch.path().join("job"));
        // Else UCX, on which MPICH stands, opens what another rank has open: in another container, which no engine shows.
        command.env("UCX_POSIX_USE_PROC_LINK", "n");
        let done = run_with(&mut command, Input::Null, LIMIT);
        assert_eq!(done.ok().out(), RING, "{kind}: {done:?}");
    }
    Ok(())
}
