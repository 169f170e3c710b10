//! Tests with Debian's `docker-registry`.

use oci::media;
use registry::{Client, Error, Settings};
use testkit::docker_registry::{DockerRegistry, Options, PASSWORD, USER};
use testkit::image::{self, Flavour, Image, Pack};

use crate::help::{
    amd64, basic, client, client_as, digest, have, layer_of, noise, read, reference, settings,
};

fn start(options: Options, test: &str) -> Option<DockerRegistry> {
    have("docker-registry", test).then(|| DockerRegistry::start_with(options).unwrap())
}

#[test]
fn pulls_an_image_by_plain_http() {
    let Some(registry) = start(Options::default(), "pulls_an_image_by_plain_http") else { return };
    for flavour in [Image::new(), Image::new().docker()] {
        let image = flavour
            .packed(noise(300_000), Pack::Gzip)
            .packed(noise(5_000), Pack::Plain)
            .cmd(&["sh"])
            .env("A", "1")
            .build();
        registry.target().image("team/tool", "1", &image).unwrap();
        let client = client();
        let reference = reference(&registry.host(), "team/tool:1");
        let found = client.resolve(&reference, Some(&amd64())).unwrap();
        assert_eq!(found.manifest.raw(), image.manifest.bytes);
        assert_eq!(*found.top_digest(), digest(&image.manifest.digest));
        assert_eq!(found.source, registry.host());
        let config = client.config(&reference, &found.manifest).unwrap();
        assert_eq!(config.cmd(), ["sh"]);
        assert_eq!(config.raw(), image.config.bytes);
        for (layer, blob) in found.manifest.layers.iter().zip(&image.layers) {
            assert_eq!(read(&client, &reference, layer, 0).unwrap(), blob.bytes);
        }
        assert_eq!(client.head(&reference).unwrap().digest, found.descriptor.digest);
        let pinned = reference.with_digest(found.descriptor.digest.clone());
        assert_eq!(client.manifest(&pinned).unwrap().descriptor, found.descriptor);
    }
}

#[test]
fn resumes_from_an_offset() {
    let Some(registry) = start(Options::default(), "resumes_from_an_offset") else { return };
    let image = crate::help::image(100_000);
    registry.target().image("a", "1", &image).unwrap();
    let (client, reference) = (client(), reference(&registry.host(), "a:1"));
    let layer = layer_of(&image);
    let rest = read(&client, &reference, &layer, 99_990).unwrap();
    assert_eq!(rest, image.layers[0].bytes[99_990..]);
    assert!(read(&client, &reference, &layer, 100_000).unwrap().is_empty());
    assert!(matches!(read(&client, &reference, &layer, 100_001), Err(Error::WrongSize { .. })));
}

#[test]
fn chooses_a_platform_from_an_index() {
    let Some(registry) = start(Options::default(), "chooses_a_platform_from_an_index") else {
        return;
    };
    let amd = Image::new().packed(noise(10), Pack::Plain).build();
    let arm = Image::new().packed(noise(11), Pack::Plain).platform("arm", Some("v6")).build();
    for flavour in [Flavour::Oci, Flavour::Docker] {
        let index = image::index(flavour, &[&arm, &amd]);
        registry.target().index("multi", "1", &[&arm, &amd], &index).unwrap();
        let (client, reference) = (client(), reference(&registry.host(), "multi:1"));
        let found = client.resolve(&reference, Some(&amd64())).unwrap();
        assert_eq!(found.descriptor.digest, digest(&amd.manifest.digest));
        assert_eq!(*found.top_digest(), digest(&index.digest));
        assert_eq!(found.index.unwrap().raw(), index.bytes);
        let v7 = "linux/arm/v7".parse().unwrap();
        let found = client.resolve(&reference, Some(&v7)).unwrap();
        assert_eq!(found.descriptor.digest, digest(&arm.manifest.digest));
        let s390x = "linux/s390x".parse().unwrap();
        let error = client.resolve(&reference, Some(&s390x)).unwrap_err();
        assert!(error.to_string().contains("linux/arm/v6"), "{error}");
        assert!(media::is_index(&client.head(&reference).unwrap().media_type));
    }
}

