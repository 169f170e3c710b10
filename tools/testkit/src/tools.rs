//! Test programs that `cargo xtask setup` builds for the suites, under `target/tools`.

use std::path::PathBuf;

use crate::debian::cache;
use crate::skip::Skip;

/// Name and version of the program.
pub const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");

/// Directory of the tools.
pub fn root() -> PathBuf {
    cache().with_file_name("tools")
}

/// pjdfstest, as a static program: <https://github.com/saidsay-so/pjdfstest>.
pub fn pjdfstest() -> Result<PathBuf, Skip> {
    let path = root().join("bin").join(PJDFSTEST.0);
    if path.exists() {
        return Ok(path);
    }
    Err(Skip("pjdfstest is not installed: run `cargo xtask setup`".to_owned()))
}

/// Python packages that run containers, for `pip` to install.
pub const PYTHON: &[&str] = &["cwltool==3.3.20260925135507", "miniwdl==1.16.0"];

/// The directory of those packages.
pub fn python() -> Result<PathBuf, Skip> {
    let path = root().join("python");
    if path.join("cwltool").exists() && path.join("WDL").exists() {
        return Ok(path);
    }
    Err(Skip("cwltool and miniwdl are not installed: run `cargo xtask setup`".to_owned()))
}
