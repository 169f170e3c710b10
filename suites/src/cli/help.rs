//! Tests of help texts. A change of one is a change of the interface, and fails here.

use tempfile::TempDir;
use testkit::skip::Outcome;

use crate::cli::{Case, printed};

pub(super) const CASES: &[(&str, Case)] = &[
    ("overview", overview),
    ("every_command", every_command),
    ("formats", formats),
    (
        "completions_and_pages_come_from_the_same_declarations",
        completions_and_pages_come_from_the_same_declarations,
    ),
];

/// Commands in the overview: the first words of the indented lines.
fn commands(overview: &str) -> Vec<String> {
    let lists = overview.split("\nOptions:").next().unwrap_or_default();
    lists
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter_map(|line| line.split("  ").next())
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

fn overview() -> Outcome {
    let home = TempDir::new().unwrap();
    let overview = printed(home.path(), &["--help"]);
    insta::assert_snapshot!("overview", overview);
    let beginning = printed(home.path(), &[]);
    insta::assert_snapshot!("beginning", beginning);
    let known = commands(&overview);
    for name in commands(&beginning).iter().filter(|name| *name != "cluster") {
        assert!(known.contains(name), "{name}");
    }
    assert_eq!(printed(home.path(), &["help"]), overview);
    Ok(())
}

fn every_command() -> Outcome {
    let home = TempDir::new().unwrap();
    let names = commands(&printed(home.path(), &["--help"]));
    assert!(names.len() > 45, "{names:?}");
    for name in names {
        let words: Vec<&str> = name.split(' ').collect();
        let text = printed(home.path(), &[&words[..], &["--help"]].concat());
        insta::assert_snapshot!(format!("help-{}", name.replace(' ', "-")), text);
        let long = printed(home.path(), &[&["help"], &words[..]].concat());
        assert!(!long.is_empty());
    }
    Ok(())
}

fn formats() -> Outcome {
    let home = TempDir::new().unwrap();
    insta::assert_snapshot!("help-formats", printed(home.path(), &["help", "formats"]));
    Ok(())
}

fn completions_and_pages_come_from_the_same_declarations() -> Outcome {
    let home = TempDir::new().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(home.path(), &["completion", shell]);
        assert!(script.contains("cpuset-cpus") && script.contains("tls-verify"), "{shell}");
    }
    printed(home.path(), &["__man", "man"]);
    let page = |name: &str| std::fs::read_to_string(home.path().join("man").join(name)).unwrap();
    assert!(page("coracle.1").contains("CONFIGURATION"));
    assert!(page("coracle-run.1").contains("\\-\\-cpuset\\-cpus"));
    assert!(page("coracle-volume-create.1").contains(".TH"));
    Ok(())
}
