//! The agent as a child of its driver.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use remote::channel::{Channel, Error, Event, Running};
use remote::launcher::{Cause, Launcher, Way};
use remote::wire::messages::{Ended, Hello, Start};
use remote::wire::{VERSION, WINDOW};
use testkit::harness::Suite;

use crate::{Kit, comes_back, eventually, lives, open, soon, visitor};

/// A shell script on the node.
fn sh(script: &str) -> Start {
    Start::new(["sh", "-c", script])
}

/// The number that a program prints as its first line.
#[track_caller]
fn first_number(running: &Running) -> u32 {
    let mut text = Vec::new();
    while !text.contains(&b'\n') {
        match running.event() {
            Some(Event::Output(_, bytes)) => text.extend(bytes),
            other => panic!("{other:?}"),
        }
    }
    let line = String::from_utf8_lossy(&text).into_owned();
    line.lines().next().and_then(|line| line.trim().parse().ok()).expect("a number")
}

/// Starts a process whose child ignores SIGTERM; gives both.
fn stubborn(channel: &Channel) -> (Running, Vec<u32>) {
    let script = "trap '' TERM; sleep 1000 & echo $!; wait; wait; sleep 1000";
    let running = channel.start(&sh(script)).unwrap();
    let child = first_number(&running);
    (running, vec![child])
}

type Case = fn(&Kit);

pub(crate) fn cases<'a>(suite: &mut Suite<'a>, kit: &'a Kit) {
    let all: &[(&str, Case)] = &[
        // The slow ones first: they wait.
        ("local::a_silent_driver_is_lost", silent_driver),
        ("local::a_silent_agent_is_lost", silent_agent),
        ("local::whoever_is_killed_nothing_is_left", storm),
        ("local::facts", facts),
        ("local::echo_codes_and_signals", echo_codes_and_signals),
        ("local::input_and_signals", input_and_signals),
        ("local::what_a_program_leaves_is_ended", what_a_program_leaves_is_ended),
        ("local::too_much_output", too_much_output),
        ("local::floods_keep_memory_and_delay_nobody", flood),
        ("local::files", files),
        ("local::a_killed_agent_leaves_nothing", a_killed_agent_leaves_nothing),
        ("local::a_killed_guard_leaves_nothing", a_killed_guard_leaves_nothing),
        (
            "local::a_guard_killed_at_the_end_leaves_nothing",
            a_guard_killed_at_the_end_leaves_nothing,
        ),
        ("local::a_dropped_channel_ends_its_programs", a_dropped_channel_ends_its_programs),
        ("local::a_killed_driver_is_cleaned_up_after", killed_driver),
        ("local::who_asks_again_does_not_stop_the_end", asked_again),
        ("local::an_agent_takes_over", take_over),
        ("local::goodbye_cleans_nothing_up", goodbye_cleans_nothing_up),
        ("local::other_versions_and_other_programs", other_versions_and_other_programs),
        ("local::a_closed_stream_ends_the_agent", a_closed_stream_ends_the_agent),
    ];
    for &(name, case) in all {
        suite.case(name.to_owned(), move || {
            case(kit);
            Ok(())
        });
    }
}

fn facts(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    let facts = channel.facts();
    assert_eq!((facts.version, facts.digest.as_str()), (VERSION, kit.binary.digest.as_str()));
    assert_eq!(facts.uid, rustix::process::getuid().as_raw());
    assert!(facts.home_writable && !facts.boot_id.is_empty() && lives(facts.pid));
    let pid = facts.pid;
    channel.close();
    assert!(!lives(pid));
}

fn echo_codes_and_signals(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    let run = |start: &Start| channel.start(start).unwrap().output(1 << 20);
    let done = run(&sh("echo out; echo err >&2; exit 3")).unwrap();
    assert_eq!(
        (done.ended, &*done.stdout, &*done.stderr),
        (Ended::Code(3), &b"out\n"[..], &b"err\n"[..])
    );
    let done = run(&sh("kill -9 $$")).unwrap();
    assert_eq!((done.ended, done.ended.status()), (Ended::Signal(9), 137));
    let error = run(&Start::new(["no-such-program"])).unwrap_err().to_string();
    assert!(error.contains("node1") && error.contains("no-such-program"), "{error}");
    let error = run(&Start { directory: Some("/no-such".into()), ..sh(":") }).unwrap_err();
    assert!(error.to_string().contains("/no-such is not a directory"), "{error}");
    let start = Start {
        directory: Some("/usr".into()),
        variables: vec![("GREETING".into(), "hello".into())],
        ..sh(
            "echo $GREETING $PWD; ls -l /proc/self/fd | wc -l; ps -o sid= -p $$ | tr -d ' '; echo $$",
        )
    };
    let done = run(&start).unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // A total, three streams and the directory that is listed: nothing of the agent's.
    assert_eq!((lines[0], lines[1]), ("hello /usr", "5"), "{text}");
    assert_eq!(lines[2], lines[3], "a session of its own");
    let own = run(&Start::new(["{coracle}", "--version"])).unwrap();
    assert_eq!(own.ended, Ended::Code(0));
    channel.close();
}

