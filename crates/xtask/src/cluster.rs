//! `cargo xtask cluster faults [MINUTES]`, `cargo xtask cluster nfs [KIND]...`: run the long forms
//! of cases on several hosts.
//!
//! `faults` puts a network of three simulated hosts under load for so many minutes (an hour), while
//! its links lose and delay frames and are cut. The suite `network` itself does so for seconds.
//! Needs root and the test users. `nfs` ([`nfs`]) has two virtual machines use one store.

mod nfs;

use crate::shell::{Outcome, cargo, check, step};
use crate::tools;

const HOUR: &str = "60";

/// Words: the case, and how many minutes.
pub(crate) fn run(words: &[String]) -> Outcome {
    if let Some(("nfs", kinds)) = words.split_first().map(|(case, rest)| (case.as_str(), rest)) {
        return nfs::run(kinds);
    }
    let minutes = match words {
        [case] if case == "faults" => HOUR,
        [case, minutes] if case == "faults" && minutes.parse::<u64>().is_ok() => minutes,
        _ => {
            return Err("which case? cargo xtask cluster faults [MINUTES] | nfs [3] [4] [nolock]"
                .to_owned());
        }
    };
    tools::set_up()?;
    step(&format!("links with faults: {minutes} minutes"));
    let mut command = cargo(&["test", "--locked", "-p", "cli", "--test", "network", "--"]);
    check(command.arg("far::faults").env("CORACLE_TEST_MINUTES", minutes))
}
