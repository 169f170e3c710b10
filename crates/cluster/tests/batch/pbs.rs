//! PBS: the built-in template with real commands (`qsub`, `qstat`, `qdel` of Debian's
//! `slurm-wlm-torque`, over Slurm), and a site's template.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use testkit::harness::Suite;
use testkit::skip;
use testkit::skip::{Outcome, need_program};

use crate::{Body, Case, Kit, LIMIT};

const PBS: &str = "kind = \"pbs\"";
const LASTING: &str =
    "trap 'echo >\"$0.ended\"; exit 0' TERM; echo \"begun $*\"; while :; do sleep 0.1; done";

pub(crate) fn cases<'a>(suite: &mut Suite<'a>, kit: &'a Kit) {
    let all: &[(&str, Body)] = &[
        ("pbs::submitted_once_and_cancelled", submitted_once_and_cancelled),
        ("pbs::followed_to_its_end", followed_to_its_end),
        ("pbs::a_killed_driver_submits_once", a_killed_driver_submits_once),
        ("pbs::cancelled_by_others", cancelled_by_others),
        ("pbs::refusals", refusals),
    ];
    for &(name, case) in all {
        suite.case(name.to_owned(), move || {
            slurms_qsub(kit)?;
            case(kit)
        });
    }
    suite.case("pbs::a_template_of_the_site".into(), || {
        a_template_of_the_site(kit);
        Ok(())
    });
    suite.case("pbs::recorded_answers_of_openpbs".into(), || {
        recorded_answers_of_openpbs(kit);
        Ok(())
    });
}

/// The commands are those that submit to Slurm, and run here.
fn slurms_qsub(kit: &Kit) -> Outcome {
    let qsub = fs::read(need_program("qsub")?).unwrap_or_default();
    if !String::from_utf8_lossy(&qsub).contains("SchedMD") {
        skip!("qsub is not that of slurm-wlm-torque");
    }
    let tried = kit.with_slurm("qsub")?.run(&["qsub", "--help"]);
    if tried.code() != 0 {
        skip!("qsub does not run: {}", tried.err().lines().next().unwrap_or_default());
    }
    Ok(())
}

/// The jobs of a case that wait or run; `qstat` calls one ended whose nodes are being released.
fn jobs(case: &Case<'_>, cluster: &str) -> Vec<String> {
    // A name of PBS has the first letters of the cluster's.
    let done = case.run(&["squeue", "--me", "-h", "-t", "PD,R", "-o", "%Z|%A %j %D %l"]);
    let own = format!("{}|", case.place.display());
    let all = done.ok().out();
    let ours = all.lines().filter_map(|line| line.strip_prefix(&own));
    ours.filter(|line| line.contains(&format!(" {cluster}-"))).map(str::to_owned).collect()
}

fn submitted_once_and_cancelled(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("pbs-once")?;
    let options = "time = \"1m30s\", options = [\"-A\", \"p7\"]";
    let file = case.spec("ponce", &format!("{PBS}, queue = \"all\", {options}"));
    let program = case.program("lasting", LASTING);
    let first = case.drive("submit", &[&file, &program, "it's", "$HOME x"]);
    assert!(first.ok().out().ends_with(" new\n"), "{first:?}");
    let id = first.out().split(' ').next().expect("an id").to_owned();
    let found = jobs(&case, "ponce");
    let [job] = &found[..] else { panic!("{found:?}") };
    assert!(job.starts_with(&format!("{id} ponce-")) && job.ends_with(" 2 2:00"), "{job}");
    assert_eq!(case.drive("submit", &[&file, &program]).ok().out(), format!("{id} old\n"));
    let rows = case.until_rows("ponce", "running on one, two");
    assert!(rows.starts_with(&id), "{rows}");
    let output = case.kept("ponce").join("output");
    let read = || fs::read_to_string(&output).ok().filter(|text| !text.is_empty());
    assert_eq!(testkit::command::until(LIMIT, read).as_deref(), Some("begun it's $HOME x\n"));
    assert_eq!(case.drive("down", &["ponce"]).ok().line(), id);
    assert_eq!(jobs(&case, "ponce"), Vec::<String>::new());
    assert!(!case.kept("ponce").exists());
    assert!(Path::new(&format!("{program}.ended")).exists(), "it was not asked to end");
    Ok(())
}

