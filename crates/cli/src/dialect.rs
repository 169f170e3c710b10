//! How answers look under the name that the program was called by: plain data, decided here alone.
//!
//! What operations do differently is decided in `containers::dialect`.

use std::ffi::OsStr;
use std::path::Path;

use containers::dialect::uuid;
use containers::udocker::CALLED;

/// Whether this program was started as `udocker`, by a person or by itself.
pub(crate) fn is_udocker() -> bool {
    std::env::args_os().next().is_some_and(|program| is_name(&program))
        || std::env::var_os(CALLED).is_some()
}

/// Where the program of that name finds the driver's door.
pub(crate) fn door() -> Option<std::path::PathBuf> {
    std::env::var_os(cluster::door::VARIABLE).filter(|path| !path.is_empty()).map(Into::into)
}

/// Whether this program was started as `rsh`, which it is in node containers of clusters.
pub(crate) fn is_rsh() -> bool {
    let program = std::env::args_os().next();
    program.is_some_and(|program| Path::new(&program).file_name().is_some_and(|name| name == "rsh"))
}

/// The words of the command that this program was started as in the container of a batch system's
/// controller, which can start programs only by a name.
pub(crate) fn command_of_node() -> Option<[&'static str; 3]> {
    let program = std::env::args_os().next()?;
    let word = Path::new(&program).file_name()?.to_str()?.strip_prefix("node-")?;
    Some(["cluster", "node", cluster::slurm::Action::of(word)?.word()])
}

/// Whether a program of this name is udocker.
fn is_name(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "udocker" || name == "udocker.py")
}

/// How answers look, and how some words are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one behaviour")]
pub(crate) struct Presentation {
    /// udocker's settings count, and its flags have udocker's meaning.
    pub as_udocker: bool,
    /// A banner is shown on a terminal before a program starts.
    pub banner: bool,
    /// `images` and `ps` list as udocker does, unless a format or a filter is given.
    pub plain_listings: bool,
    /// `inspect` of one object shows its configuration alone.
    pub bare_inspect: bool,
    /// `version`, `setup` and `verify` show udocker's lines.
    pub own_lines: bool,
    /// `run --attach` has no effect.
    pub ignores_attach: bool,
    /// `load` prints names alone, without words.
    pub bare_names: bool,
    /// `login` keeps credentials without asking the registry.
    pub offline_login: bool,
    /// `logout` fails without credentials.
    pub logout_needs_login: bool,
    /// `save` refuses to replace a file.
    pub keeps_files: bool,
    /// The store is below the directory that a command names (`mkrepo`).
    pub store_below: bool,
    /// Ids of containers are shown in the form of UUIDs.
    pub uuids: bool,
    /// `tag` refuses a name that an image has.
    pub keeps_names: bool,
}

impl Presentation {
    /// How it is under udocker's name, or under Coracle's own.
    pub(crate) fn of(as_udocker: bool) -> Self {
        Self {
            as_udocker,
            banner: as_udocker,
            plain_listings: as_udocker,
            bare_inspect: as_udocker,
            own_lines: as_udocker,
            ignores_attach: as_udocker,
            bare_names: as_udocker,
            offline_login: as_udocker,
            logout_needs_login: as_udocker,
            keeps_files: as_udocker,
            store_below: as_udocker,
            uuids: as_udocker,
            keeps_names: as_udocker,
        }
    }

    /// A container's id as it is shown.
    pub(crate) fn id(self, id: &str) -> String {
        if self.uuids { uuid(id) } else { id.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (program, is) in
            [("/usr/bin/udocker", true), ("udocker.py", true), ("coracle", false), ("", false)]
        {
            assert_eq!(is_name(OsStr::new(program)), is, "{program}");
        }
    }
}
