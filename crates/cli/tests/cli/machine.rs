//! Tests of what scripts depend on: versions, empty lists, pipes that close early, closed streams.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::{coracle, printed, transcript};

#[test]
fn version() {
    let home = TempDir::new().unwrap();
    let line = format!("coracle version {}\n", env!("CARGO_PKG_VERSION"));
    for words in [&["--version"][..], &["-V"], &["-v"]] {
        assert_eq!(printed(home.path(), words), line);
    }
    assert!(printed(home.path(), &["version"]).starts_with(&line));
    let format = printed(home.path(), &["version", "--format", "{{.Version}} {{.Os}}"]);
    assert_eq!(format, format!("{} linux\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn empty_lists_have_headings_only() {
    let home = TempDir::new().unwrap();
    assert_eq!(
        printed(home.path(), &["ps", "-a"]),
        "CONTAINER ID   IMAGE     COMMAND   CREATED   STATUS    PORTS     NAMES\n"
    );
    assert_eq!(
        printed(home.path(), &["images"]),
        "REPOSITORY   TAG       IMAGE ID   CREATED   SIZE\n"
    );
    assert_eq!(printed(home.path(), &["volume", "ls"]), "DRIVER    VOLUME NAME\n");
    assert_eq!(printed(home.path(), &["ps", "-aq"]), "");
    assert_eq!(printed(home.path(), &["ps", "-a", "--format", "json"]), "");
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let home = TempDir::new().unwrap();
    let script = format!("'{}' help run | true", env!("CARGO_BIN_EXE_coracle"));
    let output = Command::new("bash")
        .args(["-c", &format!("{script}; echo ${{PIPESTATUS[0]}}")])
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn closed_streams_are_survived() {
    let home = TempDir::new().unwrap();
    let program = env!("CARGO_BIN_EXE_coracle");
    for redirect in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let status = Command::new("sh")
            .args(["-c", &format!("'{program}' ps -a {redirect}")])
            .env("HOME", home.path())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{redirect}: {status}");
    }
}

#[test]
fn a_place_that_cannot_be_a_store_is_told() {
    let text = transcript(&coracle(std::path::Path::new("/"), &["--store", "/proc/x", "ps"]));
    assert!(text.contains("status 125") && text.contains("error:"), "{text}");
}
