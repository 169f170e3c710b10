//! A service behind a balancer: a further container until it answers, a balancer that is killed,
//! and requests through `HAProxy` in a container and on the host.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::trees;

use super::by_hand::ByHand;
use super::{NETWORKS, alone, beside, free_port, get, import_made};
use crate::net::place::Running;
use crate::places::as_measured;
use crate::{Bench, Line, median};
use xtask::shell::{Outcome, has, read};

const IMAGE: &str = "localhost/bench/grow:1";
/// Seconds until a further container answers, and without an answer when a balancer is killed.
const AIM_NEW: f64 = 0.5;
const AIM_KILLED: f64 = 1.0;
/// The greatest ratio of the host's requests to those through a container.
const AIM_REQUESTS: f64 = 1.02;
/// It has failed after so long.
const LIMIT: Duration = Duration::from_mins(1);
const GLANCE: Duration = Duration::from_millis(2);
/// So long is looked after a balancer was killed.
const AFTER: Duration = Duration::from_secs(3);
/// Seconds of each measurement of requests.
const LOAD: u32 = 4;
/// The balancer's file, in the container and on the host.
const BALANCER: &str = "global\n maxconn 1000\ndefaults\n mode http\n timeout connect 2s\n \
    timeout client 10s\n timeout server 10s\nlisten web\n bind 127.0.0.1:PORT\n \
    server one 127.0.0.1:SERVER\n";
/// A server of pages on the host.
const SERVER: &str = "daemon off;\nmaster_process off;\npid DIR/pid;\nerror_log stderr;\n\
    events {}\nhttp {\n access_log off;\n client_body_temp_path DIR;\n proxy_temp_path DIR;\n \
    fastcgi_temp_path DIR;\n uwsgi_temp_path DIR;\n scgi_temp_path DIR;\n \
    server { listen 127.0.0.1:SERVER; root DIR; }\n}\n";

pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !import_made(bench, "grow", trees::servers(), IMAGE)? {
        return Ok(Vec::new());
    }
    let by_hand = by_hand(bench).inspect_err(|why| {
        println!("SKIP bench cluster grow, Podman and HAProxy by hand: {why}");
    });
    let by_hand = by_hand.ok();
    let mut lines = Vec::new();
    for (network, words) in NETWORKS {
        let site = Site::start(bench, words)?;
        let measured = site.measure(network, by_hand);
        bench.coracle(&["cluster", "down", "grow"])?;
        lines.extend(measured?);
    }
    lines.push(pair(bench)?);
    lines.push(requests(bench)?);
    Ok(lines)
}

/// Seconds until a further container answers that Podman has started.
fn by_hand(bench: &Bench) -> Outcome<f64> {
    for program in ["podman", "runc", "haproxy"] {
        if !has(program) {
            return Err(format!("{program} is not installed"));
        }
    }
    let tree = trees::servers().map_err(|skip| skip.0)?;
    let started = ByHand::start(bench, &tree.display().to_string())?;
    let all: Outcome<Vec<f64>> = (0..bench.rounds).map(|_| started.further()).collect();
    all.map(median)
}

/// Asks by the service's name for so many seconds; prints for how long nobody answered.
const ASK: &str = "\
import socket, time
end, last, longest = time.time() + SECONDS, time.time(), 0
while time.time() < end:
    try:
        with socket.create_connection(('web', 80), 0.1) as one:
            one.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')
            good = one.recv(12) == b'HTTP/1.1 200'
    except OSError:
        good = False
    now = time.time()
    if good:
        longest, last = max(longest, now - last), now
    time.sleep(0.002)
print(longest)
";

