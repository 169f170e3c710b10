//! What happens to clusters when a host, a link, a disk or an allocation fails: each with a real
//! fault.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use testkit::command::{Finished, Input, run_with, until};
use testkit::running::Running;
use testkit::skip::{Outcome, Skip};

use crate::hosts::lab::{Case, HOME, LIMIT, Lab};
use crate::hosts::small::{self, BOX};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("failures::host_fails", host_fails),
    ("failures::host_fails_in_a_run", host_fails_in_a_run),
    ("failures::partition", partition),
    ("failures::half_of_a_down", half_of_a_down),
    ("failures::other_hosts_in_the_file", other_hosts),
    ("failures::slow_host", slow_host),
    ("failures::full_disk", full_disk),
    ("failures::range_taken", range_taken),
    ("failures::other_program_on_a_host", other_program),
    ("failures::allocation_ends", allocation_ends),
];

const ALL_HOSTS: [&str; 3] = ["host1", "host2", "host3"];

/// A file with a service on each host that has a volume.
fn site(lab: &Lab, name: &str, hosts: &[&str]) -> String {
    let script = "test -e /data/kept || hostname > /data/kept; exec sleep 600";
    // `ssh` gives up soon where nothing answers.
    let ssh = lab.ssh(hosts).replace("options = [", "options = [\"-o\", \"ConnectTimeout=3\", ");
    let text = format!(
        "name = {name:?}\nimage = {BOX:?}\n{ssh}\
         [service.web]\ncommand = {script:?}\nreplicas = 3\nvolume = [\"{name}:/data\"]\n"
    );
    lab.file(&format!("{name}.toml"), &text)
}

fn start(lab: &Lab, words: &[&str]) -> Running {
    Running::start(&mut lab.command(0, &lab.people[0].program, words))
}

/// Sends a signal to the command of these words on the first host, which is behind programs that
/// make the world it runs in.
fn signal(lab: &Lab, words: &str, signal: Signal) {
    let all = lab.hosts.processes(0).into_iter();
    for process in all.filter(|process| process.words.ends_with(words)) {
        process.signal(signal);
    }
}

/// A host whose processes get a twentieth of a processor is told with numbers, is not taken for
/// lost, and holds up nobody who does not ask it.
fn slow_host(lab: &Lab) -> Outcome {
    small::load(lab, &lab.people[0])?;
    // The program has to travel and to be read there: work, whichever cases ran before.
    let programs = format!("rm -f /tmp/coracle-{}/coracle-*", lab.people[2].user.uid);
    lab.root(2, &programs).ok();
    let slowed = Slowed::start(lab, 2)?;
    let text = format!(
        "name = \"slow\"\nimage = {BOX:?}\nnodes = 3\nnetwork = \"host\"\n{}",
        lab.ssh(&ALL_HOSTS)
    );
    let file = lab.file("slow.toml", &text);
    let up = lab.run(0, &["cluster", "up", "-d", "-f", &file]);
    let other = lab.run(0, &["cluster", "exec", "slow", "node2", "echo", "there"]);
    let status = lab.run(0, &["cluster", "status", "slow"]);
    drop(slowed);
    lab.run(0, &["cluster", "down", "slow"]).ok();
    let err = up.ok().err();
    let told = err.lines().filter(|line| line.contains(" is slow: ")).collect::<Vec<_>>();
    assert!(!told.is_empty() && told.iter().all(|line| line.starts_with("host3 ")), "{err}");
    assert!(told.iter().all(|line| line.ends_with(" on other hosts")), "{err}");
    assert_eq!(other.ok().out(), "there\n");
    assert!(!status.ok().out().contains("lost"), "{status:?}");
    Ok(())
}

/// The controller of processors' time (cgroups, version 1).
const CPU: &str = "/sys/fs/cgroup/cpu";

/// A host that gets a twentieth of a processor until this is dropped.
struct Slowed<'l> {
    lab: &'l Lab,
    host: usize,
    group: PathBuf,
}

