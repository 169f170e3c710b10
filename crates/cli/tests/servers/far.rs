//! Tests of message passing between containers of two hosts, which have networks of their own: two
//! containers are on the first host and one is on the second.
//!
//! The hosts share a kernel, and with it the means by which ranks of one host talk. So these are
//! left out, the link must have carried what the ranks have sent each other, and at the end it is
//! cut between the start of the ranks and their messages: then none may arrive.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::hosts::Hosts;
use testkit::skip::Outcome;

use crate::In;
use crate::mpi::{NAMES, RING, ROOT, TWICE, nodes, places};
use crate::stage::{Case, LIMIT, Lab, World};

pub(crate) const CASES: &[(&str, In, Case)] =
    &[("far_open_mpi", In::First, far_open_mpi), ("far_mpich", In::Names, far_mpich)];

/// How much two ranks send each other, in each direction.
const SENT: u64 = 3 * (1024 + 65536 + 1_048_576);
/// How long ranks get that cannot succeed.
const SOME: Duration = Duration::from_secs(5);

/// Starts ranks in the containers that a file names.
struct Launcher<'l> {
    lab: &'l Lab<'l>,
    hosts: &'l Hosts,
    /// The variables for them, as words of the shell.
    variables: &'l str,
    /// The command, before the name of the file.
    command: &'l str,
}

impl Launcher<'_> {
    fn script(&self, file: &str, ranks: usize, program: &str) -> String {
        format!("export {}; exec {} {file} -n {ranks} {program}", self.variables, self.command)
    }

    fn start(&self, file: &str, ranks: usize, program: &str) -> Finished {
        self.lab.exec("one", &self.script(file, ranks, program))
    }

    /// What two ranks say, and how much the first host has sent over its link meanwhile.
    fn ring(&self, file: &str) -> (String, u64) {
        let before = self.hosts.sent(0);
        let script = self.script(file, 2, "/ring").replace("exec ", "exec sh /twice ");
        let done = self.lab.exec("one", &script);
        (done.ok().out(), self.hosts.sent(0) - before)
    }

    /// Ranks that have begun get no message over a link that is cut.
    fn sentinel(&self) {
        let begun = |name| self.lab.exec(name, "test -e /begun").code() == 0;
        let both = || (begun("one") && begun("three")).then_some(());
        let waiting = "sh -c 'touch /begun; until test -e /go; do sleep 0.1; done; exec /ring'";
        let script = self.script("/far", 2, waiting);
        let (both, done) = thread::scope(|scope| {
            let script = format!("echo $$ > /pid; {script}");
            let ranks = scope.spawn(move || self.lab.exec("one", &script));
            let both = until(Duration::from_mins(1), both);
            self.hosts.cut(1, true);
            for name in ["one", "three"] {
                self.lab.exec(name, "touch /go").ok();
            }
            // They have been right in less time.
            until(SOME, || ranks.is_finished().then_some(()));
            self.lab.exec("one", "kill -KILL $(cat /pid) || true").ok();
            (both, ranks.join().expect("a run"))
        });
        self.hosts.cut(1, false);
        assert!(both.is_some(), "the ranks did not begin: {done:?}");
        assert!(done.code() != 0 && !done.out().contains("right"), "over a cut link: {done:?}");
    }

    /// One node on each host; two on one and one on the other; two on one.
    fn all(&self, slots: &str) {
        let script = "\
            for name in one two three; do echo $name$1; done > /hosts
            grep -v two /hosts > /far; grep -v three /hosts > /near";
        self.lab.exec("one", &script.replace("$1", slots)).ok();
        self.lab.write("one", "/twice", TWICE.into());
        let mut said: Vec<String> =
            self.start("/hosts", 3, "hostname").ok().out().lines().map(str::to_owned).collect();
        said.sort();
        assert_eq!(said.join("\n") + "\n", places(self.lab, &NAMES));
        let right = format!("token 2 of 2 ranks, in the container: 0\n{RING}");
        let (said, sent) = self.ring("/far");
        assert_eq!(said, right);
        assert!(sent > SENT, "only {sent} bytes went over the link");
        let (said, sent) = self.ring("/near");
        assert_eq!(said, right);
        assert!(sent < SENT, "{sent} bytes of one host's ranks went over the link");
    }
}

/// Runs it with three nodes on two hosts, and the name of the interface between them.
fn on_two_hosts(w: &World, kind: &str, run: impl Fn(&Lab<'_>, &Hosts, &str)) -> Outcome {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let hosts = Hosts::start(2, w.person.home.parent().expect("a directory"))?;
    for host in 0..hosts.count() {
        // What a store knows of a host stands under its name, and all cases have one store.
        let mut rename = Command::new("hostname");
        rename.arg(format!("far{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        run_with(&mut hosts.command(host, &rename), Input::Null, LIMIT).ok();
    }
    {
        let (lab, interface) = nodes(w.lab_of(&hosts), kind)?;
        run(&lab, &hosts, &interface);
    }
    assert_eq!(hosts.end_well(Duration::from_secs(20)), Ok(()), "processes are left");
    Ok(())
}

fn far_open_mpi(w: &World) -> Outcome {
    on_two_hosts(w, "openmpi", |lab, hosts, _| {
        let command = "mpirun.openmpi --mca pml ob1 --mca btl tcp,self \
            --mca mpi_yield_when_idle 1 --hostfile";
        let launcher = Launcher { lab, hosts, variables: ROOT, command };
        launcher.all(" slots=1");
        let done = launcher.start("/hosts", 3, "/ring");
        assert_eq!(done.ok().out(), "token 4 of 3 ranks, in the container: 0\n");
        launcher.sentinel();
    })
}

/// With two ranks at a time, see [`crate::mpi`].
fn far_mpich(w: &World) -> Outcome {
    on_two_hosts(w, "mpich", |lab, hosts, interface| {
        let variables = &format!("UCX_TLS=tcp,self UCX_NET_DEVICES={interface}");
        let launcher = Launcher { lab, hosts, variables, command: "mpiexec.mpich -f" };
        launcher.all(":1");
        launcher.sentinel();
    })
}
