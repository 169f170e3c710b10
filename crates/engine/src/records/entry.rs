//! Reads and writes the text of a record.
//!
//! One line: the process's start time, boot id, pid namespace, machine id, time of writing, reach
//! of the lock, host name. `-` stands for a field that is empty. A record of a version that wrote
//! start time and boot id only has its host name in the file's name.

use sys::machine::Machine;

use crate::spec::Reach;

/// What a record says about a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Clock ticks since boot.
    pub(super) start: u64,
    pub(super) machine: Machine,
    /// When the record was written, in seconds since 1970.
    pub(super) since: u64,
    /// Who sees the lock on the record, which is held while the process lives.
    pub(super) reach: Reach,
}

impl Entry {
    pub(super) fn text(&self) -> String {
        let Self { start, machine, since, reach } = self;
        let Machine { name, machine_id, boot_id, pid_namespace } = machine;
        let word = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let (boot, id, name) = (word(boot_id), word(machine_id), word(name));
        let reach = match reach {
            Reach::None => "none",
            Reach::Kernel => "kernel",
            Reach::Hosts => "hosts",
        };
        format!("{start} {boot} {pid_namespace} {id} {since} {reach} {name}")
    }

    /// `suffix`: what stands behind the process id in the file's name.
    pub(super) fn parse(text: &str, suffix: &str) -> Option<Self> {
        let mut fields = text.split_ascii_whitespace();
        let word = |field: &str| if field == "-" { String::new() } else { field.to_owned() };
        let start = fields.next()?.parse().ok()?;
        let mut machine = Machine { boot_id: word(fields.next()?), ..Machine::default() };
        let Some(namespace) = fields.next() else {
            suffix.clone_into(&mut machine.name);
            machine.machine_id.clone_from(&Machine::here().machine_id);
            return Some(Self { start, machine, since: 0, reach: Reach::None });
        };
        machine.pid_namespace = namespace.parse().ok()?;
        machine.machine_id = word(fields.next()?);
        let since = fields.next()?.parse().ok()?;
        let reach = match fields.next()? {
            "kernel" => Reach::Kernel,
            "hosts" => Reach::Hosts,
            _ => Reach::None,
        };
        machine.name = word(fields.next()?);
        Some(Self { start, machine, since, reach })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back() {
        let machine = Machine {
            name: "node1".into(),
            machine_id: String::new(),
            boot_id: "b-1".into(),
            pid_namespace: 7,
        };
        let entry = Entry { start: 5, machine, since: 9, reach: Reach::Hosts };
        assert_eq!(entry.text(), "5 b-1 7 - 9 hosts node1");
        assert_eq!(Entry::parse(&entry.text(), "x"), Some(entry));
        let old = Entry::parse("5 b-1", "node2").unwrap();
        assert_eq!((old.machine.name.as_str(), old.machine.pid_namespace), ("node2", 0));
        assert_eq!((Entry::parse("", "x"), Entry::parse("5 b 7 - 9", "x")), (None, None));
    }
}
