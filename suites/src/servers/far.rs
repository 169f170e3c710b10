//! Tests of message passing between containers of two hosts, which have networks of their own: two
//! containers are on the first host and one is on the second. And an address that moves between
//! the hosts.
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
use testkit::skip::{Outcome, Skip};

use crate::servers::In;
use crate::servers::mpi::{NAMES, RING, ROOT, nodes, places};
use crate::servers::stage::{Case, LIMIT, Lab, World};

pub(crate) const CASES: &[(&str, In, Case)] = &[
    ("far_open_mpi", In::First, far_open_mpi),
    ("far_mpich", In::Names, far_mpich),
    ("far_address", In::Packets, far_address),
];

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
        let done = self.start(file, 2, "/ring");
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

/// Two hosts with names of their own: what a store knows of a host stands under its name, and all
/// cases have one store.
fn two_hosts(w: &World) -> Result<Hosts, Skip> {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    let hosts = Hosts::start(2, w.person.home.parent().expect("a directory"))?;
    for host in 0..hosts.count() {
        let mut rename = Command::new("hostname");
        rename.arg(format!("far{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        run_with(&mut hosts.command(host, &rename), Input::Null, LIMIT).ok();
    }
    Ok(hosts)
}

/// Runs it with three nodes on two hosts, and the name of the interface between them.
fn on_two_hosts(w: &World, kind: &str, run: impl Fn(&Lab<'_>, &Hosts, &str)) -> Outcome {
    let hosts = two_hosts(w)?;
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

/// With two ranks at a time, see [`crate::servers::mpi`].
fn far_mpich(w: &World) -> Outcome {
    on_two_hosts(w, "mpich", |lab, hosts, interface| {
        let variables = &format!("UCX_TLS=tcp,self UCX_NET_DEVICES={interface}");
        let launcher = Launcher { lab, hosts, variables, command: "mpiexec.mpich -f" };
        launcher.all(":1");
        launcher.sentinel();
    })
}

/// Serves its name at port 7000 beside `keepalived`, which has the address `vip` now and then.
/// `PRIORITY` is a number.
const HOLDER: &str = "\
    cat > /etc/keepalived/keepalived.conf <<END
global_defs {
    vrrp_version 3
}
vrrp_instance web {
    interface eth0
    state BACKUP
    nopreempt
    virtual_router_id 7
    priority PRIORITY
    advert_int 0.2
    garp_master_refresh 1
    virtual_ipaddress {
        $(getent hosts vip | cut -d ' ' -f 1)/16
    }
}
END
    keepalived --dont-fork --log-console --vrrp &
    exec python3 -c 'import http.server as h
class H(h.BaseHTTPRequestHandler):
    def do_GET(s): s.send_response(200); s.end_headers(); s.wfile.write(b\"OWN\")
h.ThreadingHTTPServer((\"\", 7000), H).serve_forever()'";

/// An address that `keepalived` moves between hosts: when its holder ends, when the hosts are cut
/// off from each other, and when they meet again.
fn far_address(w: &World) -> Outcome {
    let hosts = two_hosts(w)?;
    {
        let lab = w.lab_with(&hosts, &["--aux-address", "vip"]);
        let holder = |own: &str, host: usize, priority: &str| {
            let text = HOLDER.replace("OWN", own);
            lab.serve_on(own, host, &text.replace("PRIORITY", priority));
        };
        let asked = |by: &str| {
            let ask = "curl -sS -m 1 http://vip:7000/ || true";
            lab.exec(by, ask).out()
        };
        let expect = |by: &str, name: &str| {
            let answered = until(LIMIT, || (asked(by) == name).then_some(()));
            assert!(answered.is_some(), "{by} is answered by {:?}, not {name}", asked(by));
        };
        lab.serve_on("near", 0, "exec sleep 600");
        lab.serve_on("far", lab.last_host(), "exec sleep 600");
        assert_eq!(asked("near"), "", "nobody has it");
        holder("one", 0, "100");
        holder("two", lab.last_host(), "99");
        let first = until(LIMIT, || Some(asked("near")).filter(|name| !name.is_empty()));
        expect("far", &first.expect("an answer"));
        // To the other host.
        lab.remove("one");
        for by in ["near", "far"] {
            expect(by, "two");
        }
        holder("one", 0, "100");
        lab.expect("one", "Entering BACKUP STATE");
        // For longer than it takes to miss the other.
        std::thread::sleep(Duration::from_secs(2));
        expect("near", "two");
        // Each half has one, and both halves the one with the higher priority afterwards.
        hosts.cut(1, true);
        expect("near", "one");
        expect("far", "two");
        hosts.cut(1, false);
        for by in ["near", "far"] {
            expect(by, "one");
        }
    }
    assert_eq!(hosts.end_well(Duration::from_secs(20)), Ok(()), "processes are left");
    Ok(())
}
