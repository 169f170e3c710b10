//! Identifies a machine, so that a process id read from a file can be matched to a process here.
//!
//! A process id means one process within one pid namespace of one boot of one kernel. So two places
//! are the same if boot id and pid namespace are the same. The host name is not compared then: it
//! may change while the machine runs.
//!
//! | boot id | pid namespace | meaning | [`Relation`] |
//! |---|---|---|---|
//! | same | same | process ids are comparable | `Same` |
//! | same | other | one kernel: its locks are valid here, its process ids are not | `Kernel` |
//! | other | any | this machine, before it was restarted | `Earlier` |
//! | other | any | another machine | `Other` |
//!
//! It is this machine if host name and `/etc/machine-id` are the same, and the file is older than
//! this boot. Neither the host name nor the machine id is enough alone. Nodes that start from one
//! image share the machine id; machines without a configured name are all `localhost`. A machine
//! with such a name and no machine id is never recognised as this one. The age tells copies apart
//! that share both: a file that was written after this machine had started was written by another
//! one.
//!
//! Two cases are not detected: a copy of this machine (same name, same id) that wrote its file
//! before this machine was started; a virtual machine that was copied while it ran, boot id
//! included.

use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};

/// A machine and pid namespace in which process ids are valid.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// The host name, without spaces. For messages, and to tell machines apart that share an id.
    pub name: String,
    /// `/etc/machine-id`; empty if there is none.
    pub machine_id: String,
    /// `/proc/sys/kernel/random/boot_id`; empty if it cannot be read.
    pub boot_id: String,
    /// Inode number of the pid namespace; 0 if it is not known.
    pub pid_namespace: u64,
}

/// Relation of another machine to this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Process ids refer to the same processes.
    Same,
    /// The same running kernel, another pid namespace.
    Kernel,
    /// This machine before its last start: none of its processes runs any more.
    Earlier,
    /// Another machine.
    Other,
}

impl Machine {
    /// The machine at the first call. Namespaces or another root that this process or its children
    /// enter afterwards do not change the result.
    pub fn here() -> &'static Self {
        static HERE: OnceLock<Machine> = OnceLock::new();
        HERE.get_or_init(|| Self {
            name: name(),
            machine_id: machine_id(),
            boot_id: line("/proc/sys/kernel/random/boot_id"),
            pid_namespace: std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino()),
        })
    }

    /// The relation of a machine that was recorded `written` seconds after 1970 (0: unknown time)
    /// to this one.
    pub fn relation_to(&self, other: &Self, written: u64) -> Relation {
        let named = self.name == other.name && self.machine_id == other.machine_id;
        let known = !self.boot_id.is_empty() && !other.boot_id.is_empty();
        if self.boot_id == other.boot_id && (known || named) {
            let unknown = self.pid_namespace == 0 || other.pid_namespace == 0;
            let same = unknown || self.pid_namespace == other.pid_namespace;
            return if same { Relation::Same } else { Relation::Kernel };
        }
        let unnamed = self.machine_id.is_empty() && is_nobodys(&self.name);
        if known && named && !unnamed && written < booted() {
            return Relation::Earlier;
        }
        Relation::Other
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs())
}

/// Start time of this machine, in seconds since 1970.
fn booted() -> u64 {
    let since = u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0);
    now().saturating_sub(since)
}

/// Returns true for the host name of a machine without a configured name.
fn is_nobodys(name: &str) -> bool {
    matches!(name, "" | "(none)") || name.starts_with("localhost")
}

fn name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // A space would end the field in the files that hold the name.
    name.replace(|c: char| c.is_whitespace() || c.is_control(), "_")
}

/// Reads the machine id. `uninitialized` is there before the first start of an image.
fn machine_id() -> String {
    let id = line("/etc/machine-id");
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { id } else { String::new() }
}

/// Reads a short file without its newline, in one read.
fn line(path: &str) -> String {
    let mut text = [0_u8; 64];
    let length = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .and_then(|file| rustix::io::read(&file, &mut text[..]))
        .unwrap_or(0);
    String::from_utf8_lossy(&text[..length]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_and_namespace_make_process_ids_comparable() {
        let here = Machine {
            name: "node1".into(),
            machine_id: "aa".into(),
            boot_id: "b1".into(),
            pid_namespace: 7,
        };
        let long_ago = |other: &Machine| here.relation_to(other, 1);
        assert_eq!(long_ago(&here), Relation::Same);
        assert_eq!(long_ago(&Machine { name: "renamed".into(), ..here.clone() }), Relation::Same);
        assert_eq!(long_ago(&Machine { pid_namespace: 0, ..here.clone() }), Relation::Same);
        assert_eq!(long_ago(&Machine { pid_namespace: 8, ..here.clone() }), Relation::Kernel);
        let rebooted = Machine { boot_id: "b2".into(), pid_namespace: 8, ..here.clone() };
        assert_eq!(long_ago(&rebooted), Relation::Earlier);
        // A copy of this machine wrote it while this one ran.
        assert_eq!(here.relation_to(&rebooted, now() + 1), Relation::Other);
        let node2 = Machine { name: "node2".into(), ..rebooted.clone() };
        assert_eq!(long_ago(&node2), Relation::Other);
        let clone = Machine { machine_id: "ab".into(), ..rebooted };
        assert_eq!(long_ago(&clone), Relation::Other);
    }

    #[test]
    fn a_machine_without_a_name_is_never_recognised() {
        let here = Machine { name: "localhost".into(), boot_id: "b1".into(), ..Machine::default() };
        let other = Machine { boot_id: "b2".into(), ..here.clone() };
        assert_eq!(here.relation_to(&other, 1), Relation::Other);
        let with_id = |boot: &Machine| Machine { machine_id: "aa".into(), ..boot.clone() };
        assert_eq!(with_id(&here).relation_to(&with_id(&other), 1), Relation::Earlier);
        let nothing = Machine { boot_id: String::new(), ..here.clone() };
        assert_eq!(nothing.relation_to(&nothing, 1), Relation::Same);
        assert_eq!(
            nothing.relation_to(&Machine { name: "x".into(), ..nothing.clone() }, 1),
            Relation::Other
        );
    }

    #[test]
    fn this_process_has_a_machine() {
        let here = Machine::here();
        assert_eq!(here.relation_to(here, now()), Relation::Same);
        assert!(here.pid_namespace != 0 && booted() < now());
    }
}
