//! Tests of several machines with one store, and of several pid namespaces of one machine.
//!
//! The other machine has a host name, a boot id, a machine id and process ids of its own
//! ([`testkit::machine`]). "Here" is where the suite runs.

use std::time::Duration;

use testkit::command::{Finished, Input, run_with, until};
use testkit::machine::{Identity, Machine};
use testkit::running::Running;
use testkit::skip::{Outcome, Skip};

use crate::contract::world::{Case, Container, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("containers_of_another_host_are_not_changed", containers_of_another_host_are_not_changed),
    ("what_is_supervised_there_is_free_when_it_fails", what_is_supervised_there_is_free),
    (
        "containers_here_are_not_changed_from_another_host",
        containers_here_are_not_changed_from_another_host,
    ),
    ("another_pid_namespace_counts_as_another_host", another_pid_namespace_counts_as_another_host),
    ("a_new_name_and_a_new_start", a_new_name_and_a_new_start),
    ("two_starts_at_once", two_starts_at_once),
];

/// Another machine, with the program of a world.
struct Host<'w> {
    world: &'w World,
    machine: Machine,
}

const BOOT: &str = "0c5ab0a7-0000-4000-8000-00000000b007";
const NEXT_BOOT: &str = "0c5ab0a7-1111-4000-8000-00000000b007";
const ID: &str = "0123456789abcdef0123456789abcdef";

impl<'w> Host<'w> {
    fn start(world: &'w World, name: &str, boot: &str) -> Result<Self, Skip> {
        let identity = Identity { name, boot: Some(boot), id: Some(ID) };
        Ok(Self { world, machine: Machine::start(identity)? })
    }

    /// A pid namespace of this machine, like a container of another engine that shares the home.
    fn namespace(world: &'w World, name: &str) -> Result<Self, Skip> {
        let identity = Identity { name, boot: None, id: None };
        Ok(Self { world, machine: Machine::start(identity)? })
    }

    fn coracle(&self, words: &[&str]) -> Finished {
        let mut command = self.machine.command(&self.world.command(words));
        run_with(&mut command, Input::Null, LIMIT)
    }

    /// Starts a program without supervisor, and waits until it has written a file.
    fn run(&self, name: &str, path: &str) -> Running {
        let words = [
            "run",
            name,
            "/bin/guest",
            "write",
            path,
            "there",
            ";",
            "say",
            "up",
            ";",
            "sleep",
            "300",
        ];
        let running = Running::start(&mut self.machine.command(&self.world.command(&words)));
        running.expect("up");
        running
    }

    fn is_running(&self, name: &str) -> bool {
        let done = self.coracle(&["inspect", "--format", "{{.State.Running}}", name]);
        done.ok().line() == "true"
    }
}

fn create<'w>(w: &'w World, stem: &str) -> Container<'w> {
    let name = w.name(stem);
    let label = format!("--label=hosts={name}");
    let words = ["create", &w.mode(), "--log-driver=none", "--name", &name, &label, &w.image];
    w.coracle(&[&words[..], &["/bin/guest", "sleep", "300"]].concat()).ok();
    Container::named(w, &name)
}

/// Checks for an error that names the host.
#[track_caller]
fn refused(done: &Finished, host: &str) {
    assert_ne!(done.code(), 0, "{done:?}");
    let text = done.err();
    assert!(text.contains("the container runs") && text.contains(host), "{done:?}");
}

