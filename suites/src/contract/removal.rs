//! Tests of what a run removes and ends: only what it has made, and what belongs to it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use testkit::running::Running;
use testkit::skip::Outcome;
use testkit::terminal::Terminal;

use crate::contract::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("an_image_name_precedes_a_container_name", an_image_name_precedes_a_container_name),
    (
        "a_container_name_precedes_the_beginning_of_an_image_id",
        a_container_name_precedes_the_beginning_of_an_image_id,
    ),
    ("rm_is_for_what_a_run_makes", rm_is_for_what_a_run_makes),
    ("a_name_is_not_the_beginning_of_an_id", a_name_is_not_the_beginning_of_an_id),
    ("a_plain_run_outlives_one_with_a_terminal", a_plain_run_outlives_one_with_a_terminal),
    ("a_container_in_use_is_not_removed", a_container_in_use_is_not_removed),
    ("processes_of_exec_end_with_the_container", processes_of_exec_end_with_the_container),
    (
        "a_container_with_a_process_left_behind_is_not_removed",
        a_container_with_a_process_left_behind_is_not_removed,
    ),
    ("a_process_left_behind_outlives_later_runs", a_process_left_behind_outlives_later_runs),
    ("an_unnamed_volume_of_two_containers_stays", an_unnamed_volume_of_two_containers_stays),
];

const TEN: Duration = Duration::from_secs(10);

/// A number of seconds to sleep that no other case and no other run of this suite uses, so that
/// processes are found by it.
pub(crate) fn seconds() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let suite = std::process::id() % 1_000_000 * 1000;
    (100_000 + suite + NEXT.fetch_add(1, Ordering::Relaxed)).to_string()
}

/// Counts guests that sleep this long.
pub(crate) fn sleepers(seconds: &str) -> usize {
    let line = format!("sleep\0{seconds}\0");
    let lines = std::fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.filter(|text| text.starts_with(b"/bin/guest") && text.ends_with(line.as_bytes())).count()
}

/// A container without processes.
fn idle<'w>(w: &'w World, flags: &[&str]) -> Container<'w> {
    let container = Container::named(w, &w.name("idle"));
    let mode = w.mode();
    let words = [&["create", &mode, "--name", &container.name], flags, &[&w.image]].concat();
    w.coracle(&words).ok();
    container
}

/// A run in a container, in the foreground.
fn run(w: &World, container: &Container<'_>, guest: &[&str]) -> Running {
    let words = [&["run", &container.name, "/bin/guest"], guest].concat();
    let run = Running::start(&mut w.command(&words));
    run.expect("ready");
    run
}

fn run_on_terminal(w: &World, container: &Container<'_>, guest: &[&str]) -> Terminal {
    let words = [&["run", "-t", &container.name, "/bin/guest"], guest].concat();
    Terminal::spawn(&w.command(&words), 33, 101).expect("a terminal")
}

/// Checks that it was not ended, and ends normally.
#[track_caller]
fn ends_well(mut run: Running) {
    assert!(run.alive(), "it was ended with another run: {}", run.text());
    run.signal(Signal::TERM);
    run.expect("got SIGTERM");
    assert_eq!(run.end(TEN), 0, "{}", run.text());
}

/// A container that runs until it is ended, and a local image of the same name.
fn an_image_name_precedes_a_container_name(w: &World) -> Outcome {
    let c = w.detached(&[], &["write", "/tmp/precious", "kept", ";", "ready", ";", "sleep", "300"]);
    c.said("ready");
    w.coracle(&["tag", &w.image, &c.name]).ok();
    let mode = w.mode();
    let of_image = |flags: &[&str], guest: &[&str]| {
        let words = [&["run", "--rm", mode.as_str()], flags, &[c.name.as_str()], guest].concat();
        w.coracle(&words)
    };
    let client = of_image(&[], &["/bin/guest", "list", "/tmp"]);
    let id = c.inspect("{{.Id}}");
    assert_eq!(client.ok().out(), "[]\n", "in a container of its own");
    // Reported once, with the command to type instead.
    let told = format!("coracle run {}", &id[..12]);
    assert_eq!(client.err().matches(&told).count(), 1, "{client:?}");
    assert_eq!(c.inspect("{{.State.Running}}"), "true");
    let inside = w.coracle(&["run", &id[..12], "/bin/guest", "read", "/tmp/precious"]);
    assert_eq!((inside.ok().out(), inside.err()), ("kept".to_owned(), String::new()));
    // Without the image it means the container again, without a request to a registry.
    w.coracle(&["rmi", &c.name]).ok();
    let inside = w.coracle(&["run", &c.name, "/bin/guest", "read", "/tmp/precious"]);
    assert_eq!((inside.ok().out(), inside.err()), ("kept".to_owned(), String::new()));
    Ok(())
}

