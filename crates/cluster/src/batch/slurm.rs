//! Jobs of Slurm: `sbatch`, `squeue`, `scontrol`, `scancel`, by formats with fixed fields.
//!
//! The words are those of Slurm 22.05 and later; none of them is translated.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};

use remote::shell::{join, quote};

use super::allocation::{host_names, slurm_time};
use super::state::{Phase, Row};
use super::tool::{ask, run};
use super::{Submission, refused};
use crate::error::{Error, Result};
use crate::plan::sbatch;
use crate::spec::{Kind, Spec};

/// What `squeue` and `scontrol` say of a job that Slurm does not know (any more).
const UNKNOWN: &str = "Invalid job id";
/// The fields of a row, which [`row`] reads.
const FIELDS: &str = "%i|%T|%r|%S|%L|%N";

/// A Slurm: `cluster` is its name where `sbatch` told one.
#[derive(Debug, Default)]
pub(super) struct Slurm {
    pub cluster: Option<String>,
    /// The last list that was expanded: a job keeps its hosts.
    expanded: RefCell<(String, Vec<String>)>,
}

/// The value of an option among others: `--name=VALUE`, `--name VALUE`, `-nVALUE` or `-n VALUE`.
fn option<'o>(options: &'o [String], long: &str, short: Option<&str>) -> Option<&'o str> {
    let mut found = None;
    let mut all = options.iter();
    while let Some(word) = all.next() {
        if word == long || short.is_some_and(|short| word == short) {
            found = all.next().map(String::as_str).or(found);
        } else if let Some(value) = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('='))
        {
            found = Some(value);
        } else if let Some(value) = short.and_then(|short| word.strip_prefix(short))
            && !word.starts_with("--")
        {
            found = Some(value);
        }
    }
    found
}

/// Whether the user's options say where a job prints to.
pub(super) fn has_output(options: &[String]) -> bool {
    option(options, "--output", Some("-o")).is_some()
}

impl Slurm {
    pub(super) fn new(cluster: Option<String>) -> Self {
        Self { cluster, expanded: RefCell::default() }
    }

    /// Submits a job that carries `tag` in its comment.
    ///
    /// # Errors
    /// If nothing was submitted, for sure.
    pub(super) fn submit(
        spec: &Spec,
        command: &[String],
        tag: &str,
        output: &Path,
        held: &File,
    ) -> Result<Submission> {
        let Kind::Slurm { options, .. } = &spec.backends[0].kind else {
            return Err(Error::new("the file's backend is not Slurm"));
        };
        let own = [
            format!("--comment={tag}"),
            // A `%` begins a pattern of sbatch's.
            format!("--output={}", output.display().to_string().replace('%', "%%")),
            "--open-mode=append".to_owned(),
        ];
        let mut words = sbatch::words(spec, &own);
        // The job is found by its comment, so a comment of the user's gets the tag, too.
        if let Some(comment) = option(options, "--comment", None) {
            words.push(format!("--comment={comment} {tag}"));
        }
        let script = script(command);
        let answer = run(&words, &script, Some(held))?;
        // `ID` or `ID;CLUSTER`.
        let line = answer.out.lines().next().unwrap_or_default().trim();
        let (id, cluster) = match line.split_once(';') {
            Some((id, cluster)) => (id, Some(cluster.to_owned())),
            None => (line, None),
        };
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
        if !answer.good || !is_id {
            let words = answer.words();
            return Ok(Submission::Failed(refused("sbatch", &words, hint(&words))));
        }
        Ok(Submission::Done { id: id.to_owned(), slurm_cluster: cluster })
    }

    /// The id of the job that carries a tag, also of one that has ended a short time ago.
    ///
    /// # Errors
    /// If Slurm does not answer.
    pub(super) fn find(&self, tag: &str) -> Result<Option<String>> {
        let words = self.with_cluster(&["squeue", "--me", "-h", "-t", "all", "-o", "%F|%k"]);
        let answer = ask(&words)?;
        if !answer.good {
            return Err(refused("squeue", &answer.words(), None));
        }
        Ok(tagged(&answer.out, tag))
    }

