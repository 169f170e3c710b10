//! Ranks of MPI that the host's launcher starts, each in a run of the image.
//!
//! ```text
//! srun or mpiexec -> cluster rank (one a rank) -> coracle run --join -> the program
//! ```
//!
//! | module | what is there |
//! |---|---|
//! | [`image`] | the MPI of a program, read from its libraries |
//! | [`choice`] | the launcher that speaks to it, and errors where there is none |
//! | [`rank`] | the process above a rank, which keeps how it has ended |

pub mod choice;
pub mod image;
pub mod rank;

use std::fmt;

use serde::{Deserialize, Serialize};

/// A family of MPI libraries that take each other's launchers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Open MPI.
    OpenMpi,
    /// MPICH and those with its binary interface: Intel MPI, MVAPICH.
    Mpich,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        })
    }
}

/// How a rank and its launcher speak to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// PMI-1 or PMI-2.
    Pmi,
    /// `PMIx`.
    Pmix,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pmi => "PMI-2",
            Self::Pmix => "PMIx",
        })
    }
}
