//! Hosts that are nodes of a Slurm, inside an allocation.

use std::path::Path;

use testkit::command::{Finished, Input, run_with};
use testkit::image::Image;
use testkit::skip::{Outcome, Skip};
use testkit::slurm::{Cluster, Conditions};

use crate::hosts::lab::{Case, HOME, IMAGE, LIMIT, Lab, REGISTRY};
use crate::hosts::small::{self, BOX, noise};
use crate::hosts::terminals;

pub(crate) const CASES: &[(&str, Case)] =
    &[("slurm::run", run), ("slurm::packed", packed), ("slurm::one_copy", one_copy)];

/// A Slurm with a node on each host.
pub(crate) fn slurm<'l>(lab: &'l Lab, name: &str) -> Result<Cluster<'l>, Skip> {
    slurm_with(lab, name, &Conditions::default())
}

/// The same under conditions.
pub(crate) fn slurm_with<'l>(
    lab: &'l Lab,
    name: &str,
    conditions: &Conditions<'_>,
) -> Result<Cluster<'l>, Skip> {
    let place = lab.shared.join(name);
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir(&place).expect("a directory");
    lab.site.give(&place);
    Cluster::start_on((&lab.site.user, conditions), &lab.hosts, place)
}

/// A site that has Coracle nowhere but for one copied file on the login node, in a home that the
/// other hosts do not see. `salloc` there is enough; a job that is submitted says what is missing.
fn one_copy(lab: &Lab) -> Outcome {
    let cluster = slurm(lab, "slurm-of-one")?;
    small::load(lab, &lab.people[0])?;
    let person = &lab.people[0];
    let (program, file) = (format!("{HOME}/coracle"), format!("{HOME}/one.toml"));
    let text = format!(
        "name = \"one\"\nimage = {BOX:?}\nnodes = 2\n\
         backend = {{ kind = \"slurm\", options = [\"--nodelist=host2,host3\"] }}\n\
         [run]\ncommand = [\"sh\", \"-c\", \"/run/coracle/rsh node2 hostname; exit 9\"]\n"
    );
    let copy = format!("cp \"$0\" {program} && cat > {file}");
    let original = person.program.display().to_string();
    let mut copy = lab.command(0, Path::new("/bin/sh"), &["-c", &copy, &original]);
    run_with(&mut copy, Input::Bytes(text.into_bytes()), LIMIT).ok();
    let alone = |words: &[&str]| {
        let mut command = cluster.command(&person.user, words[0], &person.home);
        command.args(&words[1..]).env("PATH", "/usr/bin:/bin");
        run_with(&mut lab.hosts.command(0, &command), Input::Null, LIMIT)
    };
    for host in 0..crate::hosts::lab::COUNT {
        let search = ["-c", &format!("command -v coracle || ls {program}")];
        let mut search = lab.command(host, Path::new("/bin/sh"), &search);
        let found = run_with(&mut search, Input::Null, LIMIT).code() == 0;
        assert_eq!(found, host == 0, "host{}", host + 1);
    }
    let words = ["salloc", "--quiet", "--nodes=2", "--nodelist=host2,host3", "--"];
    let done = alone(&[&words[..], &[&program, "cluster", "up", "-f", &file]].concat());
    assert_eq!((done.code(), &*done.out()), (9, "node2\n"), "{done:?}");
    let done = alone(&[&program, "cluster", "up", "-f", &file]);
    assert!(done.code() != 0 && done.out().is_empty(), "{done:?}");
    for says in ["its host may not see", "salloc --nodes=N coracle cluster up -f FILE"] {
        assert!(done.err().contains(says), "{done:?}");
    }
    alone(&[&program, "cluster", "down", "-f", &file]).ok();
    let mut remove = lab.command(0, Path::new("/bin/rm"), &[&program, &file]);
    run_with(&mut remove, Input::Null, LIMIT).ok();
    Ok(())
}

