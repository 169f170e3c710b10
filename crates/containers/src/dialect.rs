//! Decides what operations do differently when the program is called `udocker`, as plain data.
//!
//! An operation asks for one behaviour by its name and never for the name of the program. The
//! default is Coracle's own behaviour, which is Docker's where Docker has the command. How answers
//! look is not decided here: that is the front end's.

use std::path::PathBuf;

/// The behaviours that differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one behaviour")]
pub struct Dialect {
    /// A name that an image and a container have means the container.
    pub containers_come_first: bool,
    /// `run` of a container that exists passes over what is decided when a container is made
    /// (`--platform`, name servers), and `--name` gives it a further name.
    pub passes_over_decided: bool,
    /// `run --rm NAME` removes a container that an earlier command made.
    pub removes_existing: bool,
    /// What is run where neither the image nor the request says what; empty for an error.
    pub default_command: Vec<String>,
    /// Variables of the host that every container gets.
    pub host_variables: Vec<String>,
    /// Variables of the host that `--hostenv` leaves out.
    pub withheld_variables: Vec<String>,
    /// Programs find in `USER`, `LOGNAME` and the like who they are and who started them.
    pub names_user: bool,
    /// Programs find in `container_uuid` and the like in which container they run.
    pub names_container: bool,
    /// The caller needs no entry in the image's `/etc/passwd` to be named by `--user`.
    pub knows_caller: bool,
    /// A program starts in its user's home directory if nothing else is said.
    pub starts_at_home: bool,
    /// A program has the caller's mask of permissions and supplementary groups.
    pub keeps_caller: bool,
    /// A host directory that `-v` names has to be there.
    pub refuses_missing_sources: bool,
    /// Of several mounts on one path the last is seen, instead of an error.
    pub mounts_over_mounts: bool,
    /// `exec` without `--interactive` leaves a program its standard input.
    pub keeps_input: bool,
    /// `-p` alone leaves a container on the host's network, where its ports are as they are.
    pub publishes_in_place: bool,
    /// A run in the foreground asks for nothing beside its program: no log, and a state only as far
    /// as it is known without a process that stays.
    pub runs_alone: bool,
    /// `--volumes-from` has no effect.
    pub ignores_volumes_from: bool,
    /// A path that an image declares as a volume is a directory like others.
    pub ignores_image_volumes: bool,
    /// `inspect -p` gives a container a whole tree on disk.
    pub shows_whole_tree: bool,
    /// `rmi` removes an image that containers use. They keep its layers.
    pub removes_used_images: bool,
    /// `setup` keeps a mode that cannot be used now, and says so.
    pub keeps_unusable_modes: bool,
    /// The mode that is shown for a container for which none was set; `None` for the one that
    /// would be chosen.
    pub usual_mode: Option<&'static str>,
    /// Variables that are set where this program executes itself again.
    pub restart_variables: Vec<(String, String)>,
    /// Where large temporary files go; `None` for the store.
    pub temporary: Option<PathBuf>,
    /// A further file with credentials.
    pub keystore: Option<PathBuf>,
    /// The tree that every container has as its root, if the settings name one.
    pub root_of_all: Option<PathBuf>,
    /// udocker's own directory, whose images and containers can be used.
    pub legacy: Option<Legacy>,
}

/// udocker's own directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Legacy {
    /// Images by name and tag.
    pub repos: PathBuf,
    /// Layers and configurations by digest.
    pub layers: PathBuf,
    /// Containers by id.
    pub containers: PathBuf,
    /// The user has named the directory of containers, and looks there for what `create` made.
    pub announces: bool,
}

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

#[cfg(test)]
mod tests {
    #[test]
    fn ids_in_the_form_of_uuids() {
        let id = "0123456789abcdef".repeat(4);
        assert_eq!(super::uuid(&id), "01234567-89ab-cdef-0123-456789abcdef");
        assert_eq!(super::uuid("0123"), "0123");
    }
}