/// Checks that every harmful command is refused.
#[track_caller]
fn all_refused(w: &World, c: &Container, host: &str) {
    let file = w.file(&w.dir("hosts"), "file", "x").display().to_string();
    let into = format!("{}:/tmp/copied", c.name);
    let mode = w.mode();
    let harmful: &[&[&str]] = &[
        &["run", &c.name, "/bin/guest", "exit", "0"],
        &["run", "-d", &c.name, "/bin/guest", "exit", "0"],
        &["start", &c.name],
        &["start", "-a", &c.name],
        &["restart", &c.name],
        &["exec", &c.name, "/bin/guest", "exit", "0"],
        &["cp", &file, &into],
        &["setup", &mode, "--force", &c.name],
        &["clone", &c.name],
        &["stop", &c.name],
        &["kill", &c.name],
        &["pause", &c.name],
        &["wait", &c.name],
        &["rm", &c.name],
        &["rm", "-f", &c.name],
    ];
    for words in harmful {
        refused(&w.coracle(words), host);
    }
    let label = format!("label=hosts={}", c.name);
    let removed = w.coracle(&["container", "prune", "-f", "--filter", &label]).ok().out();
    assert!(!removed.contains("Deleted"), "{removed}");
    assert_eq!(c.inspect("{{.State.Host}}"), host);
    let list = w.coracle(&["ps", "--filter", &format!("name={}", c.name)]).ok().out();
    assert!(list.contains(host), "{list}");
    // Reading is allowed.
    let out = w.dir("hosts").join("passwd").display().to_string();
    w.coracle(&["cp", &format!("{}:/etc/passwd", c.name), &out]).ok();
    w.coracle(&["export", "-o", &format!("{out}.tar"), &c.name]).ok();
}

/// True if a process of Coracle stays beside every program of this engine.
fn always_stays(w: &World) -> bool {
    w.engine.starts_with(['P', 'R'])
}

fn containers_of_another_host_are_not_changed(w: &World) -> Outcome {
    let there = Host::start(w, "node17", BOOT)?;
    let c = create(w, "there");
    let program = there.run(&c.name, "/tmp/written");
    all_refused(w, &c, "node17");
    assert!(there.is_running(&c.name));
    assert_eq!(c.inspect("{{.State.Elsewhere.LockHeld}}"), always_stays(w).to_string());
    there.machine.fail();
    drop(program);
    if !always_stays(w) {
        refused(&w.coracle(&["rm", "-f", &c.name]), "node17");
        let wrong = w.coracle(&["rm", "-f", "--host-is-gone", "node18", &c.name]);
        assert!(wrong.code() != 0 && wrong.err().contains("but on node17"), "{wrong:?}");
        w.coracle(&["stop", "--host-is-gone", "node17", &c.name]).ok();
        let again = w.coracle(&["stop", "--host-is-gone", "node17", &c.name]);
        assert!(again.code() != 0 && again.err().contains("no other host"), "{again:?}");
    }
    let kept = w.coracle(&["run", &c.name, "/bin/guest", "read", "/tmp/written"]);
    assert_eq!(kept.ok().line(), "there");
    w.coracle(&["rm", &c.name]).ok();
    Ok(())
}

fn what_is_supervised_there_is_free(w: &World) -> Outcome {
    let there = Host::start(w, "node17", BOOT)?;
    let (c, other) = (create(w, "kept"), create(w, "removed"));
    there.coracle(&["start", &c.name]).ok();
    there.coracle(&["start", &other.name]).ok();
    for words in [&["start", &c.name][..], &["rm", "-f", &c.name]] {
        refused(&w.coracle(words), "node17");
    }
    assert!(there.is_running(&c.name) && there.is_running(&other.name));
    assert_eq!(c.inspect("{{.State.Elsewhere.LockHeld}}"), "true");
    let alive = w.coracle(&["rm", "--host-is-gone", "node17", &c.name]);
    assert!(alive.code() != 0 && alive.err().contains("is not gone"), "{alive:?}");
    there.machine.fail();
    w.coracle(&["rm", &other.name]).ok();
    assert_eq!(c.inspect("{{.State.Running}}"), "false");
    w.coracle(&["start", &c.name]).ok();
    assert_eq!(c.inspect("{{.State.Running}} {{.State.Elsewhere}}"), "true <no value>");
    Ok(())
}