fn input_and_signals(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    // More than the window, both ways.
    let bytes: Vec<u8> = (0..WINDOW * 5).map(|n| (n % 251) as u8).collect();
    let cat = comes_back(&channel, &bytes);
    assert!(matches!(cat.input(b"x"), Err(Error::Over { .. })));
    let trap =
        channel.start(&sh("trap 'echo got; exit 7' USR1; echo $$; while :; do sleep 0.05; done"));
    let trap = trap.unwrap();
    first_number(&trap);
    trap.signal(10).unwrap();
    assert_eq!(trap.wait().unwrap(), Ended::Code(7));
    // The agent blocks signals; what it starts does not.
    let sleep = channel.start(&Start::new(["sleep", "1000"])).unwrap();
    sleep.signal(15).unwrap();
    assert_eq!(sleep.wait().unwrap(), Ended::Signal(15));
    // A program without input sees its end.
    let empty = channel.start(&Start::new(["cat"])).unwrap();
    assert_eq!(empty.wait().unwrap(), Ended::Code(0));
    // A program that closes its input takes no more, and stops nobody.
    let deaf = channel.start(&sh("exec <&-; echo 1; sleep 0.3").with_input()).unwrap();
    first_number(&deaf);
    let _ = deaf.input(&bytes);
    assert_eq!(deaf.wait().unwrap(), Ended::Code(0));
    channel.close();
}

fn what_a_program_leaves_is_ended(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    let running = channel.start(&sh("sleep 1000 & echo $!; exit 4")).unwrap();
    let left = first_number(&running);
    assert_eq!(running.wait().unwrap(), Ended::Code(4));
    eventually("the rest of the group has ended", 10, || !lives(left));
    channel.close();
}

fn too_much_output(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    let flood = channel.start(&sh("echo $$; exec cat /dev/zero")).unwrap();
    let pid = first_number(&flood);
    assert!(matches!(flood.output(100_000), Err(Error::TooMuch { limit: 100_000, .. })));
    eventually("a program that nobody listens to is ended", 10, || !lives(pid));
    channel.close();
}

fn files(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    let dir = kit.dir("files");
    let path = dir.join("deep/er/file");
    let bytes: Vec<u8> = (0..WINDOW * 3 + 5).map(|n| (n % 253) as u8).collect();
    channel.put(&path, 0o700, &mut &*bytes).unwrap();
    assert!(std::fs::read(&path).unwrap() == bytes);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&path), mode(&dir.join("deep"))), (0o700, 0o700));
    let mut got = Vec::new();
    channel.get(&path, &mut got).unwrap();
    assert!(got == bytes);
    channel.put(&path, 0o600, &mut &b"second"[..]).unwrap();
    assert_eq!((std::fs::read(&path).unwrap().as_slice(), mode(&path)), (&b"second"[..], 0o600));
    let names = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
    assert_eq!(names, 1, "temporary files are left");
    let error = channel.put(&path.join("x"), 0o600, &mut &*bytes).unwrap_err();
    assert!(matches!(&error, Error::Refused { .. }), "{error}");
    let error = channel.get(&dir.join("none"), &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("cannot open") && error.contains("none"), "{error}");
    channel.close();
}

fn a_killed_agent_leaves_nothing(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    let (running, pids) = stubborn(&channel);
    let agent = rustix::process::Pid::from_raw(channel.facts().pid as i32).unwrap();
    rustix::process::kill_process(agent, rustix::process::Signal::KILL).unwrap();
    let Some(Event::Lost(why)) = running.events().last() else { panic!("not lost") };
    assert_eq!(why.node, "node1");
    assert!(channel.lost().is_some());
    eventually("its programs have ended", 20, || pids.iter().all(|&pid| !lives(pid)));
    drop(channel);
}

