//! Tests of proxies, and that the C library's name service is not used.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use registry::{Client, Error, ProxySettings, Settings};
use testkit::registry::Registry;

use crate::help::{amd64, have, image, reference, settings};

/// A proxy that forwards everything to one address and logs the requested hosts.
struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let log = log.clone();
                std::thread::spawn(move || serve(stream, to, &log));
            }
        });
        Proxy { address, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The first byte shows the protocol.
fn serve(mut client: TcpStream, to: SocketAddr, log: &Mutex<Vec<String>>) -> Option<()> {
    let mut first = [0; 1];
    client.peek(&mut first).ok()?;
    let target = match first[0] {
        4 => socks4(&mut client)?,
        5 => socks5(&mut client)?,
        _ => connect(&mut client)?,
    };
    log.lock().unwrap().push(target);
    let server = TcpStream::connect_timeout(&to, Duration::from_secs(5)).ok()?;
    let (mut from, mut into) = (server.try_clone().ok()?, client.try_clone().ok()?);
    std::thread::spawn(move || std::io::copy(&mut from, &mut into));
    let _ = std::io::copy(&mut client, &mut &server);
    None
}

fn connect(client: &mut TcpStream) -> Option<String> {
    let mut reader = BufReader::new(client.try_clone().ok()?);
    let (mut first, mut user) = (String::new(), String::new());
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if let Some(value) = line.strip_prefix("Proxy-Authorization: ") {
            value.trim().clone_into(&mut user);
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let target = first.split(' ').nth(1)?;
    if target.starts_with("refused") {
        client.write_all(b"HTTP/1.1 403 Forbidden\r\n\r\n").ok()?;
        return None;
    }
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").ok()?;
    Some(format!("connect {target} {user}").trim().to_owned())
}

fn socks4(client: &mut TcpStream) -> Option<String> {
    let mut head = [0; 8];
    client.read_exact(&mut head).ok()?;
    let mut word = || {
        let mut text = Vec::new();
        loop {
            let mut byte = [0; 1];
            client.read_exact(&mut byte).ok()?;
            if byte[0] == 0 {
                return String::from_utf8(text).ok();
            }
            text.push(byte[0]);
        }
    };
    word()?;
    let name = if head[4..7] == [0, 0, 0] {
        word()?
    } else {
        Ipv4Addr::new(head[4], head[5], head[6], head[7]).to_string()
    };
    client.write_all(&[0, 90, 0, 0, 0, 0, 0, 0]).ok()?;
    Some(format!("socks4 {name}"))
}

fn socks5(client: &mut TcpStream) -> Option<String> {
    let mut head = [0; 2];
    client.read_exact(&mut head).ok()?;
    let mut methods = vec![0; head[1].into()];
    client.read_exact(&mut methods).ok()?;
    client.write_all(&[5, 0]).ok()?;
    let mut request = [0; 4];
    client.read_exact(&mut request).ok()?;
    let name = if request[3] == 3 {
        let mut length = [0; 1];
        client.read_exact(&mut length).ok()?;
        let mut name = vec![0; length[0].into()];
        client.read_exact(&mut name).ok()?;
        String::from_utf8(name).ok()?
    } else {
        let mut address = [0; 4];
        client.read_exact(&mut address).ok()?;
        Ipv4Addr::from(address).to_string()
    };
    client.read_exact(&mut [0; 2]).ok()?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).ok()?;
    Some(format!("socks5 {name}"))
}

#[test]
fn every_kind_of_proxy() {
    let registry = Registry::start().unwrap();
    registry.image("a", "1", &image(100));
    let proxy = Proxy::start(registry.host().parse().unwrap());
    let hosts = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(hosts.path(), "10.9.8.7 known.test\n").unwrap();
    let client = |url: String| {
        let mut settings = settings();
        settings.resolver.hosts = hosts.path().to_owned();
        settings.proxy = ProxySettings { all: Some(url.into()), ..ProxySettings::default() };
        settings.plain_http.extend(["known.test".to_owned(), "refused.test".to_owned()]);
        Client::new(settings).unwrap()
    };
    let at = proxy.address;
    let reference = reference("known.test", "a:1");
    for (url, expected) in [
        (format!("http://{at}"), "connect known.test:80"),
        (format!("{at}"), "connect known.test:80"),
        (format!("http://user:p%40ss@{at}"), "connect known.test:80 Basic dXNlcjpwQHNz"),
        (format!("socks5h://{at}"), "socks5 known.test"),
        (format!("socks5://{at}"), "socks5 10.9.8.7"),
        (format!("socks4a://{at}"), "socks4 known.test"),
        (format!("socks4://{at}"), "socks4 10.9.8.7"),
    ] {
        client(url.clone()).resolve(&reference, Some(&amd64())).unwrap();
        assert_eq!(proxy.asked().pop().unwrap(), expected, "{url}");
    }
    let refused = crate::help::reference("refused.test", "a:1");
    let error = client(format!("http://u:secret@{at}")).resolve(&refused, None).unwrap_err();
    assert!(matches!(error, Error::Proxy { .. }), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    let error = client("http://127.0.0.1:1".into()).resolve(&reference, None).unwrap_err();
    assert!(matches!(error, Error::Proxy { .. }), "{error}");
    // Loopback never goes through a proxy.
    let before = proxy.asked().len();
    let local = crate::help::reference(&registry.host(), "a:1");
    client(format!("http://{at}")).resolve(&local, Some(&amd64())).unwrap();
    assert_eq!(proxy.asked().len(), before);
}

/// Docker Hub's own search is asked where its registry has none; what a 404 says of an image is not
/// said of a search.
#[test]
fn docker_hub_is_searched_on_its_site() {
    let registry = Registry::start().unwrap();
    let proxy = Proxy::start(registry.host().parse().unwrap());
    let mut settings = settings();
    let url = format!("http://{}", proxy.address);
    settings.proxy = ProxySettings { all: Some(url.into()), ..ProxySettings::default() };
    settings.plain_http.extend(["index.docker.io".to_owned(), "hub.docker.com".to_owned()]);
    let client = Client::new(settings).unwrap();
    let error = client.search("docker.io", "deb ian", 3).unwrap_err();
    assert_eq!(error.to_string(), "docker.io does not support search");
    let page = |page: u32, next: &str, name: &str| {
        let path = format!("/v2/search/repositories/?query=deb%20ian&page={page}&page_size=3");
        let found = format!(
            r#"{{"count":2,"next":"{next}","results":[{{"repo_name":"{name}","short_description":"d","star_count":7,"is_official":true}}]}}"#
        );
        registry.page(&path, &[], &found);
    };
    page(1, "https://hub.docker.com/next", "debian");
    page(2, "", "some/debian");
    let found = client.search("docker.io", "deb ian", 3).unwrap();
    let names: Vec<&str> = found.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["debian", "some/debian"]);
    assert!(found[0].official && found[0].stars == 7 && found[0].description == "d");
    let asked = proxy.asked();
    assert!(asked.contains(&"connect index.docker.io:80".to_owned()), "{asked:?}");
    // The version 1 search comes first where it answers.
    let found = r#"{"num_pages":1,"results":[{"name":"first"}]}"#;
    registry.page("/v1/search?q=deb%20ian&n=3&page=1", &[], found);
    assert_eq!(client.search("docker.io", "deb ian", 3).unwrap()[0].name, "first");
}

/// A static glibc program that resolves through NSS loads the host's libraries.
#[test]
fn no_name_service_is_loaded() {
    const TEST: &str = "no_name_service_is_loaded";
    if !have("strace", TEST) {
        return;
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new("strace")
        .args(["-f", "-e", "trace=open,openat,connect", "-o"])
        .arg(log.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "proxies::inside_no_name_service", "--ignored"])
        .output()
        .unwrap();
    if !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("ptrace") {
        testkit::skip::note(TEST, "ptrace is not allowed here");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let trace = std::fs::read_to_string(log.path()).unwrap();
    assert!(trace.contains("/etc/hosts"), "{trace}");
    for library in ["nsswitch", "libnss", "libc.so", "nscd"] {
        assert!(!trace.contains(library), "{library} in {trace}");
    }
}

#[test]
#[ignore = "started by the test `no_name_service_is_loaded`"]
fn inside_no_name_service() {
    let mut settings = Settings::default();
    settings.resolver.getent.clear();
    settings.resolver.resolv_conf = "/nonexistent".into();
    settings.timeouts.resolve = Duration::from_millis(200);
    settings.retries.attempts = 0;
    let client = Client::new(settings).unwrap();
    let error = client.login("no-such-host.invalid", None).unwrap_err();
    assert!(matches!(error, Error::Resolve { .. }), "{error}");
}
