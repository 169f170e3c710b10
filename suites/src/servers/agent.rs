//! Tests of the process that answers questions for names, when somebody kills it.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testkit::command::until;
use testkit::skip::Outcome;

use crate::servers::In;
use crate::servers::stage::{Case, World, guest};

pub(crate) const CASES: &[(&str, In, Case)] = &[("killed_agent", In::Names, killed_agent)];

/// How many containers are connected.
const MANY: usize = 50;
/// They answer each line of the server with what a question for its name yields.
const CLIENT: &str = "\
    exec bash -c 'n=0; until exec 3<>/dev/tcp/server/7000; do n=$((n+1)); test $n -lt 100; sleep 0.1; done 2>/dev/null
        while read -r line <&3; do dig +short +tries=10 +time=1 server | head -n 1 >&3; done'";

/// The agent of a world's store, and the process that looks after it. Simulated hosts that share
/// the store have others.
fn agents(w: &World, name: &str) -> Vec<Pid> {
    let store = w.person.store();
    let here = fs::read_link("/proc/self/ns/net").expect("a namespace");
    let wanted = [name.as_bytes(), b" ", store.as_os_str().as_bytes()].concat();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter(|entry| {
        fs::read(entry.path().join("cmdline")).is_ok_and(|words| words.starts_with(&wanted))
            && fs::read_link(entry.path().join("ns/net")).is_ok_and(|its| its == here)
    })
    .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
    .collect()
}

/// Connections do not go through the agent, and live on. Another one is there soon. (By packets
/// they do: that is a case of the suite `network`.)
fn killed_agent(w: &World) -> Outcome {
    // The modes have one store, and so one agent.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let lab = w.lab();
    lab.serve("server", "wait_for test -e /ready; exec python3 /holder.py 50");
    lab.write("server", "/holder.py", guest("holder.py"));
    lab.exec("server", "touch /ready").ok();
    for number in 0..MANY {
        lab.serve(&format!("client{number}"), CLIENT);
    }
    lab.expect("server", "all are connected");
    let answers = format!("{{'{}': {MANY}}}", lab.address("server"));
    lab.exec("server", "touch /first").ok();
    lab.expect("server", &format!("first {answers}"));
    let before = agents(w, "coracle-names");
    let [agent] = before[..] else { panic!("not one agent: {before:?}") };
    kill_process(agent, Signal::KILL).expect("a process to kill");
    lab.exec("server", "touch /second").ok();
    lab.expect("server", &format!("second {answers}"));
    // The dead one may not have been waited for yet.
    let now = until(Duration::from_secs(10), || {
        let now = agents(w, "coracle-names");
        (now.len() == 1 && now != before).then_some(now)
    });
    let now = now.unwrap_or_else(|| panic!("{before:?} {:?}", agents(w, "coracle-names")));
    // Without the one that looks after it, the next container brings another one.
    for process in agents(w, "coracle-guard").into_iter().chain(now) {
        // The agent may have ended with its guard.
        let _ = kill_process(process, Signal::KILL);
    }
    let gone =
        until(Duration::from_secs(10), || agents(w, "coracle-names").is_empty().then_some(()));
    assert!(gone.is_some(), "it lives: {:?}", agents(w, "coracle-names"));
    let script = "dig +short +tries=10 +time=1 server";
    assert_eq!(lab.run("late", script).ok().line(), lab.address("server"));
    Ok(())
}