fn a_killed_guard_leaves_nothing(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    let (_running, pids) = stubborn(&channel);
    let agent = channel.facts().pid;
    kill(parent(agent));
    eventually("agent and programs have ended", 20, || {
        !lives(agent) && pids.iter().all(|&pid| !lives(pid))
    });
}

/// The driver is lost first, and then the guard is killed, while it waits for a program that does
/// not obey.
fn a_guard_killed_at_the_end_leaves_nothing(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    let asked = kit.dir("end").join("asked");
    let script =
        format!("trap 'echo >{}' TERM; echo $$; while :; do sleep 0.1; done", asked.display());
    let running = channel.start(&sh(&script)).unwrap();
    let program = first_number(&running);
    let agent = channel.facts().pid;
    let guard = parent(agent);
    drop(channel);
    eventually("the program is asked to end", 20, || asked.exists());
    kill(guard);
    eventually("agent and program have ended", 20, || !lives(agent) && !lives(program));
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn a_dropped_channel_ends_its_programs(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    let (running, pids) = stubborn(&channel);
    let agent = channel.facts().pid;
    drop(channel);
    assert!(matches!(running.events().last(), Some(Event::Lost(_))));
    eventually("they end", 20, || !lives(agent) && pids.iter().all(|&pid| !lives(pid)));
}

fn goodbye_cleans_nothing_up(kit: &Kit) {
    let mark = kit.dir("bye").join("mark");
    let channel = open(&kit.local(), &Hello::new("bye", true, Duration::ZERO));
    channel.at_end(["touch".to_owned(), mark.display().to_string()]).unwrap();
    channel.close();
    assert!(!mark.exists());
    let channel = open(&kit.local(), &visitor());
    let error = channel.at_end(["true"]).unwrap_err().to_string();
    assert!(error.contains("does not hold"), "{error}");
    channel.close();
}

fn other_versions_and_other_programs(kit: &Kit) {
    let hello = Hello { version: VERSION + 1, ..visitor() };
    let error = Channel::open("node1", &kit.local(), &hello, soon()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&format!("version {VERSION} ")), "{text}");
    assert!(text.contains(&format!("version {}", VERSION + 1)), "{text}");
    assert!(error.hint().is_some());
    let dir = kit.dir("others");
    let other = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        testkit::command::copy_program(&path, &dir.join(format!("{name}.run")));
        let path = dir.join(format!("{name}.run"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let binary = remote::launcher::Binary::of(&path).unwrap();
        let launcher = Launcher::new(Way::Local, binary.into());
        let limit = Instant::now() + Duration::from_secs(2);
        Channel::open("node1", &launcher, &visitor(), limit).unwrap_err()
    };
    let error = other("silent", "echo some words; exec sleep 1000");
    assert!(
        matches!(&error, Error::NoAgent { said, .. } if said.contains("some words")),
        "{error}"
    );
    let error = other("noisy", "exec cat /dev/zero");
    assert!(matches!(&error, Error::NoAgent { why, .. } if why.contains("too much")), "{error}");
    let error = other("fails", "echo bad luck >&2; exit 3");
    assert!(matches!(&error, Error::Launch { said, .. } if said.contains("bad luck")), "{error}");
    let garbage = "echo 'coracle agent stream'; exec head -c 1000 /dev/zero";
    assert!(matches!(other("garbage", garbage), Error::Stream { .. }));
    let missing = remote::launcher::Binary { path: dir.join("none"), ..(*kit.binary).clone() };
    let launcher = Launcher::new(Way::Local, missing.into());
    let error = Channel::open("node1", &launcher, &visitor(), soon()).unwrap_err();
    assert!(matches!(&error, Error::Launch { cause: Cause::Missing, .. }), "{error}");
}

fn a_closed_stream_ends_the_agent(kit: &Kit) {
    let mut command = Command::new(&kit.binary.path);
    command.args(["cluster", "agent"]).stdin(Stdio::null());
    let done = testkit::command::run_with(
        &mut command,
        testkit::command::Input::Null,
        Duration::from_secs(20),
    );
    assert_eq!((done.code(), done.out().as_str()), (0, "coracle agent stream\n"), "{done:?}");
    // Bytes that are no stream.
    let input = testkit::command::Input::Bytes(vec![0xff; 100]);
    let done = testkit::command::run_with(&mut command, input, Duration::from_secs(20));
    assert!(done.status.is_some() && !done.held_open, "{done:?}");
}

/// Resident memory of a process, in kB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn flood(kit: &Kit) {
    const NODES: usize = 8;
    let channels: Vec<Channel> = (0..NODES).map(|_| open(&kit.local(), &visitor())).collect();
    let idle = channels.iter().map(|channel| resident(channel.facts().pid)).max().unwrap();
    let before = resident(std::process::id());
    // One flood of each is read, one is not.
    let unread: Vec<Running> = channels
        .iter()
        .map(|channel| channel.start(&Start::new(["cat", "/dev/zero"])).unwrap())
        .collect();
    let (mut slowest, mut total, mut most) = (Duration::ZERO, 0, 0);
    std::thread::scope(|scope| {
        let readers: Vec<_> = channels
            .iter()
            .map(|channel| {
                scope.spawn(move || {
                    let flood = channel.start(&Start::new(["cat", "/dev/zero"])).unwrap();
                    let limit = Instant::now() + Duration::from_secs(2);
                    let mut count = 0;
                    while Instant::now() < limit {
                        if let Some(Event::Output(_, bytes)) = flood.event() {
                            count += bytes.len();
                        }
                    }
                    count
                })
            })
            .collect();
        for _ in 0..5 {
            for channel in &channels {
                let began = Instant::now();
                let done = channel.start(&sh("echo here")).unwrap().output(100).unwrap();
                assert_eq!(done.stdout, b"here\n");
                slowest = slowest.max(began.elapsed());
                most = most.max(resident(channel.facts().pid));
            }
        }
        total = readers.into_iter().map(|reader| reader.join().unwrap()).sum::<usize>();
    });
    let driver = resident(std::process::id()).saturating_sub(before);
    println!(
        "{NODES} agents: {idle} kB each at rest, {most} kB at most; driver {driver} kB more; \
         {} MB read; a program between floods took {slowest:?} at most",
        total >> 20
    );
    assert!(total > NODES * WINDOW * 4, "the floods do not flow");
    // Of both queues, pieces and the heap's slack; what floods send would be hundreds of MB.
    assert!(most < idle + 6_000, "an agent grows: {idle} kB, then {most} kB");
    assert!(driver < 24_000, "the driver grows by {driver} kB");
    drop(unread);
    for channel in channels {
        channel.close();
    }
}

