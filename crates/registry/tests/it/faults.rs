//! Tests with the in-process registry that injects faults.

use std::time::Duration;

use registry::{Client, Error, Settings};
use testkit::image::{Blob, Built};
use testkit::registry::{Auth, Fault, REFRESH_TOKEN, Registry};

use crate::help::{
    amd64, basic, client, client_as, digest, image, layer_of, read, reference, settings,
};

fn serve(auth: Auth, length: usize) -> (Registry, Built) {
    let registry = Registry::start_with(auth).unwrap();
    let image = image(length);
    registry.image("a", "1", &image);
    (registry, image)
}

#[test]
fn a_cut_blob_is_resumed_where_it_broke() {
    let (registry, image) = serve(Auth::Open, 200_000);
    let reference = reference(&registry.host(), "a:1");
    registry.fault("/blobs/", Fault::Cut(70_000), 1);
    registry.fault("/blobs/", Fault::HangUp, 1);
    registry.fault("/blobs/", Fault::Cut(50_000), 1);
    registry.fault("/blobs/", Fault::status(502), 2);
    let bytes = read(&client(), &reference, &layer_of(&image), 0).unwrap();
    assert_eq!(bytes, image.layers[0].bytes);
    let ranges: Vec<String> = registry
        .asked("/blobs/")
        .iter()
        .map(|asked| asked.header("range").unwrap_or("-").to_owned())
        .collect();
    assert_eq!(
        ranges,
        ["-", "bytes=70000-", "bytes=70000-", "bytes=120000-", "bytes=120000-", "bytes=120000-"]
    );
}

