//! Hosts that are nodes of a Slurm, inside an allocation.

use testkit::command::{Input, run_with};
use testkit::skip::Outcome;
use testkit::slurm::Cluster;

use crate::lab::{Case, IMAGE, LIMIT, Lab};
use crate::terminals;

pub(crate) const CASES: &[(&str, Case)] = &[("slurm::run", run)];

/// In an allocation all hosts see the first one's home, as with a network file system: the image is
/// read from the driver's store.
fn run(lab: &Lab) -> Outcome {
    let place = lab.shared.join("slurm");
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir(&place).expect("a directory");
    lab.site.give(&place);
    let cluster = Cluster::start_on(&lab.site.user, &lab.hosts, place)?;
    lab.import(&lab.site)?;
    let script = "cat /etc/coracle/hosts; hostname; exit 9";
    let text = format!(
        "name = \"hpl\"\nimage = {IMAGE:?}\nnodes = 3\nbackend = [{{ kind = \"slurm\" }}]\n\
         [run]\nslots = 2\ncommand = [\"sh\", \"-c\", {script:?}]\n"
    );
    let file = lab.file("hpl.toml", &text);
    let person = &lab.site;
    let program = person.program.display().to_string();
    let mut job = cluster.command(&person.user, "salloc", &person.home);
    job.args(["--quiet", "--nodes=3", "--"])
        .arg(&person.program)
        .args(["cluster", "up", "-f", &file]);
    let done = run_with(&mut lab.hosts.command(0, &job), Input::Null, LIMIT);
    assert_eq!(done.code(), 9, "{done:?}");
    assert_eq!(done.out(), "node1 slots=2\nnode2 slots=2\nnode3 slots=2\nnode1\n");
    // Outside of an allocation the same file is a job.
    let mut up = cluster.command(&person.user, &program, &person.home);
    up.args(["cluster", "up", "-f", &file]);
    let done = run_with(&mut lab.hosts.command(0, &up), Input::Null, LIMIT);
    assert_eq!(done.code(), 9, "{done:?}");
    assert!(
        done.out().contains("node1 slots=2\nnode2 slots=2\nnode3 slots=2\nnode1\n"),
        "{done:?}"
    );
    terminal(lab, &cluster);
    Ok(())
}

/// A command with a terminal in a node of an allocation, from the allocation's first host.
fn terminal(lab: &Lab, cluster: &Cluster<'_>) {
    let text = format!(
        "name = \"tty\"\nimage = {IMAGE:?}\nnodes = 2\nbackend = [{{ kind = \"slurm\" }}]\n"
    );
    let file = lab.file("tty.toml", &text);
    let (person, log) = (&lab.site, lab.shared.join("slurm/up.log"));
    let script = format!(
        "coracle={program}; $coracle cluster up -f {file} < /dev/null > {log} 2>&1 & \
         until grep -q 'tty is up' {log}; do sleep 0.2; done; \
         $coracle cluster exec -it tty node2 sh -c {talk}; echo status $?; stty -a; \
         $coracle cluster down tty; wait; echo all over",
        program = person.program.display(),
        log = log.display(),
        talk = terminals::quote(terminals::TALK),
    );
    let mut job = cluster.command(&person.user, "salloc", &person.home);
    job.args(["--quiet", "--nodes=2", "--", "sh", "-c", &script]);
    let mut terminal = terminals::spawn(&lab.hosts.command(0, &job));
    terminals::talk(&mut terminal);
    terminals::expect(&terminal, "all over");
}