/// The driver of [`killed_driver`]: tells the process ids of what it has started.
pub(crate) fn drive(place: &Path) -> ExitCode {
    let kit = Kit::new(place);
    // Each its own cluster, or one would take over from the other.
    let name = place.file_name().unwrap_or_default().to_string_lossy();
    let hello = Hello::new(&name, true, Duration::from_millis(300));
    let channel = open(&kit.local(), &hello);
    let mark = place.join("mark");
    channel.at_end(["touch".to_owned(), mark.display().to_string()]).unwrap();
    let (_running, pids) = stubborn(&channel);
    println!("{} {}", channel.facts().pid, pids[0]);
    loop {
        std::thread::sleep(Duration::from_secs(100));
    }
}

/// Starts [`drive`] in a place; gives it and the processes of the agent.
fn driver(kit: &Kit, place: &Path) -> (std::process::Child, Vec<u32>) {
    let mut driver = Command::new(&kit.binary.path)
        .arg("drive")
        .arg(place)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(driver.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pids: Vec<u32> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2, "{line}");
    (driver, pids)
}

fn stop(pid: u32, stopped: bool) {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = if stopped { Signal::STOP } else { Signal::CONT };
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

fn silent_driver(kit: &Kit) {
    let place = kit.dir("silent");
    let (mut driver, pids) = driver(kit, &place);
    stop(driver.id(), true);
    let ended = || pids.iter().all(|&pid| !lives(pid));
    eventually("agent and programs have ended", 40, ended);
    eventually("the command for the end has run", 20, || place.join("mark").exists());
    driver.kill().unwrap();
    driver.wait().unwrap();
}

fn silent_agent(kit: &Kit) {
    let channel = open(&kit.local(), &visitor());
    let sleep = channel.start(&sh("echo $$; exec sleep 1000")).unwrap();
    let program = first_number(&sleep);
    let agent = channel.facts().pid;
    stop(agent, true);
    let Some(Event::Lost(why)) = sleep.event() else { panic!("not lost") };
    assert!(why.reason.contains("15 seconds"), "{why}");
    // Its stream is closed when it goes on.
    stop(agent, false);
    eventually("agent and program have ended", 20, || !lives(agent) && !lives(program));
    channel.close();
}

fn killed_driver(kit: &Kit) {
    let place = kit.dir("killed");
    let (mut driver, pids) = driver(kit, &place);
    driver.kill().unwrap();
    driver.wait().unwrap();
    eventually("agent and programs have ended", 20, || pids.iter().all(|&pid| !lives(pid)));
    eventually("the command for the end has run", 20, || place.join("mark").exists());
}

/// A batch system asks all processes of a job, more than once: also the command for the end, which
/// the first request has started, and what that has started.
fn asked_again(kit: &Kit) {
    use rustix::process::{Pid, Signal, kill_process, kill_process_group};
    let place = kit.dir("asked");
    let channel = open(&kit.local(), &Hello::new("asked", true, Duration::from_secs(1000)));
    let script = format!("cd {} && echo $$ > begun && sleep 2 && touch mark", place.display());
    channel.at_end(["sh".to_owned(), "-c".to_owned(), script]).unwrap();
    let agent = channel.facts().pid;
    let guard = parent(agent);
    kill_process(Pid::from_raw(guard as i32).unwrap(), Signal::TERM).unwrap();
    let begun = || std::fs::read_to_string(place.join("begun")).ok()?.trim().parse().ok();
    let begun = testkit::command::until(Duration::from_secs(20), begun);
    let group = Pid::from_raw(begun.expect("the command begins")).unwrap();
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        kill_process_group(group, signal).unwrap();
        for pid in [agent, guard] {
            let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
        }
    }
    eventually("the command for the end has done all", 20, || place.join("mark").exists());
    eventually("agent and guard have ended", 20, || !lives(agent) && !lives(guard));
}