#[test]
fn a_server_without_ranges_is_skipped_through() {
    let (registry, image) = serve(Auth::Open, 200_000);
    let reference = reference(&registry.host(), "a:1");
    registry.fault("/blobs/", Fault::Cut(70_000), 1);
    registry.fault("/blobs/", Fault::NoRange, 1);
    let bytes = read(&client(), &reference, &layer_of(&image), 0).unwrap();
    assert_eq!(bytes, image.layers[0].bytes);
    registry.fault("/blobs/", Fault::NoRange, 1);
    let rest = read(&client(), &reference, &layer_of(&image), 199_000).unwrap();
    assert_eq!(rest, image.layers[0].bytes[199_000..]);
    // If the response begins before the requested byte, the excess is skipped; if after it, it is
    // refused.
    registry.fault("/blobs/", Fault::RangeFrom(5), 1);
    assert_eq!(read(&client(), &reference, &layer_of(&image), 199_000).unwrap(), rest);
    registry.fault("/blobs/", Fault::RangeFrom(199_500), 1);
    let error = read(&client(), &reference, &layer_of(&image), 199_000).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

#[test]
fn chunked_and_slow_bodies_are_fine() {
    let (registry, image) = serve(Auth::Open, 20_000);
    let reference = reference(&registry.host(), "a:1");
    registry.fault("/manifests/", Fault::Chunked, 1);
    assert!(client().resolve(&reference, Some(&amd64())).is_ok());
    for fault in [Fault::Chunked, Fault::Slow(5_000, Duration::from_millis(1))] {
        registry.fault("/blobs/", fault, 1);
        let bytes = read(&client(), &reference, &layer_of(&image), 0).unwrap();
        assert_eq!(bytes, image.layers[0].bytes);
    }
}

#[test]
fn retries_are_limited() {
    let (registry, image) = serve(Auth::Open, 20_000);
    let reference = reference(&registry.host(), "a:1");
    registry.fault("/blobs/", Fault::Cut(100), 1);
    registry.fault("/blobs/", Fault::HangUp, 1000);
    let error = read(&client(), &reference, &layer_of(&image), 0).unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
    assert!(registry.asked("/blobs/").len() < 50);
    registry.fault("/manifests/", Fault::status(503), 1000);
    let error = client().resolve(&reference, None).unwrap_err();
    assert!(matches!(error, Error::Status { status: 503, .. }), "{error}");
    assert_eq!(registry.asked("/manifests/").len(), 4);
}

#[test]
fn silent_servers_time_out() {
    let (registry, image) = serve(Auth::Open, 100);
    let mut settings = settings();
    settings.timeouts.response = Duration::from_millis(200);
    settings.retries.attempts = 1;
    settings.plain_http.insert(registry.host());
    registry.fault("/blobs/", Fault::Silence(Duration::from_secs(5)), 2);
    let client = Client::new(settings).unwrap();
    let error =
        read(&client, &reference(&registry.host(), "a:1"), &layer_of(&image), 0).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

#[test]
fn wrong_sizes_are_noticed() {
    let (registry, image) = serve(Auth::Open, 20_000);
    let reference = reference(&registry.host(), "a:1");
    registry.fault("/blobs/", Fault::Longer(5), 1);
    let error = read(&client(), &reference, &layer_of(&image), 0).unwrap_err();
    assert!(matches!(error, Error::WrongSize { expected: 20_000, found: 20_005, .. }), "{error}");
    // Always too short: each connection brings nothing new, and the retries end.
    registry.fault("/blobs/", Fault::Shorter(5), 1);
    registry.fault("/blobs/", Fault::status(416), 1000);
    let error = read(&client(), &reference, &layer_of(&image), 0).unwrap_err();
    assert!(matches!(error, Error::Status { status: 416, .. }), "{error}");
}

#[test]
fn manifests_are_checked() {
    let (registry, image) = serve(Auth::Open, 100);
    let by_tag = reference(&registry.host(), "a:1");
    let pinned = by_tag.with_digest(digest(&image.manifest.digest));
    for (fault, reference) in
        [(Fault::Corrupt, &pinned), (Fault::Corrupt, &by_tag), (Fault::WrongDigestHeader, &by_tag)]
    {
        registry.fault("/manifests/", fault, 1);
        let error = client().resolve(reference, None).unwrap_err();
        assert!(matches!(error, Error::WrongDigest { .. }), "{error}");
    }
    registry.fault("/manifests/", Fault::Longer(5 << 20), 1);
    assert!(matches!(client().resolve(&by_tag, None), Err(Error::TooLarge { .. })));
    registry.fault("/manifests/", Fault::Cut(20), 1);
    assert!(client().resolve(&by_tag, Some(&amd64())).is_ok(), "a cut manifest is fetched again");
    registry.fault("/blobs/", Fault::Corrupt, 1);
    let manifest = client().resolve(&by_tag, Some(&amd64())).unwrap().manifest;
    let error = client().config(&by_tag, &manifest).unwrap_err();
    assert!(matches!(error, Error::WrongDigest { .. }), "{error}");
}

#[test]
fn other_documents_are_named() {
    let registry = Registry::start().unwrap();
    let old = Blob::new(
        "application/vnd.docker.distribution.manifest.v1+prettyjws",
        br#"{"schemaVersion":1,"fsLayers":[]}"#.to_vec(),
    );
    registry.manifest("old", "1", &old);
    let error = client().resolve(&reference(&registry.host(), "old:1"), None).unwrap_err();
    assert!(error.to_string().contains("schema 1"), "{error}");
    assert!(error.hint().is_some());
    let page = Blob::new("text/html", b"<html>log in to the hotel's network</html>".to_vec());
    registry.manifest("captive", "1", &page);
    assert!(client().resolve(&reference(&registry.host(), "captive:1"), None).is_err());
}

#[test]
fn waits_as_long_as_it_is_asked_to() {
    let (registry, _) = serve(Auth::Open, 100);
    let reference = reference(&registry.host(), "a:1");
    registry.fault("/manifests/", Fault::busy("0"), 1);
    registry.fault("/manifests/", Fault::busy("Sun, 06 Nov 1994 08:49:37 GMT"), 1);
    assert!(client().resolve(&reference, Some(&amd64())).is_ok());
    // Longer than the settings allow: an error at once, with the registry's message.
    registry.fault("/manifests/", Fault::busy("3600"), 1);
    let error = client().resolve(&reference, None).unwrap_err();
    assert!(matches!(error, Error::RateLimited { retry_after: Some(_), .. }), "{error}");
    assert!(error.to_string().contains("3600") && error.to_string().contains("slow down"));
}

#[test]
fn credentials_stay_with_their_host() {
    let (front, image) = serve(Auth::Basic("user".into(), "pw".into()), 5_000);
    let (store, _) = serve(Auth::Open, 5_000);
    let signed =
        format!("http://{}/v2/a/blobs/{}?signature=s3cret", store.host(), image.layers[0].digest);
    let client = client_as(&front.host(), "user", "pw");
    let reference = reference(&front.host(), "a:1");
    client.resolve(&reference, Some(&amd64())).unwrap();
    front.fault("/blobs/", Fault::Redirect(signed.clone()), 1);
    let bytes = read(&client, &reference, &layer_of(&image), 0).unwrap();
    assert_eq!(bytes, image.layers[0].bytes);
    let at_store = store.asked("/blobs/");
    assert_eq!(at_store.len(), 1);
    assert_eq!(at_store[0].header("authorization"), None);
    assert!(front.asked("/blobs/")[0].header("authorization").is_some());
    // A resumption goes back to the front, which signs anew, and keeps the range.
    front.fault("/blobs/", Fault::Redirect(signed.clone()), 1);
    front.fault("/blobs/", Fault::Redirect("/v2/a/blobs/elsewhere".into()), 1);
    front.fault("/blobs/elsewhere", Fault::Redirect(signed), 1);
    store.fault("/blobs/", Fault::Cut(1_000), 1);
    assert_eq!(read(&client, &reference, &layer_of(&image), 0).unwrap(), image.layers[0].bytes);
    let last = store.asked("/blobs/").pop().unwrap();
    assert_eq!(last.header("range"), Some("bytes=1000-"));
    assert_eq!(last.header("authorization"), None);
    // A refusal by the blob store does not concern the registry's credentials, and its URL's query
    // is not shown.
    front.fault(
        "/blobs/",
        Fault::Redirect(format!("http://{}/v2/a/blobs/x?signature=s3cret", store.host())),
        1,
    );
    store.fault("/blobs/", Fault::status(403), 1);
    let error = read(&client, &reference, &layer_of(&image), 0).unwrap_err();
    assert!(matches!(error, Error::Status { status: 403, .. }), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
}

#[test]
fn redirects_end() {
    let (registry, image) = serve(Auth::Open, 100);
    let reference = reference(&registry.host(), "a:1");
    registry.fault("/blobs/", Fault::Redirect("/v2/a/blobs/again".into()), 1000);
    let error = read(&client(), &reference, &layer_of(&image), 0).unwrap_err();
    assert!(matches!(error, Error::Redirect { .. }), "{error}");
    let (registry, image) = serve(Auth::Open, 100);
    registry.fault("/blobs/", Fault::Redirect("file:///etc/passwd".into()), 1);
    let error =
        read(&client(), &crate::help::reference(&registry.host(), "a:1"), &layer_of(&image), 0);
    assert!(matches!(error, Err(Error::Redirect { .. })));
}

#[test]
fn tokens_are_got_kept_and_renewed() {
    let (registry, image) = serve(Auth::Anonymous, 3_000);
    let reference = reference(&registry.host(), "a:1");
    let client = client();
    client.resolve(&reference, Some(&amd64())).unwrap();
    read(&client, &reference, &layer_of(&image), 0).unwrap();
    let tokens = registry.asked("/token");
    assert_eq!(tokens.len(), 1, "one token for manifest and blobs");
    assert_eq!(tokens[0].field("scope"), Some("repository:a:pull"));
    assert_eq!(tokens[0].field("service"), Some("tests"));
    assert_eq!(tokens[0].header("authorization"), None);
    registry.revoke_tokens();
    read(&client, &reference, &layer_of(&image), 0).unwrap();
    assert_eq!(registry.asked("/token").len(), 2);
    // A token that expires at once is fetched anew each time.
    registry.token_lifetime(1);
    registry.revoke_tokens();
    read(&client, &reference, &layer_of(&image), 0).unwrap();
    read(&client, &reference, &layer_of(&image), 0).unwrap();
    assert_eq!(registry.asked("/token").len(), 4);
}

#[test]
fn tokens_for_known_users() {
    let (registry, _) = serve(Auth::Bearer("user".into(), "p:w".into()), 100);
    let host = registry.host();
    let reference = reference(&host, "a:1");
    assert!(client_as(&host, "user", "p:w").resolve(&reference, Some(&amd64())).is_ok());
    let error = client_as(&host, "user", "bad").resolve(&reference, None).unwrap_err();
    assert!(matches!(error, Error::Unauthorized { with_credentials: true, .. }), "{error}");
    assert!(error.to_string().contains("incorrect username or password"), "{error}");
    let error = client().resolve(&reference, None).unwrap_err();
    assert!(matches!(error, Error::Unauthorized { with_credentials: false, .. }), "{error}");
    // Only a login asks for an identity token, and the token then works instead of the password.
    assert!(registry.asked("/token").iter().all(|asked| asked.field("offline_token").is_none()));
    let login = client().login(&host, Some(&basic("user", "p:w"))).unwrap();
    let token = login.identity_token.unwrap();
    assert_eq!(token.expose(), REFRESH_TOKEN);
    let credential = registry::auth::Credential::IdentityToken(token);
    let credentials = registry::auth::FixedCredentials { registry: host, credential };
    let settings = Settings { credentials: std::sync::Arc::new(credentials), ..settings() };
    assert!(Client::new(settings).unwrap().resolve(&reference, Some(&amd64())).is_ok());
    let posted = registry.asked("/token").pop().unwrap();
    assert_eq!(posted.method, "POST");
    assert_eq!(posted.field("grant_type"), Some("refresh_token"));
}

#[test]
fn token_servers_misbehave() {
    let (registry, _) = serve(Auth::Anonymous, 100);
    let reference = reference(&registry.host(), "a:1");
    registry.fault("/token", Fault::status(500), 2);
    assert!(client().resolve(&reference, Some(&amd64())).is_ok());
    for body in ["{}", "nonsense", r#""bare-secret""#, r#"{"token":"a\nb"}"#, r#"{"token":""}"#] {
        registry.fault("/token", Fault::Status(200, Vec::new(), body.into()), 1);
        let error = client().resolve(&reference, None).unwrap_err();
        assert!(matches!(error, Error::Token { .. }), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    for body in [
        r#"{"access_token":"token-0","expires_in":"60"}"#,
        r#"{"token":"token-0","expires_in":59.5}"#,
    ] {
        registry.fault("/token", Fault::Status(200, Vec::new(), body.into()), 1);
        assert!(client().resolve(&reference, Some(&amd64())).is_ok(), "{body}");
    }
    // A denied scope: the token is issued and does not suffice.
    registry.fault("/manifests/", Fault::status(401), 1);
    registry.fault("/manifests/", Fault::status(403), 1);
    let denied =
        Fault::Status(401, vec![("WWW-Authenticate".into(), "Negotiate".into())], String::new());
    let error = client().resolve(&reference, None).unwrap_err();
    assert!(matches!(error, Error::Unauthorized { .. }), "{error}");
    registry.fault("/manifests/", denied, 1);
    assert!(client().resolve(&reference, None).is_err());
}

#[test]
fn passwords_do_not_go_out_in_clear() {
    // The registry is on loopback and so may use HTTP, but its token server is on another host.
    let (registry, _) = serve(Auth::Bearer("user".into(), "pw".into()), 100);
    registry.realm("http://token.example/token");
    let mut settings = settings();
    let hosts = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(hosts.path(), "127.0.0.1 registry.test\n").unwrap();
    settings.resolver.hosts = hosts.path().to_owned();
    let port = registry.host().rsplit(':').next().unwrap().to_owned();
    let host = format!("registry.test:{port}");
    let error = Client::new(settings.clone()).unwrap().login(&host, None).unwrap_err();
    assert!(matches!(error, Error::PlainHttp { .. } | Error::Tls { .. }), "{error}");
    settings.plain_http.insert(host.clone());
    let error =
        Client::new(settings).unwrap().login(&host, Some(&basic("user", "pw"))).unwrap_err();
    assert!(!matches!(error, Error::Unauthorized { .. }), "{error}");
}

#[test]
fn nothing_listens() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let host = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = client().resolve(&reference(&host, "a:1"), None).unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error}");
    assert!(error.hint().unwrap().contains("listens"));
    let error = client().resolve(&reference("no.such.host.invalid", "a:1"), None).unwrap_err();
    assert!(matches!(error, Error::Resolve { .. }), "{error}");
}

#[test]
fn mirrors_come_first_and_may_fail() {
    let (main, image) = serve(Auth::Open, 3_000);
    let mirror = Registry::start().unwrap();
    mirror.image("hub/a", "1", &image);
    let reference = reference(&main.host(), "a:1");
    let with = |location: String| {
        let mut settings = settings();
        settings.mirrors.insert(main.host(), vec![location]);
        Client::new(settings).unwrap()
    };
    let client = with(format!("http://{}/hub", mirror.host()));
    assert_eq!(client.resolve(&reference, Some(&amd64())).unwrap().source, mirror.host());
    assert!(main.log().is_empty());
    // If the mirror fails in the middle of a blob, the registry sends the rest.
    mirror.fault("/blobs/", Fault::Cut(1_000), 1);
    mirror.fault("/blobs/", Fault::status(404), 1000);
    assert_eq!(read(&client, &reference, &layer_of(&image), 0).unwrap(), image.layers[0].bytes);
    assert_eq!(main.asked("/blobs/")[0].header("range"), Some("bytes=1000-"));
    // An unreachable mirror is tried once.
    let client = with("http://127.0.0.1:1".to_owned());
    assert_eq!(client.resolve(&reference, Some(&amd64())).unwrap().source, main.host());
    // A mirror that sends invalid data is skipped.
    mirror.fault("/manifests/", Fault::Corrupt, 1);
    let client = with(format!("http://{}/hub", mirror.host()));
    assert_eq!(client.resolve(&reference, Some(&amd64())).unwrap().source, main.host());
}

#[test]
fn foreign_layers_come_from_the_registry_or_not_at_all() {
    let (registry, image) = serve(Auth::Open, 3_000);
    let reference = reference(&registry.host(), "a:1");
    let mut layer = layer_of(&image);
    layer.media_type = oci::media::DOCKER_FOREIGN_LAYER.to_owned();
    layer.urls = vec!["https://cdn.example/layer?sig=x".to_owned()];
    assert_eq!(read(&client(), &reference, &layer, 0).unwrap(), image.layers[0].bytes);
    layer.digest = oci::Digest::of(b"elsewhere");
    let error = read(&client(), &reference, &layer, 0).unwrap_err();
    assert!(matches!(error, Error::ForeignLayer { .. }), "{error}");
}

#[test]
fn many_threads_share_a_client() {
    let (registry, image) = serve(Auth::Anonymous, 50_000);
    let (client, reference) = (client(), reference(&registry.host(), "a:1"));
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let bytes = read(&client, &reference, &layer_of(&image), 0).unwrap();
                assert_eq!(bytes, image.layers[0].bytes);
            });
        }
    });
}