fn followed_to_its_end(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("pbs-follow")?;
    let file = case.spec("pfollow", PBS);
    let program = case.program("short", "echo one; echo two >&2; sleep 1; echo three; exit 3");
    let done = case.drive("up", &[&file, &program]);
    assert_eq!(done.expect(3).out(), "one\ntwo\nthree\n");
    assert!(done.err().contains("exit status 3"), "{done:?}");
    Ok(())
}

fn a_killed_driver_submits_once(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("pbs-killed")?;
    let program = case.program("lasting", LASTING);
    // The driver, or the shell between it and the command.
    let driver = "d=$PPID; case $(ps -o args= -p $d) in sh*) d=$(ps -o ppid= -p $d);; esac";
    for (name, script) in [
        ("pnever", "kill -9 $d"),
        ("plate", "kill -9 $d; sleep 2; exec /usr/bin/qsub \"$@\""),
        ("pdone", "/usr/bin/qsub \"$@\"; kill -9 $d"),
    ] {
        let file = case.spec(name, PBS);
        case.program("qsub", &format!("{driver}\n{script}"));
        let killed = case.drive("submit", &[&file, &program]);
        assert_eq!(killed.code(), 137, "{name}: {killed:?}");
        fs::remove_file(case.path("bin/qsub")).expect("the script");
        let next = case.drive("submit", &[&file, &program]);
        let expected = if name == "pnever" { " new\n" } else { " old\n" };
        assert!(next.ok().out().ends_with(expected), "{name}: {next:?}");
        assert_eq!(jobs(&case, name).len(), 1, "{name}");
        case.drive("down", &[name]).ok();
        assert_eq!(jobs(&case, name).len(), 0, "{name}");
    }
    Ok(())
}

fn cancelled_by_others(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("pbs-other")?;
    let file = case.spec("pother", PBS);
    let program = case.program("lasting", "sleep 1000");
    let mut driver = case.driver("up", &[&file, &program]);
    let driver = driver.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a driver");
    let rows = case.until_rows("pother", "running");
    let id = rows.split(' ').next().expect("an id");
    case.run(&["qdel", id]).ok();
    let done = driver.wait_with_output().expect("its end");
    // The script has told the command's end by SIGTERM, or has been killed before.
    assert_ne!(done.status.code(), Some(0), "{done:?}");
    case.drive("down", &["pother"]).ok();
    assert!(!case.kept("pother").exists());
    Ok(())
}

fn refusals(kit: &Kit) -> Outcome {
    let case = kit.with_slurm("pbs-refused")?;
    let file = case.spec("prefused", &format!("{PBS}, queue = \"none\""));
    let done = case.drive("up", &[&file, "true"]);
    let said = done.expect(99).err();
    assert!(said.contains("error: pbs: ") && said.contains("nvalid partition"), "{said}");
    assert!(!case.kept("prefused").exists());
    let file = case.spec("prefused", &format!("{PBS}, template = \"none.sh\""));
    let said = case.drive("up", &[&file, "true"]).expect(99).err();
    assert!(said.contains("none.sh") && said.contains("relative to the cluster file"), "{said}");
    Ok(())
}

