//! `cluster up`, `status` and `down` from outside of an allocation, with a real Slurm. What a job
//! runs and how it is followed is tested in the crate `cluster`.

use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testkit::command::{Finished, Input, run_with, until, wait};
use testkit::harness::{Suite, Wishes};
use testkit::person::{LIMIT, Person, everybody};
use testkit::scratch::Scratch;
use testkit::skip::Outcome;
use testkit::slurm::Cluster;

pub(crate) fn run(wishes: &Wishes) -> ExitCode {
    let scratch = Scratch::new("batch-cli").expect("a directory");
    let program = crate::program::coracle();
    let people = everybody(&scratch, program).expect("users");
    let person = people.first().expect("a user");
    let mut suite = Suite::new("batch");
    suite.case("slurm::up_status_down_and_ctrl_c".into(), || slurm(person));
    suite.run(wishes)
}

/// A user of a Slurm.
struct Desk<'d> {
    person: &'d Person,
    cluster: Cluster<'static>,
}

impl Desk<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.cluster.command(&self.person.user, words[0], &self.person.home);
        command.args(&words[1..]).current_dir(&self.person.home);
        command
    }

    fn run(&self, words: &[&str]) -> Finished {
        run_with(&mut self.command(words), Input::Null, LIMIT)
    }

    /// Runs `coracle cluster`.
    fn coracle(&self, words: &[&str]) -> Finished {
        let program = self.person.program.display().to_string();
        self.run(&[&[&program, "cluster"][..], words].concat())
    }

    fn queued(&self) -> String {
        self.run(&["squeue", "--me", "-h", "-n", "lab", "-o", "%A"]).ok().line()
    }
}

fn slurm(person: &Person) -> Outcome {
    let desk = Desk { person, cluster: Cluster::start(&person.user)? };
    let text = "name = \"lab\"\nimage = \"x:1\"\nnodes = 2\n\
        backend = { kind = \"slurm\", time = \"1h\", options = [\"--begin=now+1hour\"] }\n\
        [run]\ncommand = [\"true\"]\n";
    person.file(&person.home.join("lab.toml"), text);

    // Left in the queue.
    let up = desk.coracle(&["up", "-d", "-f", "lab.toml"]);
    let id = up.ok().line();
    assert_eq!(desk.queued(), id);
    assert_eq!(desk.coracle(&["up", "-d", "-f", "lab.toml"]).ok().line(), id);
    let script = desk.run(&["scontrol", "write", "batch_script", &id, "-"]).ok().out();
    let (program, home) = (person.program.display(), person.home.display());
    assert!(script.contains(&format!("\n{program} --store {home}/")), "{script}");
    assert!(script.contains(&format!(" cluster up -f {home}/lab.toml &\n")), "{script}");
    let status = desk.coracle(&["status", "lab", "--format", "json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.ok().stdout).expect("JSON");
    let row = if status.is_array() { &status[0] } else { &status };
    assert_eq!((&row["Name"], &row["Role"]), (&format!("job {id}").into(), &"slurm".into()));
    assert_eq!(row["State"], "queued");
    let words = row["Status"].as_str().expect("words");
    assert!(words.starts_with("queued: its time has not come (BeginTime)"), "{words}");
    desk.coracle(&["down", "lab"]).ok();
    assert_eq!(desk.queued(), "");
    assert!(!desk.coracle(&["status", "lab"]).ok().out().contains("job"));

    // Followed, until ctrl-C.
    let program = person.program.display().to_string();
    let mut up = desk.command(&[&program, "cluster", "up", "-f", "lab.toml"]);
    let up = up.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut up = up.spawn().expect("coracle");
    assert!(until(LIMIT, || (!desk.queued().is_empty()).then_some(())).is_some());
    kill_process(Pid::from_child(&up), Signal::INT).expect("a signal");
    assert_eq!(wait(&mut up, LIMIT).and_then(|status| status.code()), Some(130));
    assert_eq!(desk.queued(), "");

    // Inside an allocation nothing is submitted.
    desk.run(&["salloc", "--quiet", "--nodes=2", &program, "cluster", "up", "-f", "lab.toml"]);
    assert_eq!(desk.queued(), "");

    let refused = text.replace("time =", "partition = \"none\", time =");
    person.file(&person.home.join("none.toml"), refused);
    let up = desk.coracle(&["up", "-d", "-f", "none.toml"]);
    assert!(up.expect(125).err().contains("error: sbatch: invalid partition specified: none"));
    assert!(!person.store().join("clusters/lab/job").exists());
    Ok(())
}
