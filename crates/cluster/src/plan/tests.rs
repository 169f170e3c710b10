//! What the five uses come to.

use std::path::Path;

use super::*;

fn explained(name: &str) -> String {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files");
    let spec = crate::spec::read(&files.join(name)).unwrap();
    let sites = match spec.backends[0].kind {
        Kind::Local => vec![Site {
            host: None,
            program: "/bin/coracle".into(),
            directory: "/lab".into(),
            kept: "/store/clusters/x".into(),
            address: None,
            processors: 8,
        }],
        _ => unknown_sites(&spec, "/lab"),
    };
    plan(&spec, &sites).to_string()
}

#[test]
fn gateway() {
    insta::assert_snapshot!(explained("gateway.toml"));
}

#[test]
fn hpl() {
    insta::assert_snapshot!(explained("hpl.toml"));
}

#[test]
fn site() {
    insta::assert_snapshot!(explained("site.toml"));
}

#[test]
fn farm() {
    insta::assert_snapshot!(explained("farm.toml"));
}

#[test]
fn comd() {
    insta::assert_snapshot!(explained("comd.toml"));
}
