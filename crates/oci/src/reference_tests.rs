//! The cases of `distribution/reference`'s own tests, and round trips.

use proptest::prelude::*;

use super::*;

const HEX: &str = "86e0e091d0da6bde2456dbb48306f3956bbeb2eae1b5b9a43045843f69fe4aaa";

fn canonical(input: &str) -> String {
    Reference::parse_name(input).map_or_else(|e| format!("error: {e}"), |r| r.to_string())
}

#[test]
fn normalises() {
    let digest = format!("test.com:8000/foo@sha256:{HEX}");
    for (input, expected) in [
        ("debian", "docker.io/library/debian"),
        ("docker.io/debian", "docker.io/library/debian"),
        ("index.docker.io/debian:1", "docker.io/library/debian:1"),
        ("docker/docker", "docker.io/docker/docker"),
        ("library/debian", "docker.io/library/debian"),
        ("docker.io/library/debian", "docker.io/library/debian"),
        ("127.0.0.1:5000/docker/docker", "127.0.0.1:5000/docker/docker"),
        ("127.0.0.1:5000/library/debian", "127.0.0.1:5000/library/debian"),
        ("localhost/foo", "localhost/foo"),
        ("localhost:80/foo:tag", "localhost:80/foo:tag"),
        ("localhost", "docker.io/library/localhost"),
        ("foo/bar:1", "docker.io/foo/bar:1"),
        ("FOO/bar", "FOO/bar"),
        ("HOST.example/bar", "HOST.example/bar"),
        ("a.b/c/d/e__f-g---h.i", "a.b/c/d/e__f-g---h.i"),
        ("xn--n3h.com/myimage:xn--n3h.com", "xn--n3h.com/myimage:xn--n3h.com"),
        ("[2001:db8::1]:5000/repo:tag", "[2001:db8::1]:5000/repo:tag"),
        ("[2001:db8::1]/repo", "[2001:db8::1]/repo"),
        ("127.0.0.1/foo", "127.0.0.1/foo"),
        (digest.as_str(), digest.as_str()),
    ] {
        assert_eq!(canonical(input), expected, "{input}");
    }
    let both = format!("foo:1@sha256:{HEX}");
    let reference = Reference::parse(&both).unwrap();
    assert_eq!(reference.tag(), Some("1"));
    assert_eq!(reference.version(), format!("sha256:{HEX}"));
    assert_eq!(reference.familiar(), both);
}

#[test]
fn latest_only_without_tag_and_digest() {
    assert_eq!(Reference::parse("a").unwrap().to_string(), "docker.io/library/a:latest");
    let pinned = Reference::parse(&format!("a@sha256:{HEX}")).unwrap();
    assert_eq!(pinned.tag(), None);
}

#[test]
fn refuses() {
    let long_path = format!("{}/asdf", "a/".repeat(128));
    let long_tag = format!("a:{}", "t".repeat(129));
    for bad in [
        "",
        ":justtag",
        "@sha256:00",
        "repo@sha256:ffff",
        "validname@invaliddigest:ff",
        "Uppercase:tag",
        "test:5000/Uppercase/lowercase:tag",
        "aa/asdf$$^/aa",
        "a:",
        "a@",
        "a//b",
        "a/",
        "/a",
        "-foo/bar",
        "foo/bar-",
        "foo/bar-/sub",
        "foo._bar",
        "foo___bar",
        "foo..bar",
        "foo.-bar",
        "_foo",
        "foo_",
        ".foo",
        "https://github.com/docker/docker",
        "docker///docker",
        "docker.io/docker/Docker",
        "docker.io/docker///docker",
        "docker.io/",
        "a b",
        "a:b c",
        "[2001:db8::1/repo",
        "[fe80::1%eth0]:5000/repo",
        "[]/repo",
        "[::1]x/repo",
        "host:/repo",
        "host:port/repo",
        "-host.com/a",
        "host-.com/a",
        "a..b/c",
        "lowercase:Upper Case",
        "a:-b",
        "a:.b",
        "ä",
        "a/ä",
        "a:ä",
        "a@b@c",
        HEX,
        &long_path,
        &long_tag,
        "foo/foo_bar.com:8080:1",
        "a@sha256:86E0E091D0DA6BDE2456DBB48306F3956BBEB2EAE1B5B9A43045843F69FE4AAA",
    ] {
        assert!(Reference::parse(bad).is_err(), "{bad} -> {}", canonical(bad));
    }
    assert!(Reference::parse(&HEX[1..]).is_ok());
    assert!(Reference::parse(&format!("a:{}", "t".repeat(128))).is_ok());
    assert!(Reference::parse(&"a".repeat(3000)).is_err());
}

