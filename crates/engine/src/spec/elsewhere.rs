//! Where a container runs whose processes cannot be seen from here, and what to do about it, in
//! words.

use std::fmt;

use serde::{Deserialize, Serialize};
use sys::machine::{self, Machine, Relation};

/// Where a container lives, when that is not here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Elsewhere {
    /// The host name there, when the record was written.
    pub host: String,
    /// The process id there: the program's, or its supervisor's while it waits to start it again.
    pub pid: u32,
    /// When that was written, in seconds since 1970 by the clock there; 0 where it is not known.
    pub since: u64,
    /// A process there holds a lock that is seen here: it lives. Otherwise only the record says so.
    pub held: bool,
    /// It is this machine, in another pid namespace.
    pub this_kernel: bool,
    /// Another machine with this one's host name.
    pub same_name: bool,
}

impl Elsewhere {
    pub(crate) fn new(machine: &Machine, pid: u32, since: u64, held: bool) -> Self {
        let here = Machine::here();
        Self {
            host: machine.name.clone(),
            pid,
            since,
            held,
            this_kernel: here.relation_to(machine, since) == Relation::Kernel,
            same_name: here.name == machine.name,
        }
    }

    /// What the user can do.
    pub fn hint(&self) -> String {
        let Self { host, .. } = self;
        let there =
            if self.this_kernel || self.same_name { "there" } else { &format!("on {host}") };
        if self.held {
            return format!("run the command {there}");
        }
        let what = if self.this_kernel { "that namespace" } else { host };
        format!(
            "run the command {there}; where {what} is gone, \
             'coracle stop --host-is-gone {host} CONTAINER' frees the container, \
             and 'coracle rm' takes the flag too"
        )
    }
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, pid, .. } = self;
        if self.this_kernel {
            write!(out, "in another pid namespace of this machine ({host})")?;
        } else if self.same_name {
            write!(out, "on another machine that is called {host} too")?;
        } else {
            write!(out, "on {host}")?;
        }
        if self.since > 0 {
            let age = machine::now().saturating_sub(self.since);
            write!(out, " since {}", span(age))?;
        }
        write!(out, " (process {pid} there)")?;
        if self.held { Ok(()) } else { out.write_str(", as far as its record says") }
    }
}

/// A span of seconds, in its largest unit.
fn span(seconds: u64) -> String {
    let (count, unit) = match seconds {
        s if s < 60 => (s, "second"),
        s if s < 3600 => (s / 60, "minute"),
        s if s < 48 * 3600 => (s / 3600, "hour"),
        s => (s / 86400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_host_and_age() {
        let since = machine::now() - 3 * 3600;
        let there = Elsewhere { host: "node17".into(), pid: 4711, since, ..Elsewhere::default() };
        let text = "on node17 since 3 hours (process 4711 there), as far as its record says";
        assert_eq!(there.to_string(), text);
        assert!(there.hint().contains("stop --host-is-gone node17"));
        let held = Elsewhere { held: true, since: 0, ..there };
        assert_eq!(held.to_string(), "on node17 (process 4711 there)");
        assert_eq!(held.hint(), "run the command on node17");
        assert_eq!(
            (span(1), span(100_000), span(400_000)),
            ("1 second".into(), "27 hours".into(), "4 days".into())
        );
    }
}
