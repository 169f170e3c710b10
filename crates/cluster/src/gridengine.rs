//! A Grid Engine whose nodes are containers, as `[batch]` of a cluster file asks for it.
//!
//! All of Grid Engine's decisions are its own. It has no power saving, so what it says of its jobs
//! and nodes ([`answers`]) is read again and again, and [`demand`] counts the nodes that waiting
//! jobs would fill. The driver's end is `driver::nodes`.
//!
//! All nodes that the file allows are known to the controller from the beginning, with what they
//! have. One without a container is a host that does not answer, which Grid Engine gives no job.
//! So nodes come and go without a change of Grid Engine's configuration, and `qsub -w v` says
//! whether a job can ever run.
//!
//! Its programs run as the caller. It believes the names of users that it is told, and starts no
//! job as anybody but itself.

pub(crate) mod answers;
pub(crate) mod demand;

use crate::parts::{Part, sshd};

/// The port of the controller (`SGE_QMASTER_PORT`).
pub(crate) const CONTROL_PORT: u16 = 6444;
/// The port of the nodes (`SGE_EXECD_PORT`).
const NODE_PORT: u16 = 6445;
/// Its root in the containers (`SGE_ROOT`), which the caller has to write to.
const ROOT: &str = "/tmp/gridengine";

/// The directory of what the driver writes, in the containers.
pub(crate) const CONFIGURATION: &str = "/etc/gridengine";
/// The files there: what makes a container one of the cell, what starts the controller, the name
/// of the controller's host, that of the front-end, the nodes, and keys that may log in.
pub(crate) const CELL_FILE: &str = "cell.sh";
pub(crate) const CONTROL_FILE: &str = "control.sh";
pub(crate) const MASTER_FILE: &str = "act_qmaster";
pub(crate) const SUBMIT_FILE: &str = "submit";
pub(crate) const NODES_FILE: &str = "nodes";
pub(crate) const LOGINS_FILE: &str = "authorized_keys";
/// The contents of the first two.
pub(crate) const CELL: &str = include_str!("gridengine/cell.sh");
pub(crate) const CONTROL: &str = include_str!("gridengine/control.sh");
/// What a container keeps when it is started again, in it.
pub(crate) const STATE: &str = "/var/spool/gridengine";

/// The environment of parallel jobs all of whose slots are on one node.
const ONE_NODE: &str = "smp";

/// Variables of all containers, by which Grid Engine's programs find each other.
pub(crate) fn variables() -> [String; 3] {
    [
        format!("SGE_ROOT={ROOT}"),
        format!("SGE_QMASTER_PORT={CONTROL_PORT}"),
        format!("SGE_EXECD_PORT={NODE_PORT}"),
    ]
}

/// The words of a container's shell.
pub(crate) fn command(part: Part) -> Vec<String> {
    // The controller turns away a host whose name it cannot look up yet. An image without the
    // program never gets on: the shell says so and ends.
    let begin = format!(
        ". {CONFIGURATION}/{CELL_FILE} && \
         {{ [ -x $programs/qstat ] || exec $programs/qstat; }} && \
         until $programs/qstat >/dev/null 2>&1; do sleep 0.1; done"
    );
    let program = match part {
        Part::Control => format!("exec /bin/sh {CONFIGURATION}/{CONTROL_FILE}"),
        Part::Front => {
            let logins = format!("{CONFIGURATION}/{LOGINS_FILE}");
            let sshd = sshd(STATE, &logins, &variables().join(" "));
            format!("{begin} && {sshd}")
        }
        Part::Compute => format!("{begin} && mkdir -p /tmp/execd && exec $programs/sge_execd"),
    };
    vec!["-c".to_owned(), program]
}

/// The words of a command of the controller's container that prints what [`answers::read`] reads.
pub(crate) fn question() -> [&'static str; 3] {
    let script = "cd /usr/lib/gridengine && ./qstat -u '*' -s p -r -xml && ./qhost -q -j -xml";
    ["/bin/sh", "-c", script]
}
