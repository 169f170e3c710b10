//! Tests of the lifecycle: containers in the background, stopped, restarted, inspected, removed.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::command::until;
use testkit::running::Running;
use testkit::skip::Outcome;

use crate::contract::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("detached_prints_the_id_and_returns", detached_prints_the_id_and_returns),
    ("logs_are_whole", logs_are_whole),
    ("logs_follow", logs_follow),
    ("stop_asks_then_kills", stop_asks_then_kills),
    ("stop_signal_of_the_container", stop_signal_of_the_container),
    ("kill_sends_any_signal", kill_sends_any_signal),
    ("wait_gives_the_code", wait_gives_the_code),
    ("ps_lists_and_filters", ps_lists_and_filters),
    ("inspect_formats", inspect_formats),
    ("rm_refuses_what_runs", rm_refuses_what_runs),
    ("start_again", start_again),
    ("create_then_start", create_then_start),
    ("run_an_existing_container", run_an_existing_container),
    ("rm_after_the_end", rm_after_the_end),
    ("restart_on_failure", restart_on_failure),
    ("limits_can_be_changed", limits_can_be_changed),
    ("init_reaps", init_reaps),
    ("cidfile", cidfile),
    ("names", names),
    ("attach", attach),
    ("paused", paused),
    ("top_shows_processes", top_shows_processes),
    ("stats_measure_what_runs", stats_measure_what_runs),
    ("ids_by_prefix", ids_by_prefix),
    ("clone_copies_changes", clone_copies_changes),
    ("mode_is_kept", mode_is_kept),
    ("a_process_left_behind_counts_as_running", a_process_left_behind_counts_as_running),
    ("processes_left_behind_are_ended", processes_left_behind_are_ended),
    ("commands_do_not_wait_for_a_program", commands_do_not_wait_for_a_program),
];

const TEN: Duration = Duration::from_secs(10);

/// What would wait for ever in a paused container is refused, and so is pausing twice.
fn paused(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let refused = |words: &[&str], code: i32, text: &str| {
        let done = w.coracle(&[words, &[&c.name]].concat());
        assert!(done.expect(code).err().contains(text), "{words:?}: {done:?}");
    };
    refused(&["unpause"], 1, "is not paused");
    w.coracle(&["pause", &c.name]).ok();
    assert_eq!(c.inspect("{{.State.Status}}"), "paused");
    let done = c.exec(&[], &["exit", "0"]);
    let text = format!("container {} is paused, unpause the container before exec", c.name);
    assert!(done.expect(125).err().contains(&text), "{done:?}");
    refused(&["pause"], 1, "is paused already");
    refused(&["start"], 1, "try unpause instead");
    refused(&["attach"], 1, "unpause it before attach");
    refused(&["run"], 125, "unpause it before a further run");
    w.coracle(&["unpause", &c.name]).ok();
    refused(&["unpause"], 1, "is not paused");
    c.exec(&[], &["exit", "7"]).expect(7);
    w.coracle(&["pause", &c.name]).ok();
    w.coracle(&["kill", &c.name]).ok();
    // The signal has not ended it yet.
    w.coracle(&["wait", &c.name]).ok();
    w.coracle(&["start", &c.name]).ok();
    c.exec(&[], &["exit", "7"]).expect(7);
    Ok(())
}

/// Where a process without a supervisor's duties stays beside the program, it holds no lock that
/// commands would wait for.
fn commands_do_not_wait_for_a_program(w: &World) -> Outcome {
    let own_pids = w.has_overlay().then_some(&["--pid=private"][..]);
    for flags in [&[][..], &["--init"]].into_iter().chain(own_pids) {
        let c = Container::named(w, &w.name("unlocked"));
        let mode = w.mode();
        let mut words = vec!["create", &mode, "--log-driver=none", "--name", &c.name];
        words.extend(flags);
        words.push(&w.image);
        w.coracle(&words).ok();
        let words = ["run", &c.name, "/bin/guest", "say", "up", ";", "sleep", "300"];
        let mut run = Running::start(&mut w.command(&words));
        run.expect("up");
        let refused = w.coracle(&["clone", &c.name]);
        let text = refused.err();
        assert!(refused.code() != 0 && text.contains("running"), "{flags:?}: {refused:?}");
        assert!(!text.contains("waiting for"), "{flags:?}: {refused:?}");
        w.coracle(&["rm", "-f", &c.name]).ok();
        run.end(TEN);
    }
    Ok(())
}