/// A pair of balancers between which an address moves: the one that has it is killed.
fn pair(bench: &Bench) -> Outcome<Line> {
    let text = format!(
        "name = \"grow\"\nimage = {IMAGE:?}\nnetwork = \"overlay\"\n[service.web]\nreplicas = 2\n\
         ready = {{ http = \"80/\" }}\n\
         balance = {{ by = \"haproxy\", image = {IMAGE:?}, pair = true }}\n\
         command = [\"nginx\", \"-g\", \"daemon off;\"]\n"
    );
    let file = bench.scratch.path().join("pair.toml");
    fs::write(&file, text).map_err(|error| error.to_string())?;
    bench.coracle(&["cluster", "up", "-d", "-f", &file.display().to_string()])?;
    let mut gaps = Vec::new();
    let measured = (0..bench.rounds).try_for_each(|_| gap(bench).map(|seconds| gaps.push(seconds)));
    bench.coracle(&["cluster", "down", "grow"])?;
    measured?;
    let gap = median(gaps);
    let what = "HAProxy of a pair in `overlay` killed: without an answer by its name";
    Ok(alone(what, format!("{:.0} ms", gap * 1000.0), gap, AIM_KILLED, "s"))
}

/// The longest time without an answer while the balancer that has the address is killed.
fn gap(bench: &Bench) -> Outcome<f64> {
    let has = "hostname -I | grep -qw $(getent hosts web | cut -d ' ' -f 1)";
    let holds = |name: &&str| bench.coracle(&["exec", *name, "sh", "-c", has]).is_ok();
    let began = Instant::now();
    let holder = loop {
        let found = ["grow-web-balance-1", "grow-web-balance-2"].into_iter().find(holds);
        match found {
            Some(name) => break name,
            None if began.elapsed() > LIMIT => return Err("no balancer has the address".to_owned()),
            None => std::thread::sleep(GLANCE),
        }
    };
    let pid = bench.coracle(&["inspect", "--format", "{{.State.Pid}}", holder])?;
    let script = ASK.replace("SECONDS", &(AFTER.as_secs() + 1).to_string());
    let said = std::thread::scope(|scope| {
        let asking =
            scope.spawn(|| bench.coracle(&["exec", "grow-web-1", "python3", "-c", &script]));
        std::thread::sleep(Duration::from_secs(1));
        read(Command::new("kill").args(["-9", pid.trim()]))?;
        asking.join().map_err(|_| "a thread has ended".to_owned())?
    })?;
    said.trim().parse().map_err(|_| format!("no seconds: {said}"))
}

struct Site<'b> {
    bench: &'b Bench,
    file: String,
    port: u16,
}

impl<'b> Site<'b> {
    fn start(bench: &'b Bench, words: &str) -> Outcome<Self> {
        let port = free_port()?;
        let text = format!(
            "name = \"grow\"\nimage = {IMAGE:?}\n{words}\n[service.web]\n\
             publish = [\"127.0.0.1:{port}:80\"]\nready = {{ http = \"80/\" }}\n\
             balance = {{ by = \"haproxy\", image = {IMAGE:?} }}\n\
             command = \"hostname >/var/www/html/index.html; exec nginx -g 'daemon off;'\"\n"
        );
        let file = bench.scratch.path().join("grow.toml");
        fs::write(&file, text).map_err(|error| error.to_string())?;
        let file = file.display().to_string();
        bench.coracle(&["cluster", "up", "-d", "-f", &file])?;
        Ok(Self { bench, file, port })
    }

    fn measure(&self, network: &str, by_hand: Option<f64>) -> Outcome<Vec<Line>> {
        let (mut new, mut killed) = (Vec::new(), Vec::new());
        for _ in 0..self.bench.rounds {
            new.push(self.further()?);
            killed.push(self.killed()?);
        }
        let text = |seconds: f64| format!("{:.0} ms", seconds * 1000.0);
        let [new, killed] = [new, killed].map(median);
        let what = format!("`scale` until a new nginx answers behind HAProxy, {network}");
        let line = alone(&what, text(new), new, AIM_NEW, "s");
        Ok(vec![
            beside(line, "Podman and HAProxy by hand", by_hand.map(text)),
            alone("HAProxy killed: without an answer", text(killed), killed, AIM_KILLED, "s"),
        ])
    }

    /// Seconds until an answer fits.
    fn until(&self, fits: impl Fn(Option<&str>) -> bool) -> Outcome<f64> {
        let began = Instant::now();
        while !fits(get(self.port).as_deref()) {
            if began.elapsed() > LIMIT {
                return Err("the answer does not come".to_owned());
            }
            std::thread::sleep(GLANCE);
        }
        Ok(began.elapsed().as_secs_f64())
    }

