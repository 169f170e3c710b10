//! Tests of proxies and private certificate authorities: a registry that only the proxy can reach.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use testkit::docker_registry::Options;
use testkit::image::Built;

use testkit::skip::{Outcome, need_program};

use crate::cli::Case;

use super::{image, place, real, text};

pub(in crate::cli) const CASES: &[(&str, Case)] =
    &[("a_private_authority_behind_a_proxy", a_private_authority_behind_a_proxy)];

/// A proxy that connects every `CONNECT` to one address and records the requested hosts.
struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = asked.clone();
        // The thread ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = kept.clone();
                thread::spawn(move || serve(&stream, &target, &kept));
            }
        });
        Self { address, asked }
    }

    fn url(&self) -> String {
        format!("http://ada:hush-hush@{}", self.address)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn serve(stream: &TcpStream, target: &SocketAddr, kept: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    kept.lock().unwrap().push(head);
    let patience = Duration::from_secs(5);
    let Ok(far) = TcpStream::connect_timeout(target, patience) else { return };
    let mut near = stream;
    if near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").is_err() {
        return;
    }
    let (mut from, mut to) = (stream.try_clone().unwrap(), far.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Write);
    });
    let _ = std::io::copy(&mut &far, &mut near);
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

/// Pushes an image with `skopeo`, which supports TLS.
fn push(place: &super::Place, registry: &str, built: &Built) -> Outcome {
    need_program("skopeo")?;
    let layout = place.scratch.dir("layout", None, 0o755).unwrap();
    built.write_layout(&layout, "1").unwrap();
    let from = format!("oci:{}:1", layout.display());
    let to = format!("docker://{registry}/team/tool:1");
    // Without one it asks below /run/containers, which is root's where root has used Podman.
    let runtime = place.scratch.dir("runtime", None, 0o777).unwrap();
    let runtime = ("XDG_RUNTIME_DIR", text(&runtime));
    place.other(&[runtime], "skopeo", &["copy", "-q", "--dest-tls-verify=false", &from, &to]).ok();
    Ok(())
}

fn a_private_authority_behind_a_proxy() -> Outcome {
    let place = place("proxy")?;
    let registry = real(Options { tls: true, ..Options::default() })?;
    push(&place, &registry.host(), &image("tls").build())?;
    let proxy = Proxy::start(registry.host().parse().unwrap());
    let url = proxy.url();
    let through = ("HTTPS_PROXY", url.as_str());
    let name = "registry.test:8443/team/tool:1";
    let pull = ["pull", "-q", name];

    let refused = place.with(&[through], &pull);
    assert!(refused.expect(1).err().contains("certificate"), "{refused:?}");
    assert!(refused.err().contains("hint: "), "{refused:?}");
    let asked = proxy.asked();
    assert!(asked[0].starts_with("CONNECT registry.test:8443 "), "{asked:?}");
    assert!(asked[0].to_ascii_lowercase().contains("proxy-authorization: basic "), "{asked:?}");

    place.with(&[through], &["pull", "-q", "--tls-verify=false", name]).ok();
    place.run(&["--insecure", "pull", "-q", "--proxy", &url, name]).ok();
    // Each way to trust the authority.
    let pem = fs::read_to_string(registry.certificate()).unwrap();
    let authority = place.file("certs/authority.crt", &pem);
    for variable in ["CORACLE_CA_FILES", "SSL_CERT_FILE"] {
        place.with(&[through, (variable, text(&authority))], &pull).ok();
    }
    let directory = authority.parent().unwrap();
    place.with(&[through], &["pull", "-q", "--cert-dir", text(&directory), name]).ok();
    let told = place.with(&[through], &["pull", "-q", "--cert-dir", "/nonexistent", name]);
    assert!(told.expect(1).err().contains("/nonexistent"), "{told:?}");
    let config =
        format!("[registry]\nca-files = [\"~/certs/authority.crt\"]\nhttps-proxy = \"{url}\"\n");
    let config = place.file(".config/coracle/config.toml", &config);
    place.run(&pull).ok();
    let shown = place.run(&["config"]).ok().out();
    assert!(shown.contains("http://***@") && !shown.contains("hush"), "{shown}");
    fs::remove_file(config).unwrap();
    place.file(".config/containers/certs.d/registry.test:8443/ca.crt", &pem);
    place.with(&[through], &pull).ok();

    // An excepted host is reached directly, or not at all.
    proxy.asked();
    for except in ["registry.test", ".test", "*"] {
        place.with(&[through, ("NO_PROXY", except), ("CORACLE_RETRIES", "0")], &pull).expect(1);
        assert_eq!(proxy.asked().len(), 0, "{except}");
    }
    Ok(())
}
