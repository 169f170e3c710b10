//! Tests with files as Docker and podman write them.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn basic(username: &str, password: &str) -> Credential {
    Credential::Basic { username: username.into(), password: password.into() }
}

fn encoded(pair: &str) -> String {
    BASE64.encode(pair)
}

#[test]
fn a_udocker_keystore() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keystore");
    let text = json!({ "https://registry-1.docker.io": { "auth": encoded("hub:5"), "email": "" },
        "https://quay.io/v2": { "auth": encoded("a:1"), "email": "" } });
    std::fs::write(&path, text.to_string()).unwrap();
    assert_eq!(find(&path, "docker.io", Some("x/y")).unwrap(), Some(basic("hub", "5")));
    assert_eq!(find(&path, "quay.io", Some("x/y")).unwrap(), Some(basic("a", "1")));
    assert_eq!(find(&path, "other.example", None).unwrap(), None);
}

#[test]
fn the_longest_key_wins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.json");
    let text = json!({ "auths": {
        "quay.io": { "auth": encoded("a:1") },
        "quay.io/team": { "auth": encoded("b:2:3\0") },
        "quay.io/team/tool": { "auth": encoded("c:4") },
        "https://index.docker.io/v1/": { "auth": encoded("hub:5") },
        "http://old.example:5000/v2/": { "username": "d", "password": "6" },
        "empty.example": {},
        "token.example": { "auth": encoded("<token>:"), "identitytoken": "refresh" },
        "bad.example": { "auth": "***" },
    }});
    std::fs::write(&path, text.to_string()).unwrap();
    let found = |registry, repository| find(&path, registry, repository).unwrap();
    assert_eq!(found("quay.io", Some("x/y")), Some(basic("a", "1")));
    assert_eq!(found("quay.io", Some("team/x")), Some(basic("b", "2:3")));
    assert_eq!(found("quay.io", Some("team/tool")), Some(basic("c", "4")));
    assert_eq!(found("quay.io", Some("teammate/x")), Some(basic("a", "1")));
    assert_eq!(found("quay.io", None), Some(basic("a", "1")));
    assert_eq!(found("docker.io", Some("library/debian")), Some(basic("hub", "5")));
    assert_eq!(found("old.example:5000", Some("x")), Some(basic("d", "6")));
    assert_eq!(found("empty.example", None), None);
    assert_eq!(found("quay.io.evil", None), None);
    let token = Credential::IdentityToken("refresh".into());
    assert_eq!(found("token.example", None), Some(token));
    assert!(matches!(find(&path, "bad.example", None), Err(Error::ConfigFile { .. })));
}

#[test]
fn writes_keep_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/sub/auth.json");
    store(&path, "docker.io", &basic("me", "pw")).unwrap();
    let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(HUB_KEY) && !text.contains("pw\""));
    std::fs::write(&path, r#"{"x-other":{"k":1},"auths":{"a.io":{"auth":"YTox"}}}"#).unwrap();
    store(&path, "b.io/team", &Credential::IdentityToken("t".into())).unwrap();
    assert_eq!(mode(&path), 0o600, "a file that others could read no longer is");
    assert_eq!(list(&path).unwrap(), ["a.io", "b.io/team"]);
    assert!(std::fs::read_to_string(&path).unwrap().contains("x-other"));
    let token = Credential::IdentityToken("t".into());
    assert_eq!(find(&path, "b.io", Some("team/x")).unwrap(), Some(token));
    assert!(remove(&path, "a.io").unwrap());
    assert!(!remove(&path, "a.io").unwrap());
    assert!(!remove(&dir.path().join("none"), "a.io").unwrap());
    assert_eq!(list(&path).unwrap(), ["b.io/team"]);
    let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().collect();
    assert_eq!(left.len(), 1, "no temporary files stay");
}

#[test]
fn every_spelling_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    let auths = json!({ "auths": {
        "https://index.docker.io/v1/": {}, "docker.io": {}, "index.docker.io/v1/": {}, "x": {},
    }});
    std::fs::write(&path, auths.to_string()).unwrap();
    assert!(remove(&path, "docker.io").unwrap());
    assert_eq!(list(&path).unwrap(), ["x"]);
}

#[test]
fn links_are_written_through() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real.json"), dir.path().join("link.json"));
    std::fs::write(&real, "{}").unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    store(&link, "a.io", &basic("u", "p")).unwrap();
    assert!(link.is_symlink());
    assert_eq!(list(&real).unwrap(), ["a.io"]);
}

#[test]
fn mistakes_do_not_show_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("auth.json");
    std::fs::write(&path, r#"{"auths":{"a":{"auth":"c2VjcmV0" oops}}}"#).unwrap();
    let error = find(&path, "a", None).unwrap_err().to_string();
    assert!(error.contains("line 1") && !error.contains("c2VjcmV0"), "{error}");
    assert!(find(&dir.path().join("none"), "a", None).unwrap().is_none());
    std::fs::write(&path, "\n").unwrap();
    assert!(find(&path, "a", None).unwrap().is_none());
}

#[test]
fn helpers_must_have_names() {
    let bad = helper::get("../evil", "a.io").unwrap_err();
    assert!(matches!(bad, Error::Helper { .. }));
    let missing = helper::get("no-such-helper-here", "a.io").unwrap_err();
    assert!(missing.hint().unwrap().contains("installed"));
}
