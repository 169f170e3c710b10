//! Tests of what scripts depend on: versions, empty lists, pipes that close early, closed streams.

use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::skip::Outcome;

use crate::cli::{Case, coracle, printed, transcript};

pub(super) const CASES: &[(&str, Case)] = &[
    ("version", version),
    ("version_and_info_answer_dockers_clients", version_and_info_answer_dockers_clients),
    ("empty_lists_have_headings_only", empty_lists_have_headings_only),
    ("a_reader_that_leaves_is_no_error", a_reader_that_leaves_is_no_error),
    ("closed_streams_are_survived", closed_streams_are_survived),
    ("a_place_that_cannot_be_a_store_is_told", a_place_that_cannot_be_a_store_is_told),
];

fn version() -> Outcome {
    let home = TempDir::new().unwrap();
    let line = format!("coracle version {}\n", env!("CARGO_PKG_VERSION"));
    for words in [&["--version"][..], &["-V"], &["-v"]] {
        assert_eq!(printed(home.path(), words), line);
    }
    assert!(printed(home.path(), &["version"]).starts_with(&line));
    let format = printed(home.path(), &["version", "--format", "{{.Version}} {{.Os}}"]);
    assert_eq!(format, format!("{} linux\n", env!("CARGO_PKG_VERSION")));
    Ok(())
}

/// Editors and CI services ask for these before anything else.
fn version_and_info_answer_dockers_clients() -> Outcome {
    let home = TempDir::new().unwrap();
    let home = home.path();
    let version = |format: &str| printed(home, &["version", "--format", format]);
    let ours = env!("CARGO_PKG_VERSION");
    assert_eq!(version("{{.Server.Version}} {{.Client.Version}}"), format!("{ours} {ours}\n"));
    let api = version("{{.Server.APIVersion}}");
    assert!(api.starts_with("1."), "{api}");
    assert_eq!(version("{{.Client.APIVersion}}"), api);
    assert_eq!(version("{{.Client.DefaultAPIVersion}}"), api);
    assert_eq!(version("{{.Server.MinAPIVersion}}"), api);
    assert_eq!(version("{{.Server.Os}} {{.Client.Context}}"), "linux default\n");
    assert_eq!(version("{{range .Server.Components}}{{.Name}}{{end}}"), "Engine\n");
    let json: Value = serde_json::from_str(&printed(home, &["version", "-f", "json"])).unwrap();
    assert_eq!(json["Server"]["ApiVersion"], json["Client"]["ApiVersion"]);
    assert_eq!(json["Server"]["KernelVersion"], uname("-r"));

    let info: Value = serde_json::from_str(&printed(home, &["info", "-f", "json"])).unwrap();
    assert_eq!(info["Architecture"], uname("-m"), "{info}");
    assert_eq!(info["Name"], uname("-n"));
    assert_eq!(info["LoggingDriver"], "json-file");
    assert_eq!(info["Swarm"]["LocalNodeState"], "inactive");
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap();
    let memory = memory.lines().next().unwrap().split_whitespace().nth(1).unwrap();
    assert_eq!(info["MemTotal"], memory.parse::<u64>().unwrap() * 1024);
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = info["OperatingSystem"].as_str().unwrap();
    assert!(name == "Linux" || system.contains(name), "{name}");
    let chosen = info["DefaultRuntime"].as_str().unwrap();
    assert!(info["Runtimes"].get(chosen).is_some() || chosen.is_empty(), "{info}");
    assert!(["cgroupfs", "systemd", "none"].contains(&info["CgroupDriver"].as_str().unwrap()));
    assert!(["1", "2"].contains(&info["CgroupVersion"].as_str().unwrap()));
    assert!(
        info["Plugins"]["Volume"].as_array().is_some_and(|list| list.contains(&"local".into()))
    );
    assert!(info["Warnings"].is_array() && info["SecurityOptions"].is_array(), "{info}");
    let id = printed(home, &["info", "-f", "{{.ID}}"]);
    assert_eq!((id.trim().len(), &id), (36, &printed(home, &["info", "-f", "{{.ID}}"])));
    Ok(())
}

fn uname(what: &str) -> String {
    let output = Command::new("uname").arg(what).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn empty_lists_have_headings_only() -> Outcome {
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
    assert_eq!(
        printed(home.path(), &["network", "ls", "--filter", "type=custom"]),
        "NETWORK ID   NAME      DRIVER    SCOPE\n"
    );
    assert_eq!(printed(home.path(), &["ps", "-aq"]), "");
    assert_eq!(printed(home.path(), &["ps", "-a", "--format", "json"]), "");
    Ok(())
}

fn a_reader_that_leaves_is_no_error() -> Outcome {
    let home = TempDir::new().unwrap();
    let script = format!("'{}' help run | true", crate::program::coracle().display());
    let output = Command::new("bash")
        .args(["-c", &format!("{script}; echo ${{PIPESTATUS[0]}}")])
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    Ok(())
}

fn closed_streams_are_survived() -> Outcome {
    let home = TempDir::new().unwrap();
    let program = crate::program::coracle().display();
    for redirect in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let status = Command::new("sh")
            .args(["-c", &format!("'{program}' ps -a {redirect}")])
            .env("HOME", home.path())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{redirect}: {status}");
    }
    Ok(())
}

fn a_place_that_cannot_be_a_store_is_told() -> Outcome {
    let text = transcript(&coracle(std::path::Path::new("/"), &["--store", "/proc/x", "ps"]));
    assert!(text.ends_with("status 1") && text.contains("error:"), "{text}");
    Ok(())
}
