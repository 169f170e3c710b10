//! Hosts behind `ssh`.

#![expect(clippy::unnecessary_wraps, reason = "every case has the type of its table")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use testkit::command::{Input, run_with, until};
use testkit::skip::Outcome;

use crate::hosts::lab::{Case, IMAGE, LIMIT, Lab};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("ssh::run", run),
    ("ssh::other_nodes", other_nodes),
    ("ssh::services", services),
    ("ssh::hosts_without_containers", hosts_without_containers),
    ("ssh::not_reached", not_reached),
    ("ssh::cut", cut),
    ("ssh::driver_killed", driver_killed),
    ("ssh::driver_asked_to_end", driver_asked_to_end),
];

const ALL: [&str; 3] = ["host1", "host2", "host3"];

/// The head of a file with a node on each host.
fn head(lab: &Lab, name: &str) -> String {
    format!("name = {name:?}\nimage = {IMAGE:?}\nnodes = 3\n{}", lab.ssh(&ALL))
}

/// A program in the container of a node: all nodes are known by name, and the status is its own.
fn run(lab: &Lab) -> Outcome {
    let script = "cat /etc/coracle/hosts; hostname; cat /etc/hosts; exit 7";
    let text = format!(
        "{}[run]\non = \"node2\"\nslots = 4\ncommand = [\"sh\", \"-c\", {script:?}]\n",
        head(lab, "job")
    );
    let file = lab.file("job.toml", &text);
    let done = lab.run(0, &["cluster", "up", "-f", &file]);
    assert_eq!(done.code(), 7, "{done:?}");
    let out = done.out();
    assert!(out.starts_with("node1 slots=4\nnode2 slots=4\nnode3 slots=4\nnode2\n"), "{out}");
    for node in ["node1", "node2", "node3"] {
        assert!(
            out.lines().any(|line| line.starts_with("100.80.") && line.contains(node)),
            "{out}"
        );
    }
    Ok(())
}

/// Commands from the container of a node to those on other hosts, and from there on.
fn other_nodes(lab: &Lab) -> Outcome {
    let script = "
        rsh=/run/coracle/rsh
        head -c 3000000 /dev/urandom > /tmp/bytes
        for node in node1 node2 node3; do
            $rsh $node 'cat; exit 7' < /tmp/bytes | cmp - /tmp/bytes && $rsh $node hostname
            $rsh $node 'exit 7'; echo $?
        done
        $rsh node2 \"$rsh node3 hostname; echo oh >&2\"
        $rsh node9 true; exit $?";
    let text = format!(
        "{}[run]\non = \"node1\"\ncommand = [\"sh\", \"-c\", {script:?}]\n",
        head(lab, "doors")
    );
    let file = lab.file("doors.toml", &text);
    let done = lab.run(0, &["cluster", "up", "-f", &file]);
    assert_eq!(done.code(), 255, "{done:?}");
    assert_eq!(done.out(), "node1\n7\nnode2\n7\nnode3\n7\nnode3\n", "{done:?}");
    assert!(
        done.err().ends_with("rsh: node9 is not a node of this cluster: they are node1 to node3\n")
    );
    Ok(())
}

/// Services on all hosts, which find each other, until they are ended from another command.
fn services(lab: &Lab) -> Outcome {
    let text = format!(
        "name = \"site\"\nimage = {IMAGE:?}\n{}\
         [service.db]\ncommand = [\"sleep\", \"600\"]\nreplicas = 2\n\
         [service.web]\ncommand = [\"sleep\", \"600\"]\nafter = [\"db\"]\nreplicas = 3\n",
        lab.ssh(&ALL)
    );
    let file = lab.file("site.toml", &text);
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    // What is up stays as it is.
    let before = status(lab, "site");
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    assert_eq!(status(lab, "site"), before);
    let expected = "site-db-1 host1 running\nsite-db-2 host2 running\nsite-web-1 host1 running\n\
                    site-web-2 host2 running\nsite-web-3 host3 running\n";
    assert_eq!(before, expected);
    for (host, container) in [(1, "site-web-2"), (2, "site-web-3")] {
        for service in ["db-1", "db-2", "web-3"] {
            let known = lab.run(host, &["exec", container, "getent", "hosts", service]);
            assert!(known.ok().out().contains(service));
        }
    }
    lab.run(0, &["cluster", "down", "-f", &file]).ok();
    lab.run(0, &["cluster", "down", "site"]).ok();
    Ok(())
}

/// Services on the first host alone, which all others have to know, one after the other.
fn hosts_without_containers(lab: &Lab) -> Outcome {
    let text = format!(
        "name = \"first\"\nimage = {IMAGE:?}\n{}\
         [service.a]\ncommand = [\"sleep\", \"600\"]\n\
         [service.b]\ncommand = [\"sleep\", \"600\"]\nafter = [\"a\"]\n\
         [service.c]\ncommand = [\"sleep\", \"600\"]\nafter = [\"b\"]\n",
        lab.ssh(&ALL)
    );
    let file = lab.file("first.toml", &text);
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    lab.run(0, &["cluster", "down", "first"]).ok();
    Ok(())
}

fn status(lab: &Lab, cluster: &str) -> String {
    let format = "{{.Name}} {{.Host}} {{.State}}";
    lab.run(0, &["cluster", "status", cluster, "--format", format]).ok().out()
}

