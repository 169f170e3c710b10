//! The batch system and MPI of the host.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Slurm.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Slurm {
    /// `srun`.
    pub srun: Option<PathBuf>,
    /// `scontrol`.
    pub scontrol: Option<PathBuf>,
    /// The job that we are in (`SLURM_JOB_ID`).
    pub job: Option<String>,
    /// Nodes of the job (`SLURM_JOB_NODELIST`).
    pub nodes: Option<String>,
    /// Our rank in the step (`SLURM_PROCID`).
    pub rank: Option<u32>,
    /// Ranks in the step (`SLURM_NTASKS`).
    pub ranks: Option<u32>,
}

/// Whose MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MpiKind {
    /// Not known.
    #[default]
    Unknown,
    /// Open MPI.
    OpenMpi,
    /// MPICH and its kin (Hydra).
    Mpich,
    /// Intel MPI.
    Intel,
    /// MVAPICH.
    Mvapich,
}

/// The host's MPI.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mpi {
    /// `mpiexec` or `mpirun`.
    pub launcher: Option<PathBuf>,
    /// Whose.
    pub kind: MpiKind,
    /// First line of `mpiexec --version`.
    pub version: Option<String>,
    /// Our rank, where a launcher started us (`PMI_RANK`, `PMIX_RANK`, `OMPI_COMM_WORLD_RANK`).
    pub rank: Option<u32>,
}

impl Slurm {
    pub(crate) fn read(_context: &crate::Context, _programs: &crate::Programs) -> Slurm {
        Slurm::default()
    }
}

impl Mpi {
    pub(crate) fn probe(_context: &crate::Context, _programs: &crate::Programs) -> Mpi {
        Mpi::default()
    }
}