#[test]
fn secrets_do_not_show() {
    let client = client_as("h", "user", "hunter2");
    assert!(!format!("{client:?}").contains("hunter2"));
}

/// A token server that hangs up is named after a few attempts, and the registry is neither asked
/// again nor over plain HTTP.
#[test]
fn a_token_server_that_hangs_up_is_named() {
    let (registry, _) = serve(Auth::Anonymous, 100);
    let server = Registry::start().unwrap();
    server.fault("/token", Fault::HangUp, 1000);
    let realm = format!("http://{}/token", server.host());
    registry.realm(&realm);
    let error = client().resolve(&reference(&registry.host(), "a:1"), None).unwrap_err();
    assert!(matches!(&error, Error::TokenServer { .. }), "{error}");
    assert!(
        error.to_string().starts_with(&format!("cannot get a token from {realm}: ")),
        "{error}"
    );
    assert!(server.asked("/token").len() <= 3, "{:?}", server.asked("/token"));
    assert_eq!(registry.asked("/manifests/").len(), 1);
    // The registry may be the token server too; then it has answered before.
    let (registry, _) = serve(Auth::Anonymous, 100);
    registry.fault("/token", Fault::HangUp, 1000);
    let error = client().resolve(&reference(&registry.host(), "a:1"), None).unwrap_err();
    assert!(matches!(&error, Error::TokenServer { .. }), "{error}");
    assert!(registry.asked("/token").len() <= 3);
}

