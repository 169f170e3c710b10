//! Tests of credential files and helpers, checked with other tools.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use registry::auth::{self, AuthFiles, Credential, Credentials};
use registry::{Client, Error, Settings};
use testkit::docker_registry::{DockerRegistry, Options, PASSWORD, USER};
use testkit::registry::{Auth, Registry};

use crate::help::{amd64, basic, have, image, reference, settings};

/// A helper that stores one record in a file beside it.
const HELPER: &str = r#"#!/bin/sh
case "$1" in
get) read -r server; [ -f "$0.record" ] || { echo 'credentials not found in native keychain'; exit 1; }
     cat "$0.record" ;;
store) cat > "$0.record" ;;
erase) rm -f "$0.record" ;;
esac
"#;

#[test]
fn what_podman_and_skopeo_write() {
    const TEST: &str = "what_podman_and_skopeo_write";
    if !have("docker-registry", TEST) || !have("skopeo", TEST) {
        return;
    }
    let registry =
        DockerRegistry::start_with(Options { password: true, ..Options::default() }).unwrap();
    let (host, dir) = (registry.host(), tempfile::tempdir().unwrap());
    let file = dir.path().join("auth.json");
    let output = Command::new("skopeo")
        .args(["login", "--tls-verify=false", "-u", USER, "-p", PASSWORD, "--authfile"])
        .arg(&file)
        .arg(&host)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let files = AuthFiles { files: vec![dir.path().join("none"), file.clone()] };
    assert_eq!(files.find(&host, Some("a")).unwrap(), Some(basic(USER, PASSWORD)));
    registry.target().image("a", "1", &image(100)).unwrap();
    let settings = Settings { credentials: std::sync::Arc::new(files), ..settings() };
    let client = Client::new(settings).unwrap();
    assert!(client.resolve(&reference(&host, "a:1"), Some(&amd64())).is_ok());
    // skopeo reads the files that this crate writes.
    assert!(auth::remove(&file, &host).unwrap());
    assert!(!inspects(&file, &host));
    auth::store(&file, &host, &basic(USER, PASSWORD)).unwrap();
    assert!(inspects(&file, &host));
}

fn inspects(file: &Path, host: &str) -> bool {
    Command::new("skopeo")
        .args(["inspect", "--tls-verify=false", "--authfile"])
        .arg(file)
        .arg(format!("docker://{host}/a:1"))
        .output()
        .unwrap()
        .status
        .success()
}

/// The search path of this process cannot be set for one test, so the test starts itself again with
/// it.
#[test]
fn helpers() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("docker-credential-testing");
    std::fs::write(&program, HELPER).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "credentials::inside_helpers", "--ignored", "--nocapture"])
        .env("PATH", format!("{}:/usr/bin:/bin", dir.path().display()))
        .env("CORACLE_TEST_DIR", dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "started by the test `helpers`"]
fn inside_helpers() {
    let dir = std::env::var_os("CORACLE_TEST_DIR").unwrap();
    let file = Path::new(&dir).join("config.json");
    std::fs::write(&file, r#"{"credsStore":"testing","auths":{"a.io":{}}}"#).unwrap();
    let files = AuthFiles { files: vec![file.clone()] };
    assert_eq!(files.find("a.io", None).unwrap(), None);
    auth::store(&file, "a.io", &basic("u", "p")).unwrap();
    assert!(!std::fs::read_to_string(&file).unwrap().contains("auth\""), "the helper has it");
    assert_eq!(files.find("a.io", None).unwrap(), Some(basic("u", "p")));
    assert!(auth::remove(&file, "a.io").unwrap());
    assert_eq!(files.find("a.io", None).unwrap(), None);
    std::fs::write(&file, r#"{"credHelpers":{"b.io":"testing"}}"#).unwrap();
    let token = Credential::IdentityToken("t".into());
    auth::store(&file, "b.io", &token).unwrap();
    assert_eq!(files.find("b.io", Some("x")).unwrap(), Some(token));
    assert_eq!(files.find("c.io", Some("x")).unwrap(), None);
    // A missing helper: an error only if credentials are needed.
    std::fs::write(&file, r#"{"credsStore":"desktop"}"#).unwrap();
    let later = Path::new(&dir).join("auth.json");
    auth::store(&later, "b.io", &basic("u", "p")).unwrap();
    let files = AuthFiles { files: vec![file, later] };
    assert_eq!(files.find("b.io", None).unwrap(), Some(basic("u", "p")));
    assert!(matches!(files.find("d.io", None), Err(Error::Helper { .. })));
    let client = |registry: &Registry| {
        registry.image("a", "1", &image(10));
        let credentials = std::sync::Arc::new(files.clone());
        let client = Client::new(Settings { credentials, ..settings() }).unwrap();
        client.resolve(&reference(&registry.host(), "a:1"), Some(&amd64()))
    };
    assert!(client(&Registry::start_with(Auth::Anonymous).unwrap()).is_ok());
    let known = Auth::Bearer("u".into(), "p".into());
    let error = client(&Registry::start_with(known).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Helper { .. }), "{error}");
}
