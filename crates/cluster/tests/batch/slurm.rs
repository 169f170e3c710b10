//! A real Slurm of two nodes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use testkit::command::{Finished, until};
use testkit::harness::Suite;
use testkit::skip::Outcome;

use crate::{Body, Case, Kit, LIMIT};

const SLURM: &str = "kind = \"slurm\"";
/// A program that runs until it is ended, and says so.
const LASTING: &str =
    "trap 'echo >\"$0.ended\"; exit 0' TERM; echo \"begun $*\"; while :; do sleep 0.1; done";

pub(crate) fn cases<'a>(suite: &mut Suite<'a>, kit: &'a Kit) {
    let all: &[(&str, Body)] = &[
        ("slurm::submitted_once_and_cancelled", submitted_once_and_cancelled),
        ("slurm::followed_to_its_end", followed_to_its_end),
        ("slurm::who_stops_following_cancels", who_stops_following_cancels),
        ("slurm::cancelled_by_others_while_queued", cancelled_by_others_while_queued),
        ("slurm::an_array", an_array),
        ("slurm::own_options_win", own_options_win),
        ("slurm::a_killed_driver_submits_once", a_killed_driver_submits_once),
        ("slurm::a_driver_is_killed_at_any_moment", a_driver_is_killed_at_any_moment),
        ("slurm::a_failed_answer_is_looked_after", a_failed_answer_is_looked_after),
        ("slurm::a_queue_that_does_not_answer", a_queue_that_does_not_answer),
        ("slurm::refusals", refusals),
        ("slurm::the_allocation", the_allocation),
        ("slurm::an_ended_job_is_replaced", an_ended_job_is_replaced),
    ];
    for &(name, case) in all {
        suite.case(name.to_owned(), move || case(kit));
    }
}

/// The jobs of a case that are in the queue under a name, as `ID NODES LIMIT COMMENT`.
fn queued(case: &Case<'_>, name: &str) -> Vec<String> {
    let done = case.run(&["squeue", "--me", "-h", "-n", name, "-o", "%Z|%A %D %l %k"]);
    let own = format!("{}|", case.place.display());
    done.ok().out().lines().filter_map(|line| line.strip_prefix(&own)).map(str::to_owned).collect()
}

fn id(done: &Finished) -> String {
    done.ok().out().split(' ').next().expect("an id").to_owned()
}

fn submitted_once_and_cancelled(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("once")?;
    let file = case.spec("once", &format!("{SLURM}, time = \"1m30s\""));
    let program = case.program("lasting", LASTING);
    assert_eq!(case.rows("once"), "nothing\n");
    let first = case.drive("submit", &[&file, &program, "it's", "$HOME x"]);
    assert!(first.ok().out().ends_with(" new\n"), "{first:?}");
    let jobs = queued(&case, "once");
    let [job] = &jobs[..] else { panic!("{jobs:?}") };
    let id = id(&first);
    assert!(job.starts_with(&format!("{id} 2 2:00 coracle:once:")), "{job}");
    let again = case.drive("submit", &[&file, &program]);
    assert_eq!(again.ok().out(), format!("{id} old\n"));
    let rows = case.until_rows("once", "running on one, two");
    assert!(rows.starts_with(&format!("{id} running")) && rows.ends_with(" left\n"), "{rows}");
    let output = case.kept("once").join("output");
    let begun = until(LIMIT, || fs::read_to_string(&output).ok().filter(|text| !text.is_empty()));
    assert_eq!(begun.as_deref(), Some("begun it's $HOME x\n"));
    assert_eq!(case.drive("down", &["once"]).ok().out(), format!("{id}\n"));
    assert_eq!(queued(&case, "once"), Vec::<String>::new());
    assert!(!case.kept("once").exists());
    assert!(Path::new(&format!("{program}.ended")).exists(), "it was not asked to end");
    assert_eq!(case.drive("down", &["once"]).ok().out(), "nothing\n");
    Ok(())
}

