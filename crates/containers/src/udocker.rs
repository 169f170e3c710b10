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

/// An id in the form that udocker's ids have: a UUID of its first 32 digits. The store finds a
/// container by it as by any other beginning of its id.
pub fn uuid(id: &str) -> String {
    let mut text = String::with_capacity(36);
    for (at, digit) in id.chars().take(32).enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(digit);
    }
    text
}

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
        keeps_input: true,
        ignores_volumes_from: true,
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

#[cfg(test)]
mod tests {
    #[test]
    fn ids_in_the_form_of_uuids() {
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(super::uuid(&id), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(super::uuid("0123"), "0123");
    }
}
