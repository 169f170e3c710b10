//! Tests which commands wait for the disk: those that report a lasting change, and no run.

use std::fs;

use testkit::command::{Input, run_with};
use testkit::person::{LIMIT, Person};
use testkit::skip::{Outcome, need_program};

use crate::crash::place::{Case, Place};

pub(crate) const CASES: &[(&str, Case)] = &[("runs_wait_for_no_disk", runs_wait_for_no_disk)];

/// Counts the syncs of a command and of its children.
fn syncs(person: &Person, words: &[&str]) -> usize {
    let log = person.home.join("syncs");
    let log_name = log.display().to_string();
    let calls = "trace=fsync,fdatasync,syncfs,sync,sync_file_range,msync";
    let mut strace = person.user.command("strace", &person.home);
    strace.args(["-f", "-qq", "-e", "signal=none", "-e", calls, "-o", &log_name]);
    let program = person.command(words);
    strace.arg(&person.program).args(words);
    strace.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let done = run_with(&mut strace, Input::Null, LIMIT);
    assert_eq!(done.code(), 0, "{done:?}");
    let text = fs::read_to_string(&log).expect("what strace has seen");
    text.lines().filter(|line| line.contains("sync")).count()
}

fn runs_wait_for_no_disk(place: &Place<'_>) -> Outcome {
    need_program("strace")?;
    if place.person.user.range {
        testkit::skip!("under strace newuidmap gets no privileges");
    }
    let person = place.fresh("syncs");
    let image = &place.images.small[0];
    person.run(&["pull", "-q", "--tls-verify=false", image]).ok();
    for mode in ["N1", "I1"] {
        let mode_flag = format!("--execmode={mode}");
        let name = format!("kept-{mode}");
        let end = [image.as_str(), "/bin/guest", "exit", "0"];
        let passing = [&["run", "--rm", &mode_flag][..], &end].concat();
        let first = person.run(&passing);
        if first.code() != 0 {
            println!("{mode} cannot be used here: {}", first.err().trim());
            continue;
        }
        let kept = [&["run", &mode_flag, "--name", &name][..], &end].concat();
        assert!(syncs(&person, &kept) > 0, "{mode}: a container with a name stays");
        for run in [&passing, &vec!["run", &name, "/bin/guest", "exit", "0"]] {
            let count = syncs(&person, run);
            assert_eq!(count, 0, "{mode}: `coracle {}` waits for the disk", run.join(" "));
        }
        for told in [
            vec!["create", &mode_flag, image],
            vec!["volume", "create", &name],
            vec!["network", "create", &name],
            vec!["network", "rm", &name],
            vec!["rename", &name, "other"],
            vec!["rm", "other"],
        ] {
            assert!(syncs(&person, &told) > 0, "{mode}: {told:?} does not wait for the disk");
        }
    }
    Ok(())
}
