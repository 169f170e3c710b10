//! Tests of concurrency: many runs of one container, new containers, and conflicting commands.

use testkit::command::Finished;
use testkit::skip::Outcome;

use crate::contract::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("ten_runs_of_one_container", ten_runs_of_one_container),
    ("ten_fresh_containers", ten_fresh_containers),
    ("run_against_rm", run_against_rm),
    ("one_name_one_winner", one_name_one_winner),
    ("start_twice", start_twice),
    ("pulls_of_one_image", pulls_of_one_image),
];

fn at_once(count: usize, job: impl Fn(usize) -> Finished + Sync) -> Vec<Finished> {
    std::thread::scope(|scope| {
        let job = &job;
        let threads: Vec<_> = (0..count).map(|n| scope.spawn(move || job(n))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    })
}

fn ten_runs_of_one_container(w: &World) -> Outcome {
    let name = w.name("ten");
    let _container = Container::named(w, &name);
    w.coracle(&["create", &w.mode(), "--name", &name, &w.image]).ok();
    let done = at_once(10, |n| {
        let path = format!("/tmp/run-{n}");
        w.coracle(&[
            "run",
            &name,
            "/bin/guest",
            "write",
            &path,
            "x",
            ";",
            "say",
            &path,
            ";",
            "exit",
            &n.to_string(),
        ])
    });
    for (n, done) in done.iter().enumerate() {
        done.expect(i32::try_from(n).unwrap_or_default());
        assert_eq!(done.line(), format!("/tmp/run-{n}"));
    }
    let list = w.coracle(&["run", &name, "/bin/guest", "list", "/tmp"]).ok().out();
    assert_eq!(list.matches("run-").count(), 10, "{list}");
    Ok(())
}

fn ten_fresh_containers(w: &World) -> Outcome {
    for done in
        at_once(10, |n| w.guest(&[], &["write", "/tmp/x", "1", ";", "exit", &n.to_string()]))
            .iter()
            .enumerate()
    {
        done.1.expect(i32::try_from(done.0).unwrap_or_default());
    }
    Ok(())
}

fn run_against_rm(w: &World) -> Outcome {
    for _ in 0..6 {
        let name = w.name("race");
        let _container = Container::named(w, &name);
        w.coracle(&["create", &w.mode(), "--name", &name, &w.image]).ok();
        let done = at_once(2, |n| {
            if n == 0 {
                w.coracle(&["run", &name, "/bin/guest", "sleep", "1"])
            } else {
                w.coracle(&["rm", "-f", &name])
            }
        });
        // Killed, refused, not found (with no image of that name either), or finished before it was
        // removed.
        assert!([0, 125, 137].contains(&done[0].code()), "{:?}", done[0]);
        assert!([0, 1].contains(&done[1].code()), "{:?}", done[1]);
        w.coracle(&["ps", "-a"]).ok();
    }
    Ok(())
}

fn one_name_one_winner(w: &World) -> Outcome {
    let name = w.name("winner");
    let _container = Container::named(w, &name);
    let done = at_once(6, |_| w.coracle(&["create", &w.mode(), "--name", &name, &w.image]));
    let won = done.iter().filter(|done| done.code() == 0).count();
    assert_eq!(won, 1, "{done:?}");
    assert!(done.iter().all(|done| [0, 125].contains(&done.code())), "{done:?}");
    let left = w
        .coracle(&["ps", "-a", "--no-trunc", "--filter", &format!("name={name}"), "-q"])
        .ok()
        .out();
    assert_eq!(left.lines().count(), 1, "the losers left nothing: {left}");
    Ok(())
}

fn start_twice(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let again = w.coracle(&["start", &c.name]);
    assert!([0, 1].contains(&again.code()), "{again:?}");
    assert_eq!(c.inspect("{{.State.Running}}"), "true");
    let text = w.coracle(&["top", &c.name]).ok().out();
    assert_eq!(text.matches("sleep 300").count(), 1, "it was started once: {text}");
    Ok(())
}

fn pulls_of_one_image(w: &World) -> Outcome {
    if w.registry.is_none() {
        testkit::skip!("no docker-registry here");
    }
    let fresh = w.at(&w.dir("pulls-home"));
    for done in at_once(5, |_| fresh.coracle(&["pull", "-q", "--tls-verify=false", &w.image])) {
        done.ok();
    }
    fresh.guest(&[], &["exit", "0"]).ok();
    fresh.coracle(&["verify"]).ok();
    Ok(())
}
