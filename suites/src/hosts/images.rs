//! Images that are passed on from host to host. What is counted are the bytes on the links; the
//! first host drives, and the registry is on a host of its own.

use std::ops::RangeInclusive;
use std::process::Command;

use testkit::command::{Finished, Input, run_with, until};
use testkit::image::{Built, Image, Pack};
use testkit::layer::Layer;
use testkit::skip::{Outcome, Skip};
use testkit::slurm::{Cluster, Conditions, PORTS};

use crate::hosts::lab::{Case, HOME, LIMIT, Lab, PORT, REGISTRY};
use crate::hosts::slurm::slurm_with;
use crate::hosts::small::noise;

pub(crate) const CASES: &[(&str, Case)] = &[
    ("images::passed_on", passed_on),
    ("images::host_lost", host_lost),
    ("images::slow_host", slow_host),
    ("images::no_room", no_room),
    ("images::closed_ports", closed_ports),
    ("images::by_sbcast", by_sbcast),
];

/// What is sent besides an image: questions of the driver, acknowledgements.
const TALK: u64 = 3 << 20;
/// Bytes of an image's large layer.
const LAYER: usize = 24 << 20;

/// An image without a program, of two layers.
fn image(seed: u64, length: usize) -> Built {
    let layer = |name: &str, length| Layer::new().file(name, 0o644, noise(seed, length)).finish();
    Image::new()
        .packed(layer("large", length), Pack::Gzip)
        .packed(layer("small", 9), Pack::Gzip)
        .build()
}

/// The bytes of an image.
fn size(image: &Built) -> u64 {
    image.blobs().map(|blob| blob.bytes.len() as u64).sum()
}

/// A cluster without a network of its own, with a node on each host.
fn file(lab: &Lab, cluster: &str, name: &str) -> String {
    let text = format!(
        "name = {cluster:?}\nimage = \"{}:5000/{name}:1\"\nnodes = 3\nnetwork = \"host\"\n{}\
         [run]\ncommand = [\"/run/coracle/coracle\", \"--version\"]\n",
        lab.hosts.address(REGISTRY),
        lab.ssh(&["host1", "host2", "host3"])
    );
    lab.file(&format!("{cluster}.toml"), &text)
}

fn up(lab: &Lab, file: &str) -> Finished {
    lab.run(0, &["--insecure", "cluster", "up", "-f", file])
}

/// This program is on all hosts after a cluster of a small image.
fn warm(lab: &Lab) -> Result<(), Skip> {
    let registry = lab.registry()?;
    registry.push("lab/tiny", &image(1, 1000));
    up(lab, &file(lab, "warm", "lab/tiny")).ok();
    Ok(())
}

/// Bytes of blobs of which there is a part on a host.
fn part(lab: &Lab, host: usize) -> u64 {
    let script = format!("cat {HOME}/.local/share/coracle/tmp/ingest/*.part | wc -c");
    lab.root(host, &script).out().trim().parse().unwrap_or(0)
}

fn id(lab: &Lab, host: usize, name: &str) -> Option<String> {
    let name = format!("{}:5000/{name}:1", lab.hosts.address(REGISTRY));
    let done = lab.run(host, &["image", "inspect", "--format", "{{.Id}}", &name]);
    (done.code() == 0).then(|| done.out())
}

/// Starts `up` in the background; `watch` ends when it has seen what it waits for.
fn up_meanwhile(lab: &Lab, file: &str, watch: impl FnOnce()) -> Finished {
    let mut command = lab.command(0, &lab.people[0].program, &["--insecure"]);
    command.args(["cluster", "up", "-f", file]);
    std::thread::scope(|scope| {
        let up = scope.spawn(|| run_with(&mut command, Input::Null, LIMIT));
        watch();
        up.join().expect("the thread of the command")
    })
}