impl<'l> Slowed<'l> {
    fn start(lab: &'l Lab, host: usize) -> Result<Self, Skip> {
        let group = Path::new(CPU).join(format!("coracle-{}", std::process::id()));
        let made = fs::create_dir(&group);
        made.map_err(|error| Skip(format!("no group at {}: {error}", group.display())))?;
        let slowed = Self { lab, host, group };
        fs::write(slowed.group.join("cpu.cfs_period_us"), "100000").expect("a period");
        fs::write(slowed.group.join("cpu.cfs_quota_us"), "5000").expect("a quota");
        slowed.put_into(&slowed.group);
        Ok(slowed)
    }

    fn put_into(&self, group: &Path) {
        for process in self.lab.hosts.processes(self.host) {
            // One may have ended.
            let _ = fs::write(group.join("cgroup.procs"), process.pid.to_string());
        }
    }
}

impl Drop for Slowed<'_> {
    fn drop(&mut self) {
        let empty = until(LIMIT, || {
            self.put_into(Path::new(CPU));
            fs::remove_dir(&self.group).ok()
        });
        assert!(empty.is_some() || std::thread::panicking(), "the group is left");
    }
}

/// Ends all processes of a host, as a power failure does.
pub(crate) fn fail(lab: &Lab, host: usize) {
    while let [first, rest @ ..] = &lab.hosts.processes(host)[..] {
        first.kill();
        rest.iter().for_each(testkit::hosts::Process::kill);
    }
}

fn states(lab: &Lab, cluster: &str) -> Finished {
    let format = "{{.Name}} {{.Host}} {{.State}}";
    lab.run(0, &["cluster", "status", cluster, "--format", format])
}

/// The file in the volume of a host.
fn kept(lab: &Lab, host: usize, volume: &str) -> String {
    let path = format!("{HOME}/.local/share/coracle/volumes/{volume}/_data/kept");
    let mut cat = lab.command(host, Path::new("/bin/cat"), &[&path]);
    run_with(&mut cat, Input::Null, LIMIT).out()
}

const WHOLE: &str =
    "NAME-web-1 host1 running\nNAME-web-2 host2 running\nNAME-web-3 host3 running\n";

/// The driver and `status` name a host that fails, the others go on, and `up` starts there again
/// what was there when it is back, with its volume.
fn host_fails(lab: &Lab) -> Outcome {
    small::load(lab, &lab.people[0])?;
    let file = site(lab, "fails", &ALL_HOSTS);
    let whole = WHOLE.replace("NAME", "fails");
    let mut up = start(lab, &["cluster", "up", "-f", &file]);
    up.expect_within("is up; ctrl-C ends it", LIMIT);
    fail(lab, 2);
    up.expect_within("node host3 is lost: ", LIMIT);
    let now = states(lab, "fails");
    let expected = "fails-web-1 host1 running\nfails-web-2 host2 running\n host3 lost\n";
    assert_eq!((now.code(), &*now.out()), (1, expected), "{now:?}");
    assert!(now.err().contains("node host3 cannot be reached"), "{}", now.err());
    let again = lab.run(0, &["cluster", "up", "-d", "-f", &file]);
    assert!(again.code() != 0 && again.err().contains("node host3 cannot be reached"), "{again:?}");
    assert!(up.alive(), "{}", up.text());
    lab.mend_servers()?;
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    assert_eq!(states(lab, "fails").ok().out(), whole);
    assert_eq!(kept(lab, 2, "fails"), "web-3\n");
    // It had lost a host, which is back and ends its part like the others.
    signal(lab, &format!("cluster up -f {file}"), Signal::INT);
    assert_eq!(up.end(LIMIT), 130, "{}", up.text());
    assert_eq!(states(lab, "fails").ok().out(), "");
    lab.nothing_is_left();
    Ok(())
}