fn containers_here_are_not_changed_from_another_host(w: &World) -> Outcome {
    let there = Host::start(w, "node17", BOOT)?;
    let c = create(w, "here");
    let words = ["run", &c.name, "/bin/guest", "say", "up", ";", "sleep", "300"];
    let program = Running::start(&mut w.command(&words));
    program.expect("up");
    for words in [
        &["start", &c.name][..],
        &["run", &c.name, "/bin/guest", "exit", "0"],
        &["exec", &c.name, "/bin/guest", "exit", "0"],
        &["stop", &c.name],
        &["rm", "-f", &c.name],
    ] {
        refused(&there.coracle(words), &c.inspect("{{.State.Host}}"));
    }
    c.exec(&[], &["exit", "7"]).expect(7);
    w.coracle(&["stop", "-t", "0", &c.name]).ok();
    drop(program);
    there.coracle(&["start", &c.name]).ok();
    refused(&w.coracle(&["rm", "-f", &c.name]), "node17");
    there.coracle(&["rm", "-f", &c.name]).ok();
    Ok(())
}

fn another_pid_namespace_counts_as_another_host(w: &World) -> Outcome {
    let there = Host::namespace(w, "nested")?;
    let (c, supervised) = (create(w, "alone"), create(w, "supervised"));
    let program = there.run(&c.name, "/tmp/written");
    there.coracle(&["start", &supervised.name]).ok();
    for c in [&c, &supervised] {
        let done = w.coracle(&["run", &c.name, "/bin/guest", "exit", "0"]);
        refused(&done, "another pid namespace of this machine (nested)");
        refused(&w.coracle(&["rm", "-f", &c.name]), "nested");
        refused(&w.coracle(&["exec", &c.name, "/bin/guest", "exit", "0"]), "nested");
    }
    there.machine.fail();
    drop(program);
    w.coracle(&["rm", &supervised.name]).ok();
    if !always_stays(w) {
        refused(&w.coracle(&["rm", "-f", &c.name]), "nested");
        w.coracle(&["stop", "--host-is-gone", "nested", &c.name]).ok();
    }
    w.coracle(&["run", &c.name, "/bin/guest", "exit", "0"]).ok();
    Ok(())
}

fn a_new_name_and_a_new_start(w: &World) -> Outcome {
    let there = Host::start(w, "node17", BOOT)?;
    let c = create(w, "named");
    let program = there.run(&c.name, "/tmp/written");
    there.machine.rename("node18");
    assert!(there.is_running(&c.name));
    refused(&w.coracle(&["exec", &c.name, "/bin/guest", "exit", "0"]), "node17");
    assert_eq!(there.coracle(&["top", &c.name]).ok().out().matches("guest").count(), 1);
    there.machine.fail();
    drop(program);
    let there = Host::start(w, "node17", NEXT_BOOT)?;
    let done = there.coracle(&["run", &c.name, "/bin/guest", "read", "/tmp/written"]);
    if always_stays(w) {
        assert_eq!(done.ok().line(), "there");
        return Ok(());
    }
    // The kernel itself was not restarted, so this is a copy of that machine.
    refused(&done, "another machine that is called node17 too");
    there.coracle(&["rm", "--host-is-gone", "node17", &c.name]).ok();
    Ok(())
}

fn two_starts_at_once(w: &World) -> Outcome {
    let there = Host::start(w, "node17", BOOT)?;
    let c = create(w, "both");
    for _ in 0..3 {
        let (one, other) = std::thread::scope(|scope| {
            let one = scope.spawn(|| there.coracle(&["start", &c.name]));
            let other = w.coracle(&["start", &c.name]);
            (one.join().expect("a thread"), other)
        });
        let won = [&one, &other].iter().filter(|done| done.code() == 0).count();
        assert_eq!(won, 1, "{one:?} {other:?}");
        let stop = ["stop", "-t", "0", &c.name];
        let stopped = [there.coracle(&stop), w.coracle(&stop)];
        let count = stopped.iter().filter(|done| done.code() == 0).count();
        assert!(count >= 1, "{stopped:?}");
        let idle = until(Duration::from_secs(20), || {
            (c.inspect("{{.State.Running}}") == "false").then_some(())
        });
        assert!(idle.is_some());
    }
    Ok(())
}
