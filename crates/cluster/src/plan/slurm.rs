//! What containers of a Slurm have that those of other batch systems have not.

mod conf;

use super::parts::Own;
use super::{DOORS, Site};
use crate::parts::Part;
use crate::slurm::{Action, CONFIGURATION, FILE, PROGRAM, STATE};

pub(crate) use conf::conf;

/// What the container of a part has: that of the controller the programs that it starts, and the
/// door at which these ask for nodes.
pub(super) fn own(site: &Site, part: Part) -> Own {
    let mut mounts = Vec::new();
    if part == Part::Control {
        let program = |action: Action| format!("{}:{PROGRAM}{}:ro", site.program, action.word());
        mounts.extend(Action::ALL.map(program));
        mounts.push(format!("{}:{DOORS}:ro", site.doors()));
    }
    let variables = vec![format!("SLURM_CONF={FILE}")];
    Own { configuration: CONFIGURATION, state: STATE, variables, mounts }
}