/// A command on a host that fails ends, and says which; so does a run that is there itself.
fn host_fails_in_a_run(lab: &Lab) -> Outcome {
    small::load(lab, &lab.people[0])?;
    for (on, says, status) in
        [("node1", "rsh: node3 is lost: ", 7), ("node3", "node host3 is lost: ", 125)]
    {
        let script = "echo begun; /run/coracle/rsh node3 'echo there; sleep 600' || exit 7";
        let text = format!(
            "name = \"mpi\"\nimage = {BOX:?}\nnodes = 3\n{}\
             [run]\non = {on:?}\ncommand = [\"sh\", \"-c\", {script:?}]\n",
            lab.ssh(&ALL_HOSTS)
        );
        let file = lab.file("mpi.toml", &text);
        let mut up = start(lab, &["cluster", "up", "-f", &file]);
        up.expect_within("there\n", LIMIT);
        fail(lab, 2);
        let code = up.end(LIMIT);
        assert!(up.text().contains(says) && code == status, "{on}: {code} {}", up.text());
        lab.mend_servers()?;
        lab.run(0, &["cluster", "down", "-f", &file]).ok();
        lab.nothing_is_left();
    }
    Ok(())
}

/// Both sides of a cut link see it: the driver says so, the host beyond ends what it has after its
/// grace. Nothing is started a second time, and `up` goes on when the link is mended.
fn partition(lab: &Lab) -> Outcome {
    if !testkit::share::is_whole() {
        return Err(Skip("it waits for silence: share 1/1 runs it".to_owned()));
    }
    small::load(lab, &lab.people[0])?;
    let file = site(lab, "cut", &ALL_HOSTS);
    let mut up = start(lab, &["cluster", "up", "--grace", "2s", "-f", &file]);
    up.expect_within("is up; ctrl-C ends it", LIMIT);
    lab.hosts.cut(2, true);
    up.expect_within("node host3 is lost: ", LIMIT);
    let again = lab.run(0, &["cluster", "up", "-d", "-f", &file]);
    assert!(again.code() != 0 && again.err().contains("host3"), "{again:?}");
    let now = states(lab, "cut");
    let expected = "cut-web-1 host1 running\ncut-web-2 host2 running\n host3 lost\n";
    assert_eq!((now.code(), &*now.out()), (1, expected), "{now:?} {}", up.text());
    let names = |host: usize| lab.run(host, &["ps", "--format", "{{.Names}}"]).ok().out();
    let gone = until(LIMIT, || names(2).is_empty().then_some(()));
    assert!(gone.is_some(), "host3 has {}", names(2));
    lab.hosts.cut(2, false);
    let again = lab.run(0, &["cluster", "up", "-d", "-f", &file]);
    again.ok();
    assert_eq!(states(lab, "cut").ok().out(), WHOLE.replace("NAME", "cut"));
    assert_eq!(kept(lab, 2, "cut"), "web-3\n");
    signal(lab, &format!("cluster up --grace 2s -f {file}"), Signal::INT);
    up.end(LIMIT);
    lab.run(0, &["cluster", "down", "-f", &file]).ok();
    Ok(())
}

/// A `down` that has not reached a host leaves the network there, with a list of hosts whose keys
/// are gone elsewhere.
fn half_of_a_down(lab: &Lab) -> Outcome {
    small::load(lab, &lab.people[0])?;
    let file = site(lab, "half", &ALL_HOSTS);
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    fail(lab, 1);
    let down = lab.run(0, &["cluster", "down", "-f", &file]);
    assert!(down.code() != 0 && down.err().contains("node host2 cannot be reached"), "{down:?}");
    lab.mend_servers()?;
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    assert_eq!(states(lab, "half").ok().out(), WHOLE.replace("NAME", "half"));
    for container in ["web-1", "web-2", "web-3"] {
        let known = until(LIMIT, || {
            let exec = ["cluster", "exec", "half", container, "wget", "-qO-", "http://web-2:9/"];
            // Nobody listens there, but the name is known.
            lab.run(0, &exec).err().contains("onnection refused").then_some(())
        });
        assert!(known.is_some(), "{container} does not know web-2");
    }
    lab.run(0, &["cluster", "down", "-f", &file]).ok();
    Ok(())
}

