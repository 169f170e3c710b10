//! Tests of what administrators use: `sshd` on port 22, `iperf3`, `dig`; and names in a static
//! program of another C library.

use testkit::skip::Outcome;
pub(crate) use testkit::ssh::SERVER as SSHD;

use crate::servers::In;
use crate::servers::stage::{Case, World, guest};

pub(crate) const CASES: &[(&str, In, Case)] = &[
    ("sshd", In::All, sshd),
    ("iperf3", In::First, iperf3),
    ("dig", In::First, dig),
    ("musl", In::First, musl),
];

/// Logins from one container into another, on the port of the service.
fn sshd(w: &World) -> Outcome {
    let lab = w.lab();
    for name in ["one", "two"] {
        lab.serve(name, SSHD);
        lab.expect(name, "listening on 0.0.0.0");
    }
    let done = lab.exec(
        "one",
        "cd /; ssh two 'hostname; echo $SSH_CONNECTION; exit 3' || echo code $?
        hostname -i; head -c 3000000 /dev/urandom > /sent; scp -q /sent two:/got; ssh two cat /got | cmp - /sent
        ssh two 'ssh one hostname'; ssh -tt two tty </dev/null | tr -d '\\r'
        ssh -f -N -o ExitOnForwardFailure=yes -o ControlPath=/ctl -o ControlMaster=yes -L 8022:two:22 two
        ssh -p 8022 localhost hostname; ssh -o ControlPath=/ctl -O exit two 2>/dev/null",
    );
    let out = done.ok().out();
    let lines: Vec<&str> = out.lines().collect();
    let (one, two) = (lab.name("one"), lab.name("two"));
    let [name, connection, code, client, back, terminal, forwarded] = lines[..] else {
        panic!("{done:?}")
    };
    assert_eq!((name, code, back, forwarded), (&*two, "code 3", &*one, &*two), "{done:?}");
    let ends: Vec<&str> = connection.split(' ').collect();
    assert_eq!((ends[0], ends[2], ends[3]), (client, &*lab.address("two"), "22"), "{done:?}");
    assert!(terminal.starts_with("/dev/pts/"), "{done:?}");
    Ok(())
}

/// Streams both ways, several at once, and datagrams: what was sent arrives.
fn iperf3(w: &World) -> Outcome {
    let lab = w.lab();
    lab.serve("meter", "exec iperf3 -s --forceflush");
    lab.expect("meter", "Server listening");
    let done = lab.run(
        "client",
        "m() { iperf3 -c meter --connect-timeout 5000 \"$@\" > /said || { cat /said; exit 1; }; grep -c ' receiver' /said; }
        m -n 64M; m -n 64M -R; m -n 32M -P 4; m -u -b 50M -t 1 -l 1200; m -u -b 50M -t 1 -R -l 1200
        for try in 1 2 3 4 5; do iperf3 -c meter -J -n 8M > /json && break; sleep 1; done # it may be busy
        < /json tr -d '\"\\t ,' | sed -n 's/^\\(local_host\\|remote_host\\):/\\1 /p'; hostname -i",
    );
    let out = done.ok().out();
    let lines: Vec<&str> = out.lines().collect();
    let [.., client] = lines[..] else { panic!("{done:?}") };
    let ends = [format!("local_host {client}"), format!("remote_host {}", lab.address("meter"))];
    assert_eq!(lines[..5], ["1", "1", "5", "1", "1"], "{done:?}");
    assert_eq!(lines[5..7], ends, "{done:?}");
    Ok(())
}

/// Questions by both protocols: addresses, names of addresses, services; what a name has not, and
/// names that are not there. Those are the host's to know, which may have no server.
fn dig(w: &World) -> Outcome {
    let lab = w.lab();
    let wait = "sleep 1000";
    for name in ["one", "two"] {
        lab.serve_with(name, &["--network-alias", "both"], wait);
    }
    let (one, two, network) = (lab.address("one"), lab.address("two"), &lab.network);
    let reversed = |address: &str| address.split('.').rev().collect::<Vec<_>>().join(".");
    let done = lab.run(
        "client",
        &format!(
            "ask() {{ dig +noall +comments +answer +tries=2 +time=5 \"$@\" | sed -n 's/.*status: \\([A-Z]*\\),.*/\\1/p; s/^[^;].*IN//p' | tr -s '\\t ' ' '; }}
            for by in +notcp +tcp; do
                ask $by one; ask $by both | sort; ask $by -x {one}; ask $by {}.in-addr.arpa PTR
                ask $by _8080._tcp.two SRV; ask $by one AAAA; ask $by nobody.{network} A | sed 's/^SERVFAIL/NXDOMAIN/; 1q'; ask $by ONE.{network}
            done",
            reversed(&two)
        ),
    );
    let expected = format!(
        "NOERROR\n A {one}\n A {one}\n A {two}\nNOERROR\nNOERROR\n PTR {0}.{network}.\nNOERROR\n PTR {1}.{network}.\n\
         NOERROR\n SRV 0 0 8080 {1}.{network}.\nNOERROR\nNXDOMAIN\nNOERROR\n A {one}\n",
        lab.name("one"),
        lab.name("two"),
    );
    assert_eq!(done.ok().out(), expected.repeat(2), "{done:?}");
    // Both orders come, if one asks a few times.
    let script = "for i in 1 2 3 4 5 6 7 8; do dig +short both | head -n 1; done | sort -u | wc -l";
    assert_eq!(lab.run("client", script).ok().line(), "2");
    Ok(())
}

/// musl asks for IPv4 and IPv6 at once, and takes "no such name" of one for both.
fn musl(w: &World) -> Outcome {
    let lab = w.lab();
    lab.serve("web", "echo page > /var/www/html/index.html; exec nginx -g 'daemon off;'");
    lab.serve("client", "sleep 1000");
    lab.write("client", "/get.c", guest("get.c"));
    let done = lab.exec(
        "client",
        "musl-gcc -static -O1 -o /get /get.c; wait_for /get web 80; grep -v web /etc/hosts > /h; cat /h > /etc/hosts; grep -c web /etc/hosts || true
        /get web 80; /get web.$1 80 2>&1 || true; /get nobody 80 || echo code $?"
            .replace("$1", &lab.network)
            .as_str(),
    );
    let address = lab.address("web");
    let page = format!("{address}\npage\n");
    assert_eq!(done.ok().out(), format!("0\n{page}{page}no such name\ncode 2\n"), "{done:?}");
    Ok(())
}
