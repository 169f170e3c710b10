//! Jobs of PBS and LSF, by a template: a batch script whose head has the batch system's commands,
//! so that a site changes them without another release.
//!
//! A line `# coracle: KEY = VALUE` belongs to the head, and is not submitted:
//!
//! | key | value |
//! |---|---|
//! | `submit` | submits `{{script}}`, and prints the id alone |
//! | `find` | prints the id of the job that carries `{{job_name}}` or `{{tag}}`, or nothing |
//! | `state` | prints lines: `state WORD`, `reason TEXT`, `start TEXT`, `left SECONDS`, |
//! | | `hosts A B`, `status N` |
//! | `queued`, `running`, `ended` | the words of `state` |
//! | `cancel` | cancels `{{id}}` |
//! | `gone` | parts of messages that mean that the job does not exist, with `|` between them |
//!
//! Commands are lines of a shell. A `{{name}}` is replaced: in a comment, such as a directive, as
//! it is; elsewhere quoted for a shell. A line of the script is left out if the file has no value
//! for a name in it (`{{queue}}`, `{{minutes}}`, `{{walltime}}`).

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use containers::config::nearest::nearest;
use remote::shell::{join, quote};

use super::allocation::{System, each_once};
use super::state::{Phase, Row};
use super::tool::ask_shell;
use super::{Submission, refused};
use crate::error::{Error, Result};
use crate::plan::sbatch::minutes;
use crate::spec::{Kind, Spec};

const PBS: &str = include_str!("templates/pbs.sh");
const LSF: &str = include_str!("templates/lsf.sh");
const HEAD: &str = "# coracle:";
/// The keys of a head, and whether one may be missing.
const KEYS: &[(&str, bool)] = &[
    ("submit", false),
    ("find", false),
    ("state", false),
    ("queued", false),
    ("running", false),
    ("ended", false),
    ("cancel", false),
    ("gone", true),
];
/// Longest name of a job that every PBS takes.
const LONGEST: usize = 15;
/// What there is in commands, and in the script.
const IN_COMMANDS: &[&str] = &["id", "job_name", "options", "script", "tag"];
const IN_SCRIPT: &[&str] =
    &["command", "job_name", "minutes", "nodes", "output", "queue", "status", "tag", "walltime"];

/// A template that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    /// What messages call it.
    name: String,
    /// Its whole text.
    pub text: String,
    /// The head, with the number of each line.
    head: Vec<(&'static str, String, usize)>,
}

