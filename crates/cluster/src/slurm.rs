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

pub use ask::{Action, ask};
pub use nodes::{Node, nodes};

/// What a service is to the batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The controller.
    Control,
    /// Where users log in.
    Front,
    /// The nodes that compute. The controller says how many there are.
    Compute,
}

/// The service of the controller.
pub const CONTROL: &str = "control";
/// The service that users log in to.
pub const FRONT: &str = "front";
/// The port of the controller (`SlurmctldPort`).
pub const CONTROL_PORT: u16 = 6817;
/// The port of `sshd` in the front-end: one below 1024 is root's in a network namespace.
pub const FRONT_PORT: u16 = 2222;

/// The directory of Slurm's configuration, in its containers.
pub const CONFIGURATION: &str = "/etc/slurm";
/// The configuration file there.
pub const FILE: &str = "/etc/slurm/slurm.conf";
/// The names of the files there: that one, what it needs beside it, the key of MUNGE, and keys that
/// may log in.
pub const FILES: [&str; 4] = ["slurm.conf", "cgroup.conf", "munge.key", "authorized_keys"];
/// `cgroup.conf(5)`. Nothing uses control groups here, but `slurmd` ends where it is to find out by
/// itself which version they have, and a container has none.
pub const CGROUP: &str = "CgroupPlugin=cgroup/v1\n";
/// What a container keeps when it is started again, in it.
pub const STATE: &str = "/var/spool/slurm";
/// The name of the door's socket, and its path in the controller's container.
pub const DOOR: &str = "slurm";
const SOCKET: &str = "/run/coracle/door/slurm";
/// Where this program is under the names of what the controller starts; one of [`Action`] follows.
pub const PROGRAM: &str = "/run/coracle/node-";

/// The socket of MUNGE, in a directory that the image has in any case.
pub const MUNGE_SOCKET: &str = "/tmp/munge/socket";
/// Starts MUNGE's daemon, which goes on in the background when it answers.
const MUNGE: &str = "rm -rf /tmp/munge && mkdir -m 755 /tmp/munge && \
    munged --force --key-file=/etc/slurm/munge.key --socket=/tmp/munge/socket \
    --pid-file=/tmp/munge/pid --log-file=/tmp/munge/log --seed-file=/tmp/munge/seed";
/// Starts `sshd` with a key of its own. It looks at no one's directories: they may belong to ids
/// that the container does not know.
const SSHD: &str = "key=/var/spool/slurm/ssh_host_ed25519_key && \
    { [ -e $key ] || ssh-keygen -q -t ed25519 -N '' -f $key; } && \
    exec /usr/sbin/sshd -D -e -f /dev/null -p 2222 -h $key -o UsePAM=no -o PidFile=none \
    -o StrictModes=no -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no \
    -o 'AuthorizedKeysFile=.ssh/authorized_keys /etc/slurm/authorized_keys' \
    -o SetEnv=SLURM_CONF=/etc/slurm/slurm.conf -o 'Subsystem=sftp internal-sftp'";

/// The words of a container's shell.
pub fn command(part: Part) -> Vec<String> {
    let program = match part {
        Part::Control => "exec slurmctld -D",
        Part::Front => SSHD,
        // A node that is started anew has been away, also where the machine has not (-b).
        Part::Compute => "mkdir -p /tmp/slurmd && exec slurmd -D -b",
    };
    vec!["-c".to_owned(), format!("{MUNGE} && {program}")]
}
