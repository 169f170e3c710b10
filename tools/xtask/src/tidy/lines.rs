//! Counts lines of comments and of Markdown prose that are longer than [`WIDTH`] columns.
//!
//! A ratchet: the file [`LIST`] says how many there may be in each crate and directory. More is a
//! finding, and fewer is one too until `tidy --bless` has lowered the number, so the numbers only
//! fall. With no number left the file can be removed.
//!
//! Free are tables, code blocks, headings and targets of links in Markdown, tables in comments, and
//! lines with a word that is too long by itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::lexer::lex;
use crate::shell::{Outcome, root};

/// How many columns a line may have.
const WIDTH: usize = 100;

/// How many longer lines there may be.
const LIST: &str = "tools/xtask/long-lines.txt";

const HEAD: &str = "\
# Lines of comments and Markdown prose over 100 columns that each directory may have, read by
# `cargo xtask tidy`. `cargo xtask tidy --bless` lowers the numbers to what is there. Nothing raises
# them but a hand: when files move to another directory, their number moves with them.

";

/// How many places a finding names.
const SHOWN: usize = 10;

/// The lines of each directory, as `FILE:LINE`.
type Places = BTreeMap<String, Vec<String>>;

/// Checks `sources`, which are Rust, and all Markdown; with `bless` first lowers the numbers.
pub(super) fn check(sources: &[PathBuf], findings: &mut Vec<String>, bless: bool) -> Outcome {
    let mut places = Places::new();
    for file in sources {
        add(&mut places, file, in_rust)?;
    }
    for file in markdown() {
        add(&mut places, &file, in_markdown)?;
    }
    let file = root().join(LIST);
    let mut allowed = parse(&fs::read_to_string(&file).unwrap_or_default())?;
    if bless {
        lower(&mut allowed, &places);
        let lines = allowed.iter().map(|(name, count)| format!("{count} {name}\n"));
        let text = HEAD.to_owned() + &lines.collect::<String>();
        fs::write(&file, text).map_err(|error| format!("{LIST}: {error}"))?;
    }
    compare(&places, &allowed, findings);
    Ok(())
}

fn add(places: &mut Places, file: &Path, find: fn(&str) -> Vec<usize>) -> Outcome {
    let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
    let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
    let found = find(&text);
    if !found.is_empty() {
        let list = places.entry(directory(&name)).or_default();
        list.extend(found.into_iter().map(|line| format!("{name}:{line}")));
    }
    Ok(())
}

/// `crates/NAME`, `tools/NAME`, the directory at the top, or `.` for a file there.
fn directory(name: &str) -> String {
    let parts: Vec<&str> = name.split('/').collect();
    let depth = if matches!(parts[0], "crates" | "tools") { 2 } else { 1 };
    if parts.len() > depth { parts[..depth].join("/") } else { ".".to_owned() }
}

/// The project's Markdown files.
fn markdown() -> Vec<PathBuf> {
    let files = ["", "docs", "docs/decisions"].into_iter().flat_map(|dir| {
        fs::read_dir(root().join(dir)).into_iter().flatten().flatten().map(|entry| entry.path())
    });
    let mut files: Vec<PathBuf> =
        files.filter(|file| file.extension().is_some_and(|end| end == "md")).collect();
    files.sort();
    files
}

fn is_long(line: &str) -> bool {
    line.chars().count() > WIDTH
}

/// Whether a line's longest word alone, behind the line's indentation and mark, is too long.
fn is_unbreakable(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!', '*', '-', '>', ' ']);
    let before = line.chars().count() - text.chars().count();
    let longest = text.split_whitespace().map(|word| word.chars().count()).max();
    before + longest.unwrap_or_default() > WIDTH
}

/// The long lines of comments, from 1.
fn in_rust(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let comments = lex(text).comment_lines;
    let line = |number: &usize| lines.get(number - 1).copied().unwrap_or_default();
    comments
        .into_iter()
        .filter(|number| {
            let line = line(number);
            let is_table = line.trim_start().trim_start_matches(['/', '!']).starts_with(" | ");
            is_long(line) && !is_unbreakable(line) && !is_table
        })
        .collect()
}

