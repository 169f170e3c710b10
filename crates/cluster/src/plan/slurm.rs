//! What containers of a batch system have that those of other services have not.

mod conf;

use super::{DOORS, Site, pair};
use crate::parts::Part;
use crate::slurm::{Action, CONFIGURATION, FILE, PROGRAM, STATE};

pub(crate) use conf::conf;

impl Site {
    /// The path of the directory with Slurm's configuration.
    pub fn slurm(&self) -> String {
        format!("{}/slurm", self.kept)
    }
}

/// Options of `run`.
pub(super) fn options(site: &Site, part: Part) -> Vec<String> {
    let mut words = pair("-v", &format!("{}:{CONFIGURATION}:ro", site.slurm())).to_vec();
    words.extend(pair("-e", &format!("SLURM_CONF={FILE}")));
    // MUNGE knows the caller's own id alone, whose name and home are the host's.
    words.extend(pair("--user", &site.user));
    words.push("--hostauth".to_owned());
    let state = match part {
        Part::Control => Some("slurm-control"),
        Part::Front => Some("slurm-front"),
        Part::Compute => None,
    };
    words
        .extend(state.iter().flat_map(|name| pair("-v", &format!("{}/{name}:{STATE}", site.kept))));
    if part == Part::Control {
        for action in Action::ALL {
            let target = format!("{PROGRAM}{}", action.word());
            words.extend(pair("-v", &format!("{}:{target}:ro", site.program)));
        }
        words.extend(pair("-v", &format!("{}:{DOORS}:ro", site.doors())));
    }
    // What the image starts by itself is not what is wanted here.
    words.extend(pair("--entrypoint", "/bin/sh"));
    words
}