#[test]
fn says_what_is_missing() {
    let Some(registry) = start(Options::default(), "says_what_is_missing") else { return };
    let image = crate::help::image(10);
    registry.target().image("a", "1", &image).unwrap();
    let client = client();
    let missing = reference(&registry.host(), "a:2");
    let error = client.resolve(&missing, None).unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    assert!(error.to_string().contains("a:2"), "{error}");
    assert!(matches!(client.head(&missing), Err(Error::NotFound { .. })));
    let unknown = reference(&registry.host(), "b:1");
    assert!(matches!(client.resolve(&unknown, None), Err(Error::NotFound { .. })));
    let mut layer = layer_of(&image);
    layer.digest = oci::Digest::of(b"nothing");
    let error = client.blob(&reference(&registry.host(), "a:1"), &layer, 0).unwrap_err();
    assert!(matches!(error, Error::BlobMissing { .. }), "{error}");
}

#[test]
fn asks_for_a_password() {
    let options = Options { password: true, ..Options::default() };
    let Some(registry) = start(options, "asks_for_a_password") else { return };
    let image = crate::help::image(1000);
    registry.target().image("private", "1", &image).unwrap();
    let host = registry.host();
    let reference = reference(&host, "private:1");
    let known = client_as(&host, USER, PASSWORD);
    let found = known.resolve(&reference, Some(&amd64())).unwrap();
    assert_eq!(read(&known, &reference, &found.manifest.layers[0], 0).unwrap().len(), 1000);
    let anonymous = client().resolve(&reference, None).unwrap_err();
    assert!(
        matches!(anonymous, Error::Unauthorized { with_credentials: false, .. }),
        "{anonymous}"
    );
    assert!(anonymous.hint().unwrap().contains("coracle login"));
    let wrong = client_as(&host, USER, "wrong").resolve(&reference, None).unwrap_err();
    assert!(matches!(wrong, Error::Unauthorized { with_credentials: true, .. }), "{wrong}");
    assert!(!wrong.to_string().contains("wrong\""), "{wrong}");
    let login = client().login(&host, Some(&basic(USER, PASSWORD))).unwrap();
    assert!(login.required && login.identity_token.is_none());
    assert!(client().login(&host, Some(&basic(USER, "no"))).is_err());
}

#[test]
fn trusts_a_private_authority_and_no_other() {
    const TEST: &str = "trusts_a_private_authority_and_no_other";
    let options = Options { tls: true, ..Options::default() };
    if !have("openssl", TEST) {
        return;
    }
    let Some(registry) = start(options, TEST) else { return };
    // `localhost` and 127.0.0.1 are never checked, so the registry needs another name.
    let port = registry.host().rsplit(':').next().unwrap().to_owned();
    let host = format!("registry.test:{port}");
    let hosts = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(hosts.path(), "127.0.0.1 registry.test localhost.test\n").unwrap();
    let base = || {
        let mut settings = settings();
        settings.resolver.hosts = hosts.path().to_owned();
        settings
    };
    let login = |settings: Settings| Client::new(settings).unwrap().login(&host, None);
    let error = login(base()).unwrap_err();
    assert!(matches!(error, Error::Tls { untrusted: true, .. }), "{error}");
    assert!(error.hint().unwrap().contains(&format!("certs.d/{host}/ca.crt")));
    // Self-signed and explicitly trusted: valid for its own names only.
    let known = || Settings { ca_files: vec![registry.certificate()], ..base() };
    assert!(!login(known()).unwrap().required);
    let other = format!("localhost.test:{port}");
    let error = Client::new(known()).unwrap().login(&other, None).unwrap_err();
    assert!(matches!(error, Error::Tls { untrusted: true, .. }), "{error}");
    assert!(error.to_string().contains("another name"), "{error}");
    let mut insecure = base();
    insecure.insecure.insert(host.clone());
    assert!(!login(insecure).unwrap().required);
    let mut all = base();
    all.insecure.insert("*".to_owned());
    assert!(login(all).is_ok());
    // Loopback is insecure, as in Docker.
    assert!(client().login(&registry.host(), None).is_ok());
}