#[test]
fn the_path_may_have_255_bytes() {
    assert!(Reference::parse(&format!("x.y/{}", "a".repeat(255))).is_ok());
    assert!(Reference::parse(&format!("x.y/{}", "a".repeat(256))).is_err());
    assert!(Reference::parse(&"a".repeat(247)).is_ok());
    assert!(Reference::parse(&"a".repeat(248)).is_err());
}

#[test]
fn familiar_reads_back() {
    let hex_name = format!("docker.io/library/{HEX}");
    for (input, expected) in [
        ("docker.io/library/debian:1", "debian:1"),
        ("docker.io/a/b", "a/b"),
        ("quay.io/library/x", "quay.io/library/x"),
        ("docker.io/library/a/b", "library/a/b"),
        ("docker.io/localhost/x", "docker.io/localhost/x"),
        ("docker.io/library/localhost", "localhost"),
        (hex_name.as_str(), hex_name.as_str()),
    ] {
        let reference = Reference::parse_name(input).unwrap();
        assert_eq!(reference.familiar(), expected);
        assert_eq!(Reference::parse_name(expected).unwrap(), reference);
    }
}

#[test]
fn hints() {
    let hint = |input| Reference::parse(input).unwrap_err().hint().unwrap();
    assert!(hint("docker://debian").contains("leave out docker://"));
    assert!(hint("Debian").contains("lower case: debian"));
    assert!(!hint("BAD NAME").contains("lower case"));
    assert!(hint(HEX).contains("id"));
}

#[test]
fn changes() {
    let reference = Reference::parse("a/b:1").unwrap();
    assert_eq!(reference.with_tag("2").unwrap().to_string(), "docker.io/a/b:2");
    assert!(reference.with_tag("no good").is_err());
    let pinned = reference.with_digest(Digest::of(b""));
    assert!(pinned.is_digest());
    assert_eq!(pinned.with_tag("3").unwrap().digest(), None);
    assert_eq!(pinned.without_tag().to_string(), "docker.io/a/b");
}

prop_compose! {
    fn component()(text in "[a-z0-9]{1,6}((\\.|_|__|-{1,3})[a-z0-9]{1,4}){0,2}") -> String { text }
}

prop_compose! {
    fn any_reference()(
        registry in prop::option::of(prop_oneof![
            Just("localhost".to_owned()), Just("docker.io".to_owned()),
            "[a-zA-Z0-9]{1,5}\\.[a-z]{2,3}(:[0-9]{1,5})?", "\\[[0-9a-f]{1,4}::[0-9]\\](:[0-9]{2})?",
        ]),
        path in prop::collection::vec(component(), 1..4),
        tag in prop::option::of("[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}"),
        digest in prop::option::of("[0-9a-f]{64}"),
    ) -> String {
        // A first component with a dot would be read as a registry.
        let bare = if path[0].contains('.') { "docker.io/" } else { "" };
        let mut text = registry.map_or(bare.to_owned(), |r| r + "/") + &path.join("/");
        if let Some(tag) = tag { text = text + ":" + &tag; }
        if let Some(digest) = digest { text = text + "@sha256:" + &digest; }
        text
    }
}

proptest! {
    #[test]
    fn round_trips(input in any_reference()) {
        let reference = Reference::parse_name(&input).unwrap();
        prop_assert_eq!(&Reference::parse_name(&reference.to_string()).unwrap(), &reference);
        prop_assert_eq!(&Reference::parse_name(&reference.familiar()).unwrap(), &reference);
        let json = serde_json::to_string(&reference).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Reference>(&json).unwrap(), &reference);
    }

    #[test]
    fn never_panics_and_what_it_takes_reads_back(input in "\\PC{0,80}") {
        if let Ok(reference) = Reference::parse(&input) {
            prop_assert_eq!(Reference::parse(&reference.to_string()).unwrap(), reference);
        }
    }
}
