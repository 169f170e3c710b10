//! Tests of registries: which one is contacted, how, when, and for what.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::docker_registry::DockerRegistry;
use testkit::image::{Built, Flavour, Image, Pack, index};
use testkit::registry::Registry;
use testkit::skip::Outcome;

use crate::udocker::world::{Case, World, image};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("names_without_a_registry", names_without_a_registry),
    ("when_to_pull", when_to_pull),
    ("platforms_and_digests", platforms_and_digests),
    ("searches", searches),
    ("proxies", proxies),
];

/// An image that prints this word.
fn saying(w: &World, word: &str) -> Image {
    let layer = w.layer.to_vec();
    Image::new().packed(layer, Pack::Plain).env("PATH", "/bin").cmd(&["echo", word])
}

/// `--registry` and `--index` of every command that may pull.
fn names_without_a_registry(w: &World) -> Outcome {
    let Ok(registry) = DockerRegistry::start() else { testkit::skip!("no docker-registry here") };
    registry.target().image("sci/bare", "1", &image(&w.layer)).expect("pushing");
    let name = format!("{}/sci/bare:1", registry.host());
    let flag = format!("--registry=http://{}", registry.host());
    let flags = [flag.as_str(), "--index=https://index.example.org"];
    for words in [&["run", "--rm"][..], &["pull"]] {
        w.udocker(&[words, &flags, &["sci/bare:1"]].concat()).ok();
        let shown = w.udocker(&["images"]).ok().out();
        assert!(shown.contains(&format!("{name}    .\n")), "{words:?}: {shown}");
        w.udocker(&["rmi", &name]).ok();
    }
    let id = w.udocker(&[&["create"][..], &flags, &["sci/bare:1"]].concat()).ok().line();
    assert_eq!(w.udocker(&["run", "--rm", &id]).ok().out(), "from the image\n");
    for words in [&["manifest", "inspect"][..], &["search", "--list-tags"]] {
        let name = if words[0] == "search" { "sci/bare" } else { "sci/bare:1" };
        let done = w.udocker(&[words, &flags, &[name]].concat());
        let told = if words[0] == "search" { "1\n" } else { "\"layers\"" };
        assert!(done.ok().out().contains(told), "{done:?}");
    }
    w.udocker(&["rmi", &name]).ok();
    Ok(())
}

/// `--pull`: never, missing, always.
fn when_to_pull(w: &World) -> Outcome {
    let Ok(registry) = DockerRegistry::start() else { testkit::skip!("no docker-registry here") };
    let name = format!("{}/sci/changing:1", registry.host());
    let push = |word: &str| {
        let built = saying(w, word).build();
        registry.target().image("sci/changing", "1", &built).expect("pushing");
    };
    let run =
        |flag: &str| w.udocker(&["--insecure", "run", "--rm", &format!("--pull={flag}"), &name]);
    push("first");
    run("never").expect(1);
    assert_eq!(run("missing").ok().out(), "first\n");
    push("second");
    assert_eq!(run("missing").ok().out(), "first\n");
    assert_eq!(run("always").ok().out(), "second\n");
    assert_eq!(run("never").ok().out(), "second\n");
    let wrong = run("sometimes");
    assert!(wrong.expect(1).err().contains("sometimes"), "{wrong:?}");
    w.udocker(&["rmi", &name]).ok();
    Ok(())
}