#[test]
fn speaks_ipv6() {
    use std::io::{Read as _, Write as _};
    let Ok(listener) = std::net::TcpListener::bind((std::net::Ipv6Addr::LOCALHOST, 0)) else {
        testkit::skip::note("speaks_ipv6", "there is no IPv6 on this host");
        return;
    };
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
        }
    });
    let mut plain = settings();
    plain.plain_http.insert(format!("[::1]:{port}"));
    assert!(Client::new(plain).unwrap().login(&format!("[::1]:{port}"), None).is_ok());
    // Without any setting: a host on loopback that answers HTTPS with plain HTTP gets plain HTTP.
    assert!(client().login(&format!("[::1]:{port}"), None).is_ok());
    // On any other host it is an error with a hint.
    let hosts = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(hosts.path(), "::1 six.test\n").unwrap();
    let mut named = settings();
    named.resolver.hosts = hosts.path().to_owned();
    let error = Client::new(named).unwrap().login(&format!("six.test:{port}"), None).unwrap_err();
    assert!(matches!(error, Error::PlainHttp { .. }), "{error}");
    assert!(error.hint().unwrap().contains("--tls-verify=false"));
}

#[test]
fn trusts_a_chain() {
    if !have("openssl", "trusts_a_chain") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let openssl = |line: &str| {
        let done = std::process::Command::new("openssl")
            .current_dir(dir.path())
            .args(line.split(' '))
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"));
    openssl(&format!("req {key} -subj /CN=registry.test -keyout leaf.key -out leaf.csr"));
    std::fs::write(dir.path().join("ext"), "subjectAltName=DNS:registry.test\n").unwrap();
    openssl(
        "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out leaf.pem",
    );
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut server = std::process::Command::new("openssl")
        .current_dir(dir.path())
        .args(["s_server", "-quiet", "-www", "-cert", "leaf.pem", "-key", "leaf.key", "-accept"])
        .arg(port.to_string())
        .stdin(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let listening = testkit::command::until(std::time::Duration::from_secs(20), || {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        std::net::TcpStream::connect_timeout(&address, std::time::Duration::from_secs(1))
            .ok()
            .map(drop)
    });
    assert!(listening.is_some());
    let hosts = dir.path().join("hosts");
    std::fs::write(&hosts, "127.0.0.1 registry.test\n").unwrap();
    let host = format!("registry.test:{port}");
    let login = |ca_files| {
        let mut settings = Settings { ca_files, ..settings() };
        settings.resolver.hosts.clone_from(&hosts);
        Client::new(settings).unwrap().login(&host, None)
    };
    let (refused, taken) = (login(Vec::new()), login(vec![dir.path().join("ca.pem")]));
    let _ = server.kill();
    let _ = server.wait();
    assert!(matches!(refused, Err(Error::Tls { untrusted: true, .. })), "{refused:?}");
    assert!(taken.is_ok(), "{taken:?}");
}

#[test]
fn trusts_certs_d() {
    const TEST: &str = "trusts_certs_d";
    if !have("openssl", TEST) {
        return;
    }
    let options = Options { tls: true, ..Options::default() };
    let Some(registry) = start(options, TEST) else { return };
    let certs = tempfile::tempdir().unwrap();
    let host = registry.host();
    let directory = certs.path().join(&host);
    std::fs::create_dir(&directory).unwrap();
    std::fs::copy(registry.certificate(), directory.join("ca.crt")).unwrap();
    let settings = Settings { certs_dirs: vec![certs.path().to_owned()], ..settings() };
    assert!(Client::new(settings.clone()).unwrap().login(&host, None).is_ok());
    // A client certificate without its key is an error that names the file.
    std::fs::copy(registry.certificate(), directory.join("client.cert")).unwrap();
    let error = Client::new(settings).unwrap().login(&host, None).unwrap_err();
    assert!(error.to_string().contains("client.key"), "{error}");
}