/// Commands that keep a job as a process of this machine.
fn a_template_of_the_site(kit: &Kit) {
    let case = kit.case("site");
    let template = "#!/bin/sh\n\
        # coracle: submit = setsid sh {{script}} >/dev/null 2>&1 & echo $!\n\
        # coracle: find = :\n\
        # coracle: state = if kill -0 {{id}}; then echo state up; echo left 61; else echo state down; fi 2>/dev/null\n\
        # coracle: queued = waits\n\
        # coracle: running = up\n\
        # coracle: ended = down\n\
        # coracle: cancel = kill -- -{{id}}\n\
        # {{nodes}} nodes for {{walltime}}\n\
        # only with a queue: {{queue}}\n\
        exec >{{output}}\n\
        {{command}}\n\
        echo $? >{{status}}\n";
    case.file("site.sh", template);
    let file = case.spec("site", &format!("{PBS}, template = \"site.sh\", time = \"2h\""));
    let done = case.drive("up", &[&file, "sh", "-c", "echo \"$0\"; exit 5", "a b"]);
    assert_eq!(done.expect(5).out(), "a b\n");
    case.drive("submit", &[&file, "sleep", "1000"]).ok();
    let rows = case.until_rows("site", "running");
    assert!(rows.ends_with("running, 1m1s left\n"), "{rows}");
    let script = fs::read_to_string(case.kept("site").join("script")).expect("the script");
    assert!(script.starts_with("#!/bin/sh\n# 2 nodes for 02:00:00\nexec >"), "{script}");
    // The template of the submission is used to its end, whatever happens to the file.
    fs::remove_file(case.path("site.sh")).expect("the template");
    case.drive("down", &["site"]).ok();
    assert!(!case.kept("site").exists());
}

/// What `qstat -f` of `OpenPBS` prints, shortened.
fn recorded_answers_of_openpbs(kit: &Kit) {
    let case = kit.case("openpbs");
    let file = case.spec("lab", PBS);
    let answer = |lines: &[&str]| {
        let head = "Job Id: 12.server\n    Job_Name = lab-0\n    Job_Owner = me@login\n";
        let lines: Vec<String> = lines.iter().map(|line| format!("    {line}\n")).collect();
        case.file(
            "answer",
            &format!(
                "{head}{}    Variable_List = PBS_O_HOME=/home/me,\n\tA = b\n\n",
                lines.concat()
            ),
        );
    };
    case.program("qsub", "echo 12.server");
    case.program("qstat", &format!("cat {}", case.path("answer").display()));
    assert_eq!(case.drive("submit", &[&file, "true"]).ok().out(), "12.server new\n");
    for (lines, words) in [
        (
            &["job_state = Q", "comment = Not Running: Insufficient amount of resource: ncpus"][..],
            "queued: Not Running: Insufficient amount of resource: ncpus",
        ),
        (
            &[
                "resources_used.walltime = 00:01:10",
                "job_state = R",
                "exec_host = n1/0*4+n2/0*4",
                "exec_vnode = (n1:ncpus=4)+(n2:ncpus=4)",
                "Resource_List.walltime = 01:00:00",
                "comment = Job run at Thu Nov 26 at 08:00 on (n1:ncpus=4)+(n2:ncpus=4)",
            ],
            "running on n1, n2, 58m50s left",
        ),
        // Torque has a place for each processor.
        (&["job_state = R", "exec_host = n1/0+n1/1+n2/0+n2/1"], "running on n1, n2"),
        (&["job_state = F", "Exit_status = 3"], "ended (F), exit status 3"),
    ] {
        answer(lines);
        assert_eq!(case.rows("lab"), format!("12.server {words}\n"));
    }
    // As a driver leaves it that was killed before it knew the id.
    let record = case.kept("lab").join("record");
    let text = fs::read_to_string(&record).expect("the record");
    let name = text.split("\"job_name\":\"").nth(1).and_then(|rest| rest.split('"').next());
    case.file(
        "answer",
        &format!(
            "Job Id: 11.server\n    Job_Name = other\n\nJob Id: 12.server\n    Job_Name = {}\n    \
             job_state = Q\n",
            name.expect("a name")
        ),
    );
    fs::write(&record, text.replace("\"12.server\"", "null")).expect("the record");
    assert_eq!(case.rows("lab"), "12.server queued\n");
    for gone in
        ["Unknown Job Id 12.server", "12.server Job has finished, use -x or -H to obtain more"]
    {
        case.program("qstat", &format!("echo 'qstat: {gone}' >&2; exit 35"));
        assert_eq!(case.rows("lab"), "12.server ended\n");
    }
    case.program("qstat", "echo 'qstat: cannot connect to server pbs (errno=111)' >&2; exit 1");
    let said = case.drive("rows", &["lab"]).expect(99).err();
    assert!(said.contains("cannot connect to server pbs"), "{said}");
}
