//! `cargo xtask setup`: gets what the tests need, or one part of it.

use std::process::ExitCode;

use testkit::trees;

use crate::ci::COULD_NOT;
use crate::shell::Outcome;
use crate::{lab, proot, tools};

/// Words: the part; none for everything. The status tells a part that could not be got whole from
/// an error: what needs it is skipped then.
pub(crate) fn run(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let whole = match &words[..] {
        [] => tools::set_up().map(|()| true),
        ["packages"] => packages(),
        ["lab"] => Ok(lab()),
        ["tools"] => Ok(tools::others()),
        ["tree", name] => tree(name),
        _ => Err("which part? packages | lab | tools | tree NAME".to_owned()),
    };
    match whole {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(COULD_NOT),
        Err(error) => {
            eprintln!("xtask setup: {error}");
            ExitCode::FAILURE
        }
    }
}

fn lab() -> bool {
    let is_there = lab::set_up();
    proot::set_up();
    is_there
}

fn packages() -> Outcome<bool> {
    let missing = tools::packages()?;
    if !missing.is_empty() {
        println!("not installed: {}", missing.join(" "));
    }
    Ok(missing.is_empty())
}

fn tree(name: &str) -> Outcome<bool> {
    let (_, make) = trees::ALL.iter().find(|(known, _)| *known == name).ok_or_else(|| {
        let names: Vec<&str> = trees::ALL.iter().map(|(known, _)| *known).collect();
        format!("no tree is called {name}: there are {}", names.join(", "))
    })?;
    let skips = make();
    for skip in &skips {
        println!("not made: {skip}");
    }
    Ok(skips.is_empty())
}
