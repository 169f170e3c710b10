//! A launcher of MPI, on the first node's host.

use std::fmt::Write as _;
use std::path::Path;

use super::Launch;
use super::ask;
use crate::driver::Task;
use crate::driver::doors::Doors;
use crate::error::{Error, Result};
use crate::ranks::Family;
use crate::ranks::choice::Mpiexec;

/// Variables by which launchers take hosts from Slurm, and reach them by `srun`.
const OF_SLURM: [&str; 8] = [
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_NODELIST",
    "SLURM_JOB_NODELIST",
    "SLURM_STEP_ID",
    "SLURM_STEPID",
    "SLURM_NNODES",
    "SLURM_TASKS_PER_NODE",
];

/// Root may start ranks: Open MPI to 4, and from 5 on.
const AS_ROOT: [&str; 4] = [
    "OMPI_ALLOW_RUN_AS_ROOT=1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "PRTE_ALLOW_RUN_AS_ROOT=1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1",
];

/// The door is on the first host alone, so daemons start no others; and they stay below the driver,
/// so that they end with it.
const BY_DOOR: [&str; 6] = [
    "OMPI_MCA_plm_rsh_no_tree_spawn=1",
    "OMPI_MCA_orte_leave_session_attached=1",
    "PRTE_MCA_plm_ssh_no_tree_spawn=1",
    "PRTE_MCA_prte_leave_session_attached=1",
    "HYDRA_LAUNCHER=ssh",
    "HYDRA_RMK=user",
];

/// The variables with the program that starts daemons on other hosts. Daemons of Open MPI look for
/// it, too, and fail without it: they find `env`.
const AGENTS: [(&str, &str); 3] = [
    ("OMPI_MCA_plm_rsh_agent", "env "),
    ("PRTE_MCA_plm_ssh_agent", "env "),
    ("HYDRA_LAUNCHER_EXEC", ""),
];

impl Launch<'_> {
    /// Starts it. The doors lead its daemons to the other hosts.
    pub(super) fn by_mpiexec(
        &self,
        launcher: &Mpiexec,
        rank: Vec<String>,
    ) -> Result<(Box<dyn Task>, Option<Doors>)> {
        let (_, host) = self.first()?;
        let mut words = vec!["env".to_owned()];
        words.extend(OF_SLURM.iter().flat_map(|name| ["-u".to_owned(), (*name).to_owned()]));
        words.extend(AS_ROOT.map(str::to_owned));
        let mut options = vec!["-n".to_owned(), self.ranks.count().to_string()];
        let doors = if self.ranks.hosts.len() > 1 {
            let (doors, variables, more) = self.other_hosts(launcher.family)?;
            words.extend(variables);
            options.extend(more);
            Some(doors)
        } else {
            // The file says how many there are.
            let over = launcher.family == Family::OpenMpi;
            options.extend(over.then(|| "--oversubscribe".to_owned()));
            None
        };
        words.push(launcher.path.clone());
        words.extend(options);
        words.extend(rank);
        Ok((host.launch(&words, self.input)?, doors))
    }

    /// A door to the other hosts, the variables by which it is used, and the options with their
    /// names.
    fn other_hosts(&self, family: Family) -> Result<(Doors, Vec<String>, Vec<String>)> {
        let (node, host) = self.first()?;
        let kept = node.kept();
        let (rsh, file) = (format!("{kept}/rsh"), format!("{kept}/ranks.hosts"));
        if family == Family::OpenMpi && rsh.contains(char::is_whitespace) {
            return Err(Error::new(format!(
                "Open MPI's launcher takes no path with spaces: {rsh}"
            ))
            .with_hint("name another store: --store DIR, or CORACLE_DIR"));
        }
        // The program knows by this name what it is started for.
        let program = host.program()?;
        let done = ask(host, &["ln", "-sfn", &program[0], &rsh])?;
        if !done.is_good() {
            let said = String::from_utf8_lossy(&done.err).trim().to_owned();
            return Err(Error::new(format!("cannot make {rsh} on {}: {said}", host.name())));
        }
        let names: Vec<_> = self.ranks.hosts.iter().map(|one| one.host.clone()).collect();
        let from = node.host.as_deref();
        let doors = Doors::to_hosts(from, &node.doors, &names, self.hosts)?;
        let mut lines = String::new();
        for one in &self.ranks.hosts {
            let name = self.hosts.of(one.host.as_deref())?.node_name();
            let between = if family == Family::OpenMpi { " slots=" } else { ":" };
            let _ = writeln!(lines, "{name}{between}{}", one.slots);
        }
        host.put(Path::new(&file), 0o600, lines.as_bytes())?;
        let mut variables: Vec<String> = doors.variable(from).into_iter().collect();
        variables.extend(AGENTS.map(|(name, by)| format!("{name}={by}{rsh}")));
        variables.extend(BY_DOOR.map(str::to_owned));
        let mut options = match family {
            Family::OpenMpi => vec!["--hostfile".to_owned(), file],
            Family::Mpich => vec!["-f".to_owned(), file],
        };
        // Daemons of Hydra come back to the name that the first host has for itself, which the
        // others may not know; Open MPI's come back to its addresses.
        if let (Family::Mpich, Some(address)) = (family, self.address()) {
            options.extend(["-localhost".to_owned(), address]);
        }
        Ok((doors, variables, options))
    }

    /// The address by which others reach the first host, if it is known: the file's, that which
    /// `ssh` has reached, or that by which Slurm reaches it.
    fn address(&self) -> Option<String> {
        let first = self.ranks.hosts.first()?;
        if let Some(address) = first.address {
            return Some(address.to_string());
        }
        let name = first.host.as_ref().filter(|_| self.ranks.by_srun)?;
        let done = ask(self.hosts.driver(), &["scontrol", "--oneliner", "show", "node", name]);
        let text = done.ok()?.text();
        text.split_whitespace().find_map(|word| word.strip_prefix("NodeAddr=")).map(str::to_owned)
    }
}
