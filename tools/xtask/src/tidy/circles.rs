//! Finds modules of a crate that use each other in a circle.
//!
//! Modules with the same parent, each with everything below it, must be in an order in which each
//! uses earlier ones only. The file [`LIST`] holds the exceptions with their reasons. A line must
//! name the modules that are in the circle today; `tidy --bless` corrects lines whose circle has
//! changed and removes those whose circle is gone, but never adds one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::modules::{Modules, Name};
use crate::shell::{Outcome, root};

/// The list of exceptions.
const LIST: &str = "tools/xtask/circles.txt";

/// A circle that may stay.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    /// The crate, and the module whose children are meant if it is not the root:
    /// `engine`, `engine::engines`.
    parent: String,
    /// The modules in it, in alphabetic order.
    modules: Vec<String>,
    reason: String,
}

/// Checks all crates; with `bless` first brings the list up to date.
pub(super) fn check(findings: &mut Vec<String>, bless: bool) -> Outcome {
    let mut found = Vec::new();
    for (crate_name, file) in roots()? {
        let modules = Modules::read(&file)?;
        found.extend(circles(&crate_name, &modules));
    }
    let file = root().join(LIST);
    let text = fs::read_to_string(&file).map_err(|error| format!("{LIST}: {error}"))?;
    let (head, mut known) = parse(&text)?;
    if bless {
        known = blessed(&found, &known);
        let text = head + &known.iter().map(Known::text).collect::<Vec<_>>().join("\n");
        fs::write(&file, text).map_err(|error| format!("{LIST}: {error}"))?;
    }
    compare(&found, &known, findings);
    Ok(())
}

impl Known {
    /// As it stands in the list.
    fn text(&self) -> String {
        format!("{}: {}\n    {}\n", self.parent, self.modules.join(" "), self.reason)
    }
}

/// The comment at the head of the list, and its entries.
fn parse(text: &str) -> Outcome<(String, Vec<Known>)> {
    let is_head = |line: &&str| line.starts_with('#') || line.is_empty();
    let head: String = text.lines().take_while(is_head).flat_map(|line| [line, "\n"]).collect();
    let mut known: Vec<Known> = Vec::new();
    for line in text.lines().filter(|line| !is_head(line)) {
        if let Some((parent, modules)) = line.split_once(": ").filter(|_| !line.starts_with(' ')) {
            let modules = modules.split_whitespace().map(str::to_owned).collect();
            known.push(Known { parent: parent.to_owned(), modules, reason: String::new() });
        } else if let Some(last) = known.last_mut() {
            let space = if last.reason.is_empty() { "" } else { " " };
            last.reason = format!("{}{space}{}", last.reason, line.trim());
        }
    }
    match known.iter().find(|entry| entry.reason.is_empty()) {
        Some(entry) => Err(format!("{LIST}: {}: a reason is missing", entry.parent)),
        None => Ok((head, known)),
    }
}

/// The entries with the modules that are in their circles now; without those that are not needed.
fn blessed(found: &[Circle], known: &[Known]) -> Vec<Known> {
    let mut left: Vec<&Circle> = found.iter().collect();
    let mut kept = Vec::new();
    for entry in known {
        let common = |circle: &Circle| {
            circle.modules.iter().filter(|module| entry.modules.contains(module)).count()
        };
        let same = left.iter().enumerate().filter(|(_, circle)| circle.parent == entry.parent);
        let best = same.max_by_key(|(_, circle)| common(circle));
        if let Some((at, circle)) = best.filter(|(_, circle)| common(circle) > 0) {
            kept.push(Known { modules: circle.modules.clone(), ..entry.clone() });
            left.remove(at);
        }
    }
    kept
}

/// Each crate's root file, by the name that findings give it.
fn roots() -> Outcome<Vec<(String, PathBuf)>> {
    let mut roots = Vec::new();
    for dir in packages()? {
        let name = file_name(&dir);
        let source = dir.join("src");
        roots.push((name.clone(), source.join("lib.rs")));
        roots.push((name.clone(), source.join("main.rs")));
        for program in fs::read_dir(source.join("bin")).into_iter().flatten().flatten() {
            let program = program.path();
            roots.push((format!("{name}/{}", file_name(&program)), program.join("main.rs")));
        }
    }
    roots.retain(|(_, file)| file.exists());
    roots.sort();
    Ok(roots)
}

