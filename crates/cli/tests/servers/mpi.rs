//! Tests of message passing between containers: Open MPI and MPICH start ranks by `ssh` in the
//! containers that a file names, and the ranks find each other by the networks' addresses.

use testkit::skip::Outcome;

use crate::In;
use crate::stage::{Case, Lab, World};
use crate::tools::SSHD;

pub(crate) const CASES: &[(&str, In, Case)] =
    &[("open_mpi", In::First, open_mpi), ("mpich", In::First, mpich)];

const RING: &str =
    "0 bytes right\n8 bytes right\n1024 bytes right\n65536 bytes right\n1048576 bytes right\n";
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/guests/ring.c");

/// Three containers with `sshd` and the program of the ranks, compiled in the first one.
fn nodes<'w>(w: &'w World, kind: &str) -> Lab<'w> {
    let lab = w.lab();
    let names = ["one", "two", "three"];
    for name in names {
        lab.serve(name, SSHD);
    }
    for name in names {
        lab.expect(name, "listening on 0.0.0.0");
    }
    lab.write("one", "/ring.c", std::fs::read(SOURCE).expect("the source"));
    lab.exec("one", &format!("mpicc.{kind} -O1 /ring.c -o /ring; for to in two three; do scp -q /ring $to:/ring; done")).ok();
    lab
}

fn open_mpi(w: &World) -> Outcome {
    let lab = nodes(w, "openmpi");
    for ranks in [2, 3] {
        let done = lab.exec(
            "one",
            &format!(
                "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
                printf 'one slots=1\\ntwo slots=1\\nthree slots=1\\n' > /hosts
                mpirun.openmpi --hostfile /hosts -n {ranks} hostname | sort
                mpirun.openmpi --hostfile /hosts -n {ranks} --mca mpi_yield_when_idle 1 /ring"
            ),
        );
        check(&lab, ranks, &done.ok().out());
    }
    Ok(())
}

fn mpich(w: &World) -> Outcome {
    let lab = nodes(w, "mpich");
    for ranks in [2, 3] {
        let done = lab.exec(
            "one",
            &format!(
                "printf 'one:1\\ntwo:1\\nthree:1\\n' > /hosts; export UCX_TLS=tcp,self
                mpiexec.mpich -f /hosts -n {ranks} hostname | sort
                mpiexec.mpich -f /hosts -n {ranks} /ring"
            ),
        );
        check(&lab, ranks, &done.ok().out());
    }
    Ok(())
}

/// Checks where the ranks were, and what they have sent to each other.
#[track_caller]
fn check(lab: &Lab<'_>, ranks: usize, out: &str) {
    let mut names: Vec<String> =
        ["one", "two", "three"][..ranks].iter().map(|name| lab.name(name)).collect();
    names.sort();
    let token: usize = 1 + (1..ranks).sum::<usize>();
    let messages = if ranks == 2 { RING } else { "" };
    let expected = format!(
        "{}\ntoken {token} of {ranks} ranks, in the container: 0\n{messages}",
        names.join("\n")
    );
    assert_eq!(out, expected);
}