fn followed_to_its_end(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("follow")?;
    let file = case.spec("follow", SLURM);
    let program = case.program("short", "echo one; echo two >&2; sleep 1; echo three; exit 3");
    let done = case.drive("up", &[&file, &program]);
    assert_eq!(done.expect(3).out(), "one\ntwo\nthree\n");
    // On a busy machine it is first asked for when its nodes are being released already.
    let is_running = |line: &str| line.starts_with("running") && line.ends_with("on one, two");
    assert!(done.err().lines().any(is_running), "{done:?}");
    assert!(done.err().contains("ended (FAILED), exit status 3"), "{done:?}");
    assert!(!case.kept("follow").exists());
    let program = case.program("killed", "kill -9 $$");
    case.drive("up", &[&file, &program]).expect(137);
    let program = case.program("good", "exit 0");
    case.drive("up", &[&file, &program]).ok();
    Ok(())
}

fn who_stops_following_cancels(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("stop %u")?;
    let file = case.spec("stop", SLURM);
    let script = "trap 'echo ended; exit 0' TERM; echo begun; while :; do sleep 0.1; done";
    let program = case.program("lasting", script);
    let mut driver = case.driver("up", &[&file, &program]);
    let mut driver =
        driver.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a driver");
    let output = case.kept("stop").join("output");
    let begun = || fs::read(&output).is_ok_and(|text| !text.is_empty()).then_some(());
    assert!(until(LIMIT, begun).is_some(), "it never begins");
    case.file("store/stop", "");
    let status = testkit::command::wait(&mut driver, LIMIT);
    assert_eq!(status.and_then(|status| status.code()), Some(130));
    let mut printed = String::new();
    driver.stdout.take().expect("output").read_to_string(&mut printed).expect("text");
    // Slurm's own words are between.
    assert!(printed.starts_with("begun\n") && printed.ends_with("ended\n"), "{printed}");
    assert_eq!(queued(&case, "stop"), Vec::<String>::new());
    assert!(!case.kept("stop").exists());
    Ok(())
}

fn cancelled_by_others_while_queued(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("begin")?;
    let file = case.spec("begin", &format!("{SLURM}, options = [\"--begin=now+1hour\"]"));
    let mut driver = case.driver("up", &[&file, "true"]);
    let driver = driver.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a driver");
    let rows = case.until_rows("begin", "starts about");
    assert!(rows.contains("queued: its time has not come (BeginTime); starts about"), "{rows}");
    case.run(&["scancel", rows.split(' ').next().expect("an id")]).ok();
    let done = driver.wait_with_output().expect("its end");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("was cancelled before it started"), "{said}");
    assert_eq!(done.status.code(), Some(99));
    Ok(())
}

fn an_array(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("array")?;
    let file = case.spec("array", &format!("{SLURM}, options = [\"--array=0-2\", \"--nodes=1\"]"));
    let program = case.program("task", "echo task $SLURM_ARRAY_TASK_ID; exit $SLURM_ARRAY_TASK_ID");
    let done = case.drive("up", &[&file, &program]);
    let text = done.expect(2).out();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["task 0", "task 1", "task 2"]);
    let lasting = case.program("lasting", LASTING);
    let id = id(&case.drive("submit", &[&file, &lasting]));
    let rows = case.until_rows("array", &format!("{id}_2 running"));
    assert_eq!(rows.lines().count(), 3, "{rows}");
    case.drive("down", &["array"]).ok();
    assert_eq!(queued(&case, "array"), Vec::<String>::new());
    Ok(())
}

