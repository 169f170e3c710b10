//! `cargo xtask TASK`; the library has the tasks.

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    xtask::run(&words)
}