/// The registry sends an image once, the driver's machine and each host send it on once at most,
/// and while it arrives. What is there is not asked for again.
fn passed_on(lab: &Lab) -> Outcome {
    warm(lab)?;
    let image = image(2, LAYER);
    lab.registry()?.push("lab/big", &image);
    let (file, size) = (file(lab, "spread", "lab/big"), size(&image));
    let sent = || [0, 1, 2, REGISTRY].map(|host| lab.hosts.sent(host));
    let before = sent();
    lab.hosts.limit(0, "60mbit");
    let mut while_arriving = false;
    let done = up_meanwhile(lab, &file, || {
        let seen = until(LIMIT, || {
            let (first, last) = (part(lab, 0), part(lab, 2));
            while_arriving |= first > 0 && last > 0;
            (while_arriving || id(lab, 0, "lab/big").is_some()).then_some(())
        });
        assert!(seen.is_some(), "no image comes");
    });
    lab.hosts.limit(0, "10gbit");
    done.ok();
    assert!(while_arriving, "the last host has nothing before the first one has all");
    let after = sent();
    let [driver, second, last, registry] = [0, 1, 2, 3].map(|host| after[host] - before[host]);
    assert!(registry <= size + size / 20, "the registry has sent {registry} of {size}");
    assert!((size..size + size / 10 + TALK).contains(&driver), "the driver: {driver} of {size}");
    assert!((size..size + size / 10 + TALK).contains(&second), "the second: {second} of {size}");
    assert!(last < size / 4, "the last host has sent {last} of {size}");
    let first = id(lab, 0, "lab/big");
    assert!(first.is_some() && first == id(lab, 1, "lab/big") && first == id(lab, 2, "lab/big"));
    up(lab, &file).ok();
    let again = lab.hosts.sent(REGISTRY) - after[3];
    assert!(again < 10_000, "the registry was asked again: {again}");
    Ok(())
}

/// A host whose part is killed: the one after it goes on from the driver's machine, and the next
/// `up` goes on where it was.
fn host_lost(lab: &Lab) -> Outcome {
    warm(lab)?;
    let image = image(3, LAYER);
    lab.registry()?.push("lab/lost", &image);
    let (file, size) = (file(lab, "lost", "lab/lost"), size(&image));
    lab.hosts.limit(0, "60mbit");
    let done = up_meanwhile(lab, &file, || {
        let some = until(LIMIT, || (part(lab, 2) > 4 << 20).then_some(()));
        let killed = lab.root(1, "pkill -KILL -f 'cluster [s]pread'");
        assert!(some.is_some() && killed.code() == 0, "{killed:?}");
    });
    lab.hosts.limit(0, "10gbit");
    assert_ne!(done.code(), 0, "{done:?}");
    let said = done.err();
    let error = said.split_once("error: ").map_or("", |(_, error)| error);
    assert!(error.contains("image") && error.contains("host2"), "{done:?}");
    assert!(!error.contains("host3"), "{done:?}");
    assert!(id(lab, 0, "lab/lost").is_some() && id(lab, 0, "lab/lost") == id(lab, 2, "lab/lost"));
    assert_eq!(id(lab, 1, "lab/lost"), None);
    let kept = part(lab, 1);
    assert!(kept > 0, "nothing is left to go on with");
    let before = [0, REGISTRY].map(|host| lab.hosts.sent(host));
    up(lab, &file).ok();
    let [driver, registry] = [0, REGISTRY].map(|host| lab.hosts.sent(host));
    assert!(driver - before[0] < size - kept + size / 10 + TALK, "what was there is sent again");
    assert!(registry - before[1] < 10_000, "the registry was asked again");
    assert_eq!(id(lab, 0, "lab/lost"), id(lab, 1, "lab/lost"));
    Ok(())
}

/// A host with a slow link does not slow the one behind it.
fn slow_host(lab: &Lab) -> Outcome {
    warm(lab)?;
    lab.registry()?.push("lab/slow", &image(6, LAYER));
    let file = file(lab, "slow", "lab/slow");
    lab.hosts.limit(1, "4mbit");
    let mut others = None;
    let done = up_meanwhile(lab, &file, || {
        let last = until(LIMIT, || id(lab, 2, "lab/slow"));
        others = last.zip(Some(id(lab, 1, "lab/slow")));
        lab.hosts.limit(1, "10gbit");
    });
    done.ok();
    let (last, slow) = others.expect("the last host gets no image");
    assert_eq!(slow, None, "the slow host was not slow");
    assert_eq!(id(lab, 1, "lab/slow"), Some(last));
    Ok(())
}

