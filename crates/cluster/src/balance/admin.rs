//! What HAProxy answers at its admin socket.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::Server;
use super::front::MARK;
use crate::scale::histogram::Histogram;

/// A server as a balancer has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name and address.
    pub server: Server,
    /// It takes new requests: it is neither drained nor in maintenance by somebody's word.
    pub takes: bool,
}

/// What a server does at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Active {
    /// Its name.
    pub name: String,
    /// Requests and connections that it has, and those that wait for it.
    pub count: u64,
    /// It is well and takes requests.
    pub is_ready: bool,
}

/// What a balancer has counted since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Requests, or connections where it does not know requests.
    pub requests: u64,
    /// How long it has run.
    pub uptime: Duration,
}

/// Times of requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Requests {
    /// The times of those that were not seen before.
    pub times: Histogram,
    /// The numbers of all that the balancer still has.
    pub seen: BTreeSet<u64>,
}

/// A table whose head names its columns.
struct Table<'t> {
    head: Vec<&'t str>,
    rows: Vec<Vec<&'t str>>,
}

impl<'t> Table<'t> {
    /// Reads a table whose head begins with `# `; what is before it is passed over.
    fn parse(text: &'t str, cells: fn(&'t str) -> Vec<&'t str>) -> Option<Self> {
        let mut lines = text.lines().skip_while(|line| !line.starts_with("# "));
        let head = cells(lines.next()?.strip_prefix("# ")?);
        let rows = lines.filter(|line| !line.is_empty()).map(cells);
        Some(Self { rows: rows.collect(), head })
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.head.iter().position(|other| *other == name)
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn commas(line: &str) -> Vec<&str> {
    line.split(',').collect()
}

/// Forced maintenance, and forced drain: `srv_admin_state` of `show servers state`.
const OUT: u32 = 0x01;
const DRAINED: u32 = 0x08;

/// Reads the answer to `show servers state PROXY`. `None` for another answer.
pub fn found(text: &str) -> Option<Vec<Found>> {
    let table = Table::parse(text, words)?;
    let columns = ["srv_name", "srv_addr", "srv_admin_state"].map(|name| table.column(name));
    let [Some(name), Some(address), Some(state)] = columns else { return None };
    let row = |cells: &Vec<&str>| {
        let state: u32 = cells.get(state)?.parse().ok()?;
        let address = cells.get(address)?.parse().unwrap_or(Ipv4Addr::UNSPECIFIED);
        let server = Server { name: (*cells.get(name)?).to_owned(), address };
        Some(Found { server, takes: state & (OUT | DRAINED) == 0 })
    };
    table.rows.iter().map(row).collect()
}

/// Reads the servers in the answer to `show stat`. `None` for another answer.
pub fn active(text: &str) -> Option<Vec<Active>> {
    let table = Table::parse(text, commas)?;
    let columns = ["svname", "scur", "qcur", "status"].map(|name| table.column(name));
    let [Some(name), Some(has), Some(waits), Some(status)] = columns else { return None };
    let number = |cell: &str| if cell.is_empty() { Some(0) } else { cell.parse::<u64>().ok() };
    let row = |cells: &Vec<&str>| {
        let count = number(cells.get(has)?)? + number(cells.get(waits)?)?;
        let status = *cells.get(status)?;
        // "UP 1/2" is one that is about to be taken for down.
        let is_ready = status.starts_with("UP") || status == "no check";
        Some(Active { name: (*cells.get(name)?).to_owned(), count, is_ready })
    };
    let is_server =
        |cells: &&Vec<&str>| !matches!(cells.get(name), Some(&("FRONTEND" | "BACKEND")));
    table.rows.iter().filter(is_server).map(row).collect()
}

/// Reads the counters of the front ends in the answer to `show stat`, and the time of the one to
/// `show info`. `None` for another answer.
pub fn counted(stat: &str, info: &str) -> Option<Counted> {
    let uptime = info.lines().find_map(|line| line.strip_prefix("Uptime_sec: "))?;
    let uptime = Duration::from_secs(uptime.trim().parse().ok()?);
    let table = Table::parse(stat, commas)?;
    let columns = ["svname", "stot", "req_tot"].map(|name| table.column(name));
    let [Some(name), Some(connections), Some(requests)] = columns else { return None };
    let mut sum = 0;
    for cells in table.rows.iter().filter(|cells| cells.get(name) == Some(&"FRONTEND")) {
        // Without HTTP there are no requests.
        let cell = cells.get(requests).filter(|cell| !cell.is_empty());
        sum += cell.or(cells.get(connections))?.parse::<u64>().ok()?;
    }
    Some(Counted { requests: sum, uptime })
}

/// Reads the answer to `show events`: the times of requests whose numbers were not `seen` when it
/// was asked before. A number is given when a request comes, and its line is written when it ends.
pub fn requests(text: &str, seen: &BTreeSet<u64>) -> Requests {
    let mut found = Requests::default();
    for line in text.lines() {
        let mut words = line.split(' ');
        if words.next() != Some(MARK) {
            continue;
        }
        let Some(number) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
        let Some([waited, connected, answered, all]) = numbers(words) else { continue };
        if !found.seen.insert(number) || seen.contains(&number) {
            continue;
        }
        // -1 is the time of what a request did not get to: it was given up after all of its time.
        let time = if waited < 0 || connected < 0 || answered < 0 {
            all.max(0)
        } else {
            waited + connected + answered
        };
        found.times.add(Duration::from_millis(time.cast_unsigned()));
    }
    found
}

/// The four numbers of a line.
fn numbers<'w>(words: impl Iterator<Item = &'w str>) -> Option<[i64; 4]> {
    let all: Option<Vec<i64>> = words.map(|word| word.parse().ok()).collect();
    all?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATE: &str = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state\n\
        3 web-80 1 web-1 127.0.0.1 2 0\n3 web-80 2 web-2 127.0.0.2 0 1\n\
        3 web-80 3 web-3 127.0.0.3 2 8\n\n";
    const STAT: &str = "# pxname,svname,qcur,qmax,scur,stot,status,req_tot,\n\
        web-80,FRONTEND,,,3,7,OPEN,12,\nweb-80,web-1,1,1,2,6,UP,,\nweb-80,web-2,0,0,0,6,UP 1/2,,\n\
        web-80,web-3,0,0,0,0,MAINT,,\nweb-80,BACKEND,0,0,0,9,UP,,\n\n";

    #[test]
    fn servers_and_what_they_do() {
        let takes: Vec<bool> = found(STATE).unwrap().into_iter().map(|one| one.takes).collect();
        assert_eq!(takes, [true, false, false]);
        assert_eq!(found("Can't find backend.\n"), None);
        let all = active(STAT).unwrap();
        let all: Vec<_> = all.iter().map(|one| (&*one.name, one.count, one.is_ready)).collect();
        assert_eq!(all, [("web-1", 3, true), ("web-2", 0, true), ("web-3", 0, false)]);
    }

    #[test]
    fn requests_are_counted_once() {
        let info = "Name: HAProxy\nUptime_sec: 7\n";
        let of = |requests| Some(Counted { requests, uptime: Duration::from_secs(7) });
        assert_eq!(counted(STAT, info), of(12));
        assert_eq!(counted(&STAT.replace(",12,", ",,"), info), of(7));
        assert_eq!(counted(STAT, ""), None);
        let text = "Server web is UP.\nt 5 0 0 3 3\nt 4 0 1 7 9\nt 6 0 0 -1 60000\nt 8 0\n";
        let first = requests("t 4 0 1 7 9\n", &BTreeSet::new());
        assert_eq!((first.times.total(), first.seen.len()), (1, 1));
        let second = requests(text, &first.seen);
        assert_eq!((second.times.total(), second.seen.len()), (2, 3));
        assert!(second.times.percentile(99) >= Some(Duration::from_mins(1)));
        // One that has taken longer than others that came later.
        let third = requests("t 7 0 0 1 1\nt 3 0 0 3000 3000\n", &second.seen);
        assert_eq!(third.times.total(), 2);
    }
}
