//! One file, many hosts: the nodes of a cluster, what runs on them, and who starts it. The crate
//! [`remote`] reaches the hosts.
//!
//! | module | what is there |
//! |---|---|
//! | [`spec`] | the cluster file |
//! | [`inside`] | what this program does in containers of a cluster |
//! | [`plan`] | phases of steps, as data, and in words |
//! | [`balance`] | HAProxy before a service's containers: its file and its admin socket |
//! | [`batch`] | jobs of the Slurm, PBS or LSF that the hosts have |
//! | [`door`] | commands from one node's container to another's |
//! | [`driver`] | carries a plan out |
//! | [`files`] | what is at a path, with digests |
//! | `gridengine` | a Grid Engine whose nodes are containers |
//! | [`parts`] | the parts of a batch system of containers |
//! | [`ranks`] | ranks of MPI that the host's launcher starts |
//! | [`scale`] | how many containers a service has |
//! | [`slurm`] | a Slurm whose nodes are containers |
//! | [`spread`] | images from host to host |
//! | [`vrrp`] | an address that moves between containers |
//! | [`place`] | what a driver keeps of a cluster in the store, and its lock |
//! | [`error`] | the error of this crate |

pub mod balance;
pub mod batch;
pub mod door;
pub mod driver;
pub mod error;
pub mod files;
mod gridengine;
pub mod inside;
pub mod parts;
pub mod place;
pub mod plan;
pub mod ranks;
pub mod scale;
pub mod slurm;
pub mod spec;
pub mod spread;
pub mod vrrp;

pub use error::{Error, Result};