/// With other hosts in the file nothing is started beside what runs on those of before.
fn other_hosts(lab: &Lab) -> Outcome {
    small::load(lab, &lab.people[0])?;
    let file = site(lab, "moved", &ALL_HOSTS);
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    let file = site(lab, "moved", &["host1", "host3"]);
    let up = lab.run(0, &["cluster", "up", "-d", "-f", &file]);
    assert_ne!(up.code(), 0, "{up:?}");
    let fact = "cluster moved was started on host1, host2, host3, and the file names host1, host3";
    assert!(up.err().contains(fact) && up.err().contains("hint: "), "{up:?}");
    lab.run(0, &["cluster", "down", "-f", &file]).ok();
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    let expected =
        "moved-web-1 host1 running\nmoved-web-2 host3 running\nmoved-web-3 host1 running\n";
    assert_eq!(states(lab, "moved").ok().out(), expected);
    lab.run(0, &["cluster", "down", "-f", &file]).ok();
    Ok(())
}

/// A host without room is named, with sizes; `up` goes on when it has room.
fn full_disk(lab: &Lab) -> Outcome {
    let user = &lab.people[0].user;
    let store = "/tmp/small";
    let mount = format!(
        "mkdir -p {store} {HOME}/.local/share
         mount -t tmpfs -o size=4m,uid={uid},gid={gid},mode=700 tmpfs {store}
         if [ -e {HOME}/.local/share/coracle ]; then mv {HOME}/.local/share/coracle {HOME}/before; fi
         ln -s {store} {HOME}/.local/share/coracle; chown -R {uid}:{gid} {HOME}/.local",
        uid = user.uid,
        gid = user.gid
    );
    lab.root(2, &mount).ok();
    let text = format!(
        "name = \"full\"\nimage = {:?}\n{}\
         [service.web]\ncommand = [\"sleep\", \"600\"]\nreplicas = 3\n",
        crate::hosts::lab::IMAGE,
        lab.ssh(&ALL_HOSTS)
    );
    let file = lab.file("full.toml", &text);
    let up = lab.run(0, &["cluster", "up", "-d", "-f", &file]);
    let others: Vec<String> =
        (0..2).map(|host| lab.run(host, &["image", "ls", "-q"]).ok().out()).collect();
    lab.root(2, &format!("mount -o remount,size=2g {store}")).ok();
    let again = lab.run(0, &["cluster", "up", "-d", "-f", &file]);
    let whole = states(lab, "full");
    let down = lab.run(0, &["cluster", "down", "-f", &file]);
    let clean = format!(
        "rm {HOME}/.local/share/coracle; umount {store}; rmdir {store}
         if [ -e {HOME}/before ]; then mv {HOME}/before {HOME}/.local/share/coracle; fi"
    );
    lab.root(2, &clean).ok();
    assert_ne!(up.code(), 0, "{up:?}");
    let said = up.err();
    assert!(said.contains("host3") && said.contains("make room there"), "{said}");
    assert!(said.contains("MB"), "no sizes: {said}");
    assert!(others.iter().all(|images| !images.is_empty()), "the others have the image");
    again.ok();
    assert_eq!(whole.ok().out(), WHOLE.replace("NAME", "full"));
    down.ok();
    Ok(())
}

/// Addresses that a host needs for something else.
fn range_taken(lab: &Lab) -> Outcome {
    small::load(lab, &lab.people[0])?;
    for (subnet, route, says) in [
        (
            "subnet = \"100.91.0.0/24\"\n",
            "100.91.0.0/25",
            "the network on host2: subnet 100.91.0.0/24",
        ),
        ("", "100.80.0.0/16", "no subnet is free on all hosts by itself: 100.80."),
    ] {
        let text = format!(
            "name = \"range\"\nimage = {BOX:?}\n{subnet}{}\
             [service.web]\ncommand = [\"sleep\", \"600\"]\nreplicas = 3\n",
            lab.ssh(&ALL_HOSTS)
        );
        let file = lab.file("range.toml", &text);
        lab.root(1, &format!("ip route add {route} dev eth0")).ok();
        let up = lab.run(0, &["cluster", "up", "-d", "-f", &file]);
        let down = lab.run(0, &["cluster", "down", "-f", &file]);
        lab.root(1, &format!("ip route del {route} dev eth0")).ok();
        assert_ne!(up.code(), 0, "{up:?}");
        assert!(up.err().contains(says) && up.err().contains("on host2"), "{}", up.err());
        down.ok();
    }
    Ok(())
}

