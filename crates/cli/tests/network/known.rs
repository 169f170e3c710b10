//! Lines in which mode `names` is known to differ from a network namespace, each with its reason.

/// A difference.
pub(crate) struct Known {
    program: &'static str,
    /// A line up to its result, with its section before it.
    pub(crate) line: &'static str,
    /// The result in a namespace.
    oracle: &'static str,
    /// The results that are right here. With one that is the oracle's too the line may be equal:
    /// it depends on the host's own network.
    here: &'static [&'static str],
    /// The reason.
    #[expect(dead_code, reason = "for whoever reads this list")]
    reason: &'static str,
}

/// Sockets stand on the host's addresses, so an address that no member has leads nowhere at once.
const NOBODY: &str = "a namespace asks the link for the address and waits for no answer; the table of members knows at once that nobody has it";
/// Nothing leaves by a link of one's own.
const OF_THE_HOST: &str =
    "multicast and broadcast are left to the kernel, so the host's routes and interfaces answer";
/// No interface of the host has the virtual address.
const INTERFACE: &str =
    "an interface is named by the virtual address, which no interface of the host has";

const KNOWN: &[Known] = &[
    Known {
        program: "connects",
        line: "errors of connect | nobody's address",
        oracle: "EHOSTUNREACH",
        here: &["EHOSTUNREACH", "ECONNREFUSED"],
        reason: NOBODY,
    },
    Known {
        program: "six",
        line: "wrong | nobody's",
        oracle: "EHOSTUNREACH",
        here: &["EHOSTUNREACH", "ECONNREFUSED"],
        reason: NOBODY,
    },
    Known {
        program: "outside",
        line: "broadcast and multicast | send_to(fd, \"x\", \"100.80.0.255\", 5353)",
        oracle: "EACCES",
        here: &["EACCES", "ENETUNREACH", "EHOSTUNREACH", "1"],
        reason: OF_THE_HOST,
    },
    Known {
        program: "outside",
        line: "broadcast and multicast | send_to(fd, \"x\", \"255.255.255.255\", 5353)",
        oracle: "ENETUNREACH",
        here: &["ENETUNREACH", "EACCES"],
        reason: OF_THE_HOST,
    },
    Known {
        program: "outside",
        line: "broadcast and multicast | setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group)",
        oracle: "0",
        here: &["ENODEV"],
        reason: INTERFACE,
    },
    Known {
        program: "outside",
        line: "broadcast and multicast | setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &group.imr_interface, sizeof group.imr_interface)",
        oracle: "0",
        here: &["EADDRNOTAVAIL"],
        reason: INTERFACE,
    },
];

/// The differences of a program; those of its form of 32 bits too.
pub(crate) fn of(program: &str) -> impl Iterator<Item = &'static Known> {
    KNOWN.iter().filter(move |known| known.program == program.trim_end_matches("32"))
}

/// What became of a listed line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Both results are as listed, or the line is left in both lists as a difference.
    Settled,
    /// The results are equal, which is not listed.
    Stale,
    /// A list has no such line.
    Missing,
}

impl Known {
    fn value<'l>(&self, line: &'l str) -> Option<&'l str> {
        line.strip_prefix(self.line)?.strip_prefix(": ")
    }

    /// Gives the line the same result in both lists, if both are as listed.
    pub(crate) fn settle(&self, wanted: &mut [String], got: &mut [String]) -> Fate {
        let find = |lines: &[String]| lines.iter().position(|line| self.value(line).is_some());
        let (Some(left), Some(right)) = (find(wanted), find(got)) else { return Fate::Missing };
        let native = self.value(&wanted[left]).unwrap_or_default();
        let found = self.value(&got[right]).unwrap_or_default();
        if native == self.oracle && self.here.contains(&found) {
            got[right].clone_from(&wanted[left]);
        } else if native == found && native == self.oracle {
            return Fate::Stale;
        }
        Fate::Settled
    }
}