fn own_options_win(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("own")?;
    let output = case.path("my output-%j").display().to_string();
    let options = format!(
        "\"--job-name=mine\", \"--comment=my words\", \"-N\", \"1\", \"--output={output}\", \
         \"--export=ALL,MINE=1\""
    );
    let file = case.spec("own", &format!("{SLURM}, options = [{options}]"));
    let program = case.program(
        "waiting",
        &format!(
            "echo $MINE $SLURM_JOB_NUM_NODES; until [ -e {} ]; do sleep 0.1; done; echo end",
            case.path("go").display()
        ),
    );
    let first = case.drive("submit", &[&file, &program]);
    let jobs = queued(&case, "mine");
    assert!(jobs[0].contains("my words coracle:own:"), "{jobs:?}");
    // As a driver leaves it that was killed before it knew the id.
    let record = case.kept("own").join("record");
    let text = fs::read_to_string(&record).expect("the record");
    let known = format!("\"id\":\"{}\"", id(&first));
    assert!(text.contains(&known), "{text}");
    fs::write(&record, text.replace(&known, "\"id\":null")).expect("the record");
    let mut driver = case.driver("up", &[&file, &program]);
    let mut driver =
        driver.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a driver");
    let said = BufReader::new(driver.stderr.take().expect("its words"));
    let mut said = said.lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("running on")), "it never runs");
    case.file("go", "");
    assert!(said.any(|line| line.contains("ended (COMPLETED)")), "it never ends");
    let done = driver.wait_with_output().expect("its end");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "1 1\nend\n");
    assert!(case.path(&format!("my output-{}", id(&first))).exists());
    Ok(())
}

/// Replaces `sbatch` by a script that kills the driver, before or after the real one.
fn a_killed_driver_submits_once(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("killed")?;
    let program = case.program("lasting", LASTING);
    for (name, script) in [
        ("never", "kill -9 $PPID"),
        ("late", "job=$(cat); kill -9 $PPID; sleep 2; echo \"$job\" | /usr/bin/sbatch \"$@\""),
        ("done", "id=$(/usr/bin/sbatch \"$@\"); kill -9 $PPID; echo $id"),
    ] {
        let file = case.spec(name, SLURM);
        case.program("sbatch", script);
        let killed = case.drive("submit", &[&file, &program]);
        assert_eq!(killed.code(), 137, "{name}: {killed:?}");
        fs::remove_file(case.path("bin/sbatch")).expect("the script");
        let next = case.drive("submit", &[&file, &program]);
        let expected = if name == "never" { " new\n" } else { " old\n" };
        assert!(next.ok().out().ends_with(expected), "{name}: {next:?}");
        assert_eq!(queued(&case, name).len(), 1, "{name}");
        assert_eq!(case.drive("down", &[name]).ok().line(), id(&next), "{name}");
        assert_eq!(queued(&case, name).len(), 0, "{name}");
    }
    // The command that ends it finds it, too.
    let file = case.spec("ended", SLURM);
    case.program("sbatch", "/usr/bin/sbatch \"$@\"; kill -9 $PPID");
    case.drive("submit", &[&file, &program]).expect(137);
    assert_eq!(queued(&case, "ended").len(), 1);
    assert_ne!(case.drive("down", &["ended"]).ok().out(), "nothing\n");
    assert_eq!(queued(&case, "ended").len(), 0);
    Ok(())
}

fn a_driver_is_killed_at_any_moment(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("storm")?;
    let file = case.spec("storm", SLURM);
    let program = case.program("lasting", LASTING);
    for step in 0..16 {
        let mut driver = case.driver("submit", &[&file, &program]);
        let mut driver = driver.stdout(Stdio::null()).spawn().expect("a driver");
        std::thread::sleep(Duration::from_millis(step * 4));
        driver.kill().expect("killed");
        driver.wait().expect("its end");
        let next = case.drive("submit", &[&file, &program]);
        assert_eq!(queued(&case, "storm").len(), 1, "{step}: {next:?}");
        assert_eq!(case.drive("down", &["storm"]).ok().line(), id(&next), "{step}");
        assert_eq!(queued(&case, "storm").len(), 0, "{step}");
        assert!(!case.kept("storm").exists(), "{step}");
    }
    Ok(())
}

/// `sbatch` fails after the controller has taken the job.
fn a_failed_answer_is_looked_after(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("answer")?;
    let program = case.program("lasting", LASTING);
    let file = case.spec("answer", SLURM);
    let script = "/usr/bin/sbatch \"$@\" >&2; echo 'sbatch: error: Unable to contact slurm \
                  controller (connect failure)' >&2; exit 1";
    case.program("sbatch", script);
    let done = case.drive("submit", &[&file, &program]);
    assert!(done.ok().out().ends_with(" new\n"), "{done:?}");
    assert_eq!(queued(&case, "answer").len(), 1);
    case.drive("down", &["answer"]).ok();
    assert_eq!(queued(&case, "answer").len(), 0);
    // Nobody knows whether there is a job: what is known stays.
    let script =
        "echo 'sbatch: error: Unable to contact slurm controller (connect failure)' >&2; exit 1";
    case.program("sbatch", script);
    case.program(
        "squeue",
        "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
    );
    let done = case.drive("submit", &[&file, &program]);
    assert!(done.expect(99).err().contains("the job may be there"), "{done:?}");
    assert!(case.kept("answer").join("record").exists());
    fs::remove_file(case.path("bin/squeue")).expect("the script");
    assert_eq!(case.rows("answer"), "nothing\n");
    Ok(())
}

