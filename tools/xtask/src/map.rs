//! The functions of the release binary, from the linker's map, and the list of those that a start
//! executes.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::shell::{Outcome, root};

/// The list, for the linker.
pub(crate) fn list() -> PathBuf {
    root().join("crates/cli/functions.txt")
}

/// Says how many functions of the list are in the binary.
pub(crate) fn check_age(binary: &Path) -> Outcome {
    let there: HashSet<String> = functions(binary)?.into_iter().map(|(_, name)| name).collect();
    let text = fs::read_to_string(list()).map_err(|error| error.to_string())?;
    let (found, all) =
        (text.lines().filter(|name| there.contains(*name)).count(), text.lines().count());
    println!("functions of a start that are placed side by side: {found} of {all}");
    if found * 5 < all * 4 {
        println!("`cargo xtask order` makes that list anew");
    }
    Ok(())
}

/// Addresses and names from the linker's map, in the order of addresses.
pub(crate) fn functions(binary: &Path) -> Outcome<Vec<(u64, String)>> {
    let map = map(binary)?;
    let text = fs::read_to_string(&map).map_err(|error| format!("{}: {error}", map.display()))?;
    let function = |line: &str| {
        // VMA, LMA, size, alignment, and then, by indentation, a section, an input or a symbol.
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let name = words.nth(3)?;
        let is_symbol = words.next().is_none() && !name.contains(":(") && !name.starts_with('.');
        is_symbol.then(|| (address, name.to_owned()))
    };
    let mut all: Vec<_> = text
        .lines()
        .skip_while(|line| !line.ends_with(" .text"))
        .skip(1)
        .take_while(|line| {
            line.split_ascii_whitespace().nth(4).is_none_or(|name| !is_section(name))
        })
        .filter_map(function)
        .collect();
    all.sort();
    if all.is_empty() { Err(format!("{}: no functions", map.display())) } else { Ok(all) }
}

fn is_section(name: &str) -> bool {
    name.starts_with('.') && !name.contains(":(")
}

/// The map that was written with the binary: the newest one.
fn map(binary: &Path) -> Outcome<PathBuf> {
    let builds = binary.parent().ok_or("no directory")?.join("build");
    let entries =
        fs::read_dir(&builds).map_err(|error| format!("{}: {error}", builds.display()))?;
    let maps = entries.flatten().map(|entry| entry.path().join("out/coracle.map"));
    let newest = maps.filter_map(|map| Some((map.metadata().ok()?.modified().ok()?, map))).max();
    newest.map(|(_, map)| map).ok_or(format!("no map in {}", builds.display()))
}