/// A full disk is the error of its host alone, with the sizes, and after room is made `up` goes on.
fn no_room(lab: &Lab) -> Outcome {
    warm(lab)?;
    let image = image(4, LAYER);
    lab.registry()?.push("lab/full", &image);
    let file = file(lab, "full", "lab/full");
    let place = format!("{HOME}/.local/share/coracle");
    let uid = lab.people[1].user.uid;
    let mount = format!(
        "mv {place} {place}-own && mkdir {place} && \
         mount -t tmpfs -o size=12m,mode=700,uid={uid} small {place}"
    );
    lab.root(1, &mount).ok();
    let done = up(lab, &file);
    let unmount = format!("umount -l {place}; rmdir {place} && mv {place}-own {place}");
    lab.root(1, &unmount).ok();
    assert_ne!(done.code(), 0, "{done:?}");
    let err = done.err();
    assert!(err.contains("host2") && err.contains(" needs ") && err.contains(" free"), "{err}");
    assert!(err.contains("make room there"), "{err}");
    assert_eq!(id(lab, 1, "lab/full"), None);
    assert!(id(lab, 2, "lab/full").is_some() && id(lab, 0, "lab/full") == id(lab, 2, "lab/full"));
    up(lab, &file).ok();
    assert_eq!(id(lab, 0, "lab/full"), id(lab, 1, "lab/full"));
    Ok(())
}

/// Does something while the second and the third host reach nothing but these ports.
fn while_closed<T>(lab: &Lab, open: &RangeInclusive<u16>, work: impl FnOnce() -> T) -> T {
    let rules = |add: &str| {
        let ports = format!("{}-{}", open.start(), open.end());
        let rule = |rest: &str| format!("ip rule {add} {rest} || exit 1\n");
        let script = [
            rule(&format!("pref 10 ipproto tcp dport {ports} lookup main")),
            rule(&format!("pref 11 ipproto tcp sport {ports} lookup main")),
            rule("pref 12 to 10.99.0.0/24 ipproto tcp prohibit"),
        ];
        for host in [1, 2] {
            lab.root(host, &script.concat()).ok();
        }
    };
    rules("add");
    let done = work();
    rules("del");
    done
}

/// Hosts that reach nothing but each other's server of SSH get the image through that, and this is
/// said.
fn closed_ports(lab: &Lab) -> Outcome {
    warm(lab)?;
    lab.registry()?.push("lab/closed", &image(5, 1 << 20));
    let file = file(lab, "closed", "lab/closed");
    let done = while_closed(lab, &(PORT..=PORT), || up(lab, &file));
    assert!(done.err().contains("goes through the launcher to host2, host3: "), "{done:?}");
    done.ok();
    let first = id(lab, 0, "lab/closed");
    assert!(first.is_some() && first == id(lab, 1, "lab/closed"));
    assert_eq!(first, id(lab, 2, "lab/closed"));
    Ok(())
}

/// A cluster of an image in an allocation of the second and the third host, which do not have it.
/// The first one has it, and drives. The allocation ends when there is the file `over`, if that is
/// not empty.
fn job(lab: &Lab, slurm: &Cluster<'_>, name: &str, image: &Built, over: &str) -> Command {
    let (layout, image_name) = (lab.shared.join(name), format!("lab/{name}:1"));
    image.write_layout(&layout, &image_name).expect("a layout");
    lab.run(0, &["load", "--quiet", "--input", &layout.display().to_string()]).ok();
    for host in [1, 2] {
        lab.run(host, &["rmi", &image_name]);
    }
    let text = format!(
        "name = {name:?}\nimage = {image_name:?}\nnodes = 2\nnetwork = \"host\"\n\
         backend = {{ kind = \"slurm\" }}\n\
         [run]\ncommand = [\"/run/coracle/coracle\", \"--version\"]\n"
    );
    let (person, file) = (&lab.people[0], lab.file(&format!("{name}.toml"), &text));
    let script = "$1 cluster up -f $2; status=$?; until [ ! $3 ] || [ -e $3 ]; do sleep 0.1; done; \
                  exit $status";
    let mut job = slurm.command(&person.user, "salloc", &person.home);
    job.args(["--quiet", "--nodes=2", "--nodelist=host2,host3", "--", "sh", "-c", script, "sh"]);
    job.arg(&person.program).args([&file, over]);
    lab.hosts.command(0, &job)
}

/// The files of `sbcast` on a host.
fn files(lab: &Lab, host: usize) -> String {
    let kept = format!("{HOME}/.local/share/coracle/clusters");
    lab.root(host, &format!("ls /tmp/coracle-*/image-* {kept}/*/image-*")).out()
}

