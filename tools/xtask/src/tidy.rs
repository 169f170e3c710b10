//! Checks what a compiler does not: `cargo xtask tidy`, over the sources and `cargo metadata`.
//!
//! - which crate may depend on which ([`ARROWS`], [`NO_IO`]), and lints of every manifest;
//! - circles of modules inside a crate ([`circles`]);
//! - who may print, read the environment and end the process, and that nothing asks NSS;
//! - `unsafe` only in `sys` and `stage`; module headers; lengths of files and of lines ([`lines`]);
//! - documents that are printed from code or must name what is in the code ([`variables`]).
//!
//! Every finding names a file, most of them a line; the task prints all of them. `--bless` brings
//! the lists of `circles` and `lines` up to date.

mod circles;
mod lexer;
mod lines;
mod modules;
mod variables;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::shell::{Outcome, cargo, read, root};

/// Which crates of this workspace each may depend on. ARCHITECTURE.md gives the reasons.
const ARROWS: &[(&str, &[&str])] = &[
    ("abi", &[]),
    ("view", &["abi"]),
    ("hostfs", &["view", "abi"]),
    ("blobs", &["abi"]),
    ("sys", &["abi"]),
    ("oci", &[]),
    ("registry", &["oci"]),
    ("store", &["oci", "sys"]),
    ("net", &["abi", "store", "sys"]),
    ("rootfs", &["store", "oci", "sys", "abi"]),
    ("host", &["sys"]),
    ("engine", &["host", "hostfs", "view", "blobs", "sys", "abi"]),
    ("containers", &["engine", "host", "net", "oci", "registry", "rootfs", "store", "sys"]),
    ("remote", &["host", "oci", "sys"]),
    ("cluster", &["containers", "net", "oci", "remote", "sys", "store"]),
    (
        "cli",
        &[
            "cluster",
            "containers",
            "engine",
            "host",
            "oci",
            "registry",
            "remote",
            "rootfs",
            "store",
            "sys",
        ],
    ),
    // No crate of the product: the suites know the program by its file alone.
    ("testkit", &[]),
    ("suites", &["testkit"]),
    ("xtask", &["testkit", "abi"]),
    ("bench", &["testkit", "xtask", "abi"]),
];

/// What a crate without I/O must not pull in.
const NO_IO: &[(&str, &[&str])] = &[
    ("oci", &["rustix", "ureq", "rustls", "tempfile", "nix", "libc"]),
    ("abi", &["rustix", "serde", "libc", "nix"]),
    ("view", &["rustix", "serde", "libc", "nix"]),
    ("hostfs", &["rustix", "serde", "libc", "nix"]),
];

/// Crates that are no libraries. All others never print, read the environment or end the process.
const PROGRAMS: &[&str] = &["cli", "stage", "testkit", "suites", "xtask", "bench"];

/// Crates with `unsafe` code.
const UNSAFE: &[&str] = &["sys", "stage"];

/// Where the code is: the product, what tests it, and what works on it.
const CODE: &[&str] = &["crates", "suites", "tools"];

/// The longest file, in lines.
const LONGEST: usize = 800;

struct Ban {
    text: &'static str,
    reason: &'static str,
}

const IN_LIBRARIES: &[Ban] = &[
    Ban { text: "println!(", reason: "libraries do not print" },
    Ban { text: "eprintln!(", reason: "libraries do not print" },
    Ban { text: "eprint!(", reason: "libraries do not print" },
    Ban { text: "env::var(", reason: "only `cli` reads the environment" },
    Ban { text: "env::var_os(", reason: "only `cli` reads the environment" },
    Ban { text: "env::vars", reason: "only `cli` reads the environment" },
    Ban { text: "env::current_dir(", reason: "only `cli` reads the working directory" },
    Ban { text: "env::temp_dir(", reason: "a directory comes in as an argument" },
    Ban { text: "process::exit(", reason: "only `main` ends the process" },
];

const EVERYWHERE: &[Ban] = &[
    Ban { text: "env::home_dir(", reason: "asks NSS" },
    Ban { text: "to_socket_addrs(", reason: "asks NSS" },
    Ban { text: "getaddrinfo(", reason: "asks NSS" },
    Ban { text: "getpwuid(", reason: "asks NSS" },
    Ban { text: "getpwnam(", reason: "asks NSS" },
    Ban { text: "getgrnam(", reason: "asks NSS" },
    Ban { text: "todo!(", reason: "not finished" },
    Ban { text: "unimplemented!(", reason: "not finished" },
];

/// Something that product code does in named places only.
struct Only {
    text: &'static str,
    /// Beginnings of file names; each must be needed.
    places: &'static [&'static str],
    reason: &'static str,
}