fn detached_prints_the_id_and_returns(w: &World) -> Outcome {
    let name = w.name("bg");
    let _container = Container::named(w, &name);
    let done = w.coracle(&w.words_for(&["run", "-d"], &["--name", &name], &["sleep", "300"]));
    let id = done.ok().line();
    assert!(id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{done:?}");
    assert!(!done.held_open, "the container holds the caller's output open");
    assert_eq!(w.coracle(&["inspect", "--format", "{{.Id}}", &name]).ok().line(), id);
    Ok(())
}

fn logs_are_whole(w: &World) -> Outcome {
    let c = w.detached(&[], &["say", "first", ";", "complain", "error", ";", "flood", "4"]);
    c.becomes("exited");
    let done = w.coracle(&["logs", &c.name]);
    done.ok();
    assert_eq!((done.stdout.len(), done.err()), ((4 << 20) + 6, "error\n".to_owned()));
    assert!(done.out().starts_with("first\n"));
    let tail = w.coracle(&["logs", "--tail", "2", &c.name]).ok().out();
    assert_eq!(tail.lines().count(), 2, "{tail}");
    let times = w.coracle(&["logs", "-t", "-n", "1", &c.name]).ok().out();
    assert!(times.starts_with("20") && times.contains('T'), "{times}");
    Ok(())
}

fn logs_follow(w: &World) -> Outcome {
    let c = w.detached(&[], &["say", "one", ";", "await", "USR1", ";", "say", "two"]);
    let mut follow = Running::start(&mut w.command(&["logs", "-f", &c.name]));
    follow.expect("one\nready");
    w.coracle(&["kill", "-s", "USR1", &c.name]).ok();
    follow.expect("got SIGUSR1\ntwo");
    assert_eq!(follow.end(TEN), 0, "following ends with the container: {}", follow.text());
    Ok(())
}

fn stop_asks_then_kills(w: &World) -> Outcome {
    let c = w.detached(&[], &["await", "TERM", ";", "say", "cleaned", ";", "exit", "7"]);
    c.said("ready");
    w.coracle(&["stop", &c.name]).ok();
    assert_eq!(c.inspect("{{.State.ExitCode}} {{.State.Status}}"), "7 exited");
    c.said("cleaned");
    let c = w.detached(&[], &["block", "TERM", ";", "ready", ";", "sleep", "300"]);
    c.said("ready");
    w.coracle(&["stop", "-t", "1", &c.name]).ok();
    assert_eq!(c.inspect("{{.State.ExitCode}}"), "137");
    // Stopping a stopped container is no error.
    w.coracle(&["stop", &c.name]).ok();
    Ok(())
}

fn stop_signal_of_the_container(w: &World) -> Outcome {
    let c = w.detached(&["--stop-signal=USR2", "--stop-timeout=5"], &["await", "USR2", "TERM"]);
    c.said("ready");
    w.coracle(&["stop", &c.name]).ok();
    c.said("got SIGUSR2");
    Ok(())
}

fn kill_sends_any_signal(w: &World) -> Outcome {
    for signal in ["USR1", "SIGUSR1", "10"] {
        let c = w.detached(&[], &["await", "USR1"]);
        c.said("ready");
        w.coracle(&["kill", "-s", signal, &c.name]).ok();
        c.said("got SIGUSR1");
    }
    let c = w.detached(&[], &["sleep", "300"]);
    w.coracle(&["kill", &c.name]).ok();
    c.becomes("exited");
    assert_eq!(c.inspect("{{.State.ExitCode}}"), "137");
    assert_ne!(w.coracle(&["kill", "-s", "NOTHING", &c.name]).code(), 0);
    Ok(())
}

fn wait_gives_the_code(w: &World) -> Outcome {
    let c = w.detached(&[], &["await", "TERM", ";", "exit", "5"]);
    c.said("ready");
    let mut waiting = Running::start(&mut w.command(&["wait", &c.name]));
    std::thread::sleep(Duration::from_millis(200));
    assert!(waiting.alive(), "it waits: {}", waiting.text());
    w.coracle(&["kill", "-s", "TERM", &c.name]).ok();
    assert_eq!((waiting.end(TEN), waiting.text()), (0, "5\n".to_owned()));
    assert_eq!(w.coracle(&["wait", &c.name]).ok().line(), "5");
    Ok(())
}

fn ps_lists_and_filters(w: &World) -> Outcome {
    let running = w.detached(&["--label", "kind=test", "-l", "x"], &["sleep", "300"]);
    let ended = w.detached(&[], &["exit", "3"]);
    ended.becomes("exited");
    let names = |flags: &[&str]| {
        let mut words = vec!["ps", "--format", "{{.Names}}"];
        words.extend(flags);
        let text = w.coracle(&words).ok().out();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |list: &[String], c: &Container<'_>| list.contains(&c.name);
    assert!(has(&names(&[]), &running) && !has(&names(&[]), &ended));
    assert!(has(&names(&["-a"]), &running) && has(&names(&["-a"]), &ended));
    let filtered = names(&["-a", "--filter", &format!("name={}", ended.name)]);
    assert_eq!(filtered, std::slice::from_ref(&ended.name));
    let exited = names(&["-a", "--filter", "status=exited", "--filter", "exited=3"]);
    assert!(has(&exited, &ended) && !has(&exited, &running));
    let labelled = names(&["--filter", "label=kind=test"]);
    assert!(has(&labelled, &running) && !has(&labelled, &ended));
    let ids = w.coracle(&["ps", "-q", "--no-trunc", "--filter", &format!("name={}", running.name)]);
    assert_eq!(ids.ok().line().len(), 64);
    let text = w.coracle(&["ps", "-a", "--format", "json"]).ok().out();
    assert!(
        serde_json::Deserializer::from_str(&text).into_iter::<Value>().all(|v| v.is_ok()),
        "{text}"
    );
    let table = w.coracle(&["ps", "-a"]).ok().out();
    assert!(table.starts_with("CONTAINER ID"), "{table}");
    assert!(table.contains("Exited (3)") && table.contains("Up "), "{table}");
    Ok(())
}

fn inspect_formats(w: &World) -> Outcome {
    let c = w.detached(&["-e", "A=b", "-w", "/data", "--label=k=v"], &["sleep", "300"]);
    let text = w.coracle(&["inspect", &c.name]).ok().out();
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let one = &all[0];
    assert_eq!(one["State"]["Running"], json!(true), "{text}");
    assert_eq!(one["Config"]["WorkingDir"], json!("/data"));
    assert_eq!(
        one["Name"].as_str().map(|name| name.trim_start_matches('/')),
        Some(c.name.as_str())
    );
    assert_eq!(c.inspect("{{.Config.Labels.k}} {{json .Config.WorkingDir}}"), "v \"/data\"");
    let pid: u32 = c.inspect("{{.State.Pid}}").parse().expect("a pid");
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    let listed = c.inspect("{{range .Config.Env}}{{println .}}{{end}}");
    assert!(listed.lines().any(|line| line == "A=b"), "{listed}");
    Ok(())
}

fn rm_refuses_what_runs(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let done = w.coracle(&["rm", &c.name]);
    assert!(done.code() != 0 && done.err().contains("-f"), "with a hint: {done:?}");
    assert_eq!(c.inspect("{{.State.Running}}"), "true");
    w.coracle(&["rm", "-f", &c.name]).ok();
    assert_ne!(w.coracle(&["inspect", "--type=container", &c.name]).code(), 0);
    assert_ne!(w.coracle(&["rm", &c.name]).code(), 0);
    Ok(())
}

fn start_again(w: &World) -> Outcome {
    let c = w.detached(
        &[],
        &["append", "/tmp/runs", "x", ";", "read", "/tmp/runs", ";", "say", "", ";", "exit", "4"],
    );
    // `append` needs the file, so the first run fails; any end will do here.
    c.becomes("exited");
    w.coracle(&["cp", "/etc/hostname", &format!("{}:/tmp/runs", c.name)]).ok();
    for count in 1..3 {
        assert_eq!(
            w.coracle(&["start", "-a", &c.name]).expect(4).out().matches('x').count(),
            count
        );
    }
    assert_eq!(w.coracle(&["start", &c.name]).ok().line(), c.name);
    c.becomes("exited");
    Ok(())
}

fn create_then_start(w: &World) -> Outcome {
    let name = w.name("created");
    let c = Container::named(w, &name);
    let made = w.coracle(&w.words_for(
        &["create"],
        &["--name", &name],
        &["say", "started", ";", "exit", "6"],
    ));
    assert_eq!(made.ok().line().len(), 64);
    assert_eq!(c.inspect("{{.State.Status}}"), "created");
    let done = w.coracle(&["start", "-a", &name]);
    assert_eq!((done.code(), done.out()), (6, "started\n".to_owned()), "{done:?}");
    Ok(())
}

/// udocker's syntax: `run NAME` runs the container of that name.
fn run_an_existing_container(w: &World) -> Outcome {
    let name = w.name("again");
    let _container = Container::named(w, &name);
    w.coracle(&["create", &w.mode(), "--name", &name, &w.image]).ok();
    w.coracle(&["run", &name, "/bin/guest", "write", "/tmp/kept", "yes"]).ok();
    assert_eq!(w.coracle(&["run", &name, "/bin/guest", "read", "/tmp/kept"]).ok().out(), "yes");
    assert_eq!(w.coracle(&["run", &name]).ok().out(), "[\"/bin/guest\",\"args\",\"default\"]\n");
    Ok(())
}

fn rm_after_the_end(w: &World) -> Outcome {
    let name = w.name("rm");
    w.coracle(&w.words_for(&["run", "-d", "--rm"], &["--name", &name], &["exit", "0"])).ok();
    let gone = until(TEN, || {
        (w.coracle(&["inspect", "--type=container", &name]).code() != 0).then_some(())
    });
    assert!(gone.is_some(), "a container with --rm is still there");
    let name = w.name("rm");
    w.coracle(&w.words_for(&["run", "--rm"], &["--name", &name], &["exit", "0"])).ok();
    assert_ne!(w.coracle(&["inspect", "--type=container", &name]).code(), 0);
    Ok(())
}

fn restart_on_failure(w: &World) -> Outcome {
    let c = w.detached(&["--restart", "on-failure:2"], &["say", "once", ";", "exit", "1"]);
    let seen = until(Duration::from_secs(30), || {
        let state = c.inspect("{{.State.Status}} {{.RestartCount}}");
        (state == "exited 2").then_some(())
    });
    assert!(seen.is_some(), "{}", c.inspect("{{json .State}} {{.RestartCount}}"));
    assert_eq!(w.coracle(&["logs", &c.name]).ok().out().matches("once").count(), 3);
    let c = w.detached(&["--restart=on-failure:3"], &["exit", "0"]);
    c.becomes("exited");
    assert_eq!(c.inspect("{{.RestartCount}}"), "0");
    Ok(())
}

fn limits_can_be_changed(w: &World) -> Outcome {
    let c = Container::named(w, &w.name("limits"));
    let mode = w.mode();
    let words = ["create", &mode, "--memory=64m", "--pids-limit=20", "--name", &c.name, &w.image];
    w.coracle(&words).ok();
    let update = |name: &str, flags: &[&str]| w.coracle(&[&["update"], flags, &[name]].concat());
    let recorded = "{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}} \
                    {{.HostConfig.RestartPolicy.Name}}";
    let done = update(&c.name, &["--memory=32m", "--cpus=1.5", "--restart=on-failure:2"]);
    assert_eq!((done.ok().line(), done.err()), (c.name.clone(), String::new()));
    assert_eq!(c.inspect(recorded), "33554432 1500000000 20 on-failure");
    update(&c.name, &["--pids-limit=-1", "--cpus=0", "--restart=no"]).ok();
    let lifted = c.inspect(recorded);
    assert!(lifted.starts_with("33554432 0 <") && lifted.ends_with(" no"), "{lifted}");
    for wrong in [&["--memory-swap=16m"][..], &["--memory=lots"], &["--restart=x"], &[]] {
        update(&c.name, wrong).expect(1);
    }
    assert_eq!(c.inspect(recorded), lifted);
    let d = w.detached(&["--pids-limit=100"], &["await", "TERM"]);
    d.said("ready");
    let done = update(&d.name, &["--pids-limit=200"]);
    assert_eq!(
        (done.ok().line(), d.inspect("{{.HostConfig.PidsLimit}}")),
        (d.name.clone(), "200".into())
    );
    let group = d.exec(&[], &["read", "/proc/self/cgroup"]).ok().out();
    let own = group.lines().any(|line| line.starts_with("0::") && line.contains("/coracle-"));
    assert_eq!(done.err().contains("from its next start"), !own, "{group}: {done:?}");
    let gone = w.detached(&["--rm"], &["await", "TERM"]);
    let refused = update(&gone.name, &["--restart=always"]);
    assert!(refused.expect(1).err().contains("--rm"), "{refused:?}");
    Ok(())
}

fn init_reaps(w: &World) -> Outcome {
    let guest = ["orphan", "/bin/guest", "spawn", "/bin/guest", "exit", "0"];
    let done = w.guest(&["--init", "--pid=private"], &guest);
    done.ok();
    let mut run = w.start(&["--init", "--pid=private"], &["await", "TERM"]);
    run.expect("ready");
    run.signal(rustix::process::Signal::TERM);
    run.expect("got SIGTERM");
    assert_eq!(run.end(TEN), 0);
    w.guest(&["--init"], &["exit", "42"]).expect(42);
    w.guest(&["--init"], &["signal", "9"]).expect(137);
    Ok(())
}

fn cidfile(w: &World) -> Outcome {
    let path = w.dir("cid").join("id");
    let flag = format!("--cidfile={}", path.display());
    w.guest(&[&flag], &["exit", "0"]).ok();
    let id = std::fs::read_to_string(&path).expect("the id");
    assert_eq!(id.trim().len(), 64);
    w.guest(&[&flag], &["exit", "0"]).expect(125);
    Ok(())
}

fn names(w: &World) -> Outcome {
    let (first, second) = (w.name("name"), w.name("name"));
    let _containers = [Container::named(w, &first), Container::named(w, &second)];
    w.coracle(&["create", &w.mode(), "--name", &first, &w.image]).ok();
    let done = w.coracle(&["create", &w.mode(), "--name", &first, &w.image]);
    assert!(done.code() == 125 && done.err().contains(&first), "{done:?}");
    w.coracle(&["rename", &first, &second]).ok();
    w.coracle(&["inspect", "--type=container", &second]).ok();
    assert_ne!(w.coracle(&["inspect", "--type=container", &first]).code(), 0);
    for bad in ["a b", "a/b", "", ".", "..", "-x"] {
        let flag = format!("--name={bad}");
        assert_eq!(w.coracle(&["create", &flag, &w.image]).code(), 125, "{bad:?}");
    }
    Ok(())
}

fn attach(w: &World) -> Outcome {
    let c = w.detached(&["-i"], &["ready", ";", "cat"]);
    c.said("ready");
    let mut attached = Running::start(&mut w.command(&["attach", &c.name]));
    std::thread::sleep(Duration::from_millis(300));
    attached.feed(b"typed\n");
    attached.expect("typed");
    // As Docker's: a client that attaches and disconnects does not close the container's input.
    attached.end_of_input();
    std::thread::sleep(Duration::from_millis(300));
    assert!(attached.alive(), "still attached to the output: {}", attached.text());
    w.coracle(&["kill", "-s", "TERM", &c.name]).ok();
    assert_eq!(attached.end(TEN), 143, "the program's status: {}", attached.text());
    Ok(())
}

fn top_shows_processes(w: &World) -> Outcome {
    for flags in [[].as_slice(), &["--pid=private"]] {
        let c = w.detached(flags, &["orphan", "/bin/guest", "sleep", "299", ";", "sleep", "300"]);
        c.said("orphan");
        let text = w.coracle(&["top", &c.name]).ok().out();
        assert!(text.contains("sleep 300") && text.contains("sleep 299"), "{flags:?}: {text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
    Ok(())
}

fn ids_by_prefix(w: &World) -> Outcome {
    let c = w.detached(&[], &["sleep", "300"]);
    let id = c.inspect("{{.Id}}");
    for length in [12, 20, 64] {
        assert_eq!(w.coracle(&["inspect", "--format={{.Id}}", &id[..length]]).ok().line(), id);
    }
    w.coracle(&["kill", &id[..12]]).ok();
    Ok(())
}

fn stats_measure_what_runs(w: &World) -> Outcome {
    let busy = w.detached(&["--log-driver=none"], &["flood", "100000000"]);
    let idle = w.detached(&[], &["sleep", "300"]);
    let ended = w.detached(&[], &["exit", "3"]);
    ended.becomes("exited");
    let format = "--format={{.Name}} {{.CPUPerc}} {{.PIDs}} {{.MemUsage}}";
    let words = ["stats", "--no-stream", format, &busy.name, &idle.name, &ended.name];
    let text = w.coracle(&words).ok().out();
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    let percent = |line: &[&str]| line[1].trim_end_matches('%').parse::<f64>().expect("a number");
    assert_eq!((lines[0][0], lines[1][0]), (busy.name.as_str(), idle.name.as_str()), "{text}");
    assert!(percent(&lines[0]) > 1.0 && percent(&lines[0]) > 2.0 * percent(&lines[1]), "{text}");
    for line in &lines[..2] {
        assert!(line[2].parse::<u64>().is_ok_and(|threads| threads > 0), "{text}");
        assert!(line[3].ends_with('B') && line[3] != "0B" && line[5].ends_with("iB"), "{text}");
    }
    assert_eq!(lines[2], [ended.name.as_str(), "--", "--", "--", "/", "--"], "{text}");
    let names = |flags: &[&str]| {
        let words = [&["stats", "--no-stream", "--format={{.Name}}"], flags].concat();
        w.coracle(&words).ok().out().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let running = names(&[]);
    assert!(running.contains(&idle.name) && !running.contains(&ended.name), "{running:?}");
    assert!(names(&["-a"]).contains(&ended.name));
    w.coracle(&["stats", "--no-stream", "no-such"]).expect(1);
    // A stream ends with the containers that were named.
    let mut stream = Running::start(&mut w.command(&["stats", &idle.name]));
    stream.expect(&idle.name);
    w.coracle(&["rm", "-f", &idle.name]).ok();
    assert_eq!(stream.end(TEN), 0, "{}", stream.text());
    Ok(())
}

fn clone_copies_changes(w: &World) -> Outcome {
    let (first, second) = (w.name("orig"), w.name("copy"));
    let _containers = [Container::named(w, &first), Container::named(w, &second)];
    w.coracle(&["create", &w.mode(), "--name", &first, &w.image]).ok();
    w.coracle(&[
        "run",
        &first,
        "/bin/guest",
        "write",
        "/tmp/changed",
        "1",
        ";",
        "remove",
        "/data/remove-me",
    ])
    .ok();
    w.coracle(&["clone", "--name", &second, &first]).ok();
    let seen =
        w.coracle(&["run", &second, "/bin/guest", "read", "/tmp/changed", ";", "list", "/data"]);
    assert_eq!(seen.ok().out(), "1[\"one\",\"sub\"]\n");
    w.coracle(&["run", &second, "/bin/guest", "write", "/tmp/changed", "2"]).ok();
    assert_eq!(w.coracle(&["run", &first, "/bin/guest", "read", "/tmp/changed"]).ok().out(), "1");
    Ok(())
}

fn mode_is_kept(w: &World) -> Outcome {
    let name = w.name("mode");
    let _container = Container::named(w, &name);
    w.coracle(&["create", &w.mode(), "--name", &name, &w.image]).ok();
    w.coracle(&["setup", &w.mode(), &name]).ok();
    w.coracle(&["run", &name, "/bin/guest", "exit", "5"]).expect(5);
    assert_ne!(w.coracle(&["setup", "--execmode=Z9", &name]).code(), 0);
    Ok(())
}

/// A container with a program that outlived its run, beside which no process stayed.
fn abandoned<'w>(w: &'w World, seconds: &str) -> Container<'w> {
    let container = Container::named(w, &w.name("left"));
    let flags = ["--log-driver=none", "--name", &container.name];
    let guest = ["orphan", "/bin/guest", "sleep", seconds];
    w.coracle(&w.words_for(&["run"], &flags, &guest)).ok();
    container
}

fn a_process_left_behind_counts_as_running(w: &World) -> Outcome {
    let c = abandoned(w, "297");
    assert_eq!(c.inspect("{{.State.Status}}"), "running");
    let listed = w.coracle(&["ps", "--format", "{{.Names}} {{.State}}"]).ok().out();
    assert!(listed.contains(&format!("{} running", c.name)), "{listed}");
    let text = w.coracle(&["top", &c.name]).ok().out();
    assert!(text.contains("sleep 297") && text.lines().count() == 2, "{text}");
    c.exec(&[], &["exit", "3"]).expect(3);
    let refused = w.coracle(&["rm", &c.name]);
    assert!(refused.code() != 0 && refused.err().contains("is running"), "{refused:?}");
    // Another run of it ends, and the program that was left behind still runs.
    w.coracle(&["run", &c.name, "/bin/guest", "exit", "4"]).expect(4);
    assert_eq!(c.inspect("{{.State.Status}}"), "running");
    w.coracle(&["kill", &c.name]).ok();
    let ended = until(TEN, || (c.inspect("{{.State.Status}}") != "running").then_some(()));
    assert!(ended.is_some(), "killed, but: {}", c.inspect("{{.State.Status}}"));
    w.coracle(&["rm", &c.name]).ok();
    Ok(())
}

fn processes_left_behind_are_ended(w: &World) -> Outcome {
    for verb in ["stop", "rm"] {
        let seconds = &crate::contract::removal::seconds();
        let c = abandoned(w, seconds);
        let id = c.inspect("{{.Id}}");
        let flags: &[&str] = if verb == "stop" { &["-t", "1"] } else { &["-f"] };
        w.coracle(&[&[verb], flags, &[c.name.as_str()]].concat()).ok();
        let line = format!("sleep\0{seconds}\0");
        let left: Vec<_> = std::fs::read_dir("/proc")
            .expect("/proc")
            .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
            .filter(|text| text.ends_with(line.as_bytes()) && text.starts_with(b"/bin/guest"))
            .collect();
        assert!(left.is_empty(), "{verb}: {} live on", left.len());
        let place = w.store().join("containers").join(&id);
        if verb == "rm" {
            assert!(!place.exists(), "{}", place.display());
            continue;
        }
        // No process is in it, so no files remain that only processes need.
        assert!(!place.join("run/shared").exists() && !place.join("run/memory").exists());
        w.coracle(&["rm", &c.name]).ok();
    }
    Ok(())
}