/// Processes with this word in their environment.
fn marked(mark: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_mark = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(has_mark).filter(|&pid| lives(pid)).collect()
}

/// Drivers of which one process is killed at any time, and then the driver itself.
fn storm(kit: &Kit) {
    const ROUNDS: usize = 24;
    let round = |number: usize| {
        let place = kit.dir("storm");
        let mark = format!("REACH_MARK={}", place.display());
        let (name, value) = mark.split_once('=').unwrap();
        let mut driver = Command::new(&kit.binary.path)
            .arg("drive")
            .arg(&place)
            .env(name, value)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // While the driver, the guard, the agent and its programs begin, and some time after.
        let wanted = 1 + number % 5;
        let _ = testkit::command::until(Duration::from_secs(20), || {
            (marked(&mark).len() >= wanted).then_some(())
        });
        std::thread::sleep(Duration::from_millis((number * 37 % 100) as u64));
        let all = marked(&mark);
        if let Some(&victim) = all.get(number % all.len().max(1)) {
            let victim = rustix::process::Pid::from_raw(victim as i32).unwrap();
            let _ = rustix::process::kill_process(victim, rustix::process::Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis((number * 7 % 30) as u64));
        let _ = driver.kill();
        driver.wait().unwrap();
        let gone = testkit::command::until(Duration::from_secs(30), || {
            marked(&mark).is_empty().then_some(())
        });
        assert!(gone.is_some(), "round {number}: {:?} are left of {all:?}", marked(&mark));
    };
    std::thread::scope(|scope| {
        let rounds: Vec<_> = (0..ROUNDS).map(|number| scope.spawn(move || round(number))).collect();
        for round in rounds {
            round.join().unwrap();
        }
    });
}

fn take_over(kit: &Kit) {
    let place = kit.dir("over");
    let touch = |name: &str| ["touch".to_owned(), place.join(name).display().to_string()];
    let first = open(&kit.local(), &Hello::new("over", true, Duration::from_secs(1000)));
    first.at_end(touch("first")).unwrap();
    let gone = first.facts().pid;
    let guard = parent(gone);
    drop(first);
    let second = open(&kit.local(), &Hello::new("over", true, Duration::ZERO));
    second.at_end(touch("second")).unwrap();
    eventually("the first agent has seen that", 20, || !lives(gone) && !lives(guard));
    assert!(!place.join("first").exists(), "it has cleaned up under its successor");
    // One that only looks takes nothing over.
    open(&kit.local(), &Hello::new("over", false, Duration::ZERO)).close();
    drop(second);
    eventually("the second one cleans up", 20, || place.join("second").exists());
    assert!(!place.join("first").exists());
}

fn parent(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    line.trim().parse().unwrap()
}