const ONLY: &[Only] = &[
    Only {
        text: "env::var",
        places: &[
            "crates/cli/src/context.rs",
            // Before there is a context: the logger, colours of an error, the name it is called by.
            "crates/cli/src/logging.rs",
            "crates/cli/src/report.rs",
            "crates/cli/src/dialect.rs",
        ],
        reason: "the environment is read once, in `cli::context`",
    },
    Only {
        text: "exit_now(",
        places: &[
            "crates/engine/src/engines/",
            "crates/engine/src/launch/",
            "crates/engine/src/supervise/",
            "crates/sys/src/",
        ],
        reason: "only a forked child ends itself",
    },
    Only {
        text: "ExitCode::",
        places: &["crates/cli/src/main.rs"],
        reason: "`main` turns a status into the exit code",
    },
    Only {
        text: "fn exit_code(",
        places: &["crates/engine/src/error.rs", "crates/engine/src/supervise/error.rs"],
        reason: "the exit code of an error is decided beside its type",
    },
];

/// Checks everything. Words: `--bless` or none.
pub(crate) fn run(words: &[String]) -> Outcome {
    let bless = match words {
        [] => false,
        [word] if word == "--bless" => true,
        _ => return Err("there is only the option --bless".to_owned()),
    };
    let mut findings = Vec::new();
    arrows(&mut findings)?;
    circles::check(&mut findings, bless)?;
    let mut long = 0;
    let mut used = Used::default();
    let files = sources()?;
    for file in &files {
        let name = file.strip_prefix(root()).unwrap_or(file).display().to_string();
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        let lines = text.lines().count();
        if lines > 400 {
            long += 1;
        }
        source(&name, &text, &mut used, &mut findings);
    }
    used.check(&mut findings);
    lines::check(&files, &mut findings, bless)?;
    variables::check(&files, &mut findings)?;
    findings.extend(crate::calls::check().err());
    if long > 0 {
        println!("{long} files have more than 400 lines, which is to be the exception");
    }
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() { Ok(()) } else { Err(format!("{} findings", findings.len())) }
}

/// The places of [`ONLY`] that have been needed, as indices.
#[derive(Default)]
struct Used(BTreeSet<(usize, usize)>);

impl Used {
    /// Finds places that are listed in vain.
    fn check(&self, findings: &mut Vec<String>) {
        for (n, only) in ONLY.iter().enumerate() {
            for (m, place) in only.places.iter().enumerate() {
                if !self.0.contains(&(n, m)) {
                    findings.push(format!(
                        "{place}: no {}...: take it off the list in tools/xtask/src/tidy.rs",
                        only.text
                    ));
                }
            }
        }
    }
}

