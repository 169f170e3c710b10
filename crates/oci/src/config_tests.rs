//! Tests with configurations as tools write them.

use super::*;

const DOCKER: &str = r#"{"architecture":"amd64","config":{"Hostname":"","Env":["PATH=/bin"],"Cmd":["sh"],"Entrypoint":null,"Volumes":{"/b":{},"/a":{}},"ExposedPorts":{"80/tcp":{}},"Labels":{"b":"2","a":"1"},"WorkingDir":"","User":"","Healthcheck":{"Test":["CMD","true"],"Interval":30000000000},"Shell":["/bin/bash","-c"],"OnBuild":null,"StopSignal":"SIGQUIT","ArgsEscaped":true},"created":"2024-01-01T00:00:00Z","docker_version":"20","history":[{"created":"2024-01-01T00:00:00Z","created_by":"ADD x","empty_layer":true}],"os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]},"x-unknown":{"k":1}}"#;

#[test]
fn reads_docker() {
    let config = ImageConfig::parse(DOCKER.as_bytes()).unwrap();
    assert_eq!(config.env(), ["PATH=/bin"]);
    assert_eq!(config.cmd(), ["sh"]);
    assert!(config.entrypoint().is_empty());
    assert_eq!(config.volumes(), ["/a", "/b"]);
    assert_eq!(config.exposed_ports(), ["80/tcp"]);
    assert_eq!(config.labels()["a"], "1");
    assert_eq!(config.working_dir(), None);
    assert_eq!(config.user(), None);
    assert_eq!(config.stop_signal(), Some("SIGQUIT"));
    assert_eq!(config.shell(), ["/bin/bash", "-c"]);
    assert!(config.on_build().is_empty());
    assert!(config.args_escaped());
    assert_eq!(config.healthcheck().unwrap().interval, 30_000_000_000);
    assert_eq!(config.history()[0].empty_layer(), Some(true));
    assert_eq!(config.diff_ids().len(), 1);
    assert_eq!(config.platform().to_string(), "linux/amd64");
    assert_eq!(config.digest(), Digest::of(DOCKER.as_bytes()));
}

#[test]
fn reads_little() {
    let config =
        ImageConfig::parse(&br#"{"rootfs":{"type":"layers","diff_ids":null}}"#[..]).unwrap();
    assert_eq!(config.platform(), Platform::host());
    assert!(config.env().is_empty());
    assert_eq!(config.created(), None);
}

#[test]
fn refuses() {
    for bad in [
        "{}",
        "[]",
        "x",
        r#"{"rootfs":null}"#,
        r#"{"rootfs":{"type":"layers","diff_ids":["sha256:../../x"]}}"#,
    ] {
        assert!(ImageConfig::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    let big = vec![b' '; CONFIG_MAX as usize + 1];
    assert!(matches!(ImageConfig::parse(big), Err(Error::TooLarge { .. })));
}

#[test]
fn edits_keep_the_rest() {
    let config = ImageConfig::parse(DOCKER.as_bytes()).unwrap();
    let layer = Digest::of(b"layer");
    let edited = config
        .edit()
        .cmd(&["ls".into(), "-l".into()])
        .env("PATH", "/usr/bin")
        .env("LANG", "C")
        .working_dir("/data")
        .label("c", "3")
        .expose("443/tcp")
        .volume("/c")
        .user("nobody")
        .entrypoint(&["/init".into()])
        .layer(&layer)
        .history("2024-01-02T00:00:00Z", "import", "", false)
        .finish()
        .unwrap();
    assert_eq!(edited.env(), ["PATH=/usr/bin", "LANG=C"]);
    assert_eq!(edited.cmd(), ["ls", "-l"]);
    assert_eq!(edited.diff_ids()[1], layer);
    assert_eq!(edited.labels().len(), 3);
    assert_eq!(edited.volumes(), ["/a", "/b", "/c"]);
    assert!(std::str::from_utf8(edited.raw()).unwrap().contains("x-unknown"));
    assert_eq!(edited.healthcheck(), config.healthcheck());
    assert_eq!(edited.edit().cmd(&[]).finish().unwrap().cmd(), [] as [&str; 0]);
}

#[test]
fn starts_from_nothing() {
    let platform: Platform = "linux/arm/v7".parse().unwrap();
    let config = ConfigEditor::new(&platform).created("2024-01-01T00:00:00Z").finish().unwrap();
    assert_eq!(config.platform(), platform);
    assert!(config.diff_ids().is_empty());
    let again = ConfigEditor::new(&platform).created("2024-01-01T00:00:00Z").finish().unwrap();
    assert_eq!(config.raw(), again.raw());
}