/// The long lines of prose, from 1.
fn in_markdown(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            in_code = !in_code;
        }
        // `[name]: target` is the target of links elsewhere; `[name](target)` begins prose.
        let is_target = start.starts_with('[') && start.contains("]: ");
        let is_free = in_code || is_target || start.starts_with(['|', '#']);
        if is_long(line) && !is_free && !is_unbreakable(line) {
            found.push(number + 1);
        }
    }
    found
}

/// Numbers by directory.
fn parse(text: &str) -> Outcome<BTreeMap<String, usize>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (count, name) = line.split_once(' ').unwrap_or_default();
            let count =
                count.parse().map_err(|_| format!("{LIST}: not COUNT DIRECTORY: {line}"))?;
            Ok((name.to_owned(), count))
        })
        .collect()
}

/// Lowers the numbers to what is there; without those that are zero. Nothing is raised.
fn lower(allowed: &mut BTreeMap<String, usize>, places: &Places) {
    allowed.retain(|name, count| {
        *count = (*count).min(places.get(name).map_or(0, Vec::len));
        *count > 0
    });
}

fn compare(places: &Places, allowed: &BTreeMap<String, usize>, findings: &mut Vec<String>) {
    for (name, list) in places {
        let most = allowed.get(name).copied().unwrap_or_default();
        if list.len() > most {
            let shown: Vec<&str> = list.iter().take(SHOWN).map(String::as_str).collect();
            let more = list.len().saturating_sub(SHOWN);
            let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
            findings.push(format!(
                "{name}: {} lines of comments or prose over {WIDTH} columns, {most} allowed:\n  {}{more}",
                list.len(),
                shown.join("\n  ")
            ));
        }
    }
    for (name, most) in allowed {
        let count = places.get(name).map_or(0, Vec::len);
        if count < *most {
            findings.push(format!(
                "{name}: {count} long lines, {most} allowed: lower the number with `cargo xtask tidy --bless`"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(count: usize) -> String {
        "word ".repeat(count)
    }

    #[test]
    fn finds_long_comments_only() {
        let long = words(25);
        assert_eq!(in_rust(&format!("// {long}\nfn f() {{}}\n")), [1]);
        assert_eq!(in_rust(&format!("    /// {long}\nfn f() {{}} // {long}\n")), [1, 2]);
        assert!(in_rust(&format!("const A: &str = \"// {long}\";\n// short\n")).is_empty());
        assert!(in_rust(&format!("/// https://{}\n", "x".repeat(100))).is_empty());
        assert!(in_rust(&format!("//! | {long} |\n")).is_empty());
    }

    #[test]
    fn finds_long_prose_only() {
        let long = words(25);
        assert_eq!(in_markdown(&format!("{long}\n\n- {long}\n")), [1, 3]);
        assert!(in_markdown(&format!("| {long} |\n```\n{long}\n```\n# {long}\n")).is_empty());
        assert!(in_markdown(&format!("[a]: {long}\n")).is_empty());
        assert_eq!(in_markdown(&format!("[a](b) {long}\n")), [1]);
        assert!(in_markdown(&format!("- [a](https://{})\n", "x".repeat(100))).is_empty());
    }

    #[test]
    fn numbers_only_fall() {
        let places = Places::from([("a".to_owned(), vec!["f:1".to_owned(), "f:2".to_owned()])]);
        let judged = |text: &str| {
            let mut findings = Vec::new();
            compare(&places, &parse(text).unwrap(), &mut findings);
            findings.len()
        };
        assert_eq!((judged("2 a\n"), judged("1 a\n"), judged("3 a\n")), (0, 1, 1));
        assert_eq!((judged("# none\n"), judged("2 a\n1 b\n")), (1, 1));
        let mut allowed = parse("3 a\n1 b\n").unwrap();
        lower(&mut allowed, &places);
        assert_eq!(allowed, parse("2 a\n").unwrap());
        lower(&mut allowed, &Places::new());
        assert!(allowed.is_empty() && parse("a 2\n").is_err());
    }

    #[test]
    fn directories() {
        assert_eq!(directory("crates/cli/src/main.rs"), "crates/cli");
        assert_eq!(directory("docs/host.md"), "docs");
        assert_eq!(directory("README.md"), ".");
    }
}
