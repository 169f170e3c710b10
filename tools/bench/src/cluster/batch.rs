//! What is measured of a batch system, in containers or on the host.

use std::path::Path;

use xtask::shell::Outcome;

/// Nodes of the file, and seconds without work after which one goes.
pub(super) const NODES: usize = 4;
pub(super) const IDLE: f64 = 5.0;
/// Tells when all ranks have met.
pub(super) const JOB: &str = "#!/bin/sh\nexec mpirun python3 -c 'from mpi4py import MPI; import time; \
    c = MPI.COMM_WORLD; c.Barrier(); c.rank or print(time.time())'\n";

/// Submits that job to a Slurm, on three nodes.
pub(super) const SUBMIT: &str = "sbatch -Q -N 3 -n 3 -o met -e err job.sh";
/// Prints its jobs.
pub(super) const LIST: &str = "squeue -h";

/// A batch system that starts nodes when jobs need them.
pub(super) trait Batch {
    /// A directory that all nodes see, with the job.
    fn jobs(&self) -> &Path;
    /// The command that submits the job.
    fn job(&self) -> &'static str;
    /// The command that prints the jobs that there are.
    fn list(&self) -> &'static str;
    /// Runs a command of a shell in that directory.
    fn submit(&self, command: &str) -> Outcome<String>;
    /// How many nodes there are.
    fn nodes(&self) -> Outcome<usize>;
}
