//! Test programs that `cargo xtask setup` builds for the suites, in the cache of all clones.

use std::path::PathBuf;

use crate::debian::cache;
use crate::skip::Skip;

/// Name and version of the program.
pub const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");

/// Directory of the tools.
pub fn root() -> PathBuf {
    cache().join("tools")
}

/// Directory of a program of crates.io in a version.
pub fn directory((name, version): (&str, &str)) -> PathBuf {
    root().join(format!("{name}-{version}"))
}

/// pjdfstest, as a static program: <https://github.com/saidsay-so/pjdfstest>.
pub fn pjdfstest() -> Result<PathBuf, Skip> {
    let path = directory(PJDFSTEST).join("bin").join(PJDFSTEST.0);
    if path.exists() {
        return Ok(path);
    }
    Err(Skip("pjdfstest is not installed: run `cargo xtask setup`".to_owned()))
}

/// Python packages that run containers, for `pip` to install.
pub const PYTHON: &[&str] = &["cwltool==3.3.20260925135507", "miniwdl==1.16.0"];

/// Where those packages are to be.
pub fn python_place() -> PathBuf {
    root().join(PYTHON.join("-"))
}

/// The directory of those packages.
pub fn python() -> Result<PathBuf, Skip> {
    let path = python_place();
    if path.join("cwltool").exists() && path.join("WDL").exists() {
        return Ok(path);
    }
    Err(Skip("cwltool and miniwdl are not installed: run `cargo xtask setup`".to_owned()))
}