/// A client that soon finds a body too slow.
fn impatient() -> Client {
    let mut settings = settings();
    settings.timeouts.idle = Duration::from_millis(200);
    Client::new(settings).unwrap()
}

#[test]
fn a_manifest_that_trickles_is_not_waited_for() {
    let (registry, _) = serve(Auth::Open, 100);
    registry.fault("/manifests/", Fault::Slow(1, Duration::from_millis(20)), 1);
    let begun = std::time::Instant::now();
    let error = impatient().resolve(&reference(&registry.host(), "a:1"), None).unwrap_err();
    assert!(matches!(&error, Error::TooSlow { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(registry.asked("/manifests/").len(), 1);
}

#[test]
fn a_layer_that_trickles_is_given_up() {
    let (registry, image) = serve(Auth::Open, 20_000);
    registry.fault("/blobs/", Fault::Slow(1, Duration::from_millis(20)), 10);
    let reference = reference(&registry.host(), "a:1");
    let error = read(&impatient(), &reference, &layer_of(&image), 0).unwrap_err();
    assert!(error.to_string().contains("comes too slowly"), "{error}");
    assert!(registry.asked("/blobs/").len() <= 2, "{:?}", registry.asked("/blobs/"));
}

/// An encoding that was not asked for is undone for documents. A layer is taken as it is if its
/// length is right, else refused in words.
#[test]
fn encodings_that_were_not_asked_for() {
    let (registry, image) = serve(Auth::Open, 20_000);
    let reference = reference(&registry.host(), "a:1");
    registry.fault("/manifests/", Fault::Encoded("gzip"), 1);
    client().resolve(&reference, Some(&amd64())).unwrap();
    registry.fault("/manifests/", Fault::Encoded("br"), 1);
    let error = client().resolve(&reference, Some(&amd64())).unwrap_err().to_string();
    assert!(error.ends_with("it has Content-Encoding: br, which was not asked for"), "{error}");
    registry.fault("/blobs/", Fault::Encoded("gzip"), 1);
    let error = read(&client(), &reference, &layer_of(&image), 0).unwrap_err().to_string();
    assert!(error.ends_with("it has Content-Encoding: gzip, which was not asked for"), "{error}");
    registry.fault("/blobs/", Fault::SaidEncoded("gzip"), 1);
    assert_eq!(read(&client(), &reference, &layer_of(&image), 0).unwrap(), image.layers[0].bytes);
}
