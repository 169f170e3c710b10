//! What the controller says of its nodes.

/// A node, as `scontrol show nodes --oneliner` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: String,
    /// Its state, and what belongs to it: `IDLE`, `CLOUD`, `POWERING_UP`.
    states: Vec<String>,
}

impl Node {
    fn is(&self, state: &str) -> bool {
        self.states.iter().any(|own| own == state)
    }

    /// It was asked for, and has not registered yet.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is("POWERING_UP")
    }

    /// It was asked for, or is about to be, and was not given up.
    pub(super) fn is_coming(&self) -> bool {
        !self.is_down() && (self.is_wanted() || self.is("POWERED_DOWN") || self.is_silent())
    }

    /// It does not answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.is("NOT_RESPONDING")
    }

    /// It was given back, and nothing wants it.
    pub(crate) fn is_away(&self) -> bool {
        !self.is_wanted() && (self.is("POWERED_DOWN") || self.is("POWERING_DOWN"))
    }

    /// It can be asked for.
    pub(crate) fn is_off(&self) -> bool {
        !self.is_wanted() && self.is("POWERED_DOWN")
    }

    /// It is not used, because something is wrong with it.
    pub(crate) fn is_down(&self) -> bool {
        self.is("DOWN")
    }
}

/// Reads what `scontrol show nodes --oneliner` prints.
pub(crate) fn nodes(said: &str) -> Vec<Node> {
    let node = |line: &str| {
        let value = |key: &str| line.split(' ').find_map(|word| word.strip_prefix(key));
        let (name, states) = (value("NodeName=")?, value("State=")?);
        Some(Node { name: name.to_owned(), states: states.split('+').map(str::to_owned).collect() })
    };
    said.lines().filter_map(node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_apart() {
        let said = "NodeName=compute-1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=2 State=MIXED+CLOUD \n\
                    NodeName=compute-2 CPUAlloc=0 State=IDLE+CLOUD+POWERED_DOWN ThreadsPerCore=1\n\
                    NodeName=compute-3 State=ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP Reason=a b\n\
                    NodeName=compute-4 State=DOWN+CLOUD+POWERING_DOWN\n\n";
        let found = nodes(said);
        let names: Vec<&str> = found.iter().map(|node| &*node.name).collect();
        assert_eq!(names, ["compute-1", "compute-2", "compute-3", "compute-4"]);
        let are = |of: fn(&Node) -> bool| found.iter().map(of).collect::<Vec<_>>();
        assert_eq!(are(Node::is_wanted), [false, false, true, false]);
        assert_eq!(are(Node::is_away), [false, true, false, true]);
        assert_eq!(are(Node::is_off), [false, true, false, false]);
        assert_eq!(are(Node::is_down), [false, false, false, true]);
        assert_eq!(are(Node::is_coming), [false, true, true, false]);
        assert_eq!(are(Node::is_silent), [false, false, true, false]);
        assert_eq!(nodes("slurm_load_node error: Unable to contact slurm controller\n"), []);
    }
}
