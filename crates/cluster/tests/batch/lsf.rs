//! LSF: the built-in template with programs that print what `bsub`, `bjobs` and `bkill` of LSF 10.1
//! do, as IBM's manual and its users have recorded it. There is no free LSF to be run.

use std::fs;

use testkit::harness::Suite;

use crate::{Case, Kit};

const LSF: &str = "kind = \"lsf\", queue = \"normal\", time = \"90m\", options = [\"-P\", \"p 7\"]";

pub(crate) fn cases<'a>(suite: &mut Suite<'a>, kit: &'a Kit) {
    let mut add = |name: &str, case: fn(&Kit)| {
        suite.case(format!("lsf::{name}"), move || {
            case(kit);
            Ok(())
        });
    };
    add("recorded_answers", recorded_answers);
    add("found_by_its_description", found_by_its_description);
    add("refusals", refusals);
}

/// `bjobs` answers with a line of the case.
fn answers(case: &Case<'_>, line: &str) {
    case.file("line", line);
}

fn with_lsf(case: &Case<'_>) {
    let place = case.place.display();
    case.program(
        "bsub",
        &format!(
            "printf '%s\\n' \"$@\" >{place}/options; cat >{place}/submitted\n\
             echo 'Job <1234> is submitted to queue <normal>.'"
        ),
    );
    case.program("bjobs", &format!("printf '%s\\n' \"$@\" >{place}/asked; cat {place}/line"));
    case.program("bkill", "echo \"Job <$1> is being terminated\"");
}

fn recorded_answers(kit: &Kit) {
    let case = kit.case("lsf");
    with_lsf(&case);
    let file = case.spec("lab", LSF);
    assert_eq!(case.drive("submit", &[&file, "echo", "a b"]).ok().out(), "1234 new\n");
    assert_eq!(fs::read_to_string(case.path("options")).expect("options"), "-P\np 7\n");
    let script = fs::read_to_string(case.path("submitted")).expect("the script");
    let directives: Vec<&str> = script.lines().filter(|line| line.starts_with("#BSUB")).collect();
    assert_eq!(directives.len(), 7, "{script}");
    assert!(directives[0].starts_with("#BSUB -J lab-"), "{script}");
    assert!(directives[1].starts_with("#BSUB -Jd coracle:lab:"), "{script}");
    let rest = ["-n 2", "-R \"span[ptile=1]\"", "-W 90", "-q normal", "-o /dev/null"];
    assert_eq!(directives[2..], rest.map(|rest| format!("#BSUB {rest}")), "{script}");
    assert!(script.contains("\necho 'a b' &\n") && !script.contains("coracle:  "), "{script}");
    for (line, words) in [
        (
            "PEND|-|-|-|New job is waiting for scheduling;\n",
            "queued: New job is waiting for scheduling;",
        ),
        ("PSUSP|-|-|-|Job was suspended by the user while pending;\n", "queued"),
        ("RUN|-|1:30 L|hosta:hostb|-\n", "running on hosta, hostb, 1h30m left"),
        ("RUN|-|0:02 L|4*hosta:4*hostb|-\n", "running on hosta, hostb, 2m left"),
        ("DONE|-|-|hosta:hostb|-\n", "ended (DONE)"),
        ("EXIT|130|-|hosta:hostb|-\n", "ended (EXIT), exit status 130"),
    ] {
        answers(&case, line);
        assert_eq!(case.rows("lab"), format!("1234 {words}\n"), "{line}");
    }
    let asked = fs::read_to_string(case.path("asked")).expect("what was asked");
    let format = "stat exit_code time_left exec_host pend_reason delimiter='|'";
    assert_eq!(asked, format!("-a\n-noheader\n-o\n{format}\n1234\n"));
    // The script has written how it ended.
    answers(&case, "DONE|-|-|hosta:hostb|-\n");
    fs::write(case.kept("lab").join("status"), "0\n").expect("the status");
    assert_eq!(case.rows("lab"), "1234 ended (DONE), exit status 0\n");
    // Forgotten.
    case.program("bjobs", "echo 'Job <1234> is not found' >&2; exit 255");
    assert_eq!(case.rows("lab"), "1234 ended, exit status 0\n");
    case.drive("down", &["lab"]).ok();
    assert!(!case.kept("lab").exists());
}

fn found_by_its_description(kit: &Kit) {
    let case = kit.case("lsf-found");
    with_lsf(&case);
    let file = case.spec("lab", LSF);
    let place = case.place.display();
    case.program(
        "bsub",
        &format!(
            "tag=$(sed -n 's/^#BSUB -Jd //p'); echo \"77|$tag\" >{place}/line; \
             d=$(ps -o ppid= -p $PPID); kill -9 $d $PPID"
        ),
    );
    let killed = case.drive("submit", &[&file, "true"]);
    assert_eq!(killed.code(), 137, "{killed:?}");
    case.program(
        "bjobs",
        &format!("case $* in *jobid*) cat {place}/line;; *) echo 'RUN|-|-|hosta|-';; esac"),
    );
    assert_eq!(case.drive("submit", &[&file, "true"]).ok().out(), "77 old\n");
    assert_eq!(case.rows("lab"), "77 running on hosta\n");
}

fn refusals(kit: &Kit) {
    let case = kit.case("lsf-refused");
    with_lsf(&case);
    let file = case.spec("lab", LSF);
    case.program(
        "bsub",
        "cat >/dev/null; echo 'normal: No such queue. Job not submitted.' >&2; exit 255",
    );
    case.program("bjobs", "echo 'No job found' >&2");
    let said = case.drive("submit", &[&file, "true"]).expect(99).err();
    assert!(said.contains("error: lsf: normal: No such queue. Job not submitted."), "{said}");
    assert!(!case.kept("lab").exists());
    fs::remove_file(case.path("bin/bsub")).expect("the program");
    let said = case.drive("submit", &[&file, "true"]).expect(99).err();
    assert!(said.contains("this machine has no bsub"), "{said}");
    assert!(!case.kept("lab").exists());
}