fn a_container_name_precedes_the_beginning_of_an_image_id(w: &World) -> Outcome {
    let own = w.at(&w.dir("beginning-home"));
    let file = w.dir("beginning").join("saved").display().to_string();
    w.coracle(&["save", "-o", &file, &w.image]).ok();
    own.coracle(&["load", "-q", "-i", &file]).ok();
    let id = own.coracle(&["images", "-q"]).ok().line();
    let [name, longer] = [&id[..2], &id[..3]];
    own.coracle(&["create", &w.mode(), "--name", name, &own.image]).ok();
    own.coracle(&["run", name, "/bin/guest", "write", "/tmp/mine", "kept"]).ok();
    let inside = |word| own.coracle(&["run", &w.mode(), word, "/bin/guest", "list", "/tmp"]);
    let done = own.coracle(&["run", name, "/bin/guest", "list", "/tmp"]);
    assert_eq!((done.ok().out(), done.err()), ("[\"mine\"]\n".to_owned(), String::new()));
    assert_eq!(inside(longer).ok().out(), "[]\n", "the image");
    Ok(())
}

fn rm_is_for_what_a_run_makes(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let id = c.inspect("{{.Id}}");
    for word in [c.name.as_str(), &id[..12]] {
        let done = w.coracle(&["run", "--rm", word, "/bin/guest", "exit", "0"]);
        assert!(done.expect(125).err().contains("coracle rm"), "with a hint: {done:?}");
        let done = w.coracle(&["run", "--pull=always", word, "/bin/guest", "exit", "0"]);
        assert!(done.expect(125).err().contains("--pull"), "{done:?}");
    }
    w.coracle(&["run", "--explain", &c.name]).ok();
    // A failed start removes nothing either.
    w.coracle(&["run", &c.name, "/no/such/program"]).expect(127);
    assert_eq!(c.inspect("{{.State.Running}}"), "true");
    // Every rank of a job has the same command line. One that joins a container which stays gets a
    // note.
    let words = w.words_for(&["run", "--rm"], &["--join", &c.name], &["exit", "0"]);
    let joined = w.coracle(&words);
    assert!(joined.ok().err().contains("made without --rm, and stays"), "{joined:?}");
    assert_eq!(c.inspect("{{.State.Running}}"), "true");
    // A container made by the run is removed, whether the program started or not.
    for (guest, code) in [("/no/such/program", 127), ("/bin/guest", 0)] {
        let name = w.name("made");
        let words = ["run", "--rm", "--name", &name, &w.mode(), &w.image, guest, "exit", "0"];
        w.coracle(&words).expect(code);
        assert_ne!(w.coracle(&["inspect", "--type=container", &name]).code(), 0);
    }
    Ok(())
}

/// `--force` replaces the container of that name, not one whose id begins with it.
fn a_name_is_not_the_beginning_of_an_id(w: &World) -> Outcome {
    let (first, second) = (w.name("old"), w.name("other"));
    let _containers = [Container::named(w, &first), Container::named(w, &second)];
    let id = w.coracle(&["create", &w.mode(), "--name", &first, &w.image]).ok().line();
    let prefix = &id[..10];
    w.coracle(&["create", "--force", "--name", prefix, &w.mode(), &w.image]).ok();
    assert_eq!(w.coracle(&["inspect", "--format={{.Id}}", &first]).ok().line(), id);
    w.coracle(&["rm", prefix]).ok();
    assert_eq!(w.coracle(&["inspect", "--format={{.Id}}", &first]).ok().line(), id);
    Ok(())
}

/// In both orders, and both ends of each.
fn a_plain_run_outlives_one_with_a_terminal(w: &World) -> Outcome {
    let c = idle(w, &[]);
    let plain = run(w, &c, &["await", "TERM"]);
    let mut other = run_on_terminal(w, &c, &["say", "done"]);
    assert_eq!(other.end().and_then(|status| status.code()), Some(0), "{}", other.text());
    ends_well(plain);

    let mut other = run_on_terminal(w, &c, &["await", "INT"]);
    other.expect("ready");
    ends_well(run(w, &c, &["await", "TERM"]));
    let plain = run(w, &c, &["await", "TERM"]);
    other.type_in(b"\x03").expect("typing");
    assert_eq!(other.end().and_then(|status| status.code()), Some(0), "{}", other.text());
    assert!(other.text().contains("got SIGINT"), "{}", other.text());
    ends_well(plain);
    w.coracle(&["rm", &c.name]).ok();
    Ok(())
}

/// A run that removes its container at its end finds another one in it.
fn a_container_in_use_is_not_removed(w: &World) -> Outcome {
    let name = w.name("used");
    let c = Container::named(w, &name);
    let mut first = w.start(&["--name", &name], &["await", "INT"]);
    first.expect("ready");
    let plain = run(w, &c, &["await", "TERM"]);
    first.signal(Signal::INT);
    assert_eq!(first.end(TEN), 0, "{}", first.text());
    assert!(first.text().contains("is not removed"), "{}", first.text());
    assert_ne!(w.coracle(&["rm", &name]).code(), 0);
    ends_well(plain);
    w.coracle(&["rm", &name]).ok();
    // `stop` ends all of its processes, and then it is removed.
    let mut first = w.start(&["--name", &name], &["await", "TERM"]);
    first.expect("ready");
    let mut plain = run(w, &c, &["await", "TERM"]);
    w.coracle(&["stop", "-t", "5", &name]).ok();
    first.end(TEN);
    assert!([0, 137].contains(&plain.end(TEN)), "{}", plain.text());
    w.coracle(&["rm", "-f", &name]).ok();
    Ok(())
}

