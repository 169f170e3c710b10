//! `doctor`: what this host allows, which engine is chosen, and why the others are not.
//!
//! The probes are the host crate's, the engines' fits are the engines' own; here they are only put
//! side by side. Every mode of the design has its line, those that this build does not have
//! included.

use std::fmt::Write;

use engine::choose::{ENGINES, Fit, by_name, modes};
use engine::facts::Facts;
use engine::spec::ContainerConfig;
use host::{Finding, Host, Level};
use serde::Serialize;

use crate::args::system::DoctorArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use containers::config::Colour;

/// No engine works here.
const NO_ENGINE: Exit = Exit(1);

/// Runs it.
pub(crate) fn run(context: &Context, args: &DoctorArgs) -> Result<Exit, Report> {
    let DoctorArgs { format } = args;
    let json = match format.as_deref() {
        None | Some("text") => false,
        Some("json") => true,
        Some(other) => {
            return Err(Report::usage(format!("unknown format {other:?}")).hint("text or json"));
        }
    };
    let session = context.session()?;
    let probing = session.probing();
    let mut host = Host::thorough(&probing);
    session.try_inside(&mut host);
    let mut facts = Facts::of(&host, &probing, &ContainerConfig::default());
    session.name_programs(&mut host);
    facts.find_helpers(&host);
    let lines = engines(&host, &facts);
    let usable = lines.iter().any(|line| line.chosen);
    if json {
        let answer = serde_json::json!({
            "host": host, "findings": host.findings(), "engines": lines,
            "chosen": lines.iter().find(|line| line.chosen).map(|line| line.mode),
        });
        output::line(output::pretty(&answer))?;
    } else {
        let colour = match context.settings()?.colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => context.output_is_terminal(),
        };
        output::print(&text(&host.findings(), &lines, colour))?;
    }
    Ok(if usable { Exit::OK } else { NO_ENGINE })
}

/// How well an engine fits, for machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ready,
    Degraded,
    Unusable,
    Absent,
}

/// One engine.
#[derive(Debug, Serialize)]
struct EngineLine {
    mode: &'static str,
    about: &'static str,
    state: State,
    /// The one that is taken where no mode is asked for.
    chosen: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// Every mode of the design. The first of [`ENGINES`] that works unasked is the one that `run`
/// takes.
fn engines(host: &Host, facts: &Facts) -> Vec<EngineLine> {
    let chosen = ENGINES
        .iter()
        .find(|engine| {
            !engine.is_only_by_name(facts) && !matches!(engine.probe(facts), Fit::Unusable(_))
        })
        .map(|engine| engine.name());
    modes()
        .into_iter()
        .map(|(mode, about)| {
            let built = by_name(mode);
            let (state, why) = match built.map(|engine| engine.probe(facts)) {
                Some(Fit::Ready) => (State::Ready, None),
                Some(Fit::Degraded(why)) => (State::Degraded, Some(why)),
                Some(Fit::Unusable(why)) => (State::Unusable, Some(why)),
                None => (State::Absent, Some("not in this build".to_owned())),
            };
            let advice = if state == State::Absent { None } else { advice(host, mode, state) };
            EngineLine { mode, about, state, chosen: chosen == Some(mode), why, advice }
        })
        .collect()
}

/// What would make an engine work, or work better: the advice of the trial that it hangs on.
fn advice(host: &Host, mode: &str, state: State) -> Option<String> {
    let trial = match state {
        State::Unusable if matches!(mode, "P1" | "P2") => {
            let trials = [&host.ptrace.child, &host.seccomp.filter, &host.ptrace.seccomp_stops];
            trials.into_iter().find(|trial| trial.is_fails())?
        }
        State::Unusable if matches!(mode, "I1" | "I2") && host.seccomp.filter.is_fails() => {
            &host.seccomp.filter
        }
        _ if mode != "N1" => return None,
        State::Unusable if host.namespaces.user.is_fails() => &host.namespaces.user,
        State::Unusable => &host.seccomp.filter,
        _ if host.overlay.kernel.is_fails() => &host.overlay.kernel,
        _ => return None,
    };
    trial.advice().map(str::to_owned)
}

/// A mark of one column, and its colour.
fn mark(level: Level) -> (&'static str, &'static str) {
    match level {
        Level::Good => ("+", "\x1b[32m"),
        Level::Note => (" ", ""),
        Level::Warn => ("!", "\x1b[33m"),
        Level::Bad => ("x", "\x1b[31m"),
    }
}

/// The lines for a person: `+` works, `!` works with something less, `x` does not.
fn text(findings: &[Finding], engines: &[EngineLine], colour: bool) -> String {
    let mut page = Page { text: String::new(), colour };
    page.heading("HOST");
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    for finding in findings {
        page.line(finding.level, &finding.name, width, &finding.value);
        page.advice(width, finding.advice.as_deref());
    }
    page.heading("\nENGINES");
    for engine in engines {
        let (level, word) = match engine.state {
            State::Ready => (Level::Good, "ready"),
            State::Degraded => (Level::Warn, "degraded"),
            State::Unusable => (Level::Bad, "unusable"),
            State::Absent => (Level::Note, "not in this build"),
        };
        let chosen = if engine.chosen { ", chosen" } else { "" };
        let why = match (&engine.why, engine.state) {
            (Some(why), State::Degraded | State::Unusable) => format!(": {why}"),
            _ => String::new(),
        };
        page.line(level, engine.mode, 2, &format!("{}: {word}{chosen}{why}", engine.about));
        page.advice(2, engine.advice.as_deref());
    }
    page.text
}

/// A text that grows, in colour or not.
struct Page {
    text: String,
    colour: bool,
}

impl Page {
    fn paint(&mut self, code: &str, text: &str) {
        if self.colour && !code.is_empty() {
            self.text.extend([code, text, "\x1b[0m"]);
        } else {
            self.text.push_str(text);
        }
    }

