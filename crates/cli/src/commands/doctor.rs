//! `doctor`: what this host allows, which engine is chosen, and why the others are not.
//!
//! [`containers::doctor`] has the answers; here they become lines.

use std::fmt::Write;

use containers::config::Colour;
use containers::doctor::{self, EngineLine, NetworkLine, State};
use host::{Finding, Level};

use crate::args::system::DoctorArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};

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
    let doctor::Answer { host, engines: lines, networks } = doctor::examine(context.session()?);
    let usable = lines.iter().any(|line| line.chosen);
    if json {
        let answer = serde_json::json!({
            "host": host, "findings": host.findings(), "engines": lines,
            "networks": networks, "chosen": lines.iter().find(|line| line.chosen).map(|line| line.mode),
        });
        output::line(output::pretty(&answer))?;
    } else {
        let colour = match context.settings()?.colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => context.output_is_terminal(),
        };
        output::print(&text(&host.findings(), (&lines, &networks), colour))?;
    }
    Ok(if usable { Exit::OK } else { NO_ENGINE })
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
fn text(
    findings: &[Finding],
    (engines, networks): (&[EngineLine], &[NetworkLine]),
    colour: bool,
) -> String {
    let mut page = Page { text: String::new(), colour };
    page.heading("HOST");
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    for finding in findings {
        page.line(finding.level, &finding.name, width, &finding.value);
        page.advice(width, finding.advice.as_deref());
    }
    page.heading("\nENGINES");
    for engine in engines {
        let (level, word) = level_of(engine.state);
        let chosen = if engine.chosen { ", chosen" } else { "" };
        let why = match (&engine.why, engine.state) {
            (Some(why), State::Degraded | State::Unusable) => format!(": {why}"),
            _ => String::new(),
        };
        page.line(level, engine.mode, 2, &format!("{}: {word}{chosen}{why}", engine.about));
        page.advice(2, engine.advice.as_deref());
    }
    page.heading("\nNETWORKS");
    let width = networks.iter().map(|network| network.mode.len()).max().unwrap_or(0);
    for network in networks {
        let (level, word) = level_of(network.state);
        let why = network.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let engines = network.engines.join(" ");
        let within = if engines.is_empty() { engines } else { format!(" in {engines}") };
        let value = format!("{}: {word}{within}{why}", network.about);
        page.line(level, network.mode, width, &value);
        page.advice(width, network.advice.as_deref());
    }
    page.text
}

const fn level_of(state: State) -> (Level, &'static str) {
    match state {
        State::Ready => (Level::Good, "ready"),
        State::Degraded => (Level::Warn, "degraded"),
        State::Unusable => (Level::Bad, "unusable"),
        State::Absent => (Level::Note, "not in this build"),
    }
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
    use std::collections::BTreeMap;

    use super::*;

    fn finding(name: &str, level: Level, value: &str, advice: Option<&str>) -> Finding {
        let advice = advice.map(str::to_owned);
        Finding { name: name.into(), level, value: value.into(), how: String::new(), advice }
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
            options: BTreeMap::new(),
            advice: Some("ask".into()),
        };
        let network = |mode, state, engines: &[&'static str], why: Option<&str>| NetworkLine {
            mode,
            about: "of some kind",
            state,
            engines: engines.to_vec(),
            why: why.map(str::to_owned),
            advice: why.map(|_| "ask".into()),
        };
        let networks = [
            network("names", State::Ready, &["I1", "P1"], None),
            network("overlay", State::Unusable, &[], Some("refused")),
        ];
        let lines = (std::slice::from_ref(&line), &networks[..]);
        insta::assert_snapshot!(text(&findings, lines, false), @r"
        HOST
          kernel           6.8.0 x86_64
        x user namespaces  refused
                           hint: ask
        + overlay          works

        ENGINES
        x N1  user namespaces: unusable: refused
              hint: ask

        NETWORKS
        + names    of some kind: ready in I1 P1
        x overlay  of some kind: unusable: refused
                   hint: ask
        ");
        assert!(text(&findings, lines, true).contains("\x1b[31mx\x1b[0m user namespaces"));
    }
}
