//! Visible skips: a test that cannot run here names the missing capability.
//!
//! Under the standard test harness a test prints the line with [`note`] and returns. Under
//! [`crate::harness`] a case returns `Err(Skip)` (most easily by [`skip!`](crate::skip!)), and the
//! harness prints and counts it. `cargo xtask ci` counts the lines that begin with `SKIP `.

use std::fmt;

/// The reason why a test could not run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Result of a case: `Ok(())` passed, `Err` could not run. A failure is a panic.
pub type Outcome = Result<(), Skip>;

/// Ends a case as skipped, with a reason in `format!` syntax.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {
        return Err($crate::skip::Skip(format!($($reason)*)))
    };
}

/// Prints the line that `cargo xtask ci` counts.
pub fn note(test: &str, reason: &str) {
    eprintln!("SKIP {test}: {reason}");
}

/// The path of a program, or a skip that says that it is not installed.
pub fn need_program(name: &str) -> Result<std::path::PathBuf, Skip> {
    crate::command::find_program(name).ok_or_else(|| Skip(format!("{name} is not installed")))
}
