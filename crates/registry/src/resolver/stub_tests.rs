//! Tests the stub resolver with name servers on this host's loopback.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::*;

#[test]
fn reads_resolv_conf() {
    let config = Config::parse(
        "# c\n; c\nsearch one.example two.example\nnameserver 10.0.0.1\nnameserver ::1\n\
         nameserver bad\nnameserver 1.1.1.1\nnameserver 2.2.2.2\n\
         options ndots:2 timeout:1 attempts:9 rotate use-vc\n",
    );
    assert_eq!(config.servers.len(), 3);
    assert_eq!(config.servers[1].to_string(), "[::1]:53");
    assert_eq!((config.ndots, config.attempts, config.use_tcp), (2, 5, true));
    assert_eq!(config.candidates("a.b"), ["a.b.one.example", "a.b.two.example", "a.b"]);
    assert_eq!(config.candidates("a.b.c"), ["a.b.c", "a.b.c.one.example", "a.b.c.two.example"]);
    assert_eq!(config.candidates("a."), ["a"]);
    assert_eq!(Config::parse("").servers[0].to_string(), "127.0.0.1:53");
    assert_eq!(parse_server("fe80::1%3").unwrap().to_string(), "[fe80::1%3]:53");
    assert!(parse_server("fe80::1%../x").is_none());
}

/// Answers every question with the result of `answer`, by UDP and TCP on one port.
fn serve(answer: impl Fn(&[u8], bool) -> Option<Vec<u8>> + Send + Sync + 'static) -> SocketAddr {
    let (udp, tcp) = loop {
        let udp = UdpSocket::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)).unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
            break (udp, tcp);
        }
    };
    let address = udp.local_addr().unwrap();
    let answer = Arc::new(answer);
    let by_tcp = answer.clone();
    std::thread::spawn(move || {
        for stream in tcp.incoming() {
            let mut stream = stream.unwrap();
            let mut length = [0; 2];
            stream.read_exact(&mut length).unwrap();
            let mut question = vec![0; u16::from_be_bytes(length).into()];
            stream.read_exact(&mut question).unwrap();
            if let Some(reply) = by_tcp(&question, true) {
                stream.write_all(&(reply.len() as u16).to_be_bytes()).unwrap();
                stream.write_all(&reply).unwrap();
            }
        }
    });
    std::thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((length, from)) = udp.recv_from(&mut question) {
            if let Some(reply) = answer(&question[..length], false) {
                udp.send_to(&reply, from).unwrap();
            }
        }
    });
    address
}

fn config(servers: &[SocketAddr]) -> Config {
    Config {
        servers: servers.to_vec(),
        search: vec!["cluster.example".into()],
        ndots: 1,
        timeout: Duration::from_millis(300),
        attempts: 2,
        use_tcp: false,
    }
}

fn asked(question: &[u8]) -> (String, u16) {
    let (mut at, mut name) = (12, String::new());
    while question[at] != 0 {
        let end = at + 1 + usize::from(question[at]);
        name = name + std::str::from_utf8(&question[at + 1..end]).unwrap() + ".";
        at = end;
    }
    (name, u16::from_be_bytes([question[at + 1], question[at + 2]]))
}

/// A reply with flags and, for A questions, one address.
fn reply(question: &[u8], flags: [u8; 2], address: Option<[u8; 4]>) -> Vec<u8> {
    let mut out = question[..question.len() - 11].to_vec();
    out[2..4].copy_from_slice(&flags);
    out[11] = 0;
    if let Some(address) = address.filter(|_| asked(question).1 == A) {
        out[7] = 1;
        out.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        out.extend(address);
    }
    out
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

#[test]
fn search_domains_and_no_such_name() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let server = serve(move |question, _| {
        let (name, kind) = asked(question);
        log.lock().unwrap().push((name.clone(), kind));
        Some(if name == "reg.cluster.example." {
            reply(question, [0x81, 0x80], Some([10, 0, 0, 7]))
        } else {
            reply(question, [0x81, 0x83], None)
        })
    });
    let found = look_up(&config(&[server]), "reg", soon()).unwrap();
    assert_eq!(found, [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7))]);
    let error = look_up(&config(&[server]), "no.such", soon()).unwrap_err();
    assert_eq!(error, "the name does not exist in DNS");
    let names: Vec<String> = seen.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
    assert!(names.contains(&"no.such.cluster.example.".to_owned()));
    assert!(!names.contains(&"reg.".to_owned()), "one label is searched first");
}

#[test]
fn truncated_answers_come_by_tcp() {
    let server = serve(|question, tcp| {
        let flags = if tcp { [0x81, 0x80] } else { [0x83, 0x80] };
        Some(reply(question, flags, tcp.then_some([10, 0, 0, 8])))
    });
    let found = look_up(&config(&[server]), "big.example", soon()).unwrap();
    assert_eq!(found, [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 8))]);
}

#[test]
fn the_next_server_is_asked_and_spoofs_are_ignored() {
    let silent = serve(|_, _| None);
    let refusing = serve(|question, _| Some(reply(question, [0x81, 0x85], None)));
    let count = AtomicUsize::new(0);
    let good = serve(move |question, _| {
        // The first answers have a wrong id, like a spoofed one.
        let mut out = reply(question, [0x81, 0x80], Some([10, 0, 0, 9]));
        if count.fetch_add(1, Ordering::Relaxed) < 2 {
            out[0] ^= 0xff;
        }
        Some(out)
    });
    let found = look_up(&config(&[silent, refusing, good]), "a.example", soon()).unwrap();
    assert_eq!(found, [IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9))]);
    let error = look_up(&config(&[refusing]), "a.example", soon()).unwrap_err();
    assert!(error.contains("code 5"), "{error}");
    let error = look_up(&config(&[silent]), "a.example", soon()).unwrap_err();
    assert!(error.contains("does not answer"), "{error}");
}