fn a_queue_that_does_not_answer(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("silent")?;
    let file = case.spec("silent", SLURM);
    let program = case.program("short", "sleep 3; echo done");
    let script =
        "echo x >>$0.count; [ $(wc -l <$0.count) -gt 2 ] || { echo 'slurm_load_jobs error: \
                  Unable to contact slurm controller (connect failure)' >&2; exit 1; }
                  exec /usr/bin/squeue \"$@\"";
    case.program("squeue", script);
    let done = case.drive("up", &[&file, &program]);
    assert_eq!(done.ok().out(), "done\n");
    assert!(done.err().contains("squeue: Unable to contact"), "{done:?}");
    Ok(())
}

fn refusals(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("refused")?;
    for (backend, fact, hint) in [
        ("partition = \"none\"", "invalid partition specified: none", "'sinfo' lists"),
        ("options = [\"--time=abc\"]", "Invalid --time specification", "longest time"),
        ("options = [\"--frobnicate\"]", "unrecognized option '--frobnicate'", "as they are"),
        ("options = [\"--nodes=x\"]", "node count", "'sinfo'"),
        ("options = [\"--test-only\"]", "sbatch: ", ""),
    ] {
        let file = case.spec("refused", &format!("{SLURM}, {backend}"));
        let done = case.drive("up", &[&file, "true"]);
        let said = done.expect(99).err();
        assert!(said.contains(fact) && said.contains(hint), "{backend}: {said}");
        assert_eq!(said.lines().filter(|line| line.starts_with("error")).count(), 1, "{said}");
        assert!(!case.kept("refused").exists(), "{backend}");
    }
    let file = case.spec("refused", SLURM);
    let mut driver = case.driver("up", &[&file, "true"]);
    driver.env("PATH", case.path("bin"));
    // `setpriv` is found by the caller's own path.
    let done = testkit::command::run_with(&mut driver, testkit::command::Input::Null, LIMIT);
    let said = done.expect(99).err();
    assert!(said.contains("this machine has no sbatch") && said.contains("login node"), "{said}");
    assert!(!case.kept("refused").exists());
    Ok(())
}

fn the_allocation(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("allocation")?;
    assert_eq!(case.drive("allocation", &[]).ok().out(), "outside\n");
    let program = kit.program.display().to_string();
    let words = ["drive", "allocation", "-"];
    let timed = ["salloc", "--quiet", "--nodes=2", "--time=5", "--", &program];
    let done = case.run(&[&timed[..], &words[..]].concat());
    let text = done.ok().out();
    let cells: Vec<&str> = text.split_whitespace().collect();
    assert!(
        cells[0] == "slurm" && cells[2] == "one,two" && cells[3].starts_with("Some("),
        "{text}"
    );
    let endless = ["salloc", "--quiet", "--nodelist=two", "--", &program];
    let done = case.run(&[&endless[..], &words[..]].concat());
    assert!(done.ok().out().ends_with(" two None\n"), "{done:?}");
    Ok(())
}

fn an_ended_job_is_replaced(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("again")?;
    let file = case.spec("again", SLURM);
    let first = id(&case.drive("submit", &[&file, "sh", "-c", "echo first; exit 4"]));
    let rows = case.until_rows("again", "ended");
    assert_eq!(rows, format!("{first} ended (FAILED), exit status 4\n"));
    let done = case.drive("up", &[&file, "sh", "-c", "echo second"]);
    assert_eq!(done.ok().out(), "second\n");
    Ok(())
}