fn is_same(lab: &Lab, name: &str) -> bool {
    let words = ["image", "inspect", "--format", "{{.Id}}", name];
    let ids = [0, 1, 2].map(|host| lab.run(host, &words).out());
    !ids[0].is_empty() && ids[0] == ids[1] && ids[0] == ids[2]
}

/// Where a user runs the daemons of Slurm's nodes, `sbcast` fails, and the image goes through the
/// launcher. Where root runs them, they pass it on.
fn by_sbcast(lab: &Lab) -> Outcome {
    let start = |root_nodes| {
        slurm_with(lab, "slurm-of-images", &Conditions { root_nodes, ..Conditions::default() })
    };
    let up = |job: &mut Command| while_closed(lab, &PORTS, || run_with(job, Input::Null, LIMIT));
    let slurm = start(false)?;
    let done = up(&mut job(lab, &slurm, "refused", &image(7, 1000), ""));
    for says in [
        "sbcast of lab/refused:1 fails: ",
        "not permitted",
        "lab/refused:1 goes through the launcher to host2, host3: host2 does not reach ",
    ] {
        assert!(done.err().contains(says), "{done:?}");
    }
    done.ok();
    assert!(is_same(lab, "lab/refused:1"));
    drop(slurm);
    let slurm = start(true)?;
    sbcast_sends_once(lab, &slurm, up);
    sbcast_without_driver(lab, &slurm);
    Ok(())
}

/// The driver's machine and all hosts together send the image once for each host, and the driver's
/// machine sends it once. No file is left.
fn sbcast_sends_once(lab: &Lab, slurm: &Cluster<'_>, up: impl Fn(&mut Command) -> Finished) {
    let image = image(8, LAYER);
    let (size, mut job) = (size(&image), job(lab, slurm, "cast", &image, ""));
    let sent = || [0, 1, 2].map(|host| lab.hosts.sent(host));
    let before = sent();
    let done = up(&mut job);
    let after = sent();
    let said = done.err();
    assert!(
        said.contains("lab/cast:1 goes by sbcast to host2, host3: host2 does not "),
        "{done:?}"
    );
    assert!(!said.contains("fails") && !said.contains("launcher"), "{done:?}");
    done.ok();
    let [driver, second, third] = [0, 1, 2].map(|host| after[host] - before[host]);
    let once = size..size + size / 10 + TALK;
    assert!(once.contains(&driver), "the driver: {driver} of {size}");
    assert!(once.contains(&(second + third)), "the others: {second} and {third} of {size}");
    assert!(is_same(lab, "lab/cast:1"));
    assert_eq!([0, 1, 2].map(|host| files(lab, host)), [""; 3]);
}

/// A driver that is killed leaves no file on the hosts, although the job goes on.
fn sbcast_without_driver(lab: &Lab, slurm: &Cluster<'_>) {
    let over = lab.shared.join("over");
    let _ = std::fs::remove_file(&over);
    let mut job = job(lab, slurm, "lost", &image(9, LAYER), &over.display().to_string());
    lab.hosts.limit_sent(0, "40mbit");
    let (seen, killed, gone, done) = while_closed(lab, &PORTS, || {
        std::thread::scope(|scope| {
            let up = scope.spawn(|| run_with(&mut job, Input::Null, LIMIT));
            let seen = until(LIMIT, || (!files(lab, 2).is_empty()).then_some(()));
            let killed = lab.root(0, "pkill -KILL -f '^[^ ]*coracle cluster [u]p'");
            lab.hosts.limit_sent(0, "10gbit");
            let nothing = || (files(lab, 1) + &files(lab, 2)).is_empty().then_some(());
            let gone = until(LIMIT, nothing);
            std::fs::write(&over, "").expect("a file");
            (seen, killed, gone, up.join().expect("the thread of the job"))
        })
    });
    assert!(seen.is_some() && killed.code() == 0, "{killed:?} {done:?}");
    assert!(gone.is_some(), "a file is left");
    assert_eq!(done.code(), 137, "{done:?}");
    let person = &lab.people[0];
    let mut down = slurm.command(&person.user, &person.program.display().to_string(), &person.home);
    down.args(["cluster", "down", "lost"]);
    run_with(&mut lab.hosts.command(0, &down), Input::Null, LIMIT).ok();
    for host in [1, 2] {
        lab.run(host, &["cluster", "down", "lost"]).ok();
    }
    assert_eq!(files(lab, 0), "");
}