    fn heading(&mut self, text: &str) {
        self.paint("\x1b[1m", text);
        self.text.push('\n');
    }

    fn line(&mut self, level: Level, name: &str, width: usize, value: &str) {
        let (sign, code) = mark(level);
        self.paint(code, sign);
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, " {name:width$}  {value}");
    }

    fn advice(&mut self, width: usize, advice: Option<&str>) {
        if let Some(advice) = advice {
            self.text.push_str(&" ".repeat(width + 4));
            self.paint("\x1b[36m", "hint:");
            let _ = writeln!(self.text, " {advice}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Trial;

    /// A host that was probed thoroughly, without user namespaces or with them.
    fn facts_of(host: &Host) -> Vec<EngineLine> {
        let probing = host::Context::default();
        engines(host, &Facts::of(host, &probing, &ContainerConfig::default()))
    }

    fn finding(name: &str, level: Level, value: &str, advice: Option<&str>) -> Finding {
        let advice = advice.map(str::to_owned);
        Finding { name: name.into(), level, value: value.into(), how: String::new(), advice }
    }

    #[test]
    fn every_mode_has_a_line_and_one_is_chosen() {
        let host = Host::default();
        let lines = facts_of(&host);
        assert_eq!(lines.len(), modes().len());
        assert_eq!(lines.iter().filter(|line| line.chosen).count(), 1);
        for line in &lines {
            assert_eq!(
                line.state == State::Absent,
                line.why.as_deref() == Some("not in this build")
            );
        }
    }

    #[test]
    fn a_host_without_namespaces_says_what_to_do() {
        let mut host = Host::default();
        host.namespaces.user =
            Trial::fails("unshare", "AppArmor refuses").with_advice("administrator: a profile");
        let lines = facts_of(&host);
        let native = lines.iter().find(|line| line.mode == "N1").unwrap();
        assert_eq!(native.state, State::Unusable);
        assert!(!native.chosen);
        assert_eq!(native.advice.as_deref(), Some("administrator: a profile"));
    }

    #[test]
    fn lines_are_aligned_and_coloured_on_request_only() {
        let findings = [
            finding("kernel", Level::Note, "6.8.0 x86_64", None),
            finding("user namespaces", Level::Bad, "refused", Some("ask")),
            finding("overlay", Level::Good, "works", None),
        ];
        let line = EngineLine {
            mode: "N1",
            about: "user namespaces",
            state: State::Unusable,
            chosen: false,
            why: Some("refused".into()),
            advice: Some("ask".into()),
        };
        insta::assert_snapshot!(text(&findings, std::slice::from_ref(&line), false), @r"
        HOST
          kernel           6.8.0 x86_64
        x user namespaces  refused
                           hint: ask
        + overlay          works

        ENGINES
        x N1  user namespaces: unusable: refused
              hint: ask
        ");
        assert!(text(&findings, &[line], true).contains("\x1b[31mx\x1b[0m user namespaces"));
    }
}