/// One of several platforms, and one image by its digest.
fn platforms_and_digests(w: &World) -> Outcome {
    let registry = Registry::start().expect("a registry");
    let amd = saying(w, "of amd64").build();
    let arm = saying(w, "of arm64").platform("arm64", None).build();
    let put = |tag: &str, built: &Built| registry.image("sci/several", tag, built);
    put("amd", &amd);
    put("arm", &arm);
    registry.manifest("sci/several", "1", &index(Flavour::Oci, &[&amd, &arm]));
    let repository = format!("{}/sci/several", registry.host());
    let name = format!("{repository}:1");
    for (flags, architecture) in [(&[][..], "amd64"), (&["--platform=linux/arm64"], "arm64")] {
        w.udocker(&[&["pull"][..], flags, &[name.as_str()]].concat()).ok();
        let text = w.udocker(&["inspect", &name]).ok().out();
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["architecture"], architecture, "{text}");
        let shown = w.udocker(&["images", "-p"]).ok().out();
        let platform = format!("linux/{architecture}");
        assert!(shown.contains(&format!("{platform:<18} . {name}\n")), "{shown}");
    }
    let done = w.udocker(&["run", "--rm", "--platform=linux/amd64", &name]);
    assert_eq!(done.ok().out(), "of amd64\n");
    w.udocker(&["pull", "--platform=linux/s390x", &name]).expect(1);
    w.udocker(&["pull", "--platform=nonsense", &name]).expect(1);
    let done = w.udocker(&["manifest", "inspect", "--platform=linux/arm64", &name]);
    let told: Value = serde_json::from_str(&done.ok().out()).expect("JSON");
    assert_eq!(told["config"]["digest"], arm.config.digest.as_str(), "{told}");
    let exact = format!("{repository}@{}", amd.manifest.digest);
    w.udocker(&["pull", &exact]).ok();
    assert!(w.udocker(&["images"]).ok().out().contains(&exact));
    let done = w.udocker(&["run", "--rm", "--pull=never", &exact]);
    assert_eq!(done.ok().out(), "of amd64\n");
    for name in [&exact, &name] {
        w.udocker(&["rmi", name]).ok();
    }
    Ok(())
}

/// All results are printed at once, shortened unless that is disabled.
fn searches(w: &World) -> Outcome {
    let registry = Registry::start().expect("a registry");
    let long = "A tool of which far more is to be said than there is room for in a line";
    let found = json!({ "num_pages": 1, "num_results": 1, "results": [
        { "name": "team/tool", "description": long, "star_count": 12, "is_official": false },
    ]});
    registry.page("/v1/search?q=to&n=25&page=1", &[], &found.to_string());
    let flags = [format!("--registry=http://{}", registry.host()), "--index=x".to_owned()];
    let run = |words: &[&str]| {
        let flags = [flags[0].as_str(), flags[1].as_str()];
        w.udocker(&[&["search"][..], words, &flags, &["to"]].concat()).ok().out()
    };
    for words in [&[][..], &["-a"]] {
        let text = run(words);
        assert!(text.contains("team/tool") && !text.contains(long), "{words:?}: {text}");
    }
    assert!(run(&["-a", "--no-trunc"]).contains(long));
    Ok(())
}

/// A SOCKS proxy (versions 4, 4a and 5, with and without a password) that connects everything to
/// one address and records the requests.
struct Socks {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Socks {
    fn start(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        // The thread ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                // A client that disconnects is ignored.
                thread::spawn(move || lead(&stream, target, &kept));
            }
        });
        Ok(Self { address, asked })
    }

    /// The requests since the last call.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads this many bytes of a connection.