/// Names and values; `None` for one that the file does not give.
type Values<'v> = &'v [(&'v str, Option<String>)];

impl Template {
    /// The template of a file's backend.
    ///
    /// # Errors
    /// If the site's template cannot be read, and as [`Template::parse`].
    pub(super) fn of(spec: &Spec) -> Result<Self> {
        let Kind::Template { system, template, .. } = &spec.backends[0].kind else {
            return Err(Error::new("the file's backend has no template"));
        };
        let Some(path) = template else {
            return match &**system {
                "pbs" => Self::parse("the template of pbs", PBS),
                _ => Self::parse("the template of lsf", LSF),
            };
        };
        let path = spec.directory().join(path);
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Error::new(format!("cannot read the template {}: {error}", path.display())).with_hint(
                "the path is relative to the cluster file; without it a built-in one is used",
            )
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Reads a template.
    ///
    /// # Errors
    /// With its line: an unknown, double or missing key, or a name that means nothing there.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self> {
        let mut head: Vec<(&'static str, String, usize)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |fact: String, hint: String| {
                Err(Error::new(format!("{name}, line {number}: {fact}")).with_hint(hint))
            };
            let Some(entry) = line.strip_prefix(HEAD) else {
                known_names(name, number, line, IN_SCRIPT)?;
                continue;
            };
            let Some((key, value)) = entry.split_once('=') else {
                return wrong(
                    "this is not KEY = VALUE".into(),
                    "write # coracle: cancel = qdel {{id}}".into(),
                );
            };
            let (key, value) = (key.trim(), value.trim());
            let Some((known, _)) = KEYS.iter().find(|(known, _)| *known == key) else {
                let all = || KEYS.iter().map(|(known, _)| *known);
                let hint = match nearest(key, all(), 2) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("there are {}", all().collect::<Vec<_>>().join(", ")),
                };
                return wrong(format!("there is no key {key:?}"), hint);
            };
            if head.iter().any(|(other, ..)| other == known) {
                return wrong(format!("{key} stands there twice"), "keep one of them".into());
            }
            if value.is_empty() {
                return wrong(format!("{key} has no value"), "write a command or words".into());
            }
            known_names(name, number, value, IN_COMMANDS)?;
            head.push((*known, value.to_owned(), number));
        }
        let is_there = |key: &str| head.iter().any(|(other, ..)| *other == key);
        if let Some((key, _)) = KEYS.iter().find(|(key, may)| !may && !is_there(key)) {
            let hint = format!("add a line '{HEAD} {key} = ...'; docs/cluster.md has an example");
            return Err(Error::new(format!("{name} has no {key}")).with_hint(hint));
        }
        Ok(Self { name: name.to_owned(), text: text.to_owned(), head })
    }

    fn value(&self, key: &str) -> &str {
        self.head.iter().find(|(other, ..)| *other == key).map_or("", |(_, value, _)| value)
    }

    /// A command of the head. `options` are words of a shell already.
    fn command(&self, key: &str, values: Values<'_>) -> String {
        let quoted = |name: &str, value: &str| {
            if name == "options" { value.to_owned() } else { quote(value) }
        };
        replaced(self.value(key), values, quoted).unwrap_or_default()
    }

    /// The batch script.
    fn script(&self, values: Values<'_>) -> String {
        let mut script = String::new();
        for line in self.text.lines().filter(|line| !line.starts_with(HEAD)) {
            let is_comment = line.trim_start().starts_with('#');
            let written = |name: &str, value: &str| {
                if is_comment || name == "command" { value.to_owned() } else { quote(value) }
            };
            if let Some(line) = replaced(line, values, written) {
                script.push_str(&line);
                script.push('\n');
            }
        }
        script
    }

    /// Submits a job; the script is written into `directory`.
    ///
    /// # Errors
    /// If nothing was submitted, for sure.
    pub(super) fn submit(&self, job: &Wanted<'_>, held: &File) -> Result<Submission> {
        let Kind::Template { options, queue, .. } = &job.spec.backends[0].kind else {
            return Err(Error::new("the file's backend has no template"));
        };
        let file = |name: &str| Some(job.directory.join(name).display().to_string());
        let time = job.spec.backends[0].time.map(minutes);
        let values = [
            ("command", Some(join(job.command))),
            ("job_name", Some(job.job_name.to_owned())),
            ("minutes", time.map(|minutes| minutes.to_string())),
            ("nodes", Some(job.spec.nodes.max(1).to_string())),
            ("options", Some(join(options))),
            ("output", file("output")),
            ("queue", queue.clone()),
            ("script", file("script")),
            ("status", file("status")),
            ("tag", Some(job.tag.to_owned())),
            ("walltime", time.map(|minutes| format!("{:02}:{:02}:00", minutes / 60, minutes % 60))),
        ];
        (job.write)("script", self.script(&values).as_bytes())?;
        let answer = ask_shell(&self.command("submit", &values), Some(held))?;
        let last = answer.out.lines().map(str::trim).rfind(|line| !line.is_empty());
        let is_id = |line: &&str| answer.good && !line.contains(char::is_whitespace);
        if let Some(id) = last.filter(is_id) {
            return Ok(Submission::Done { id: id.to_owned(), slurm_cluster: None });
        }
        let hint = "the file's options, queue and time go to the batch system as they are";
        Ok(Submission::Failed(refused(job.system.word(), &answer.words(), Some(hint))))
    }

    /// The id of the job that carries a tag or a name.
    ///
    /// # Errors
    /// If the batch system does not answer.
    pub(super) fn find(&self, tag: &str, job_name: &str) -> Result<Option<String>> {
        let values = [("tag", Some(tag.to_owned())), ("job_name", Some(job_name.to_owned()))];
        let answer = ask_shell(&self.command("find", &values), None)?;
        match answer.out.lines().map(str::trim).find(|line| !line.is_empty()) {
            Some(id) => Ok(Some(id.to_owned())),
            None if answer.err.trim().is_empty() || self.is_gone(&answer.err) => Ok(None),
            None => Err(refused(&self.name, &answer.words(), None)),
        }
    }

    /// The state of a job. `status` is the file that its script writes at its end.
    ///
    /// # Errors
    /// If the batch system does not answer, or in words that the template does not have.
    pub(super) fn rows(&self, id: &str, status: &Path) -> Result<Vec<Row>> {
        let answer = ask_shell(&self.command("state", &[("id", Some(id.to_owned()))]), None)?;
        let mut row = Row::forgotten(id);
        let has_state = self.read(&answer.out, &mut row)?;
        if !has_state && !answer.err.trim().is_empty() && !self.is_gone(&answer.err) {
            return Err(refused(&self.name, &answer.words(), None));
        }
        if row.phase == Phase::Running {
            // PBS says there how it was started.
            row.reason = None;
        }
        if row.phase == Phase::Ended
            && let Ok(text) = std::fs::read_to_string(status)
        {
            row.status = text.trim().parse().ok();
        }
        Ok(vec![row])
    }

    /// Reads what `state` prints. Returns whether a state is in it.
    fn read(&self, text: &str, row: &mut Row) -> Result<bool> {
        let mut has_state = false;
        for line in text.lines() {
            let (key, value) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            let value = value.trim();
            match key {
                "state" => {
                    row.phase = self.phase(value)?;
                    value.clone_into(&mut row.word);
                    has_state = true;
                }
                "reason" if !value.is_empty() => row.reason = Some(value.to_owned()),
                "start" if !value.is_empty() => row.start = Some(value.to_owned()),
                "left" => row.time_left = value.parse().ok().map(Duration::from_secs),
                "hosts" => row.hosts = each_once(value),
                "status" => row.status = value.parse().ok(),
                _ => {}
            }
        }
        Ok(has_state)
    }

    fn phase(&self, word: &str) -> Result<Phase> {
        let phases =
            [("queued", Phase::Queued), ("running", Phase::Running), ("ended", Phase::Ended)];
        let has = |key: &str| self.value(key).split_whitespace().any(|other| other == word);
        phases.iter().find(|(key, _)| has(key)).map(|(_, phase)| *phase).ok_or_else(|| {
            Error::new(format!("{} does not have the state {word:?}", self.name))
                .with_hint("add it to queued, running or ended of a template of your own")
        })
    }

    /// Cancels a job; all is well if there is none.
    ///
    /// # Errors
    /// If the batch system does not do it.
    pub(super) fn cancel(&self, id: &str) -> Result<()> {
        let answer = ask_shell(&self.command("cancel", &[("id", Some(id.to_owned()))]), None)?;
        if answer.good || self.is_gone(&answer.err) || self.is_gone(&answer.out) {
            return Ok(());
        }
        Err(refused(&self.name, &answer.words(), None))
    }

    fn is_gone(&self, text: &str) -> bool {
        let mut parts = self.value("gone").split('|').map(str::trim);
        parts.any(|part| !part.is_empty() && text.contains(part))
    }
}