/// The directories of all packages.
fn packages() -> Outcome<Vec<PathBuf>> {
    let mut packages = Vec::new();
    for code in super::CODE {
        let code = root().join(code);
        if code.join("Cargo.toml").exists() {
            packages.push(code);
            continue;
        }
        let entries = fs::read_dir(&code).map_err(|e| format!("{}: {e}", code.display()))?;
        packages.extend(entries.flatten().map(|entry| entry.path()));
    }
    Ok(packages)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Modules with one parent that use each other.
#[derive(Debug)]
struct Circle {
    parent: String,
    /// In alphabetic order.
    modules: Vec<String>,
    /// One place for each pair.
    places: Vec<String>,
}

/// A module's children and, for each pair of them, a place where the first uses the second.
type Siblings = BTreeMap<(String, String), String>;

/// All circles of a crate.
fn circles(crate_name: &str, modules: &Modules) -> Vec<Circle> {
    let mut levels: BTreeMap<Name, Siblings> = BTreeMap::new();
    for found in &modules.uses {
        let to = modules.module_of(&found.to);
        let same = found.from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        if let (Some(from), Some(to)) = (found.from.get(same), to.get(same)) {
            let siblings = levels.entry(found.from[..same].to_vec()).or_default();
            siblings.entry((from.clone(), to.clone())).or_insert_with(|| found.place.clone());
        }
    }
    let mut circles = Vec::new();
    for (parent, siblings) in &levels {
        let name = std::iter::once(crate_name).chain(parent.iter().map(String::as_str));
        let name = name.collect::<Vec<_>>().join("::");
        for group in groups(siblings) {
            let places = siblings
                .iter()
                .filter(|((from, to), _)| group.contains(from) && group.contains(to))
                .map(|((from, to), place)| format!("{from} uses {to} in {place}"))
                .collect();
            circles.push(Circle { parent: name.clone(), modules: group, places });
        }
    }
    circles
}

/// The groups of at least two modules that reach each other.
fn groups(siblings: &Siblings) -> Vec<Vec<String>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in siblings.keys() {
        next.entry(from).or_default().push(to);
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        next.keys().map(|from| (*from, reachable(from, &next))).collect();
    let mut groups = BTreeSet::new();
    for (from, reached) in reach.iter().filter(|(from, reached)| reached.contains(*from)) {
        let back = |to: &&&str| reach.get(**to).is_some_and(|reached| reached.contains(from));
        let group: Vec<String> = reached.iter().filter(back).map(|&to| to.to_owned()).collect();
        groups.insert(group);
    }
    groups.into_iter().collect()
}

/// What can be reached from `from` in one step or more.
fn reachable<'a>(from: &str, next: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = next.get(from).cloned().unwrap_or_default();
    while let Some(module) = open.pop() {
        if reached.insert(module) {
            open.extend(next.get(module).into_iter().flatten());
        }
    }
    reached
}

/// Compares the circles that are there with those that may be.
fn compare(found: &[Circle], known: &[Known], findings: &mut Vec<String>) {
    for circle in found {
        let is_same =
            |entry: &Known| entry.parent == circle.parent && entry.modules == circle.modules;
        if !known.iter().any(is_same) {
            let Circle { parent, modules, places } = circle;
            findings.push(format!(
                "{parent}: a circle of modules. Turn one of these uses round, or run `cargo xtask tidy \
                 --bless` if a known circle has changed, or add this line and a reason to {LIST}:\n\
                 {parent}: {}\n  {}",
                modules.join(" "),
                places.join("\n  ")
            ));
        }
    }
    for entry in known {
        let is_same =
            |circle: &Circle| circle.parent == entry.parent && circle.modules == entry.modules;
        if !found.iter().any(is_same) {
            findings.push(format!(
                "{LIST}: {}: there is no circle of exactly {}: run `cargo xtask tidy --bless`",
                entry.parent,
                entry.modules.join(" ")
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn siblings(uses: &[(&str, &str)]) -> Siblings {
        let use_of = |(from, to): &(&str, &str)| (((*from).into(), (*to).into()), "f.rs:1".into());
        uses.iter().map(use_of).collect()
    }

    #[test]
    fn an_order_is_no_circle() {
        assert!(groups(&siblings(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    }

    #[test]
    fn finds_circles_apart_from_each_other() {
        let found = groups(&siblings(&[
            ("a", "b"),
            ("b", "c"),
            ("c", "a"),
            ("c", "d"),
            ("e", "f"),
            ("f", "e"),
        ]));
        assert_eq!(found, [vec!["a", "b", "c"], vec!["e", "f"]]);
    }

    fn circle(modules: &[&str]) -> Circle {
        let modules = modules.iter().map(|&module| module.to_owned()).collect();
        Circle { parent: "x".to_owned(), modules, places: Vec::new() }
    }

    fn list(text: &str) -> Vec<Known> {
        parse(text).unwrap().1
    }

    #[test]
    fn the_list_must_be_exact() {
        let judged = |found: &[Circle], text: &str| {
            let mut findings = Vec::new();
            compare(found, &list(text), &mut findings);
            findings.len()
        };
        assert_eq!(judged(&[circle(&["a", "b"])], "x: a b\n    why\n"), 0);
        assert_eq!(judged(&[circle(&["a", "b"])], ""), 1);
        assert_eq!(judged(&[], "x: a b\n    why\n"), 1);
        assert_eq!(judged(&[circle(&["a", "b"])], "x: a b c\n    why\n"), 2);
    }

    #[test]
    fn a_list_keeps_its_text() {
        let text = "# head\n\nx: a b\n    why\n    so\n\nx::a: c d\n    why\n";
        let (head, known) = parse(text).unwrap();
        assert_eq!(head, "# head\n\n");
        assert_eq!(known[0].text(), "x: a b\n    why so\n");
        assert!(parse("x: a b\n").is_err());
    }

    #[test]
    fn bless_corrects_and_removes_but_never_adds() {
        let known = list("x: a b\n    why\nx: c d\n    because\ny: a b\n    never\n");
        let found = [circle(&["a", "c", "d"]), circle(&["e", "f"])];
        let kept = blessed(&found, &known);
        assert_eq!(kept, list("x: a c d\n    why\n"));
    }
}
