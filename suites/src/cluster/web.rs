//! Services behind `HAProxy`: more and fewer containers, new ones in their place, a balancer that
//! is killed, and a number that follows a rule, all while requests come in.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use testkit::command::until;
use testkit::skip::Outcome;

use crate::cluster::services::page;
use crate::cluster::world::{Lab, port};

/// A case that needs the servers' image.
type Case = (&'static str, fn(&Lab<'_>) -> Outcome);

pub(crate) const CASES: &[Case] = &[
    ("balanced", balanced),
    ("busy", busy),
    ("held", held),
    ("killed", killed),
    ("left_over", left_over),
    ("pair", pair),
    ("replaced", replaced),
    ("rule", rule),
    ("refused", refused),
    ("pair_moves", pair_moves),
];

/// How long a change may take on a busy machine.
const LONG: Duration = Duration::from_mins(1);

/// A service of nginx whose pages tell which container has answered.
fn site(image: &str, port: u16, replicas: &str) -> String {
    format!(
        r#"
name = "site"
image = "{image}"
[service.web]
publish = ["127.0.0.1:{port}:80"]
replicas = {replicas}
ready = {{ http = "80/" }}
balance = {{ by = "haproxy", image = "{image}", drain = "5s" }}
command = "hostname >/var/www/html/index.html; exec nginx -g 'daemon off;'"
"#
    )
}

/// A port that nobody has at present.
pub(crate) fn free_port() -> u16 {
    port().0
}

/// The page of the container that answers a request.
fn answer(port: u16) -> Option<String> {
    let text = page(port).filter(|text| text.starts_with("HTTP/1.1 200 "))?;
    text.lines().last().map(str::to_owned)
}

/// Asks until exactly these containers have answered, each of them in a row of requests.
pub(crate) fn answered_by(port: u16, names: &[&str]) {
    let mut last = Vec::new();
    let found = until(LONG, || {
        let mut found: Vec<String> = (0..4 * names.len()).filter_map(|_| answer(port)).collect();
        found.sort();
        found.dedup();
        last = found;
        (last == names).then_some(())
    });
    assert!(found.is_some(), "{names:?} should answer, and {last:?} do");
}

/// Clients that ask again and again while `work` is done: some with a connection for each request,
/// some with one that they keep. Returns how many requests were answered; all have to be.
pub(crate) fn under_load(port: u16, pause: Duration, work: impl FnOnce()) -> u32 {
    let (over, good, bad) = (AtomicBool::new(false), AtomicU32::new(0), Mutex::new(Vec::new()));
    let count = |answer: Result<(), String>| match answer {
        Ok(()) => drop(good.fetch_add(1, Ordering::Relaxed)),
        Err(why) => bad.lock().unwrap().push(why),
    };
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (over, count) = (&over, &count);
            scope.spawn(move || {
                let mut kept = None;
                while !over.load(Ordering::Relaxed) {
                    if number % 2 == 0 {
                        kept = None;
                    }
                    let began = Instant::now();
                    let asked = ask(&mut kept, port);
                    count(asked.map_err(|why| format!("{why} after {:?}", began.elapsed())));
                    std::thread::sleep(pause);
                }
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|payload| std::panic::resume_unwind(payload));
    });
    let bad = bad.into_inner().unwrap();
    assert!(bad.is_empty(), "{} requests have failed: {:?}", bad.len(), &bad[..bad.len().min(5)]);
    good.into_inner()
}

/// Asks by a connection that is there, or by a new one, and keeps it: the balancer closes it after
/// ten seconds of rest alone.
fn ask(kept: &mut Option<BufReader<TcpStream>>, port: u16) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let stream = match kept {
        Some(stream) => stream,
        none => {
            let stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), LONG)
                .map_err(text)?;
            stream.set_read_timeout(Some(LONG)).map_err(text)?;
            none.insert(BufReader::new(stream))
        }
    };
    let request = b"GET / HTTP/1.1\r\nHost: site\r\n\r\n";
    stream.get_mut().write_all(request).map_err(text)?;
    let (mut line, mut length, mut head) = (String::new(), 0, String::new());
    loop {
        line.clear();
        if stream.read_line(&mut line).map_err(text)? == 0 {
            return Err("the connection is closed".to_owned());
        }
        head += &line;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().map_err(|_| line.clone())?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).map_err(text)?;
    if head.starts_with("HTTP/1.1 200 ") {
        return Ok(());
    }
    Err(format!("{head:?} {:?}", String::from_utf8_lossy(&body)))
}