fn processes_of_exec_end_with_the_container(w: &World) -> Outcome {
    let name = w.name("begun");
    let _container = Container::named(w, &name);
    let mut first = w.start(&["--name", &name], &["await", "INT"]);
    first.expect("ready");
    let (seen, behind) = (seconds(), seconds());
    let inside = ["exec", &name, "/bin/guest", "orphan", "/bin/guest", "sleep", &behind];
    w.coracle(&inside).ok();
    let words = ["exec", &name, "/bin/guest", "ready", ";", "sleep", &seen];
    let mut exec = Running::start(&mut w.command(&words));
    exec.expect("ready");
    first.signal(Signal::INT);
    assert_eq!(first.end(TEN), 0, "{}", first.text());
    assert_eq!(exec.end(TEN), 137, "{}", exec.text());
    assert_eq!((sleepers(&seen), sleepers(&behind)), (0, 0));
    let inspected = w.coracle(&["inspect", "--type=container", &name]);
    assert_ne!(inspected.code(), 0, "it is removed: {} {inspected:?}", first.text());
    Ok(())
}

/// Every command that removes, while processes left by the main program still run.
fn a_container_with_a_process_left_behind_is_not_removed(w: &World) -> Outcome {
    let label = format!("only={}", w.name("label"));
    let c = idle(w, &["--log-driver=none", "--label", &label]);
    let left = seconds();
    let words = ["run", &c.name, "/bin/guest", "orphan", "/bin/guest", "sleep", &left];
    w.coracle(&words).ok();
    assert_eq!((sleepers(&left), c.inspect("{{.State.Status}}")), (1, "running".to_owned()));
    let filter = format!("label={label}");
    for words in [
        &["rm", c.name.as_str()][..],
        &["create", "--force", "--name", &c.name, &w.image],
        &["clone", &c.name],
    ] {
        let done = w.coracle(words);
        assert!(done.code() != 0 && done.err().contains("is running"), "{done:?}");
    }
    w.coracle(&["container", "prune", "-f", "--filter", &filter]).ok();
    assert_eq!((sleepers(&left), c.inspect("{{.State.Status}}")), (1, "running".to_owned()));
    let top = w.coracle(&["top", &c.name]).ok().out();
    assert!(top.contains(&left) && top.lines().count() == 2, "{top}");
    let place = w.store().join("containers").join(c.inspect("{{.Id}}"));
    w.coracle(&["rm", "-f", &c.name]).ok();
    assert_eq!((sleepers(&left), place.exists()), (0, false));
    Ok(())
}

/// It is still the same container: the next run in it sees the process, and does not end it.
fn a_process_left_behind_outlives_later_runs(w: &World) -> Outcome {
    let c = idle(w, &["--log-driver=none"]);
    let left = seconds();
    let words = ["run", &c.name, "/bin/guest", "orphan", "/bin/guest", "sleep", &left];
    w.coracle(&words).ok();
    w.coracle(&["run", &c.name, "/bin/guest", "write", "/tmp/seen", "once"]).ok();
    let mut other = run_on_terminal(w, &c, &["read", "/tmp/seen"]);
    assert_eq!(other.end().and_then(|status| status.code()), Some(0), "{}", other.text());
    assert!(other.text().contains("once"), "{}", other.text());
    assert_eq!(c.exec(&[], &["read", "/tmp/seen"]).ok().out(), "once");
    assert_eq!((sleepers(&left), c.inspect("{{.State.Status}}")), (1, "running".to_owned()));
    w.coracle(&["stop", "-t", "1", &c.name]).ok();
    assert_eq!(sleepers(&left), 0);
    assert_ne!(c.inspect("{{.State.Status}}"), "running");
    w.coracle(&["rm", &c.name]).ok();
    Ok(())
}

/// A container's unnamed volume is removed with it, unless another container mounts it.
fn an_unnamed_volume_of_two_containers_stays(w: &World) -> Outcome {
    let c = idle(w, &["-v", "/kept"]);
    let read = || w.coracle(&["run", &c.name, "/bin/guest", "read", "/kept/file"]).ok().out();
    w.coracle(&["run", &c.name, "/bin/guest", "write", "/kept/file", "precious"]).ok();
    let done = w.guest(&["--volumes-from", &c.name], &["read", "/kept/file"]);
    assert_eq!(done.ok().out(), "precious");
    assert_eq!(read(), "precious", "a run with --rm took it along");
    let copy = w.name("copy");
    w.coracle(&["clone", "--name", &copy, &c.name]).ok();
    w.coracle(&["rm", &copy]).ok();
    assert_eq!(read(), "precious", "it went with a copy");
    Ok(())
}
