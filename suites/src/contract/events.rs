//! `events`: what happens to containers and other objects is told once and in order, by whatever
//! command.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use testkit::running::Running;
use testkit::skip::Outcome;

use crate::contract::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("each_step_is_told_once_and_in_order", each_step_is_told_once_and_in_order),
    ("short_runs_are_told_with_their_removal", short_runs_are_told_with_their_removal),
    ("a_reader_sees_what_comes", a_reader_sees_what_comes),
    ("objects_are_told_of", objects_are_told_of),
];

/// The time as `--since` takes it.
fn now() -> String {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
    format!("{}.{:09}", time.as_secs(), time.subsec_nanos())
}

/// What was told since then, as `ACTION EXITCODE`.
fn told(w: &World, since: &str, filters: &[&str]) -> Vec<String> {
    let mut words = vec!["events", "--since", since, "--until", "0s"];
    words.extend(["--format", "{{.Action}} {{.Actor.Attributes.exitCode}}"]);
    words.extend(filters.iter().flat_map(|filter| ["--filter", filter]));
    let out = w.coracle(&words).ok().out();
    out.lines()
        .map(|line| line.trim_end().replace("<no value>", "").trim_end().to_owned())
        .collect()
}

fn each_step_is_told_once_and_in_order(w: &World) -> Outcome {
    let since = now();
    let c = Container::named(w, &w.name("steps"));
    let (mode, guest) = (w.mode(), ["/bin/guest", "ready", ";", "sleep", "300"]);
    let create = [&["create", &mode, "--name", &c.name, &w.image][..], &guest].concat();
    let id = w.coracle(&create).ok().line();
    w.coracle(&["run", &c.name, "/bin/guest", "exit", "3"]).expect(3);
    w.coracle(&["start", &c.name]).ok();
    c.said("ready");
    c.exec(&[], &["exit", "0"]).ok();
    let new = format!("{}-new", c.name);
    w.coracle(&["rename", &c.name, &new]).ok();
    let c = Container::named(w, &new);
    w.coracle(&["kill", "-s", "KILL", &c.name]).ok();
    w.coracle(&["wait", &c.name]).ok();
    w.coracle(&["start", &c.name]).ok();
    w.coracle(&["stop", "-s", "KILL", &c.name]).ok();
    w.coracle(&["rm", &c.name]).ok();
    let filter = format!("container={id}");
    let steps = told(w, &since, &[&filter]);
    let expected = [
        "create",
        "start",
        "die 3",
        "start",
        "exec_create: /bin/guest exit 0",
        "exec_start: /bin/guest exit 0",
        "exec_die 0",
        "rename",
        "kill",
        "die 137",
        "start",
        "kill",
        "die 137",
        "stop",
        "destroy",
    ];
    assert_eq!(steps, expected);
    let by_event = told(w, &since, &[&filter, "event=die", "event=destroy"]);
    assert_eq!(by_event, ["die 3", "die 137", "die 137", "destroy"]);
    assert_eq!(told(w, &since, &[&filter, "type=image"]), Vec::<String>::new());
    Ok(())
}

fn short_runs_are_told_with_their_removal(w: &World) -> Outcome {
    let since = now();
    let label = format!("label=of={}", w.name("short"));
    let runs: Vec<Running> = (0..3)
        .map(|_| w.start(&["--rm", "--label", &label["label=".len()..]], &["exit", "5"]))
        .collect();
    for mut run in runs {
        assert_eq!(run.end(Duration::from_secs(20)), 5, "{}", run.text());
    }
    let all = told(w, &since, &[&label]);
    for step in ["create", "start", "die 5", "destroy"] {
        assert_eq!(all.iter().filter(|line| *line == step).count(), 3, "{step}: {all:?}");
    }
    assert_eq!(all.len(), 12, "{all:?}");
    Ok(())
}

fn a_reader_sees_what_comes(w: &World) -> Outcome {
    let name = w.name("reader");
    let filter = format!("container={name}");
    let words = ["events", "--filter", &filter, "--format", "json"];
    let reader = Running::start(&mut w.command(&words));
    // It tells of what comes once it reads.
    std::thread::sleep(Duration::from_millis(500));
    let c = Container::named(w, &name);
    w.coracle(&["run", &w.mode(), "--name", &c.name, &w.image, "/bin/guest", "exit", "7"])
        .expect(7);
    reader.expect("\"exitCode\":\"7\"");
    let text = reader.text();
    let events: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let actions: Vec<_> =
        events.iter().map(|event| event["Action"].as_str().unwrap_or("")).collect();
    assert_eq!(actions, ["create", "start", "die"], "{text}");
    let died = &events[2];
    assert_eq!(
        (&died["Type"], &died["status"], &died["scope"]),
        (&Value::from("container"), &Value::from("die"), &Value::from("local"))
    );
    assert_eq!(died["Actor"]["Attributes"]["name"], name.as_str());
    assert_eq!(died["Actor"]["ID"], c.inspect("{{.Id}}"));
    assert_eq!(died["from"], w.image.as_str());
    Ok(())
}

fn objects_are_told_of(w: &World) -> Outcome {
    let since = now();
    let tag = format!("localhost/told/{}:x", w.name("t"));
    w.coracle(&["tag", &w.image, &tag]).ok();
    w.coracle(&["rmi", &tag]).ok();
    let image = format!("image={tag}");
    assert_eq!(told(w, &since, &["type=image", &image]), ["tag", "untag"]);
    let volume = w.name("told");
    w.coracle(&["volume", "create", &volume]).ok();
    w.coracle(&["volume", "rm", &volume]).ok();
    assert_eq!(told(w, &since, &[&format!("volume={volume}")]), ["create", "destroy"]);
    let network = w.name("told");
    w.coracle(&["network", "create", &network]).ok();
    w.coracle(&["network", "rm", &network]).ok();
    let network = format!("network={network}");
    assert_eq!(told(w, &since, &["type=network", &network]), ["create", "destroy"]);
    assert_eq!(w.coracle(&["events", "--filter", "colour=red"]).code(), 1);
    assert_eq!(w.coracle(&["events", "--since", "soon"]).code(), 1);
    Ok(())
}