    /// The rows of a job: one, or one for each task of an array that has not ended.
    ///
    /// # Errors
    /// If Slurm does not answer.
    pub(super) fn rows(&self, id: &str) -> Result<Vec<Row>> {
        let answer = ask(&self.with_cluster(&["squeue", "--me", "-h", "-j", id, "-o", FIELDS]))?;
        if !answer.good && !answer.err.contains(UNKNOWN) {
            return Err(refused("squeue", &answer.words(), None));
        }
        let mut rows: Vec<Row> = answer.out.lines().filter_map(row).collect();
        if rows.is_empty() {
            rows = self.ended(id)?;
        }
        for row in &mut rows {
            row.hosts = self.expand(&row.hosts)?;
        }
        Ok(rows)
    }

    /// Rows of a job that has left the queue.
    fn ended(&self, id: &str) -> Result<Vec<Row>> {
        let answer = ask(&self.with_cluster(&["scontrol", "show", "job", "-o", id]))?;
        if !answer.good && !answer.err.contains(UNKNOWN) {
            return Err(refused("scontrol", &answer.words(), None));
        }
        let rows: Vec<Row> = answer.out.lines().filter_map(record).collect();
        if !rows.is_empty() {
            return Ok(rows);
        }
        // The controller forgets jobs after minutes; the accounting keeps them, where there is one.
        let words = ["sacct", "-n", "-X", "-P", "-j", id, "-o", "JobID,State,ExitCode,NodeList"];
        let rows: Vec<Row> = match ask(&self.with_cluster(&words)) {
            Ok(answer) if answer.good => answer.out.lines().filter_map(accounted).collect(),
            _ => Vec::new(),
        };
        Ok(if rows.is_empty() { vec![Row::forgotten(id)] } else { rows })
    }

    fn expand(&self, hosts: &[String]) -> Result<Vec<String>> {
        let [list] = hosts else { return Ok(Vec::new()) };
        if self.expanded.borrow().0 != *list {
            *self.expanded.borrow_mut() = (list.clone(), host_names(list)?);
        }
        Ok(self.expanded.borrow().1.clone())
    }

    /// Where a job prints to.
    pub(super) fn output(&self, id: &str) -> Option<PathBuf> {
        let answer = ask(&self.with_cluster(&["scontrol", "show", "job", "-o", id])).ok()?;
        let (_, rest) = answer.out.lines().next()?.split_once(" StdOut=")?;
        let end = rest.find(" Power=").unwrap_or(rest.len());
        Some(rest[..end].trim().into())
    }

    /// Cancels a job; all is well if there is none.
    ///
    /// # Errors
    /// If Slurm does not do it.
    pub(super) fn cancel(&self, id: &str) -> Result<()> {
        let answer = ask(&self.with_cluster(&["scancel", id]))?;
        let gone = [UNKNOWN, "already completing or completed", "Job has already finished"];
        if answer.good || gone.iter().any(|words| answer.err.contains(words)) {
            return Ok(());
        }
        Err(refused("scancel", &answer.words(), None))
    }

    fn with_cluster(&self, words: &[&str]) -> Vec<String> {
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let option = self.cluster.as_ref().map(|name| format!("--clusters={name}"));
        words.splice(1..1, option);
        words
    }
}

/// Advice for a job whose hosts do not see what the submitting machine has.
pub(super) const UNSEEN: &str = "put program, file and store where all hosts see them, or drive \
                                 from here, which needs nothing on them: salloc --nodes=N coracle \
                                 cluster up -f FILE";

/// The batch script. It tells what its host does not see.
///
/// The shell stays above the driver: with the end of a batch script Slurm kills what is left of it,
/// `srun`s too, and these have Slurm kill the agents of all hosts, which then clean up nothing.
fn script(command: &[String]) -> String {
    // The program, and the cluster's file behind its options.
    let ends = [command.first(), command.last()].into_iter().flatten();
    let paths: Vec<String> =
        ends.filter(|word| word.starts_with('/')).map(|path| quote(path)).collect();
    format!(
        "#!/bin/sh\nfor path in {}; do\n    [ -r \"$path\" ] && continue\n    \
         echo \"error: $(uname -n), the first host of this job, does not see $path\" >&2\n    \
         echo {} >&2\n    exit 125\ndone\n{} &\n{WAITING}",
        paths.join(" "),
        quote(&format!("hint: {UNSEEN}")),
        join(command)
    )
}

