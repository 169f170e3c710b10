//! The program under test.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use testkit::built;

/// The environment variable with the path of the binary.
const VARIABLE: &str = "CORACLE_BIN";

/// The path of `coracle`: what `CORACLE_BIN` says, else what cargo builds now by the profile `ci`.
///
/// # Panics
/// If there is none.
pub(crate) fn coracle() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = match std::env::var_os(VARIABLE) {
            Some(path) => std::path::absolute(path).expect("a path"),
            None => built::of_workspace("coracle", &built::LINTED)
                .unwrap_or_else(|error| panic!("coracle does not compile: {error}")),
        };
        assert!(path.is_file(), "{VARIABLE}: {}: no such file", path.display());
        path
    })
}
