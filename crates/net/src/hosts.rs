//! The names of networks in a container's `/etc/hosts` (hosts(5)).
//!
//! Coracle owns the lines between [`BEGIN`] and [`END`] and leaves the others as they are: those of
//! `--add-host`, and what the container has written itself. A container's file is mounted into its
//! tree, so [`write`] changes the file that is there and never puts another one in its place.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::net::IpAddr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use sys::ofd::{OfdLock, try_ofd_lock};

use crate::definition::Definition;
use crate::error::{Error, Result};
use crate::members::Entry;
pub use crate::names::is_name;

/// The line before the lines of networks.
pub const BEGIN: &str = "# coracle: names of networks";
/// The line behind them.
pub const END: &str = "# coracle: end of names";

/// How many digits of a container's id are a name of it.
const SHORT: usize = 12;
/// How long is waited for others that write to a hosts file.
const WAIT: Duration = Duration::from_millis(200);
/// See gethostname(2).
const HOST_NAME_MAX: usize = 64;

/// The name of a container that others can use: its own, or the beginning of its id where that is
/// no name of a host.
pub fn name<'a>(name: &'a str, id: &'a str) -> &'a str {
    if is_name(name) && name.len() <= HOST_NAME_MAX { name } else { id.get(..SHORT).unwrap_or(id) }
}

/// A network and its members.
pub type Named<'a> = (&'a Definition, &'a [Entry]);