/// Waits for the command, and passes signals on to it (Slurm may have signalled it too, and it may
/// have ended by that already). A signal ends the waiting, not the command.
/// After one that was killed it asks the steps of the agents to end, and waits while they clean up.
const WAITING: &str = "\
    for signal in HUP INT TERM; do trap \"kill -$signal $! 2>/dev/null\" $signal; done\n\
    wait $!\n\
    status=$?\n\
    while kill -0 $! 2>/dev/null; do wait $!; status=$?; done\n\
    [ $status = 137 ] && scancel -s TERM \"$SLURM_JOB_ID\" && for second in $(seq 120); do\n\
    \x20   squeue -hs -j \"$SLURM_JOB_ID\" -o %i | grep -q '[.][0-9]' || break\n\
    \x20   sleep 1\n\
    done\n\
    exit $status\n";

/// The job of `squeue -o '%F|%k'` whose comment has a tag.
fn tagged(text: &str, tag: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (id, comment) = line.split_once('|')?;
        comment.split_whitespace().any(|word| word == tag).then(|| id.trim().to_owned())
    })
}

/// Reads a line of `squeue` with [`FIELDS`]. Hosts are still a list in Slurm's short form.
fn row(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let [id, word, reason, start, left, hosts] = cells[..] else { return None };
    let phase = phase(word);
    let known = |text: &str| !matches!(text, "" | "N/A" | "None" | "(null)");
    Some(Row {
        id: id.to_owned(),
        phase,
        word: word.to_owned(),
        reason: (known(reason) && phase != Phase::Running).then(|| reason_in_words(reason)),
        start: (known(start) && phase == Phase::Queued).then(|| start.replace('T', " ")),
        time_left: if phase == Phase::Running { slurm_time(left) } else { None },
        hosts: if known(hosts) { vec![hosts.to_owned()] } else { Vec::new() },
        status: None,
    })
}