/// More containers and fewer while requests come; a balancer that is killed knows all of them.
fn balanced(lab: &Lab<'_>) -> Outcome {
    let (image, port) = (lab.servers()?, free_port());
    lab.file(&site(image, port, "2"));
    let plan = lab.cluster("explain", &[]).ok().out();
    assert!(plan.contains("a server for each container of web"), "{plan}");
    lab.cluster("up", &["-d"]).ok();
    assert_eq!(lab.containers(), ["site-web-1", "site-web-2", "site-web-balance-1"]);
    answered_by(port, &["web-1", "web-2"]);
    let asked = under_load(port, Duration::from_millis(5), || {
        let done = lab.cluster("scale", &["web=4"]);
        assert!(done.ok().err().contains("web has 4 containers, and had 2"), "{done:?}");
        answered_by(port, &["web-1", "web-2", "web-3", "web-4"]);
        lab.cluster("scale", &["web=1"]).ok();
        answered_by(port, &["web-1"]);
        lab.cluster("scale", &["web=3"]).ok();
    });
    assert!(asked > 20, "{asked} requests");

    // By somebody who does not ask Coracle: what is ended by it is not started again.
    let pid = lab.run(&["inspect", "--format", "{{.State.Pid}}", "site-web-balance-1"]).ok().out();
    lab.script(&format!("kill -9 {pid}")).ok();
    answered_by(port, &["web-1", "web-2", "web-3"]);
    // What is there stays, and is known again.
    let up = lab.cluster("up", &["-d"]);
    assert!(up.ok().err().contains("was up already"), "{up:?}");
    answered_by(port, &["web-1", "web-2", "web-3"]);
    let status = lab.cluster("status", &[]).ok().out();
    assert!(status.contains("web-balance"), "{status}");
    lab.cluster("scale", &["web=0"]).ok();
    let text = page(port).unwrap_or_default();
    assert!(text.contains(" 503 "), "{text}");
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// Starts two containers behind two balancers, of which `up` says this.
fn paired(lab: &Lab<'_>, network: &str, said: &str) -> Outcome {
    let text = site(lab.servers()?, 0, "2").replace("127.0.0.1:0:80", "80");
    let text = text.replace("by = \"haproxy\"", "by = \"haproxy\", pair = true");
    lab.file(&format!("network = {network:?}{text}"));
    let up = lab.cluster("up", &["-d"]);
    assert!(up.ok().err().contains(said), "{up:?}");
    Ok(())
}

/// Two balancers: where one is killed the other answers.
fn pair(lab: &Lab<'_>) -> Outcome {
    paired(lab, "names", "tries the other balancer: the name web")?;
    let port = |number: u32| -> u16 {
        let said = lab.run(&["port", &format!("site-web-balance-{number}"), "80"]).ok().out();
        let port = said.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        port.unwrap_or_else(|| panic!("{said}"))
    };
    answered_by(port(1), &["web-1", "web-2"]);
    answered_by(port(2), &["web-1", "web-2"]);
    under_load(port(2), Duration::from_millis(5), || {
        let format = ["inspect", "--format", "{{.State.Pid}}", "site-web-balance-1"];
        let pid = lab.run(&format).ok().out();
        lab.script(&format!("kill -9 {pid}")).ok();
        // By the name that leads to both.
        let page = lab.run(&["exec", "site-web-1", "curl", "-sS", "http://web/"]);
        assert!(page.ok().out().starts_with("web-"), "{page:?}");
        lab.cluster("scale", &["web=3"]).ok();
    });
    answered_by(port(1), &["web-1", "web-2", "web-3"]);
    answered_by(port(2), &["web-1", "web-2", "web-3"]);
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// Two balancers between which an address moves: clients that know the service's name alone go on
/// when either is killed, and the address stays where it has moved to.
fn pair_moves(lab: &Lab<'_>) -> Outcome {
    paired(lab, "overlay", "leads to the balancer that has its address")?;
    let shell = |container: &str, script: &str| lab.run(&["exec", container, "sh", "-c", script]);
    // Who asks many times a second, and says what was not answered and when all was well again.
    let asks = "last=; until [ -e /over ]; do \
                if curl -sS -m 1 http://web/ >/tmp/page 2>/tmp/why; then now=good; else now=bad; fi; \
                [ $now = \"$last\" ] || echo $now; last=$now; sleep 0.05; done >/asked";
    lab.run(&["exec", "-d", "site-web-1", "sh", "-c", asks]).ok();
    let holders = || {
        let has = |number: &u32| {
            let name = format!("site-web-balance-{number}");
            shell(&name, "hostname -I | grep -qw $(getent hosts web | cut -d ' ' -f 1)").code() == 0
        };
        (1..=2).filter(has).collect::<Vec<u32>>()
    };
    let asked = || shell("site-web-1", "tail -n 1 /asked").out();
    assert!(until(LONG, || (asked() == "good\n").then_some(())).is_some(), "{}", asked());
    for _ in 0..2 {
        let one = until(LONG, || Some(holders()).filter(|all| all.len() == 1)).expect("a holder");
        let name = format!("site-web-balance-{}", one[0]);
        let pid = lab.run(&["inspect", "--format", "{{.State.Pid}}", &name]).ok().out();
        lab.script(&format!("kill -9 {pid}")).ok();
        let other = [3 - one[0]];
        let back = || shell(&name, "curl -sS http://localhost/").out().starts_with("web-");
        let moved = until(LONG, || (holders() == other && back()).then_some(()));
        assert!(moved.is_some(), "{:?}, {}", holders(), shell("site-web-1", "cat /asked").out());
        let good = until(LONG, || (asked() == "good\n").then_some(()));
        assert!(good.is_some(), "{}", shell("site-web-1", "cat /asked").out());
        // One that is back for longer than it takes to miss the other leaves it the address.
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(holders(), other);
        let page = shell("site-web-2", "curl -sS http://web/");
        assert!(page.ok().out().starts_with("web-"), "{page:?}");
    }
    shell("site-web-1", "touch /over").ok();
    lab.cluster("scale", &["web=3"]).ok();
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// A `scale` that is killed at any moment is mended by the next one; `down` in the middle of one
/// ends all.
fn killed(lab: &Lab<'_>) -> Outcome {
    let (image, port) = (lab.servers()?, free_port());
    lab.file(&site(image, port, "1"));
    lab.cluster("up", &["-d"]).ok();
    let file = lab.dir.join("lab.toml").display().to_string();
    let scale = |count: &str| {
        let mut command = lab.command(&["cluster", "scale", "-f", &file, count]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("coracle")
    };
    for (count, wait) in [("web=3", 30), ("web=1", 150), ("web=3", 300), ("web=2", 600)] {
        let mut child = scale(count);
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().expect("a kill");
        child.wait().expect("its end");
        lab.cluster("scale", &["web=2"]).ok();
        answered_by(port, &["web-1", "web-2"]);
        let all = ["site-web-1", "site-web-2", "site-web-balance-1"];
        assert_eq!(lab.containers(), all, "after {count} and {wait} ms");
    }
    let mut child = scale("web=5");
    std::thread::sleep(Duration::from_millis(200));
    // The other one may be at work for longer than a command waits, which is to be repeated then.
    let down = until(LONG, || {
        let done = lab.cluster("down", &[]);
        (!done.err().contains("is being changed by another process")).then_some(done)
    });
    down.expect("an end of the other command").ok();
    child.wait().expect("its end");
    lab.is_clean();
    Ok(())
}

/// The next `scale` does not believe that what a killed one has begun and asked to stop is there:
/// it waits until the former is ready, and has another one in the place of the latter.
fn left_over(lab: &Lab<'_>) -> Outcome {
    let (image, port) = (lab.servers()?, free_port());
    // All but the first begin when they may, and each takes a second to end.
    let command = "touch /out/begun-$(hostname); \
        until [ $(hostname) = web-1 -o -e /out/may ]; do sleep 0.1; done; \
        hostname >/var/www/html/index.html; nginx; \
        trap 'touch /out/asked-$(hostname); sleep 1; exit' TERM; while :; do sleep 600 & wait; done";
    let old = "hostname >/var/www/html/index.html; exec nginx -g 'daemon off;'";
    let text = site(image, port, "1").replace(old, command);
    let text = text.replace("publish", "volume = [\"./out:/out\"]\npublish");
    lab.file(&text);
    lab.world.person.dir(&format!("{}/out", lab.dir.display()));
    lab.cluster("up", &["-d"]).ok();
    let file = lab.dir.join("lab.toml").display().to_string();
    let scale = |count: &str| {
        let mut command = lab.command(&["cluster", "scale", "-f", &file, count]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("coracle")
    };
    let killed_after = |count: &str, mark: &str| {
        let path = lab.dir.join("out").join(mark);
        let _ = std::fs::remove_file(&path);
        let mut child = scale(count);
        let is_there = until(LONG, || path.exists().then_some(()));
        child.kill().expect("a kill");
        child.wait().expect("its end");
        assert!(is_there.is_some(), "{mark} is not there");
    };

    killed_after("web=2", "begun-web-2");
    let mut next = scale("web=2");
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(next.try_wait().expect("a child"), None, "it does not wait for web-2");
    lab.world.person.file(&lab.dir.join("out/may"), "");
    assert!(next.wait().expect("its end").success());
    answered_by(port, &["web-1", "web-2"]);

    killed_after("web=1", "asked-web-2");
    lab.cluster("scale", &["web=2"]).ok();
    // What was asked to stop would have ended then.
    std::thread::sleep(Duration::from_millis(1500));
    answered_by(port, &["web-1", "web-2"]);

    killed_after("web=1", "asked-web-2");
    lab.file(&text.replace("replicas = 1", "replicas = 2"));
    lab.cluster("up", &["-d"]).ok();
    std::thread::sleep(Duration::from_millis(1500));
    answered_by(port, &["web-1", "web-2"]);
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// New containers take the place of the old ones, and no request is lost; where a new one does not
/// become ready, the old ones stay.
fn replaced(lab: &Lab<'_>) -> Outcome {
    let (image, port) = (lab.servers()?, free_port());
    let text = site(image, port, "2");
    let other = "\n[service.tool]\ncommand = \"echo first >/tmp/word; exec sleep 600\"\n\
        ready = { command = [\"cat\", \"/tmp/word\"] }\n";
    lab.file(&format!("{text}{other}"));
    lab.cluster("up", &["-d"]).ok();
    let newer = text.replace("hostname >", "echo new-$(hostname) >");
    lab.file(&format!("{newer}{}", other.replace("first", "second")));
    under_load(port, Duration::from_millis(5), || {
        lab.cluster("replace", &["web", "tool"]).ok();
    });
    answered_by(port, &["new-web-1", "new-web-2"]);
    let word = || lab.run(&["exec", "site-tool-1", "cat", "/tmp/word"]).ok().out();
    assert_eq!(word(), "second\n");
    // As a `replace` leaves it that was killed when it had stopped the old one.
    lab.run(&["stop", "site-tool-1"]).ok();
    lab.cluster("replace", &["tool"]).ok();
    assert_eq!(word(), "second\n");

    lab.file(&format!(
        "{newer}{}",
        other.replace("first >/tmp/word", "third").replace(" }\n", ", within = \"2s\" }\n")
    ));
    let failed = lab.cluster("replace", &["tool"]);
    assert!(failed.expect(1).err().contains("site-tool-1 is not ready after 2s"), "{failed:?}");
    assert_eq!(word(), "second\n");
    lab.file(
        &newer
            .replace("exec nginx", "exec sleep 600")
            .replace("80/\" }", "80/\", within = \"2s\" }"),
    );
    let failed = lab.cluster("replace", &["web"]);
    assert!(failed.expect(1).err().contains("site-web-3 is not ready"), "{failed:?}");
    answered_by(port, &["new-web-1", "new-web-2"]);
    let names = ["site-tool-1", "site-web-1", "site-web-2", "site-web-balance-1"];
    assert_eq!(lab.containers(), names);
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// A server that has so much to do that it takes a second to answer, also when its balancer looks
/// whether it is well, is not taken for dead.
fn busy(lab: &Lab<'_>) -> Outcome {
    let (image, port) = (lab.servers()?, free_port());
    let limit = "printf 'limit_req_zone $server_name zone=one:1m rate=5r/s;\\n\
        limit_req zone=one burst=100;\\n' >/etc/nginx/conf.d/limit.conf; hostname";
    lab.file(&site(image, port, "1").replace("\"hostname", &format!("\"{limit}")));
    lab.cluster("up", &["-d"]).ok();
    let answered = under_load(port, Duration::ZERO, || std::thread::sleep(Duration::from_secs(3)));
    // The limit is what makes them wait.
    assert!(answered < 40, "{answered} requests");
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// A client that never ends what it is at does not keep a container for ever: its connection is
/// closed after `drain`, and one at another container goes on.
fn held(lab: &Lab<'_>) -> Outcome {
    const BIG: usize = 50_000_000;
    let (image, port) = (lab.servers()?, free_port());
    let big = format!("head -c {BIG} /dev/zero >/var/www/html/big; hostname");
    let text = site(image, port, "2").replace("\"hostname", &format!("\"{big}"));
    lab.file(&text.replace("drain = \"5s\"", "drain = \"1s\""));
    lab.cluster("up", &["-d"]).ok();
    // Each is sent to another container.
    let mut held = [(); 2].map(|()| {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let mut stream = TcpStream::connect_timeout(&address, LONG).expect("a connection");
        stream.set_read_timeout(Some(LONG)).expect("a limit");
        stream.write_all(b"GET /big HTTP/1.0\r\n\r\n").expect("a request");
        stream.read_exact(&mut [0; 1000]).expect("the begin of the answer");
        stream
    });
    let done = lab.cluster("scale", &["web=1"]);
    let said = done.ok().err();
    assert!(said.contains("web-2: connections closed that were not over within 1s: 1"), "{said}");
    let mut got: Vec<usize> = held
        .iter_mut()
        .map(|stream| {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            rest.len()
        })
        .collect();
    got.sort_unstable();
    assert!(got[0] < BIG && got[1] + 1000 > BIG, "{got:?}");
    answered_by(port, &["web-1"]);
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// A number that follows a rule: it grows with the requests, and shrinks when they are over.
fn rule(lab: &Lab<'_>) -> Outcome {
    let (image, port) = (lab.servers()?, free_port());
    let replicas = "{ min = 1, max = 3, up = \"rate/replica > 20 for 1s\", \
         down = \"rate/replica < 8 for 2s\", cool = \"1s\" }";
    lab.file(&site(image, port, replicas));
    let up = lab.cluster("up", &["-d"]);
    let said = up.ok().err();
    let log = said.lines().find_map(|line| line.strip_prefix("it is followed in the background: "));
    let log = log.unwrap_or_else(|| panic!("{said}")).to_owned();
    let told = || std::fs::read_to_string(&log).unwrap_or_default();
    let serving = || {
        let all = lab.containers().into_iter();
        all.filter(|name| name.starts_with("site-web-") && !name.contains("balance")).count()
    };
    let has = |count| until(LONG, || (serving() == count).then_some(()));
    assert_eq!(serving(), 1);
    // A second one would only disturb.
    let second = lab.cluster("watch", &[]);
    assert!(second.expect(1).err().contains("another process follows cluster site"), "{second:?}");
    under_load(port, Duration::from_millis(10), || {
        assert!(has(3).is_some(), "it does not grow: {}", told());
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(serving(), 3, "{}", told());
    });
    assert!(has(1).is_some(), "it does not shrink: {}", told());
    let text = told();
    assert!(text.contains(" web: 1 -> 2, because rate/replica > 20 for 1s: "), "{text}");
    assert!(text.contains(" web: 2 -> 1, because rate/replica < 8 for 2s: "), "{text}");
    lab.cluster("down", &[]).ok();
    Ok(())
}

/// Mistakes of those who scale.
fn refused(lab: &Lab<'_>) -> Outcome {
    let (image, port) = (lab.servers()?, free_port());
    let text = site(image, port, "1");
    lab.file(&text);
    let down = lab.cluster("scale", &["web=2"]);
    assert!(down.expect(1).err().contains("cluster site is not up"), "{down:?}");
    lab.cluster("up", &["-d"]).ok();
    for (words, fact) in [
        (&["web"][..], "\"web\" is not SERVICE=N"),
        (&["web=-1"], "\"web=-1\" is not SERVICE=N"),
        (&["web=1001"], "\"web=1001\" is not SERVICE=N"),
        (&["wep=2"], "has no service \"wep\""),
        (&["web=2", "wep=2"], "has no service \"wep\""),
    ] {
        let done = lab.cluster("scale", words);
        let said = done.err();
        assert!(done.code() != 0 && said.contains(fact) && said.contains("hint: "), "{said}");
    }
    assert_eq!(lab.containers(), ["site-web-1", "site-web-balance-1"]);
    let watch = lab.cluster("watch", &[]);
    assert!(
        watch.expect(1).err().contains("the file has no rule that could be followed"),
        "{watch:?}"
    );
    lab.cluster("down", &[]).ok();
    Ok(())
}