/// A job that is to be submitted.
pub(super) struct Wanted<'w> {
    /// Its file.
    pub spec: &'w Spec,
    /// Its batch system.
    pub system: System,
    /// What it runs.
    pub command: &'w [String],
    /// What it carries.
    pub tag: &'w str,
    /// Its name.
    pub job_name: &'w str,
    /// The directory of the job, absolute.
    pub directory: &'w Path,
    /// Writes a file of that.
    pub write: &'w dyn Fn(&str, &[u8]) -> Result<()>,
}

/// A name for a job that is short, and not used by another one.
pub(super) fn job_name(cluster: &str, random: &str) -> String {
    let length = cluster.len().min(LONGEST - 7);
    format!("{}-{}", &cluster[..length], &random[..6])
}

/// The names in a line, each with its place: bytes from and to, braces included.
fn names(line: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let begin = from + line.get(from..)?.find("{{")?;
        let end = begin + line[begin..].find("}}")? + 2;
        from = end;
        Some((begin, end, line[begin + 2..end - 2].trim()))
    })
}

fn known_names(template: &str, number: usize, line: &str, known: &[&str]) -> Result<()> {
    for (begin, _, name) in names(line) {
        if !known.contains(&name) {
            let fact = format!(
                "{template}, line {number}, column {}: {{{{{name}}}}} is not known there",
                begin + 1
            );
            let hint = match nearest(name, known.iter().copied(), 2) {
                Some(near) => format!("did you mean {{{{{near}}}}}?"),
                None => format!("there are {}", known.join(", ")),
            };
            return Err(Error::new(fact).with_hint(hint));
        }
    }
    Ok(())
}