/// Reads a line of `scontrol show job -o`.
fn record(line: &str) -> Option<Row> {
    let field = |name: &str| {
        // The first of that name: the last fields are texts of the user.
        let mut words = line.split(' ').filter_map(|word| word.split_once('='));
        words.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let word = field("JobState")?;
    let id = match (field("ArrayJobId"), field("ArrayTaskId")) {
        (Some(job), Some(task)) => format!("{job}_{task}"),
        _ => field("JobId")?.to_owned(),
    };
    let reason =
        field("Reason").filter(|reason| !matches!(*reason, "None" | "(null)" | "NonZeroExitCode"));
    let hosts = field("NodeList").filter(|hosts| !matches!(*hosts, "" | "(null)"));
    let phase = phase(word);
    Some(Row {
        id,
        phase,
        word: word.to_owned(),
        reason: reason.map(reason_in_words),
        start: None,
        time_left: None,
        hosts: hosts.map(str::to_owned).into_iter().collect(),
        status: field("ExitCode").and_then(ended_with).filter(|_| phase == Phase::Ended),
    })
}

/// Reads a line of `sacct -P -o JobID,State,ExitCode,NodeList`: `12|CANCELLED by 1001|0:15|one`.
fn accounted(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.split('|').collect();
    let [id, state, code, hosts] = cells[..] else { return None };
    let word = state.split([' ', '+']).next()?;
    let mut row = Row::forgotten(id);
    row.phase = phase(word);
    word.clone_into(&mut row.word);
    row.status = ended_with(code);
    row.hosts = if hosts.contains(' ') { Vec::new() } else { vec![hosts.to_owned()] };
    Some(row)
}

/// `CODE:SIGNAL` as an exit status.
fn ended_with(text: &str) -> Option<u8> {
    let (code, signal) = text.split_once(':')?;
    let (code, signal): (u8, u8) = (code.parse().ok()?, signal.parse().ok()?);
    Some(if signal > 0 { signal.saturating_add(128) } else { code })
}

fn phase(word: &str) -> Phase {
    match word {
        "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_FED" | "REQUEUE_HOLD"
        | "RESV_DEL_HOLD" | "SPECIAL_EXIT" => Phase::Queued,
        "BOOT_FAIL" | "CANCELLED" | "COMPLETED" | "DEADLINE" | "FAILED" | "NODE_FAIL"
        | "OUT_OF_MEMORY" | "PREEMPTED" | "REVOKED" | "TIMEOUT" => Phase::Ended,
        _ => Phase::Running,
    }
}

/// Why a job waits (squeue(1), "job reason codes"), with Slurm's word for a search.
fn reason_in_words(reason: &str) -> String {
    let words = match reason {
        "Resources" => "waits for free nodes",
        "Priority" => "other jobs come first",
        "Dependency" => "waits for another job",
        "BeginTime" => "its time has not come",
        "JobHeldUser" => "is held by its owner: scontrol release",
        "JobHeldAdmin" => "is held by an administrator",
        "PartitionDown" | "PartitionInactive" => "the partition takes no jobs now",
        "PartitionTimeLimit" => "asks for more time than the partition gives: it cannot start",
        "PartitionNodeLimit" => "asks for more nodes than the partition gives: it cannot start",
        "PartitionConfig" => "asks for what the partition does not have: it cannot start",
        "ReqNodeNotAvail" => "a node that it needs is not available",
        "NodeDown" => "a node that it needs is down",
        "Licenses" => "waits for a licence",
        "Reservation" => "waits for its reservation",
        "InvalidAccount" | "AccountNotAllowed" => "its account is not allowed: it cannot start",
        "InvalidQOS" | "QOSNotAllowed" => "its QOS is not allowed: it cannot start",
        "Cleaning" => "is being cleaned up after",
        "JobArrayTaskLimit" => "so many tasks of the array run at once",
        other if other.starts_with("QOS") => "a limit of its QOS is reached",
        other if other.starts_with("Assoc") => "a limit of its account is reached",
        // A sentence of its own.
        other => return other.to_owned(),
    };
    format!("{words} ({reason})")
}

/// Advice, from the words of `sbatch`.
fn hint(words: &str) -> Option<&'static str> {
    let has = |parts: &[&str]| parts.iter().any(|part| words.to_lowercase().contains(part));
    let about: &[(&[&str], &str)] = &[
        (
            &["invalid partition", "user's group not permitted to use this partition"],
            "'sinfo' lists the partitions; the file names one in partition or options",
        ),
        (
            &["invalid account", "account/partition combination", "account not"],
            "'sacctmgr show associations user=$USER' lists your accounts; give one by options = \
             [\"--account=NAME\"]",
        ),
        (
            &["invalid qos"],
            "'sacctmgr show qos' lists them; give one by options = [\"--qos=NAME\"]",
        ),
        (
            &["time limit is invalid", "invalid --time", "time limit exceeds"],
            "'sinfo -o \"%P %l\"' shows the longest time of each partition; change time in the file",
        ),
        (
            &["node count", "more processors requested", "node configuration is not available"],
            "'sinfo' shows the nodes; change nodes or partition in the file",
        ),
        (
            &["unrecognized option", "invalid option"],
            "options of the file are passed to sbatch as they are",
        ),
        (
            &["unable to contact", "connection refused", "timed out"],
            "the controller does not answer: 'scontrol ping'",
        ),
    ];
    about.iter().find(|(parts, _)| has(parts)).map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Lines of Slurm 22.05.8.
    #[test]
    fn lines_of_squeue() {
        let waits = row("9|PENDING|BeginTime|2026-11-26T08:34:56|UNLIMITED|").unwrap();
        assert_eq!(
            (waits.phase, waits.start.as_deref()),
            (Phase::Queued, Some("2026-11-26 08:34:56"))
        );
        assert_eq!(waits.reason.as_deref(), Some("its time has not come (BeginTime)"));
        assert_eq!((waits.time_left, waits.hosts.len()), (None, 0));
        let runs = row("1|RUNNING|None|2026-11-26T07:34:57|0:59|one,two").unwrap();
        assert_eq!((runs.phase, runs.reason), (Phase::Running, None));
        assert_eq!(
            (runs.time_left, runs.hosts),
            (Some(Duration::from_secs(59)), vec!["one,two".to_owned()])
        );
        let endless = row("2|RUNNING|None|2026-11-26T07:34:57|UNLIMITED|one").unwrap();
        assert_eq!(endless.time_left, None);
        let task = row("8_[0-3]|PENDING|Priority|N/A|UNLIMITED|").unwrap();
        assert_eq!((&*task.id, task.start), ("8_[0-3]", None));
        let long = "4|PENDING|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions|N/A|UNLIMITED|";
        assert!(row(long).unwrap().reason.unwrap().starts_with("Nodes required for job are DOWN"));
        for word in ["COMPLETING", "SUSPENDED", "STAGE_OUT"] {
            assert_eq!(phase(word), Phase::Running, "{word}");
        }
        assert!(row("").is_none() && row("slurm_load_jobs error").is_none());
        let list = "2|(null)\n8|coracle:lab:0123\n9|mine coracle:lab:4567\n";
        assert_eq!(tagged(list, "coracle:lab:4567").as_deref(), Some("9"));
        assert_eq!(tagged(list, "coracle:lab:456"), None);
    }

    /// A line of Slurm 22.05.8, shortened; of `sacct`, from its manual.
    #[test]
    fn lines_of_ended_jobs() {
        let line = "JobId=1 JobName=x UserId=u(1001) Reason=None Dependency=(null) JobState=CANCELLED \
             ExitCode=0:15 ReqNodeList=(null) NodeList=one,two BatchHost=one Comment=JobState=COMPLETED";
        let one = record(line).unwrap();
        assert_eq!((one.phase, &*one.word, one.status), (Phase::Ended, "CANCELLED", Some(143)));
        assert_eq!((one.reason, one.hosts), (None, vec!["one,two".to_owned()]));
        let task =
            record("JobId=9 ArrayJobId=8 ArrayTaskId=3 JobState=FAILED ExitCode=3:0").unwrap();
        assert_eq!((&*task.id, task.status), ("8_3", Some(3)));
        let one = accounted("12|CANCELLED by 1001|0:0|None assigned").unwrap();
        assert_eq!((one.phase, &*one.word, one.hosts.len()), (Phase::Ended, "CANCELLED", 0));
        assert_eq!(accounted("12|FAILED|3:0|one").unwrap().status, Some(3));
    }

    #[test]
    fn a_script_looks_for_the_program_and_the_file() {
        let words = ["/opt/coracle", "--store", "/s", "cluster", "up", "-f", "/a b.toml"];
        let text = script(&words.map(str::to_owned));
        assert!(text.contains("for path in /opt/coracle '/a b.toml'; do\n"), "{text}");
        assert!(text.contains("\n/opt/coracle --store /s cluster up -f '/a b.toml' &\nfor signal"));
        let text = script(&["sh", "-c", "exit 4"].map(str::to_owned));
        assert!(text.starts_with("#!/bin/sh\nfor path in ; do\n"), "{text}");
    }

    #[test]
    fn a_script_passes_signals_on_and_has_the_status() {
        let ended = |inner: &str, signal: Option<i32>| {
            let text = script(&["sh", "-c", inner].map(str::to_owned));
            let mut shell = std::process::Command::new("sh");
            let shell = shell.args(["-c", &text]).stdout(std::process::Stdio::piped());
            let mut child = shell.spawn().unwrap();
            let mut line = [0; 6];
            std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
            if let Some(number) = signal {
                // Its traps are set shortly after the command has begun.
                let status = format!("/proc/{}/status", child.id());
                let caught = || {
                    let text = std::fs::read_to_string(&status).unwrap();
                    let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
                    u64::from_str_radix(mask.trim(), 16).unwrap()
                };
                while caught() & (1 << (number - 1)) == 0 {
                    std::thread::yield_now();
                }
                sys::event::send_signal(rustix::process::Pid::from_child(&child), number).unwrap();
            }
            child.wait().unwrap().code()
        };
        assert_eq!(ended("echo begun; exit 4", None), Some(4));
        assert_eq!(ended("echo begun; kill -KILL $$", None), Some(137));
        let slow = "trap 'sleep 0.3; exit 6' TERM; echo begun; while :; do sleep 0.1; done";
        assert_eq!(ended(slow, Some(15)), Some(6));
    }

    #[test]
    fn options() {
        let words = ["-o", "a", "--comment=x y", "-ob", "--output-x=c"].map(str::to_owned);
        assert_eq!(option(&words, "--output", Some("-o")), Some("b"));
        assert_eq!(option(&words, "--comment", None), Some("x y"));
        assert_eq!(option(&words, "--qos", Some("-q")), None);
    }
}