/// The lines for a container: `ADDRESS<tab>NAME ALIASES... SHORT_ID NAME.NETWORK`, one for each
/// member of each of its networks, and behind it one for the member's IPv6 address if it has one;
/// then `ADDRESS<tab>NAME NAME.NETWORK` for auxiliary addresses. The container's own lines come
/// first, because a program that looks its own address up takes the first one.
pub fn lines(own: &str, networks: &[Named<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    for is_own in [true, false] {
        for (network, entries) in networks {
            for entry in entries.iter().filter(|entry| (entry.id == own) == is_own) {
                let named = || (&*entry.name, names(entry));
                lines.push(line(&network.name, named(), entry.address.into()));
                if let Some(address) = entry.ipv6(network.ipv6) {
                    lines.push(line(&network.name, named(), address.into()));
                }
            }
        }
    }
    for (network, _) in networks {
        for (name, address) in &network.auxiliary {
            lines.push(line(&network.name, (name, vec![name]), (*address).into()));
        }
    }
    lines
}

/// The line of an address, with the names that lead to it; `own` with the network's name, too.
fn line(network: &str, (own, mut names): (&str, Vec<&str>), address: IpAddr) -> String {
    let whole = format!("{own}.{network}");
    if is_name(&whole) {
        names.push(&whole);
    }
    format!("{address}\t{}", names.join(" "))
}

/// The names of a member in each of its networks: its own, its aliases, and the beginning of its
/// id.
pub fn names(entry: &Entry) -> Vec<&str> {
    let short = entry.id.get(..SHORT).unwrap_or(&entry.id);
    let aliases = entry.aliases.iter().map(String::as_str);
    let mut names = Vec::with_capacity(entry.aliases.len() + 3);
    for name in std::iter::once(entry.name.as_str()).chain(aliases).chain([short]) {
        if is_name(name) && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Adds the host name of a container to its own line, if neither `others`, the rest of its hosts
/// file, nor the line has it: a container that was renamed keeps the host name that it has begun
/// with, and its programs look that up. `own`: its id.
pub fn keep_host_name(lines: &mut [String], own: &str, others: &str, name: &str) {
    let has = |line: &str, wanted: &str| {
        let text = line.split('#').next().unwrap_or_default();
        text.split_whitespace().skip(1).any(|word| word.eq_ignore_ascii_case(wanted))
    };
    if !is_name(name) || name.len() > HOST_NAME_MAX || others.lines().any(|line| has(line, name)) {
        return;
    }
    let short = own.get(..SHORT).unwrap_or(own);
    if lines.iter().any(|line| has(line, short) && has(line, name)) {
        return;
    }
    if let Some(line) = lines.iter_mut().find(|line| has(line, short)) {
        line.push(' ');
        line.push_str(name);
    }
}

/// A hosts file's text with other lines of networks, which stand at the end if there were none. No
/// lines remove the block.
///
/// A beginning without an end, which a program in the container may have left, does not count as a
/// block: the lines behind it may be the program's.
pub fn rewrite(text: &str, lines: &[String]) -> String {
    let mut block = String::new();
    if !lines.is_empty() {
        let _ = writeln!(block, "{BEGIN}");
        for line in lines {
            let _ = writeln!(block, "{line}");
        }
        let _ = writeln!(block, "{END}");
    }
    let whole = text.strip_suffix('\n').unwrap_or(text);
    let all: Vec<&str> = if text.is_empty() { Vec::new() } else { whole.split('\n').collect() };
    let begin = all.iter().position(|line| *line == BEGIN);
    let end = begin.and_then(|begin| Some(begin + all[begin..].iter().position(|l| *l == END)?));
    let mut written = String::with_capacity(text.len() + block.len());
    let mut push = |lines: &[&str]| {
        for line in lines.iter().filter(|line| **line != BEGIN && **line != END) {
            written.push_str(line);
            written.push('\n');
        }
        written.len()
    };
    let at = match (begin, end) {
        (Some(begin), Some(end)) => {
            let at = push(&all[..begin]);
            push(&all[end + 1..]);
            at
        }
        _ => push(&all),
    };
    written.insert_str(at, &block);
    written
}

/// Puts other lines of networks into the hosts file at `path`, which must exist. The file keeps its
/// inode. Its text is written over the old one before the rest is cut off, so a program that reads
/// meanwhile never sees an empty file.
///
/// `lines` gives the lines, from the rest of the file. It is called when no other process writes to
/// the file, so that of several that write at once the last one writes what is true by then.
///
/// # Errors
/// [`Error::Hosts`] if it cannot be opened, read or written; those of `lines`.
pub fn write(path: &Path, lines: impl FnOnce(&str) -> Result<Vec<String>>) -> Result<()> {
    let fail = |step| {
        let path = path.to_owned();
        move |source| Error::Hosts { step, path, source }
    };
    let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(fail("open"))?;
    // A program in the container may hold the lock, so it is not waited for long.
    let until = Instant::now() + WAIT;
    while try_ofd_lock(&file, OfdLock::Exclusive).is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut bytes).map_err(fail("read"))?;
    let old = String::from_utf8_lossy(&bytes);
    let new = rewrite(&old, &lines(&rewrite(&old, &[]))?);
    if new.as_bytes() == bytes {
        return Ok(());
    }
    file.write_all_at(new.as_bytes(), 0).map_err(fail("write"))?;
    file.set_len(new.len() as u64).map_err(fail("truncate"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn entry(id: &str, name: &str, aliases: &[&str], last: u8) -> Entry {
        Entry {
            id: id.repeat(64),
            name: name.into(),
            aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
            address: Ipv4Addr::new(100, 80, 0, last),
            slot: 0,
            kind: crate::Kind::Names,
            since: 0,
        }
    }

    fn network(name: &str) -> Definition {
        Definition::of(name, "100.80.0.0/24")
    }

    /// The address of the first line that has a name, as a resolver reads the file (hosts(5)).
    fn look_up(text: &str, name: &str) -> Option<Ipv4Addr> {
        text.lines().find_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let address = words.next()?.parse().ok()?;
            words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
        })
    }

    const OWN: &str = "127.0.0.1\tlocalhost\n10.0.0.9\tadded\n";

    #[test]
    fn own_names_come_first() {
        let lab = [entry("a", "db", &["sql", "db"], 2), entry("b", "web", &["x y", ""], 3)];
        let other = [entry("b", "web", &[], 7)];
        let vip = [("vip".to_owned(), Ipv4Addr::new(100, 80, 0, 254))].into();
        let networks = [
            (&Definition { auxiliary: vip, ..network("lab") }, &lab[..]),
            (&network("other"), &other[..]),
        ];
        let lines = lines(&"b".repeat(64), &networks);
        assert_eq!(
            lines,
            [
                "100.80.0.3\tweb bbbbbbbbbbbb web.lab",
                "100.80.0.7\tweb bbbbbbbbbbbb web.other",
                "100.80.0.2\tdb sql aaaaaaaaaaaa db.lab",
                "100.80.0.254\tvip vip.lab",
            ]
        );
        let text = rewrite(OWN, &lines);
        assert_eq!(look_up(&text, "WEB"), Some(Ipv4Addr::new(100, 80, 0, 3)));
        assert_eq!(look_up(&text, "sql"), Some(Ipv4Addr::new(100, 80, 0, 2)));
        assert_eq!(look_up(&text, "db.lab"), Some(Ipv4Addr::new(100, 80, 0, 2)));
        assert_eq!(look_up(&text, "added"), Some(Ipv4Addr::new(10, 0, 0, 9)));
        assert_eq!((look_up(&text, "coracle:"), look_up(&text, "y")), (None, None));
    }

    /// A container that was renamed finds itself by its host name; the others do not.
    #[test]
    fn the_host_name_stays() {
        let members = [entry("a", "new", &[], 2), entry("b", "web", &[], 3)];
        let own = "a".repeat(64);
        let kept = |others: &str, name: &str| {
            let mut lines = lines(&own, &[(&network("lab"), &members[..])]);
            keep_host_name(&mut lines, &own, others, name);
            lines[0].clone()
        };
        let line = "100.80.0.2\tnew aaaaaaaaaaaa new.lab";
        assert_eq!(kept(OWN, "old"), format!("{line} old"));
        assert_eq!(kept("100.80.0.2\told\n", "old"), line);
        assert_eq!(kept("# 100.80.0.2 old\n", "old"), format!("{line} old"));
        assert_eq!((kept(OWN, "new"), kept(OWN, "a b")), (line.to_owned(), line.to_owned()));
        let mut of_others = lines(&"c".repeat(64), &[(&network("lab"), &members[..])]);
        keep_host_name(&mut of_others, &"c".repeat(64), OWN, "old");
        assert!(of_others.iter().all(|line| !line.contains("old")), "{of_others:?}");
    }

    #[test]
    fn members_by_packets_have_a_line_for_ipv6() {
        let six = Definition { ipv6: Some("fd00::/64".parse().unwrap()), ..network("lab") };
        let mut lab = [entry("a", "db", &[], 2), entry("b", "web", &[], 3)];
        let own = "b".repeat(64);
        assert_eq!(lines(&own, &[(&six, &lab[..])]).len(), 2, "they are without devices");
        for entry in &mut lab {
            entry.kind = crate::Kind::Packets;
        }
        assert_eq!(
            lines(&own, &[(&six, &lab[..])]),
            [
                "100.80.0.3\tweb bbbbbbbbbbbb web.lab",
                "fd00::6450:3\tweb bbbbbbbbbbbb web.lab",
                "100.80.0.2\tdb aaaaaaaaaaaa db.lab",
                "fd00::6450:2\tdb aaaaaaaaaaaa db.lab",
            ]
        );
        assert_eq!(lines(&own, &[(&network("lab"), &lab[..])]).len(), 2);
    }

    #[test]
    fn only_the_block_changes() {
        let lines = |count: u8| (1..=count).map(|n| format!("1.1.1.{n}\tn{n}")).collect::<Vec<_>>();
        let first = rewrite(OWN, &lines(1));
        assert_eq!(first, format!("{OWN}{BEGIN}\n1.1.1.1\tn1\n{END}\n"));
        assert_eq!(rewrite(&first, &lines(1)), first, "twice is once");
        let more = format!("{first}9.9.9.9\tlater\n");
        let second = rewrite(&more, &lines(2));
        assert_eq!(
            second,
            format!("{OWN}{BEGIN}\n1.1.1.1\tn1\n1.1.1.2\tn2\n{END}\n9.9.9.9\tlater\n")
        );
        assert_eq!(rewrite(&second, &[]), format!("{OWN}9.9.9.9\tlater\n"));
        assert_eq!(rewrite(&rewrite("", &lines(1)), &[]), "");
        assert_eq!(rewrite("\n\n1.1.1.1 a\r\n", &[]), "\n\n1.1.1.1 a\r\n");
        // A last line without an end.
        assert!(rewrite("1.1.1.1 a", &lines(1)).starts_with("1.1.1.1 a\n# coracle"));
    }

    #[test]
    fn a_damaged_block_takes_no_line_with_it() {
        let lines = ["1.1.1.1\tn".to_owned()];
        let block = format!("{BEGIN}\n1.1.1.1\tn\n{END}\n");
        let without_end = format!("{OWN}{BEGIN}\n2.2.2.2\tmine\n");
        assert_eq!(rewrite(&without_end, &lines), format!("{OWN}2.2.2.2\tmine\n{block}"));
        let reversed = format!("{END}\n2.2.2.2\tmine\n{BEGIN}\n3.3.3.3\tx\n");
        assert_eq!(rewrite(&reversed, &lines), format!("2.2.2.2\tmine\n3.3.3.3\tx\n{block}"));
    }

    #[test]
    fn the_inode_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hosts");
        assert!(matches!(write(&path, |_| Ok(Vec::new())), Err(Error::Hosts { step: "open", .. })));
        std::fs::write(&path, OWN).unwrap();
        let bound = std::fs::File::open(&path).unwrap();
        let inode = || std::fs::metadata(&path).unwrap().ino();
        let before = inode();
        write(&path, |_| Ok(vec!["1.1.1.1\ta".into(), "1.1.1.2\tb".into()])).unwrap();
        assert_eq!(inode(), before);
        let seen = std::io::read_to_string(&bound).unwrap();
        assert!(seen.starts_with(OWN) && seen.ends_with(&format!("{END}\n")), "{seen}");
        write(&path, |_| Ok(Vec::new())).unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap(), inode()), (OWN.to_owned(), before));
    }
}
