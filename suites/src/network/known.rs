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
/// The kernel judges real addresses, and sends errors for them.
const REAL: &str = "the kernel answers for the real address and port";
/// A socket keeps the real address that it was first connected from.
const KEPT: &str =
    "a socket that is connected again is shown by the way of this connection, not of the first";

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
        program: "listeners",
        line: "restarts | without the option, then 127.0.0.1",
        oracle: "ok",
        here: &["EADDRINUSE"],
        reason: "the old socket's connections are at the real address of all networks, and look as if it served all addresses still",
    },
    Known {
        program: "listeners",
        line: "restarts | without the option, 127.0.0.1 listens",
        oracle: "ok",
        here: &["-"],
        reason: "as before",
    },
    Known {
        program: "six",
        line: "both versions on one port | then loopback",
        oracle: "self [::ffff:127.0.0.1]:ephemeral (length 28), peer [::ffff:127.0.0.1]:5436 (length 28)",
        here: &[
            "self [::ffff:100.80.0.2]:ephemeral (length 28), peer [::ffff:100.80.0.2]:5436 (length 28)",
        ],
        reason: KEPT,
    },
    Known {
        program: "udp",
        line: "connected | by loopback",
        oracle: "self 100.80.0.2:ephemeral (length 16), peer 127.0.0.1:5353 (length 16)",
        here: &["self 127.0.0.1:ephemeral (length 16), peer 127.0.0.1:5353 (length 16)"],
        reason: KEPT,
    },
    Known {
        program: "udp",
        line: "connected | port 0",
        oracle: "self 127.0.0.1:ephemeral (length 16), peer ENOTCONN",
        here: &["self 0.0.0.0:ephemeral (length 16), peer ENOTCONN"],
        reason: KEPT,
    },
    Known {
        program: "udp",
        line: "queue of errors | sent to",
        oracle: "100.80.0.2:5999 (length 16)",
        here: &["100.80.0.2:1 (length 16)"],
        reason: REAL,
    },
    Known {
        program: "outside",
        line: "claims | bind_to(fd, \"192.0.2.1\", 5432)",
        oracle: "0",
        here: &["EADDRNOTAVAIL"],
        reason: "IP_FREEBIND names an address that no member has, and nothing would lead there",
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

/// Lines in which containers with network namespaces differ.
const PACKETS: &[Known] = &[];

/// The differences of a program; those of its form of 32 bits too. `packets`: in containers with
/// network namespaces.
pub(crate) fn of(program: &str, packets: bool) -> impl Iterator<Item = &'static Known> {
    let list = if packets { PACKETS } else { KNOWN };
    list.iter().filter(move |known| known.program == program.trim_end_matches("32"))
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
