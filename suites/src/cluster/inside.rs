//! Commands from the container of one node to those of others, without `sshd`: by hand, and by the
//! launchers of Open MPI and MPICH.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

use std::fs::{self, File};
use std::time::Duration;

use rustix::process::Signal;
use testkit::command::{Finished, Input, run_with, until};
use testkit::person::LIMIT;
use testkit::running::Running;
use testkit::skip::{Outcome, Skip};

use crate::cluster::world::{BOX, Lab};

/// A case, with a directory for its cluster files.
type Case = (&'static str, fn(&Lab<'_>) -> Outcome);

pub(crate) const USERS: Case = ("rsh_users", users);

pub(crate) const CASES: &[Case] = &[
    ("rsh_status", status),
    ("rsh_streams", streams),
    ("rsh_at_once", at_once),
    USERS,
    ("rsh_signals", signals),
    ("rsh_lost", lost),
    ("rsh_ends", ends),
    ("open_mpi", open_mpi),
    ("mpich", mpich),
];

const SERVERS: &str = "localhost/cluster:servers";
const RING: &str =
    "0 bytes right\n8 bytes right\n1024 bytes right\n65536 bytes right\n1048576 bytes right\n";
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/programs/guests/ring.c");

/// Writes a cluster of three nodes, the first of which runs a script. Containers have the case's
/// directory as `/lab`.
fn write(lab: &Lab<'_>, image: &str, script: &str) -> String {
    let name = lab.dir.file_name().expect("a name").display().to_string();
    let text = format!(
        "name = \"{name}\"\nimage = \"{image}\"\nnodes = 3\nvolume = [\"{}:/lab\"]\n[run]\n\
         slots = 1\nenv = {{ UCX_TLS = \"tcp,self\", rsh = \"/run/coracle/rsh\" }}\n\
         command = [\"sh\", \"-c\", '''{script}''']\n",
        lab.dir.display()
    );
    lab.file(&text)
}

fn up(lab: &Lab<'_>, image: &str, script: &str) -> Finished {
    let file = write(lab, image, script);
    lab.run(&["cluster", "up", "-f", &file])
}

/// The name of a node's container.
fn node(lab: &Lab<'_>, number: u32) -> String {
    format!("{}-node{number}", lab.dir.file_name().expect("a name").display())
}

fn status(lab: &Lab<'_>) -> Outcome {
    let script = r#"
        $rsh -x -q node2 hostname; echo $?
        $rsh node3 'exit 7'; echo $?
        $rsh node2 'kill -KILL $$'; echo $?
        $rsh node2 /no/such/program 2>/dev/null; echo $?
        $rsh node9 true; echo $?
        $rsh node2; echo $?
        CORACLE_DOOR=/nowhere $rsh node2 true; echo $?
        $rsh node1 hostname
        $rsh node2 "$rsh node3 hostname"
        $rsh node2 echo "'a  b'" c
        exit 9"#;
    let done = up(lab, BOX, script);
    let out = "node2\n0\n7\n137\n127\n255\n255\n255\nnode1\nnode3\na  b c\n";
    assert_eq!(done.expect(9).out(), out, "{done:?}");
    for line in [
        "rsh: node9 is not a node of this cluster: they are node1 to node3\n",
        "rsh: a command is missing",
        "rsh: cannot reach the driver by /nowhere: No such file or directory",
    ] {
        assert!(done.err().contains(line), "{done:?}");
    }
    Ok(())
}

fn streams(lab: &Lab<'_>) -> Outcome {
    let script = r"
        head -c 20000000 /dev/urandom > /tmp/bytes
        $rsh node2 cat < /tmp/bytes | busybox cmp - /tmp/bytes && echo same
        $rsh node2 'echo out; echo error: err >&2' 2>/tmp/said; cat /tmp/said
        echo in | $rsh -n node2 'cat; echo no input'
        $rsh node2 'cat; echo closed' <&-
        $rsh node2 'head -c 5000000 /dev/zero' | { sleep 1; busybox wc -c; }
        $rsh node2 yes 2>/dev/null | head -n 1
        $rsh node2 'exec sleep 0.1' < /dev/zero; echo $?";
    let done = up(lab, BOX, script);
    let out = "same\nout\nerror: err\nno input\nclosed\n5000000\ny\n0\n";
    assert_eq!(done.ok().out(), out, "{done:?}");
    Ok(())
}