/// One error that names the host, and nothing is started anywhere.
fn not_reached(lab: &Lab) -> Outcome {
    let up = |config: &str, hosts: &[&str]| {
        let text = format!(
            "name = \"bad\"\nimage = {IMAGE:?}\nnodes = 2\n{}[run]\ncommand = [\"true\"]\n",
            lab.ssh_as(config, hosts)
        );
        lab.run(0, &["cluster", "up", "-f", &lab.file("bad.toml", &text)])
    };
    for (config, hosts, says) in [
        ("config", ["host2", "nowhere.invalid"], "nowhere.invalid"),
        ("config", ["host1", "again1"], "host1 and again1 are one host"),
        ("stranger", ["host1", "host2"], "Permission denied"),
        ("unknown", ["host1", "host2"], "Host key verification failed"),
    ] {
        let done = up(config, &hosts);
        assert_ne!(done.code(), 0, "{config} {hosts:?}: {done:?}");
        assert!(done.err().contains("error: ") && done.err().contains(says), "{}", done.err());
    }
    Ok(())
}

/// The sentinel: with a host cut off a start fails and names it, and `down` ends the other hosts
/// and says that one is not reached. When it is back, `down` ends that, too.
fn cut(lab: &Lab) -> Outcome {
    // `ssh` gives up soon.
    let head =
        |name| head(lab, name).replace("options = [", "options = [\"-o\", \"ConnectTimeout=2\", ");
    let file = lab.file("cut.toml", &head("cut"));
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    let count = |host: usize| lab.run(host, &["ps", "-q"]).ok().out().lines().count();
    assert_eq!([count(1), count(2)], [1, 1]);
    lab.hosts.cut(2, true);
    // A command reaches the host of its container alone.
    lab.run(0, &["cluster", "exec", "cut", "node2", "true"]).ok();
    let done = lab.run(0, &["cluster", "exec", "cut", "node3", "true"]);
    assert!(done.code() != 0 && done.err().contains("host3"), "{done:?}");
    let file = lab.file("quick.toml", &head("quick"));
    let done = lab.run(0, &["cluster", "up", "-d", "-f", &file]);
    assert!(done.code() != 0 && done.err().contains("host3"), "{done:?}");
    lab.run(0, &["cluster", "down", "--force", "quick"]).ok();
    let done = lab.run(0, &["cluster", "down", "cut"]);
    assert!(done.code() != 0 && done.err().contains("host3"), "{done:?}");
    assert_eq!([count(1), count(2)], [0, 1]);
    lab.hosts.cut(2, false);
    lab.run(0, &["cluster", "down", "cut"]).ok();
    Ok(())
}

/// Hosts whose driver is killed end the cluster after the grace, unless another driver comes.
fn driver_killed(lab: &Lab) -> Outcome {
    let text = format!("{}[run]\ncommand = [\"sleep\", \"600\"]\n", head(lab, "lost"));
    let file = lab.file("lost.toml", &text);
    let program = &lab.people[0].program;
    let mut up = lab.command(0, program, &["cluster", "up", "--grace", "2s", "-f", &file]);
    up.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut up = up.spawn().expect("a driver");
    let runs = || lab.run(0, &["cluster", "status", "lost", "--format", "{{.State}}"]).out();
    let all = until(LIMIT, || (runs() == "running\n".repeat(3)).then_some(()));
    // The command is behind programs that make the world it runs in.
    let script = "pkill -KILL -f 'cluster up --grace 2s'";
    let mut kill = lab.command(0, Path::new("/bin/sh"), &["-c", script]);
    run_with(&mut kill, Input::Null, LIMIT);
    let _ = up.wait();
    assert!(all.is_some(), "{}", runs());
    let gone = until(Duration::from_mins(1), || {
        let left = (0..3).map(|host| lab.run(host, &["ps", "-aq"]).out()).collect::<String>();
        let own = "ls -d /tmp/coracle-*/cluster-lost";
        let mut own = lab.command(0, Path::new("/bin/sh"), &["-c", own]);
        let store = run_with(&mut own, Input::Null, LIMIT).code();
        (left.is_empty() && store != 0).then_some(())
    });
    assert!(gone.is_some(), "the hosts do not end what they have");
    lab.run(0, &["cluster", "down", "lost"]).ok();
    Ok(())
}

/// A signal reaches the application, and the cluster is taken down.
fn driver_asked_to_end(lab: &Lab) -> Outcome {
    let script = "trap 'echo asked; exit 3' TERM; echo begun; while :; do sleep 0.1; done";
    let text = format!("{}[run]\ncommand = [\"sh\", \"-c\", {script:?}]\n", head(lab, "asked"));
    let file = lab.file("asked.toml", &text);
    let program = lab.people[0].program.display();
    let script = format!(
        "{program} cluster up -f {file} > out & until grep -q begun out; do sleep 0.2; done; \
         kill -TERM $!; wait $!; echo status $?; cat out"
    );
    let script = format!("cd {}; {script}", lab.people[0].home.display());
    let mut command = lab.command(0, Path::new("/bin/sh"), &["-c", &script]);
    let done = run_with(&mut command, Input::Null, LIMIT);
    assert_eq!(done.out(), "status 3\nbegun\nasked\n", "{done:?}");
    Ok(())
}