/// A program of another version, or a damaged one, is not executed in place of this one.
fn other_program(lab: &Lab) -> Outcome {
    small::load(lab, &lab.people[0])?;
    let user = &lab.people[0].user;
    let script = format!(
        "cd /tmp/coracle-{} && for file in coracle-*; do \
         printf '#!/bin/sh\\necho old' > \"$file\"; done",
        user.uid
    );
    let file = site(lab, "old", &ALL_HOSTS);
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    let mut spoil = lab.command(2, Path::new("/bin/sh"), &["-c", &script]);
    run_with(&mut spoil, Input::Null, LIMIT);
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    assert_eq!(states(lab, "old").ok().out(), WHOLE.replace("NAME", "old"));
    lab.run(0, &["cluster", "down", "-f", &file]).ok();
    Ok(())
}

/// An allocation that is taken away in the middle: by somebody, or because its time is over. The
/// hosts end what they have, and the next one begins anew. One where all was killed at once leaves
/// a store, which goes with the next cluster of that name there.
fn allocation_ends(lab: &Lab) -> Outcome {
    let slurm = crate::hosts::slurm::slurm(lab, "slurm-that-ends")?;
    small::load(lab, &lab.site)?;
    let text = format!(
        "name = \"short\"\nimage = {BOX:?}\nnodes = 3\nbackend = {{ kind = \"slurm\" }}\n\
         [run]\ncommand = [\"sh\", \"-c\", \"echo begun; sleep 600\"]\n"
    );
    let file = lab.file("short.toml", &text);
    let whys: &[(&str, Why)] = &[
        ("--time=10", Why::AtStart),
        ("--time=10", Why::InRun),
        ("--time=1", Why::Time),
        ("--time=10", Why::Killed),
        ("--time=10", Why::InRun),
    ];
    let whys = if testkit::share::is_whole() { whys } else { &whys[..2] };
    for (time, why) in whys {
        let person = &lab.site;
        let mut job = slurm.command(&person.user, "salloc", &person.home);
        job.args(["--quiet", "--nodes=3", time, "--"]).arg(&person.program);
        job.args(["cluster", "up", "-f", &file]);
        let mut up = Running::start(&mut lab.hosts.command(0, &job));
        up.expect_within(if *why == Why::AtStart { "start nodes" } else { "begun\n" }, LIMIT);
        if *why == Why::Killed {
            kill_all(lab, 2);
        }
        if *why != Why::Time {
            slurm.ask(&["scancel", "--me"]).ok();
        }
        let code = up.end(2 * LIMIT);
        assert!(code > 0, "{time} {why:?}: {code} {}", up.text());
        let left =
            until(LIMIT, || slurm.ask(&["squeue", "-h"]).ok().out().is_empty().then_some(()));
        assert!(left.is_some(), "jobs are left");
        let program = person.program.display().to_string();
        let mut down = slurm.command(&person.user, &program, &person.home);
        down.args(["cluster", "down", "-f", &file]);
        run_with(&mut lab.hosts.command(0, &down), Input::Null, LIMIT).ok();
        if *why == Why::Killed {
            let left = lab.left(2);
            assert!(left.contains("/cluster-short/") && !left.contains("agent"), "{left}");
        } else {
            lab.nothing_is_left();
        }
    }
    Ok(())
}

/// Why an allocation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// It is cancelled while nodes start.
    AtStart,
    /// It is cancelled while the application runs.
    InRun,
    /// Its time is over.
    Time,
    /// Nothing that could clean up lives on a host, and it is cancelled.
    Killed,
}

/// Kills what Coracle has on a host.
fn kill_all(lab: &Lab, host: usize) {
    let is_ours = |words: &str| {
        words.starts_with("coracle")
            || words.ends_with("cluster agent")
            || words.ends_with("cluster idle")
    };
    for _ in 0..3 {
        let all = lab.hosts.processes(host).into_iter();
        all.filter(|process| is_ours(&process.words)).for_each(|process| process.kill());
    }
}