fn sources() -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut stack: Vec<PathBuf> = CODE.iter().map(|name| root().join(name)).collect();
    while let Some(dir) = stack.pop() {
        let entries = fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                stack.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// One source file.
fn source(name: &str, text: &str, used: &mut Used, findings: &mut Vec<String>) {
    let mut parts = name.split('/');
    let first = parts.next().unwrap_or_default();
    // `suites` is a crate itself.
    let crate_name = if first == "suites" { first } else { parts.next().unwrap_or_default() };
    let lines = text.lines().count();
    if lines > LONGEST {
        findings.push(format!("{name}: {lines} lines; split it by meaning (at most {LONGEST})"));
    }
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
    if !first.is_some_and(|line| line.starts_with("//!")) && !is_tests(name) {
        findings.push(format!("{name}:1: no `//!` that says what this module is"));
    }
    if let Some(line) = compiled_example(text) {
        findings.push(format!("{name}:{line}: `cargo xtask ci` compiles no examples in comments"));
    }
    let library = !PROGRAMS.contains(&crate_name) && is_product(name);
    let shipped = (library || matches!(crate_name, "cli" | "stage")) && is_product(name);
    // xtask holds the list of bans itself.
    if crate_name == "xtask" {
        return;
    }
    for (number, line) in text.lines().enumerate() {
        // Unit tests stand at the end of a file.
        if line.trim() == "#[cfg(test)]"
            && !text.lines().nth(number + 1).is_some_and(|next| next.trim().ends_with(';'))
        {
            break;
        }
        let code = line.split("//").next().unwrap_or_default();
        let bans = EVERYWHERE.iter().chain(if library { IN_LIBRARIES } else { &[] });
        for ban in bans.filter(|ban| code.contains(ban.text)) {
            findings.push(format!("{name}:{}: {}...: {}", number + 1, ban.text, ban.reason));
        }
        if !UNSAFE.contains(&crate_name) && code.split_whitespace().any(|word| word == "unsafe") {
            findings.push(format!("{name}:{}: `unsafe` is for `sys` and `stage`", number + 1));
        }
        for (n, only) in ONLY.iter().enumerate().filter(|_| shipped) {
            if code.contains(only.text) {
                match only.places.iter().position(|place| name.starts_with(place)) {
                    Some(place) => drop(used.0.insert((n, place))),
                    None => findings.push(format!(
                        "{name}:{}: {}...: {}; places are listed in tools/xtask/src/tidy.rs",
                        number + 1,
                        only.text,
                        only.reason
                    )),
                }
            }
        }
    }
}

/// The line of the first example in a comment that rustdoc would compile: one without a language.
fn compiled_example(text: &str) -> Option<usize> {
    let fence = |line: &str| {
        let comment = line.trim().strip_prefix("///").or(line.trim().strip_prefix("//!"))?;
        Some(comment.trim().strip_prefix("```")?.to_owned())
    };
    let fences = text.lines().enumerate().filter_map(|(at, line)| Some((at + 1, fence(line)?)));
    let mut begins = fences.step_by(2);
    begins.find(|(_, language)| ["", "rust"].contains(&&**language)).map(|(line, _)| line)
}

/// Test modules are described by what they test.
fn is_tests(name: &str) -> bool {
    name.starts_with("suites/") || name.contains("/tests/") || name.ends_with("tests.rs")
}

fn is_product(name: &str) -> bool {
    let parts = ["/tests/", "/benches/", "/examples/", "tests.rs"];
    name.starts_with("crates/")
        && name.contains("/src/")
        && !parts.iter().any(|part| name.contains(part))
        && !name.contains("/src/bin/")
}

/// The dependency arrows and lints of every manifest.
fn arrows(findings: &mut Vec<String>) -> Outcome {
    let text = read(&mut cargo(&["metadata", "--format-version", "1", "--no-deps", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    for package in &packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((_, allowed)) = ARROWS.iter().find(|(crate_name, _)| *crate_name == name) else {
            findings.push(format!("{name}: a crate that ARCHITECTURE.md does not know"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let to = dependency["name"].as_str().unwrap_or_default();
            let normal = dependency["kind"].is_null();
            let ours = ARROWS.iter().any(|(crate_name, _)| *crate_name == to);
            // The tests of a crate may use others; what knows the program by its file may not.
            let strict = normal || matches!(name, "suites" | "testkit");
            if strict && ours && !allowed.contains(&to) {
                findings.push(format!("{name} depends on {to}: no such arrow"));
            }
            let banned = NO_IO.iter().find(|(crate_name, _)| *crate_name == name);
            if normal && banned.is_some_and(|(_, list)| list.contains(&to)) {
                findings.push(format!("{name} depends on {to}: it does no I/O"));
            }
        }
        lints(name, Path::new(package["manifest_path"].as_str().unwrap_or_default()), findings);
    }
    Ok(())
}

/// Every crate takes the workspace's lints, which forbid `unsafe`; `sys` states its own.
fn lints(name: &str, manifest: &Path, findings: &mut Vec<String>) {
    let text = fs::read_to_string(manifest).unwrap_or_default();
    if name != "sys" && !text.contains("[lints]\nworkspace = true") {
        findings.push(format!("{name}: its manifest does not take the workspace's lints"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(name: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        source(name, text, &mut Used::default(), &mut findings);
        findings
    }

    #[test]
    fn places_that_are_not_needed_are_found() {
        let mut findings = Vec::new();
        Used::default().check(&mut findings);
        assert_eq!(findings.len(), ONLY.iter().map(|only| only.places.len()).sum::<usize>());
    }

    #[test]
    fn finds_what_it_should() {
        let good = "//! What.\nfn f() {}\n";
        assert!(findings("crates/store/src/a.rs", good).is_empty());
        assert_eq!(findings("crates/store/src/a.rs", "fn f() {}\n").len(), 1);
        let prints = "//! What.\nfn f() { println!(\"x\"); }\n";
        assert_eq!(findings("crates/store/src/a.rs", prints).len(), 1);
        assert!(findings("crates/cli/src/a.rs", prints).is_empty());
        assert!(findings("crates/store/tests/a.rs", prints).is_empty());
        let in_tests = "//! What.\n#[cfg(test)]\nmod tests {\n    fn f() { println!(\"x\"); }\n}\n";
        assert!(findings("crates/store/src/a.rs", in_tests).is_empty());
        let comment = "//! What.\n// println!(\"x\")\n";
        assert!(findings("crates/store/src/a.rs", comment).is_empty());
        let ends = "//! What.\nfn f() { sys::process::exit_now(1); }\n";
        assert_eq!(findings("crates/engine/src/plan/a.rs", ends).len(), 1);
        assert!(findings("crates/engine/src/engines/a.rs", ends).is_empty());
        let looks = "//! What.\nfn f() { std::env::var_os(\"A\"); }\n";
        assert_eq!(findings("crates/cli/src/a.rs", looks).len(), 1);
        assert_eq!(findings("crates/store/src/a.rs", looks).len(), 2);
        assert!(findings("crates/cli/src/context.rs", looks).is_empty());
        let long = "//! What.\n".repeat(LONGEST + 1);
        assert_eq!(findings("crates/cli/src/a.rs", &long).len(), 1);
    }
    #[test]
    fn examples_have_a_language() {
        let text = "/// ```text\n/// a\n/// ```\nfn a() {}\n//! ```\n//! b();\n//! ```\n";
        assert_eq!(compiled_example(text), Some(5));
        assert_eq!(compiled_example(&text[..30]), None);
    }
}
