//! Tests of web servers and balancers: nginx with Debian's own configuration, `HAProxy` before two
//! of them, names that are resolved at run time, published ports.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use testkit::command::until;
use testkit::skip::Outcome;

use crate::servers::In;
use crate::servers::stage::{Case, Lab, World};

pub(crate) const CASES: &[(&str, In, Case)] = &[
    ("nginx", In::All, nginx),
    ("haproxy", In::First, haproxy),
    ("same_port", In::First, same_port),
];

/// nginx as Debian configures it: it listens on port 80 of IPv4 and of IPv6.
fn site(page: &str) -> String {
    format!("echo {page} > /var/www/html/index.html; exec nginx -g 'daemon off;'")
}

/// A client asks by each of a server's names; another server passes requests on to a name that it
/// resolves for itself while it runs.
fn nginx(w: &World) -> Outcome {
    let lab = w.lab();
    lab.serve("web", &site("page"));
    lab.serve(
        "front",
        "printf 'server { listen 80; resolver 127.0.0.11 valid=1s; location / \
            { set $to web; proxy_pass http://$to:80; } }' > /etc/nginx/sites-enabled/default
        exec nginx -g 'daemon off;'",
    );
    let (network, whole) = (&lab.network, lab.name("web"));
    let done = lab.run(
        "client",
        &format!(
            "get() {{ curl -sS --retry 50 --retry-delay 1 --retry-connrefused \"$@\"; }}
            get http://web/; get http://{whole}/; get http://web.{network}/; get http://front/
            for i in $(seq 100); do echo url=http://web/; done | get -K - -o /dev/null -w '%{{num_connects}}\\n' \
                | sort | uniq -c | tr -s ' '
            hostname -i"
        ),
    );
    let out = done.ok().out();
    let lines: Vec<&str> = out.lines().collect();
    let [.., client] = lines[..] else { panic!("{done:?}") };
    assert_eq!(lines[..4], ["page"; 4], "{done:?}");
    // All but the first went over the connection that was there.
    assert!(lines.contains(&" 99 0") && lines.contains(&" 1 1"), "{done:?}");
    let log = lab.exec("web", "cat /var/log/nginx/access.log").ok().out();
    let from =
        |address: &str| log.lines().filter(|line| line.split(' ').next() == Some(address)).count();
    assert_eq!((from(client), from(&lab.address("front"))), (103, 1), "{log}");
    let done = lab.exec("web", "curl -sS http://localhost/ http://[::1]/ http://127.0.0.1/");
    assert_eq!(done.ok().out(), "page\n".repeat(3));
    Ok(())
}

/// A balancer before two servers that it knows by name; it notices when one ends.
fn haproxy(w: &World) -> Outcome {
    let lab = w.lab();
    for name in ["one", "two"] {
        lab.serve(name, &site(name));
    }
    lab.serve(
        "balancer",
        "printf '
            defaults\\n mode http\\n timeout connect 5s\\n timeout client 20s\\n timeout server 20s\\n retries 3\\n option redispatch\\n
            resolvers names\\n nameserver own 127.0.0.11:53\\n hold valid 1s\\n
            frontend all\\n bind :80\\n default_backend sites\\n
            backend sites\\n balance roundrobin\\n default-server check inter 200ms fall 1 rise 1 resolvers names init-addr none\\n
              option forwardfor\\n server one one:80\\n server two two:80\\n' | sed 's/^ *//' > /h.cfg
        exec haproxy -db -f /h.cfg",
    );
    let script = "\
        both() { for i in 1 2 3 4; do curl -sS http://balancer/; done | sort | uniq -c | tr -s ' ' > /seen
            test \"$(cat /seen)\" = ' 2 one\n 2 two'; }
        wait_for both; hostname -i";
    let client = lab.run("client", script).ok().line();
    let log = lab.exec("one", "cat /var/log/nginx/access.log").ok().out();
    let balancer = lab.address("balancer");
    assert!(log.lines().all(|line| line.starts_with(&balancer)), "{client} {log}");
    lab.remove("one");
    let script = "\
        one() { for i in 1 2 3 4; do curl -sS http://balancer/; done | uniq > /seen; test \"$(cat /seen)\" = two; }
        wait_for one";
    lab.run("client", script).ok();
    Ok(())
}

/// A port of the host that is free now.
pub(crate) fn free_port() -> u16 {
    let socket = TcpListener::bind("0.0.0.0:0").expect("a port");
    socket.local_addr().expect("an address").port()
}

/// The page that the host gets.
fn page(place: SocketAddr) -> String {
    let connect = || TcpStream::connect_timeout(&place, Duration::from_secs(5)).ok();
    let mut stream = until(Duration::from_secs(20), connect).expect("a published port");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("a request");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned()
}

/// An address of this host that is not loopback, if it has one.
fn outside() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Two servers have port 80 in one network, and both are published; each sees who asks.
fn same_port(w: &World) -> Outcome {
    let lab = w.lab();
    let ports = [free_port(), free_port()];
    let publish = [format!("127.0.0.1:{}:80", ports[0]), format!("{}:80", ports[1])];
    for (name, publish) in ["one", "two"].iter().zip(&publish) {
        lab.serve_with(name, &["-p", publish], &site(name));
    }
    for (name, port) in ["one", "two"].iter().zip(ports) {
        assert_eq!(page(([127, 0, 0, 1], port).into()), format!("{name}\n"));
        // The switch shows clients of loopback at the gateway's address.
        let client = if w.is_led_by_switch() { lab.gateway() } else { "127.0.0.1".to_owned() };
        assert_eq!(seen(&lab, name), client);
    }
    if let Some(address) = outside() {
        assert_eq!(page((address, ports[1]).into()), "two\n");
        // By packets the host's address is the container's own, too: pasta shows another one.
        if !w.has_packets() || w.is_led_by_switch() {
            assert_eq!(seen(&lab, "two"), address.to_string());
        }
    }
    let both = "for name in one two; do curl -sS http://$name/; done";
    assert_eq!(lab.run("client", both).ok().out(), "one\ntwo\n");
    // A port that is published already, and one that the host has given to somebody else.
    let again = |name: &str, publish: &str| {
        let done = lab.run_with(name, &["-p", publish], "true");
        done.expect(125);
        done.err()
    };
    let refused = again("again", &publish[0]);
    assert!(refused.contains("port is already allocated"), "{refused}");
    let other = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let taken = other.local_addr().expect("an address").port();
    let refused = again("stranger", &format!("127.0.0.1:{taken}:80"));
    assert!(refused.contains("port is already allocated"), "{refused}");
    Ok(())
}

/// Who has asked a server last.
fn seen(lab: &Lab<'_>, name: &str) -> String {
    let log = lab.exec(name, "tail -n 1 /var/log/nginx/access.log").ok().out();
    log.split(' ').next().unwrap_or_default().to_owned()
}
