//! Probes the batch system and the MPI of the host.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::programs::ask;
use crate::{Context, Programs};

/// Slurm.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Slurm {
    /// Path of `srun`.
    pub srun: Option<PathBuf>,
    /// Path of `scontrol`.
    pub scontrol: Option<PathBuf>,
    /// The job of this process (`SLURM_JOB_ID`).
    pub job: Option<String>,
    /// Nodes of the job (`SLURM_JOB_NODELIST`).
    pub nodes: Option<String>,
    /// Rank of this process in the step (`SLURM_PROCID`).
    pub rank: Option<u32>,
    /// Number of ranks in the step (`SLURM_NTASKS`).
    pub ranks: Option<u32>,
}

/// Implementation of MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MpiKind {
    /// Not known.
    #[default]
    Unknown,
    /// Open MPI.
    OpenMpi,
    /// MPICH and its derivatives (Hydra).
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
    /// Path of `mpiexec` or `mpirun`.
    pub launcher: Option<PathBuf>,
    /// Implementation.
    pub kind: MpiKind,
    /// First line of `mpiexec --version`.
    pub version: Option<String>,
    /// Rank of this process, if a launcher started it (`PMI_RANK`, `PMIX_RANK`,
    /// `OMPI_COMM_WORLD_RANK`).
    pub rank: Option<u32>,
}

impl Slurm {
    pub(crate) fn read(context: &Context, programs: &Programs) -> Slurm {
        let text = |name: &str| context.env.get(name).filter(|value| !value.is_empty()).cloned();
        Slurm {
            srun: programs.find("srun"),
            scontrol: programs.find("scontrol"),
            job: text("SLURM_JOB_ID"),
            nodes: text("SLURM_JOB_NODELIST"),
            rank: number(context, "SLURM_PROCID"),
            ranks: number(context, "SLURM_NTASKS"),
        }
    }
}

impl Mpi {
    pub(crate) fn probe(context: &Context, programs: &Programs) -> Mpi {
        let launcher = programs.find("mpiexec").or_else(|| programs.find("mpirun"));
        let answer = launcher.as_deref().and_then(|launcher| {
            // A launcher from an environment module finds its libraries by this variable.
            let libraries = context.env.get("LD_LIBRARY_PATH").map(String::as_str);
            let env: Vec<(&str, &str)> =
                libraries.map(|libraries| ("LD_LIBRARY_PATH", libraries)).into_iter().collect();
            let (_, answer) = ask(launcher, &["--version"], &env, context.timeout).ok()?;
            Some(answer)
        });
        let answer = answer.unwrap_or_default();
        let rank = ["PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"]
            .iter()
            .find_map(|name| number(context, name));
        Mpi { launcher, kind: MpiKind::of(&answer), version: version_of(&answer), rank }
    }
}

impl MpiKind {
    /// Recognises the implementation by its `--version`.
    fn of(answer: &str) -> MpiKind {
        let has = |word: &str| answer.contains(word);
        if has("Open MPI") || has("OpenRTE") || has("PRRTE") {
            MpiKind::OpenMpi
        } else if has("Intel(R) MPI") {
            MpiKind::Intel
        } else if has("MVAPICH") {
            MpiKind::Mvapich
        } else if has("HYDRA") {
            MpiKind::Mpich
        } else {
            MpiKind::Unknown
        }
    }
}

/// Hydra prints the number on its second line, the others on the first.
fn version_of(answer: &str) -> Option<String> {
    let lines = || answer.lines().map(str::trim).filter(|line| !line.is_empty());
    let numbered = lines().find_map(|line| line.strip_prefix("Version:"));
    let version = match numbered {
        Some(number) => format!("HYDRA {}", number.trim()),
        None => lines().next()?.to_owned(),
    };
    Some(version)
}

fn number(context: &Context, name: &str) -> Option<u32> {
    context.env.get(name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers() {
        let open = "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/";
        assert_eq!(MpiKind::of(open), MpiKind::OpenMpi);
        assert_eq!(version_of(open).as_deref(), Some("mpiexec (OpenRTE) 4.1.4"));
        let hydra = "HYDRA build details:\n    Version:                                 4.0.2\n";
        assert_eq!(MpiKind::of(hydra), MpiKind::Mpich);
        assert_eq!(version_of(hydra).as_deref(), Some("HYDRA 4.0.2"));
        let intel = "Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307";
        assert_eq!(MpiKind::of(intel), MpiKind::Intel);
        assert_eq!(version_of(""), None);
    }
}