fn at_once(lab: &Lab<'_>) -> Outcome {
    let script = r#"
        head -c 100000 /dev/urandom > /tmp/bytes
        for i in $(seq 50); do
            $rsh node$((i % 3 + 1)) "cat; exit $i" < /tmp/bytes > /tmp/$i & eval p$i=$!
        done
        for i in $(seq 50); do
            eval wait \$p$i; test $? = $i || echo $i has another status
            busybox cmp /tmp/$i /tmp/bytes || echo $i has other bytes
        done"#;
    let done = up(lab, BOX, script);
    assert_eq!((done.ok().out(), done.err().contains("rsh:")), (String::new(), false), "{done:?}");
    Ok(())
}

/// A user of the container that has the same id on the host may connect, too.
fn users(lab: &Lab<'_>) -> Outcome {
    let script = r"
        $rsh -l bob node2 id -u; $rsh bob@node2 id -u; $rsh node2 id -u
        $rsh -l bob node2 '/run/coracle/rsh node3 hostname'";
    assert_eq!(up(lab, BOX, script).ok().out(), "7\n7\n0\nnode3\n");
    Ok(())
}

fn signals(lab: &Lab<'_>) -> Outcome {
    let script = r#"
        run() { $rsh -n node2 "$1" & p=$!; until test -e /lab/begun; do sleep 0.05; done; }
        run 'touch /lab/begun; exec sleep 600'; kill -TERM $p; wait $p; echo $?; rm /lab/begun
        run 'trap "echo trapped; exit 3" TERM; touch /lab/begun; while :; do sleep 0.05; done'
        kill -TERM $p; wait $p; echo $?; rm /lab/begun
        # What loses its connection gets SIGTERM.
        run 'trap "touch /lab/ended; exit" TERM; touch /lab/begun; while :; do sleep 0.05; done'
        kill -KILL $p; until test -e /lab/ended; do sleep 0.05; done"#;
    assert_eq!(up(lab, BOX, script).ok().out(), "143\ntrapped\n3\n");
    Ok(())
}

/// A node whose container is killed, before a command and under it.
fn lost(lab: &Lab<'_>) -> Outcome {
    let script = r"
        echo go; until test -e /lab/gone; do sleep 0.05; done
        $rsh node2 true; echo $?
        $rsh node3 'touch /lab/begun; exec sleep 600'; echo $?";
    let file = write(lab, BOX, script);
    let mut running = Running::start(&mut lab.command(&["cluster", "up", "-f", &file]));
    running.expect("go\n");
    lab.run(&["rm", "-f", &node(lab, 2)]).ok();
    fs::write(lab.dir.join("gone"), "").expect("a file");
    let begun = until(LIMIT, || lab.dir.join("begun").exists().then_some(()));
    assert!(begun.is_some(), "no command on the third node");
    lab.run(&["rm", "-f", &node(lab, 3)]).ok();
    assert_eq!(running.end(LIMIT), 0, "{}", running.text());
    for line in [
        format!("rsh: node2 is lost: no container \"{}\"\n", node(lab, 2)),
        "rsh: node3 is lost: its container has ended\n".to_owned(),
    ] {
        assert!(running.text().contains(&line), "{}", running.text());
    }
    assert_eq!(running.text().matches("255\n").count(), 2, "{}", running.text());
    Ok(())
}