fn take(mut stream: &TcpStream, count: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads a text with its length before it.
fn take_counted(stream: &TcpStream) -> io::Result<String> {
    let length = take(stream, 1)?[0];
    Ok(String::from_utf8_lossy(&take(stream, length.into())?).into_owned())
}

/// Reads a text that ends with a zero.
fn take_ended(stream: &TcpStream) -> io::Result<String> {
    let mut text = String::new();
    loop {
        match take(stream, 1)?[0] {
            0 => return Ok(text),
            byte => text.push(byte.into()),
        }
    }
}

/// `192.0.2.7`
fn numbers(bytes: &[u8]) -> String {
    bytes.iter().map(ToString::to_string).collect::<Vec<_>>().join(".")
}

/// Serves one connection.
fn lead(mut near: &TcpStream, target: SocketAddr, kept: &Mutex<Vec<String>>) -> io::Result<()> {
    let asked = if take(near, 1)?[0] == 4 {
        let head = take(near, 7)?;
        take_ended(near)?;
        // An invalid address means that a name follows.
        let host = if head[3..6] == [0, 0, 0] { take_ended(near)? } else { numbers(&head[3..7]) };
        near.write_all(&[0, 0x5a, 0, 0, 0, 0, 0, 0])?;
        format!("4 {host}:{}", u16::from_be_bytes([head[1], head[2]]))
    } else {
        let count = take(near, 1)?[0];
        let mut who = String::new();
        if take(near, count.into())?.contains(&2) {
            near.write_all(&[5, 2])?;
            take(near, 1)?;
            who = format!(" as {}:{}", take_counted(near)?, take_counted(near)?);
            near.write_all(&[1, 0])?;
        } else {
            near.write_all(&[5, 0])?;
        }
        let host = match take(near, 4)?[3] {
            3 => take_counted(near)?,
            _ => numbers(&take(near, 4)?),
        };
        let port = take(near, 2)?;
        near.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
        format!("5 {host}:{}{who}", u16::from_be_bytes([port[0], port[1]]))
    };
    kept.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
    let far = TcpStream::connect_timeout(&target, Duration::from_secs(5))?;
    let (mut from, mut to) = (near.try_clone()?, far.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    io::copy(&mut &far, &mut near)?;
    near.shutdown(Shutdown::Both)
}

/// A registry that only the proxy can reach: by each version, with each command, and by the key.
fn proxies(w: &World) -> Outcome {
    let Ok(registry) = DockerRegistry::start() else { testkit::skip!("no docker-registry here") };
    registry.target().image("sci/far", "1", &image(&w.layer)).expect("pushing");
    let socks = Socks::start(registry.host().parse().expect("an address")).expect("a proxy");
    let proxy = |scheme: &str| format!("{scheme}{}", socks.address);
    for (scheme, host, asked) in [
        ("socks4://", "192.0.2.7", "4 192.0.2.7:5000"),
        ("socks4a://", "far.example.org", "4 far.example.org:5000"),
        ("socks5://", "192.0.2.7", "5 192.0.2.7:5000"),
        ("socks5h://", "far.example.org", "5 far.example.org:5000"),
        ("socks5h://me:secret@", "far.example.org", "5 far.example.org:5000 as me:secret"),
    ] {
        let flag = format!("--httpproxy={}", proxy(scheme));
        let name = format!("{host}:5000/sci/far:1");
        w.udocker(&["--insecure", "pull", &flag, &name]).ok();
        let told = socks.asked();
        assert!(told.iter().any(|one| one == asked), "{scheme}: {told:?}");
        w.udocker(&["rmi", &name]).ok();
    }
    let flag = format!("--httpproxy={}", proxy("socks5h://"));
    let far = ["--registry=http://far.example.org:5000", &flag];
    for (words, name) in [
        (&["run", "--rm", "--pull=always"][..], "sci/far:1"),
        (&["manifest", "inspect"], "sci/far:1"),
        (&["search", "--list-tags"], "sci/far"),
        (&["search", "-a"], "far"),
    ] {
        w.udocker(&[words, &far, &[name]].concat()).ok();
        assert!(!socks.asked().is_empty(), "{words:?}");
    }
    let text = format!("http_proxy = {}\n", proxy("socks5h://"));
    let config = format!("--config={}", w.file(&w.dir("proxies").join("udocker.conf"), text));
    w.udocker(&[&config, "pull", far[0], "sci/far:1"]).ok();
    assert!(!socks.asked().is_empty());
    let wrong = w.udocker(&["pull", "--httpproxy=gopher://127.0.0.1:1", "sci/far:1"]);
    assert!(wrong.expect(1).err().contains("socks5h"), "{wrong:?}");
    w.udocker(&["rmi", "far.example.org:5000/sci/far:1"]).ok();
    Ok(())
}