    /// Seconds from the command until the second container answers.
    fn further(&self) -> Outcome<f64> {
        let scale =
            |count: &str| self.bench.coracle(&["cluster", "scale", "-f", &self.file, count]);
        let answered = std::thread::scope(|scope| {
            let scaled = scope.spawn(|| scale("web=2"));
            let is_new = |text: Option<&str>| text.is_some_and(|text| text.contains("web-2"));
            let answered = self.until(is_new);
            scaled.join().map_err(|_| "a thread has ended".to_owned())??;
            answered
        })?;
        scale("web=1")?;
        Ok(answered)
    }

    /// The longest time without an answer after the balancer was killed. Its second process may
    /// answer once more.
    fn killed(&self) -> Outcome<f64> {
        let inspect = ["inspect", "--format", "{{.State.Pid}}", "grow-web-balance-1"];
        let pid = self.bench.coracle(&inspect)?;
        read(Command::new("kill").args(["-9", pid.trim()]))?;
        let (began, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
        while began.elapsed() < AFTER || last.elapsed() > AFTER / 2 {
            if began.elapsed() > LIMIT {
                return Err("the balancer does not come back".to_owned());
            }
            if get(self.port).is_some() {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            std::thread::sleep(GLANCE);
        }
        Ok(longest.as_secs_f64())
    }
}

/// Requests through a balancer in a container with the host's network, and through one on the host.
fn requests(bench: &Bench) -> Outcome<Line> {
    let text = |error: std::io::Error| error.to_string();
    let owner = Some((bench.user.uid, bench.user.gid));
    let at = bench.scratch.dir("balancer", owner, 0o755).map_err(text)?;
    let [server, near, far] = [free_port()?, free_port()?, free_port()?];
    let written = |name: &str, template: &str, port: u16| -> Outcome<String> {
        let text = template
            .replace("DIR", &at.display().to_string())
            .replace("SERVER", &server.to_string())
            .replace("PORT", &port.to_string());
        fs::write(at.join(name), text).map_err(|error| error.to_string())?;
        Ok(at.join(name).display().to_string())
    };
    fs::write(at.join("index.html"), "page\n").map_err(text)?;
    let pages = written("nginx.conf", SERVER, 0)?;
    let (host, inside) = (written("host.cfg", BALANCER, near)?, written("in.cfg", BALANCER, far)?);
    let started = |words: &[&str]| {
        let mut all = as_measured(bench);
        all.extend(words.iter().map(|&word| word.to_owned()));
        Running::start(&all)
    };
    let _server = started(&["/usr/sbin/nginx", "-e", "stderr", "-c", &pages])?;
    let _host = started(&["/usr/sbin/haproxy", "-db", "-f", &host])?;
    let coracle = bench.coracle.display().to_string();
    let volume = format!("{inside}:/in.cfg:ro");
    let _inside = started(&[
        &coracle,
        "run",
        "--rm",
        "--execmode=I1",
        "--network",
        "host",
        "-v",
        &volume,
        IMAGE,
        "haproxy",
        "-db",
        "-f",
        "/in.cfg",
    ])?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        ours.push(load(far)?);
        theirs.push(load(near)?);
    }
    let [ours, theirs] = [ours, theirs].map(median);
    Ok(Line {
        ours: format!("{ours:.0}/s"),
        theirs: format!("{theirs:.0}/s"),
        value: theirs / ours,
        against: "HAProxy on the host".to_owned(),
        what: "requests through HAProxy in I1, network `host`".to_owned(),
        aim: AIM_REQUESTS,
        unit: "",
    })
}

/// Requests each second.
fn load(port: u16) -> Outcome<f64> {
    let began = Instant::now();
    while get(port).is_none() {
        if began.elapsed() > LIMIT {
            return Err(format!("nobody answers at port {port}"));
        }
        std::thread::sleep(GLANCE);
    }
    let seconds = format!("-d{LOAD}s");
    let url = format!("http://127.0.0.1:{port}/");
    let said = read(Command::new("wrk").args(["-t1", "-c16", &seconds, &url]))?;
    let found = said.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    found.and_then(|text| text.trim().parse().ok()).ok_or_else(|| format!("wrk: {said}"))
}