/// In an allocation all hosts see the first one's home, as with a network file system: the image is
/// read from the driver's store.
fn run(lab: &Lab) -> Outcome {
    let cluster = slurm(lab, "slurm")?;
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

/// With `pack` the store that all hosts see keeps the layers alone, and each host unpacks them in
/// the first place of its own where the image has room.
fn packed(lab: &Lab) -> Outcome {
    // With its layer unpacked it is thought to need more than 112 MiB.
    const LARGE: usize = 28 << 20;
    const LESS: &str = "102400";
    let cluster = slurm(lab, "slurm-of-packed")?;
    let person = &lab.site;
    let layer = small::layer()?.file("large", 0o644, noise(7, LARGE));
    let image = Image::new().layer(layer).env("PATH", "/bin").build();
    lab.registry()?.push("lab/packed", &image);
    let image = format!("{}:5000/lab/packed:1", lab.hosts.address(REGISTRY));
    let unpacked = || {
        let layers = person.home.join(".local/share/coracle/layers");
        std::fs::read_dir(layers).map_or(0, Iterator::count)
    };
    let up = || {
        let text = format!(
            "name = \"packed\"\nimage = {image:?}\npack = true\nnodes = 2\n\
             volume = [\"/tmp:/t\", \"/var/tmp:/v\"]\n\
             backend = {{ kind = \"slurm\", options = [\"--nodelist=host2,host3\"] }}\n[run]\n\
             on = \"node2\"\ncommand = \"for i in /t /v; do cd $i/coracle-{uid} 2> /dev/null \
             && echo $i *; done; cd /\"\n",
            uid = person.user.uid
        );
        let file = lab.file("packed.toml", &text);
        let mut job = cluster.command(&person.user, "salloc", &person.home);
        job.args(["--quiet", "--nodes=2", "--nodelist=host2,host3", "--"]);
        job.arg(&person.program).args(["--insecure", "cluster", "up", "-f", &file]);
        run_with(&mut lab.hosts.command(0, &job), Input::Null, LIMIT)
    };
    // Other clusters have left files there.
    let has = |done: &Finished, place: &str| {
        let out = done.ok().out();
        let line = out.lines().find(|line| line.starts_with(place));
        line.is_some_and(|line| line.split(' ').any(|name| name == "cluster-packed"))
    };
    let before = unpacked();
    let done = up();
    assert!(has(&done, "/t "), "{done:?}");
    assert_eq!(unpacked(), before);
    // Those of a host; its `/tmp` has more mounts in it.
    let size = |places: &[&str], size: &str| {
        // Programs that have travelled are there, too.
        let sized = |place: &&str| {
            let used = format!("$(( $(df -k --output=used {place} | tail -n 1) + {size} ))k");
            format!("mount -o remount,size={used} {place} && ")
        };
        let all: String = places.iter().map(sized).collect();
        lab.root(2, &format!("{all} true")).ok();
    };
    lab.root(2, "mount -t tmpfs -o mode=1777 tmpfs /var/tmp").ok();
    size(&["/tmp"], LESS);
    let second = up();
    size(&["/var/tmp", "/dev/shm"], LESS);
    let none = up();
    size(&["/tmp", "/dev/shm"], "8388608");
    lab.root(2, "umount -l /var/tmp").ok();
    assert!(has(&second, "/v "), "{second:?}");
    assert_eq!(none.code(), 125, "{none:?}");
    for says in ["host3 has no directory of its own with room for 1", "/var/tmp has 10", "TMPDIR"] {
        assert!(none.err().contains(says), "{says}: {none:?}");
    }
    let mut command = person.user.command(&person.program, &person.home);
    run_with(command.args(["run", "--rm", &image, "echo"]), Input::Null, LIMIT).ok();
    assert!(unpacked() > before, "how an unpacked image is told is wrong");
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
        "coracle={program}; $coracle cluster up -f {file} < /dev/null > {log} 2>&1 & up=$!; \
         until grep -q 'tty is up' {log}; do sleep 0.2; done; \
         $coracle cluster exec -it tty node2 sh -c {talk}; echo status $?; stty -a; \
         kill $up; wait; echo all over",
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
