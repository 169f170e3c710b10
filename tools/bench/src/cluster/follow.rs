//! A number of containers that follows a rule, from one up and down again under steps of load, and
//! the smallest number that keeps the rule's limit, which a sweep finds.

use std::fs;
use std::process::Command;

use testkit::trees;

use super::{NETWORKS, alone, fact, free_port, import_made};
use crate::{Bench, Line};
use xtask::shell::{Outcome, read};

const IMAGE: &str = "localhost/bench/follow:1";
/// The most containers.
const MOST: u32 = 6;
/// Milliseconds in which nine of ten requests are to be answered.
const LIMIT: f64 = 92.0;
/// The rule: `p90` is what wrk tells as well.
const RULE: &str = "{ min = 1, max = 6, up = \"p90 > 92ms for 2s\", \
    down = \"p90 < 40ms for 2s\", cool = \"2s\" }";
/// Each container answers so many requests a second, and lets the others wait: so the time of a
/// request depends on how many containers there are, and not on the machine.
const COMMAND: &str = "printf 'limit_req_zone $server_name zone=one:1m rate=50r/s;\\n\
    limit_req zone=one burst=1000;\\n' >/etc/nginx/conf.d/limit.conf; exec nginx -g 'daemon off;'";
/// Connections of the steps of load. Those of the low one wait between requests: a rule does not
/// come back to a number that was too small for as many requests.
const LOW: u32 = 1;
const HIGH: u32 = 16;
/// The pause of the low load, in wrk's Lua: milliseconds.
const PAUSE: &str = "function delay()\n return 50\nend\n";
/// Seconds of each load of the sweep, of the high load, and of the low one after it.
const SWEEP: u32 = 4;
const LONG: u32 = 40;
const AFTER: u32 = 45;

pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !import_made(bench, "follow", trees::servers(), IMAGE)? {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    for (network, words) in NETWORKS {
        let site = Site { bench, words, port: free_port()? };
        let measured = site.measure(network);
        bench.coracle(&["cluster", "down", "follow"])?;
        lines.extend(measured?);
    }
    Ok(lines)
}

struct Site<'b> {
    bench: &'b Bench,
    words: &'b str,
    port: u16,
}

/// What wrk has measured.
struct Load {
    /// Milliseconds in which nine of ten requests were answered.
    p90: f64,
    /// All requests, and those that were not answered well.
    all: u64,
    failed: u32,
}

impl Site<'_> {
    fn measure(&self, network: &str) -> Outcome<Vec<Line>> {
        let file = self.up("1")?;
        let mut times = Vec::new();
        for count in 1..=MOST {
            self.bench.coracle(&["cluster", "scale", "-f", &file, &format!("web={count}")])?;
            times.push(self.load(HIGH, SWEEP)?.p90);
        }
        self.bench.coracle(&["cluster", "down", "follow"])?;
        let list: Vec<String> = times.iter().map(|time| format!("{time:.0}")).collect();
        let list = list.join(", ");
        let keeps = times.iter().position(|time| *time <= LIMIT);
        let none = || format!("no number of containers keeps {LIMIT} ms: {list}");
        let smallest = keeps.ok_or_else(none)? as u32 + 1;

        self.up(RULE)?;
        let mut loads = vec![self.load(LOW, SWEEP)?];
        loads.push(self.load(HIGH, LONG)?);
        let most = self.count()?;
        loads.push(self.load(LOW, AFTER)?);
        let least = self.count()?;
        let all: u64 = loads.iter().map(|load| load.all).sum();
        let failed: u32 = loads.iter().map(|load| load.failed).sum();
        Ok(vec![
            alone(
                &format!(
                    "containers that a rule comes to, away from the {smallest} of a sweep, {network}"
                ),
                format!("{most}"),
                f64::from(most.abs_diff(smallest)),
                1.0,
                "",
            ),
            fact("90 % of requests answered by 1, 2, ... containers", list + " ms"),
            alone(
                "containers left when the load is gone, besides one",
                format!("{least}"),
                f64::from(least.abs_diff(1)),
                0.0,
                "",
            ),
            alone(
                &format!("requests that failed, of {all}: from 1 connection to 16 and back"),
                format!("{failed}"),
                f64::from(failed),
                0.0,
                "",
            ),
        ])
    }

    /// Starts the cluster with these replicas; returns the path of its file.
    fn up(&self, replicas: &str) -> Outcome<String> {
        let (words, port) = (self.words, self.port);
        let text = format!(
            "name = \"follow\"\nimage = {IMAGE:?}\n{words}\n[service.web]\n\
             publish = [\"127.0.0.1:{port}:80\"]\nready = {{ http = \"80/\" }}\n\
             balance = {{ by = \"haproxy\", image = {IMAGE:?} }}\n\
             replicas = {replicas}\ncommand = {COMMAND:?}\n"
        );
        let file = self.bench.scratch.path().join("follow.toml");
        fs::write(&file, text).map_err(|error| error.to_string())?;
        let file = file.display().to_string();
        self.bench.coracle(&["cluster", "up", "-d", "-f", &file])?;
        Ok(file)
    }

    /// Has wrk ask with so many connections for so many seconds.
    fn load(&self, connections: u32, seconds: u32) -> Outcome<Load> {
        let script = self.bench.scratch.path().join("pause.lua");
        fs::write(&script, PAUSE).map_err(|error| error.to_string())?;
        let mut wrk = Command::new("wrk");
        wrk.args(["-t1", "--latency", "--timeout", "10s"]);
        if connections == LOW {
            wrk.arg("-s").arg(&script);
        }
        wrk.args([format!("-c{connections}"), format!("-d{seconds}s")]);
        let said = read(wrk.arg(format!("http://127.0.0.1:{}/", self.port)))?;
        let after = |start: &str| said.lines().find_map(|line| line.trim().strip_prefix(start));
        let p90 = after("90%").and_then(milliseconds).ok_or_else(|| format!("wrk: {said}"))?;
        let all =
            said.lines().find_map(|line| line.trim().split_once(" requests in ")?.0.parse().ok());
        let count = |text: &str| text.rsplit(' ').next().and_then(|last| last.parse::<u32>().ok());
        let bad = after("Non-2xx or 3xx responses:").and_then(count).unwrap_or(0);
        let sockets: u32 =
            after("Socket errors:").map_or(0, |text| text.split(',').filter_map(count).sum());
        Ok(Load { p90, all: all.unwrap_or(0), failed: bad + sockets })
    }

    /// How many containers there are.
    fn count(&self) -> Outcome<u32> {
        let filter = ["ps", "-q", "--filter", "label=coracle.service=web"];
        Ok(self.bench.coracle(&filter)?.lines().count() as u32)
    }
}

/// A time as wrk writes it: `81.20ms`, `1.02s`, `950.00us`.
fn milliseconds(text: &str) -> Option<f64> {
    let text = text.trim();
    for (unit, factor) in [("ms", 1.0), ("us", 0.001), ("s", 1000.0)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Some(number.parse::<f64>().ok()? * factor);
        }
    }
    None
}
