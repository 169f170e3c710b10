//! Reads udocker's settings, and uses or takes over the contents of udocker's directory.
//!
//! [`dialect`] decides what operations do differently under udocker's name. The front end decides
//! how answers look there.

pub mod legacy;
pub mod listing;
pub mod migrate;
pub mod settings;

use std::path::Path;

use crate::dialect::{Dialect, Legacy};

/// The place of Coracle's store in udocker's directory, where that was named.
pub const STORE: &str = "coracle";

/// A variable that keeps udocker's name where the program executes itself again by another.
pub const CALLED: &str = "CORACLE_CALLED_UDOCKER";

/// What is run under udocker's name where neither the image nor the request says what.
const SHELL: [&str; 2] = ["bash", "-i"];

/// The variable of the host that programs get under udocker's name, unless told otherwise.
const TERMINAL: &str = "TERM";

/// The mode that udocker's users expect of a container for which none was set.
const USUAL_MODE: &str = "P1";

/// udocker's behaviour, with udocker's settings.
pub fn dialect(settings: &settings::Settings, home: Option<&Path>) -> Dialect {
    let shell = || SHELL.map(str::to_owned).to_vec();
    Dialect {
        containers_come_first: true,
        passes_over_decided: true,
        publishes_in_place: true,
        removes_existing: true,
        default_command: settings.list("cmd").unwrap_or_else(shell),
        host_variables: settings
            .list("valid_host_env")
            .unwrap_or_else(|| vec![TERMINAL.to_owned()]),
        withheld_variables: settings.list("invalid_host_env").unwrap_or_default(),
        names_user: true,
        names_container: true,
        knows_caller: true,
        starts_at_home: true,
        keeps_caller: true,
        refuses_missing_sources: true,
        mounts_over_mounts: true,
        keeps_input: true,
        runs_alone: true,
        ignores_volumes_from: true,
        ignores_image_volumes: true,
        shows_whole_tree: true,
        removes_used_images: true,
        keeps_unusable_modes: true,
        usual_mode: Some(USUAL_MODE),
        restart_variables: vec![(CALLED.to_owned(), "1".to_owned())],
        temporary: settings.temporary(),
        keystore: Some(settings.keystore()),
        root_of_all: settings.location(home),
        legacy: Some(Legacy {
            repos: settings.directory("repos"),
            layers: settings.directory("layers"),
            containers: settings.directory("containers"),
            announces: settings.is_named("containers"),
        }),
    }
}