/// A line with the values of its names; `None` if one has no value.
fn replaced(
    line: &str,
    values: Values<'_>,
    written: impl Fn(&str, &str) -> String,
) -> Option<String> {
    let (mut text, mut from) = (String::new(), 0);
    for (begin, end, name) in names(line) {
        let (_, value) = values.iter().find(|(other, _)| *other == name)?;
        text.push_str(&line[from..begin]);
        text.push_str(&written(name, value.as_deref()?));
        from = end;
    }
    text.push_str(&line[from..]);
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# coracle: submit = s {{options}} {{script}}\n# coracle: find = f\n\
        # coracle: state = t {{id}}\n# coracle: queued = Q\n# coracle: running = R\n\
        # coracle: ended = C\n# coracle: cancel = c {{id}}\n";

    #[test]
    fn the_built_in_ones_are_right() {
        Template::parse("pbs", PBS).unwrap();
        Template::parse("lsf", LSF).unwrap();
    }

    #[test]
    fn mistakes_have_their_place() {
        for (line, fact, hint) in [
            ("a {{comand}}", "x.sh, line 8, column 3: {{comand}} is not known", "{{command}}"),
            ("a {{id}}", "x.sh, line 8, column 3: {{id}} is not known", "there are"),
            ("# coracle: sumbit = a", "x.sh, line 8: there is no key \"sumbit\"", "\"submit\""),
            ("# coracle: find = a", "x.sh, line 8: find stands there twice", "keep one"),
            ("# coracle: gone", "x.sh, line 8: this is not KEY = VALUE", "cancel = "),
            ("# coracle: gone =", "x.sh, line 8: gone has no value", "write"),
            ("# coracle: gone = {{queue}}", "x.sh, line 8, column 1: {{queue}}", "there are"),
        ] {
            let error = Template::parse("x.sh", &format!("{GOOD}{line}\n")).unwrap_err();
            let shown = error.to_string();
            assert!(shown.starts_with(fact), "{line}: {shown}");
            assert!(error.hint().is_some_and(|own| own.contains(hint)), "{:?}", error.hint());
        }
        let error = Template::parse("x.sh", "# coracle: submit = a\n").unwrap_err();
        assert_eq!(error.to_string(), "x.sh has no find");
    }

    #[test]
    fn names_are_replaced_and_quoted() {
        let text = format!(
            "{GOOD}#X -q {{{{queue}}}} {{{{ nodes }}}}\n#X -W {{{{minutes}}}}\nx >{{{{output}}}} }}}} {{{{"
        );
        let template = Template::parse("x.sh", &text).unwrap();
        let values = [
            ("queue", Some("a b".to_owned())),
            ("nodes", Some("2".to_owned())),
            ("minutes", None),
            ("output", Some("/a b".to_owned())),
            ("options", Some("-P 'a b'".to_owned())),
            ("script", Some("it's".to_owned())),
        ];
        assert_eq!(template.script(&values), "#X -q a b 2\nx >'/a b' }} {{\n");
        assert_eq!(template.command("submit", &values), "s -P 'a b' 'it'\\''s'");
        assert_eq!(job_name("a-long-name", "0123456789"), "a-long-n-012345");
        assert_eq!(job_name("lab", "0123456789"), "lab-012345");
    }

    #[test]
    fn states() {
        let template = Template::parse("x.sh", GOOD).unwrap();
        let mut row = Row::forgotten("1");
        let text = "state R\nreason because of this\nleft 60\nhosts a b a\nother\n";
        assert_eq!(template.read(text, &mut row), Ok(true));
        assert_eq!((row.phase, &*row.word, row.hosts.len()), (Phase::Running, "R", 2));
        assert_eq!(row.time_left, Some(Duration::from_mins(1)));
        assert_eq!(row.reason.as_deref(), Some("because of this"));
        assert_eq!(template.read("left 60\n", &mut row), Ok(false));
        let error = template.read("state Z\n", &mut row).unwrap_err();
        assert!(error.to_string().contains("does not have the state \"Z\""), "{error}");
    }
}
