//! A plan in words. It goes to terminals, and its texts come from a file: of what is in them,
//! terminals get printable characters alone.

use std::fmt;

use remote::shell::quote;

use super::{Act, Balancer, Phase, Plan, ReadyBy, Step};
use crate::spec::units;

/// So many hosts are named.
const SHOWN: usize = 8;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cluster {}", self.cluster)?;
        writeln!(f, "backend {}", self.backend)?;
        self.phases.iter().try_for_each(|phase| write!(f, "\n{phase}"))?;
        if !self.asked.is_empty() {
            writeln!(f, "\nwhen a job needs it:")?;
            self.asked.iter().try_for_each(|step| writeln!(f, "  {step}"))?;
        }
        self.found.iter().try_for_each(|found| writeln!(f, "\nvariables:\n  {found}"))
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.name)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

/// Commands, as a shell takes them: `$'\\n'` for what is not printed as it is.
pub(super) fn shown(words: &[String]) -> String {
    let shown = |word: &String| {
        if word.contains(char::is_control) {
            let escaped: String = word.chars().map(escaped).collect();
            return format!("$'{escaped}'");
        }
        quote(word)
    };
    words.iter().map(shown).collect::<Vec<_>>().join(" ")
}

/// A character between the quotes of `$''`.
fn escaped(c: char) -> String {
    match c {
        '\'' | '\\' => format!("\\{c}"),
        '\n' | '\r' | '\t' => c.escape_default().to_string(),
        c if c.is_ascii_control() => format!("\\{:03o}", u32::from(c)),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.host {
            write!(f, "{host}: ")?;
        }
        match &self.act {
            Act::Told(text) | Act::Reach(text) => f.write_str(text),
            Act::Spread { image, hosts, pack, slurm } => {
                let shown = &hosts[..hosts.len().min(SHOWN)];
                let more = hosts.len() - shown.len();
                let more = if more == 0 { String::new() } else { format!(" and {more} more") };
                let seen = if *pack { "" } else { "by a store that they see, else " };
                let sbcast = if *slurm { "else by sbcast, " } else { "" };
                write!(
                    f,
                    "{image} to {}{more}    # pulled if it is not there; {seen}from host to host, \
                     {sbcast}else through the launcher",
                    shown.join(", ")
                )
            }
            Act::Image(name) => write!(f, "coracle pull {name}    # if it is not there"),
            Act::Input(copy) => {
                write!(
                    f,
                    "copy {} to {}:{}    # what is the same there stays",
                    copy.from, copy.node, copy.to
                )
            }
            Act::Output(copy) => write!(f, "copy {}:{} to {}", copy.node, copy.from, copy.to),
            Act::Join => write!(f, "coracle network invite, and network join, on each host"),
            Act::Network(words) | Act::Known(words) => write!(f, "coracle {}", shown(words)),
            Act::Start { words, .. } | Act::Run { words, .. } => {
                write!(f, "coracle {}", shown(words))
            }
            Act::Balance(balanced) => {
                let files: Vec<String> = balanced.balancers.iter().map(Balancer::told).collect();
                let service = &balanced.front.service;
                write!(
                    f,
                    "write {}    # a server for each container of {service}",
                    files.join(", ")
                )
            }
            Act::Ranks(ranks) => f.write_str(&ranks.explained()),
            Act::Ready { container, by, within } => match by {
                ReadyBy::Running => write!(f, "{container} runs"),
                ReadyBy::Trying(words) => write!(f, "coracle {}", shown(words)),
                ReadyBy::Repeating(words) => {
                    write!(f, "coracle {}    # within {}", shown(words), units::spell(*within))
                }
            },
        }
    }
}