/// The driver is asked to end, and then killed, while a command runs on another node.
fn ends(lab: &Lab<'_>) -> Outcome {
    let script = "echo go; $rsh node2 'touch /lab/begun; exec sleep 600'; echo $? > /lab/status";
    for signal in [Signal::TERM, Signal::KILL] {
        for name in ["begun", "status"] {
            let _ = fs::remove_file(lab.dir.join(name));
        }
        let file = write(lab, BOX, script);
        let mut running = Running::start(&mut lab.command(&["cluster", "up", "-f", &file]));
        let exists = |name: &'static str| {
            let found = until(LIMIT, || lab.dir.join(name).exists().then_some(()));
            assert!(found.is_some(), "{signal:?}: no {name}");
        };
        exists("begun");
        running.signal(signal);
        let code = running.end(LIMIT);
        if signal == Signal::TERM {
            assert_eq!(code, 143);
        } else {
            exists("status");
            let file = lab.dir.join("status");
            let said = || fs::read_to_string(&file).ok().filter(|text| !text.is_empty());
            assert_eq!(until(LIMIT, said).as_deref(), Some("255\n"));
            let kept = lab
                .world
                .person
                .store()
                .join("clusters")
                .join(lab.dir.file_name().expect("a name"));
            let left = || fs::read_dir(kept.join("door")).is_ok_and(|mut all| all.next().is_none());
            assert!(until(Duration::from_secs(20), || left().then_some(())).is_some());
            lab.run(&["cluster", "down", "-f", &lab.dir.join("lab.toml").display().to_string()])
                .ok();
        }
    }
    Ok(())
}

/// The image with MPI and the source of the ring.
fn with_mpi(lab: &Lab<'_>) -> Result<(), Skip> {
    fs::copy(SOURCE, lab.dir.join("ring.c")).expect("a copy");
    if lab.run(&["image", "inspect", SERVERS]).code() != 0 {
        let tree = File::open(testkit::trees::servers()?).expect("the tree");
        let mut import = lab.world.person.command(&["import", "-q", "-", SERVERS]);
        run_with(import.stdin(tree), Input::AsIs, LIMIT).ok();
    }
    Ok(())
}

fn open_mpi(lab: &Lab<'_>) -> Outcome {
    with_mpi(lab)?;
    let script = r#"
        mpicc.openmpi -O1 /lab/ring.c -o /lab/ring || exit 1
        run="mpirun.openmpi --hostfile /etc/coracle/hosts --mca mpi_yield_when_idle 1"
        $run -n 3 hostname | sort
        $run -n 3 /lab/ring; $run -n 2 /lab/ring
        $run -n 3 sh -c 'test $(hostname) = node1 || exit 5' 2>/dev/null; echo $?
        exec $run -n 3 sh -c 'test $(hostname) != node3 || kill -SEGV $$'"#;
    let done = up(lab, SERVERS, script);
    let rings = format!(
        "token 4 of 3 ranks, in the container: 0\ntoken 2 of 2 ranks, in the container: 0\n{RING}"
    );
    let out = done.expect(139).out();
    assert!(out.starts_with(&format!("node1\nnode2\nnode3\n{rings}")), "{done:?}");
    assert!(out.lines().any(|line| line == "5"), "{done:?}");
    Ok(())
}

/// Hydra's file has other lines, and messages go between two ranks: with more, MPICH 4.0.2 often
/// never ends by this transport, without containers too.
///
/// The first rank, which alone gets input, reads it to its end: `mpiexec` of MPICH 4.0.2 ends by
/// SIGPIPE with what all ranks have written if it passes the end of its own input on to a rank that
/// has ended.
fn mpich(lab: &Lab<'_>) -> Outcome {
    with_mpi(lab)?;
    let script = r#"
        mpicc.mpich -DENDS_AT_ONCE -O1 /lab/ring.c -o /lab/ring || exit 1
        sed 's/ slots=/:/' /etc/coracle/hosts > /tmp/hosts
        input="test \$(hostname) != node1 || cat"
        mpiexec.mpich -f /tmp/hosts -n 3 sh -c "hostname; $input" | sort
        mpiexec.mpich -f /tmp/hosts -n 2 /lab/ring
        mpiexec.mpich -hosts node1,node2,node3 -n 3 \
            sh -c "$input; test \$(hostname) = node1 || exit 5""#;
    let done = up(lab, SERVERS, script);
    let out = format!("node1\nnode2\nnode3\ntoken 2 of 2 ranks, in the container: 0\n{RING}");
    assert_eq!(done.expect(5).out(), out, "{done:?}");
    Ok(())
}
