//! Tests of message passing between containers: Open MPI and MPICH start ranks by `ssh` in the
//! containers that a file names, and the ranks find each other by the networks' addresses.
//!
//! A rank tells the others the addresses of its interfaces, so the containers have to be shown
//! their own.

use testkit::skip;
use testkit::skip::{Outcome, Skip};

use crate::servers::In;
use crate::servers::stage::{Case, Lab, World, guest};
use crate::servers::tools::SSHD;

pub(crate) const CASES: &[(&str, In, Case)] =
    &[("open_mpi", In::All, open_mpi), ("mpich", In::First, mpich)];

pub(crate) const RING: &str =
    "0 bytes right\n8 bytes right\n1024 bytes right\n65536 bytes right\n1048576 bytes right\n";
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/programs/guests/ring.c");
pub(crate) const NAMES: [&str; 3] = ["one", "two", "three"];
/// What root has to say to Open MPI's `mpirun`.
pub(crate) const ROOT: &str = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";

/// Seconds that ranks may take. On machines with two processors they sometimes stand still, in
/// several modes at once, and all goes well when they are started again.
const MOST: u32 = 60;

/// Three containers with `sshd` and the program of the ranks, compiled in the first one; and the
/// name of the interface that has the first one's address.
pub(crate) fn nodes<'w>(lab: Lab<'w>, kind: &str) -> Result<(Lab<'w>, String), Skip> {
    for name in NAMES {
        // Of several hosts the first one has two.
        let host = if name == "three" { lab.last_host() } else { 0 };
        lab.serve_on(name, host, SSHD);
    }
    for name in NAMES {
        lab.expect(name, "listening on 0.0.0.0");
    }
    lab.write("one", "/interface.py", guest("interface.py"));
    let script = format!("python3 /interface.py {}", lab.address("one"));
    let interface = lab.exec("one", &script).ok().line();
    if interface.is_empty() {
        skip!("containers see the host's interfaces, whose addresses lead ranks to nobody");
    }
    lab.write("one", "/ring.c", std::fs::read(SOURCE).expect("the source"));
    let ends = if kind == "mpich" { "-DENDS_AT_ONCE" } else { "" };
    let script = "-O1 /ring.c -o /ring; for to in two three; do scp -q /ring $to:/ring; done";
    lab.exec("one", &format!("mpicc.{kind} {ends} {script}")).ok();
    Ok((lab, interface))
}

/// Where the ranks were, one a line, sorted.
pub(crate) fn places(lab: &Lab<'_>, names: &[&str]) -> String {
    let mut names: Vec<String> = names.iter().map(|name| lab.name(name) + "\n").collect();
    names.sort();
    names.concat()
}

fn open_mpi(w: &World) -> Outcome {
    let (lab, _) = nodes(w.lab(), "openmpi")?;
    let done = lab.exec(
        "one",
        &format!(
            "export {ROOT}
            printf 'one slots=1\\ntwo slots=1\\nthree slots=1\\n' > /hosts
            for ranks in 2 3; do
                mpirun.openmpi --hostfile /hosts -n $ranks hostname | sort
                timeout {MOST} mpirun.openmpi --hostfile /hosts -n $ranks \
                    --mca mpi_yield_when_idle 1 /ring
            done"
        ),
    );
    let two = format!("token 2 of 2 ranks, in the container: 0\n{RING}");
    let three = "token 4 of 3 ranks, in the container: 0\n";
    let (first, all) = (places(&lab, &NAMES[..2]), places(&lab, &NAMES));
    assert_eq!(done.ok().out(), format!("{first}{two}{all}{three}"), "{done:?}");
    Ok(())
}

/// UCX takes the loopbacks of all containers of a host for the same one, because they have one
/// network namespace; so it is told which interface leads to the others. Messages go between two
/// ranks: with more, MPICH 4.0.2 often never ends by this transport, without containers too.
fn mpich(w: &World) -> Outcome {
    let (lab, interface) = nodes(w.lab(), "mpich")?;
    let done = lab.exec(
        "one",
        &format!(
            "export UCX_TLS=tcp,self UCX_NET_DEVICES={interface}
            printf 'one:1\\ntwo:1\\nthree:1\\n' > /hosts; tail -n 2 /hosts > /others
            mpiexec.mpich -f /hosts -n 3 hostname | sort
            for file in /hosts /others; do mpiexec.mpich -f $file -n 2 /ring; done"
        ),
    );
    let two = format!("token 2 of 2 ranks, in the container: 0\n{RING}");
    assert_eq!(done.ok().out(), places(&lab, &NAMES) + &two.repeat(2), "{done:?}");
    Ok(())
}
