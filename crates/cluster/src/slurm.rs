//! A Slurm whose nodes are containers, as `[batch]` of a cluster file asks for it.
//!
//! All of Slurm's decisions are its own. Its power saving (Slurm's Power Saving Guide) asks for
//! nodes and gives them back: the programs `ResumeProgram`, `SuspendProgram` and
//! `ResumeFailProgram` in the controller's container are this program under other names ([`ask`]),
//! which ask the driver through a door ([`crate::door`]). The driver's end is `driver::nodes`.
//!
//! MUNGE knows who asks by the id that the kernel has for a process, so all of Slurm's programs run
//! as the caller, who is the only user of it.

mod ask;
mod nodes;

use crate::parts::{Part, sshd};

pub use ask::{Action, ask};
pub(crate) use nodes::{Node, nodes};

/// The port of the controller (`SlurmctldPort`).
pub(crate) const CONTROL_PORT: u16 = 6817;

/// The directory of Slurm's configuration, in its containers.
pub(crate) const CONFIGURATION: &str = "/etc/slurm";
/// The configuration file there, the key of MUNGE, and keys that may log in.
pub(crate) const FILE: &str = "/etc/slurm/slurm.conf";
pub(crate) const KEY: &str = "/etc/slurm/munge.key";
pub(crate) const LOGINS: &str = "/etc/slurm/authorized_keys";
/// What a container keeps when it is started again, in it.
pub(crate) const STATE: &str = "/var/spool/slurm";
/// What `slurmd` keeps of the jobs of a node (`SlurmdSpoolDir`).
pub(crate) const SPOOL: &str = "/tmp/slurmd";
/// The name of the door's socket, and its path in the controller's container.
pub(crate) const DOOR: &str = "slurm";
const SOCKET: &str = "/run/coracle/door/slurm";
/// Where this program is under the names of what the controller starts; one of [`Action`] follows.
pub(crate) const PROGRAM: &str = "/run/coracle/node-";
/// The socket of MUNGE, in a directory that the image has in any case.
pub(crate) const MUNGE_SOCKET: &str = "/tmp/munge/socket";

/// The words of a container's shell.
pub(crate) fn command(part: Part) -> Vec<String> {
    // It goes on in the background when it answers.
    let munge = format!(
        "rm -rf /tmp/munge && mkdir -m 755 /tmp/munge && munged --force --key-file={KEY} \
         --socket={MUNGE_SOCKET} --pid-file=/tmp/munge/pid --log-file=/tmp/munge/log \
         --seed-file=/tmp/munge/seed"
    );
    let program = match part {
        Part::Control => "exec slurmctld -D".to_owned(),
        Part::Front => sshd(STATE, LOGINS, &format!("SLURM_CONF={FILE}")),
        // A node that is started anew has been away, also where the machine has not (-b).
        Part::Compute => format!("mkdir -p {SPOOL} && exec slurmd -D -b"),
    };
    vec!["-c".to_owned(), format!("{munge} && {program}")]
}
