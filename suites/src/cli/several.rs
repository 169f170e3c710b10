//! Networks of several hosts: inviting, joining lists, what is shown, and bad input. Two homes
//! stand for two machines; nothing runs in them.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::Value;
use tempfile::TempDir;

use testkit::skip::{Outcome, Skip};

use crate::cli::{Case, coracle, printed, transcript};

pub(super) const CASES: &[(&str, Case)] = &[
    ("a_host_invites_another_one", a_host_invites_another_one),
    ("internal_networks_are_so_on_all_hosts", internal_networks_are_so_on_all_hosts),
    ("keys_are_for_their_user_only", keys_are_for_their_user_only),
    (
        "mistakes_when_a_network_of_several_hosts_is_made",
        mistakes_when_a_network_of_several_hosts_is_made,
    ),
    ("lists_that_are_refused", lists_that_are_refused),
    ("epochs_tell_lists_apart", epochs_tell_lists_apart),
];

/// Both have this machine's address; the other one's agent has this port.
const PORT: &str = "--port=7371";

/// This machine's address at the interface that leads to others, if it has one.
static OWN: LazyLock<Option<String>> = LazyLock::new(|| {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // No packet is sent.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then(|| address.to_string())
});

fn own() -> &'static str {
    OWN.as_deref().unwrap_or_default()
}

/// The option that names it.
fn address() -> Result<String, Skip> {
    let own =
        OWN.as_ref().ok_or_else(|| Skip("this machine has no address but loopback".into()))?;
    Ok(format!("--address={own}"))
}

/// What is different each time: keys, the host's name, ids.
fn plain(text: &str) -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = if own().is_empty() { line.to_owned() } else { line.replace(own(), "ADDRESS") };
        let line = match line.split_once("ed25519:") {
            Some((before, key)) => {
                let rest = key
                    .trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "+/=".contains(c));
                format!("{before}ed25519:KEY{rest}")
            }
            None => line,
        };
        let words = line.split(' ').map(|word| match word.trim_matches('"') {
            name if name == host.trim() => word.replace(name, "HOST"),
            _ => word.to_owned(),
        });
        lines.push(words.collect::<Vec<_>>().join(" "));
    }
    lines.join("\n")
}

struct Hosts {
    /// The option that names the address of both.
    address: String,
    one: TempDir,
    other: TempDir,
    files: TempDir,
}

impl Hosts {
    /// Two hosts, and a network that the first one has made.
    fn new() -> Result<Self, Skip> {
        let dir = || TempDir::new().unwrap();
        let hosts = Self { address: address()?, one: dir(), other: dir(), files: dir() };
        hosts.create();
        Ok(hosts)
    }

    fn create(&self) {
        let at = &*self.address;
        let create = ["network", "create", "--scope=cluster", at, "--subnet=10.209.0.0/24", "far"];
        printed(self.one.path(), &create);
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn invited(&self, home: &Path) -> String {
        let _ = self;
        printed(home, &["network", "invite", "far"])
    }

    /// The entries of both.
    fn entries(&self) -> [String; 2] {
        let first = self.invited(self.one.path());
        let file = self.file("first.toml", &first);
        join(self.other.path(), &file, &[&self.address, PORT]);
        [first, self.invited(self.other.path())]
    }

    /// What is said when a list cannot be joined; without the directory.
    fn refused(&self, home: &Path, text: &str, more: &[&str]) -> String {
        let file = self.file("hosts.toml", text);
        let file = format!("--member={}", file.display());
        let words = [&["network", "join", "far", &file], more].concat();
        let output = coracle(home, &words);
        assert!(!output.status.success(), "{}", transcript(&output));
        let directory = format!("{}/", self.files.path().display());
        plain(&transcript(&output).replace(&directory, ""))
    }
}

/// Joins; what is said beside the network's name.
fn join(home: &Path, file: &Path, more: &[&str]) -> String {
    let file = format!("--member={}", file.display());
    let output = coracle(home, &[&["network", "join", "far", &file], more].concat());
    assert!(output.status.success(), "{}", transcript(&output));
    assert_eq!(output.stdout, b"far\n");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn cluster(home: &Path) -> Value {
    let text = printed(home, &["network", "inspect", "-f", "{{json .Cluster}}", "far"]);
    serde_json::from_str(&text).unwrap()
}

fn a_host_invites_another_one() -> Outcome {
    let hosts = Hosts::new()?;
    let (one, other) = (hosts.one.path(), hosts.other.path());
    let first = hosts.invited(one);
    insta::assert_snapshot!(plain(&first), @r#"
    [[member]]
    name = "HOST"
    address = "ADDRESS"
    port = 7370
    key = "ed25519:KEY"
    subnet = "10.209.0.0/24"
    "#);
    let file = hosts.file("first.toml", &first);
    insta::assert_snapshot!(join(other, &file, &[&hosts.address, PORT]), @r"
    warning: this host is not in the list, so no container here can use network far; add its entry ('coracle network invite far' prints it), and join the list on all hosts
    ");
    let second = hosts.invited(other);
    assert!(second.contains(&format!("address = \"{}\"\nport = 7371\n", own())), "{second}");
    assert!(second.contains("subnet = \"10.209.0.0/24\"\n"), "{second}");
    assert_eq!(cluster(other)["Slice"], Value::Null);
    // What `cat` makes of both.
    let list = hosts.file("hosts.toml", &(first.clone() + &second));
    assert_eq!(join(one, &list, &[]), "");
    assert_eq!(join(other, &list, &[]), "");
    assert_eq!(join(other, &list, &[]), "", "again");
    assert_eq!(hosts.invited(other), second, "the key stays");
    let seen = cluster(other);
    assert_eq!((&seen["Epoch"], &seen["Port"]), (&1.into(), &7371.into()));
    assert_eq!((&seen["Slice"], &seen["Joined"]), (&"10.209.0.16/28".into(), &true.into()));
    let states: Vec<_> = (0..2).map(|at| seen["Hosts"][at]["State"].clone()).collect();
    assert_eq!(states, ["down", "this host"]);
    let why = "no container of this host is in the network, or its agent has ended";
    assert_eq!(seen["Hosts"][0]["Why"], why);
    // A key is shown by its beginning.
    let key = first.lines().find_map(|line| line.strip_prefix("key = ")).unwrap();
    let key = key.trim_matches('"');
    let all = printed(other, &["network", "inspect", "far"]);
    assert!(!all.contains(key) && all.contains(&format!("{}...", &key[..16])), "{all}");
    assert!(all.contains("\"Scope\": \"cluster\""), "{all}");
    let listed = printed(one, &["network", "ls", "--filter=scope=cluster", "--format={{.Name}}"]);
    assert_eq!(listed, "far\n");
    // It is kept from `prune`, and gone with `rm`.
    printed(one, &["network", "prune", "-f"]);
    assert_eq!(hosts.invited(one), first);
    printed(one, &["network", "rm", "far"]);
    hosts.create();
    assert_ne!(hosts.invited(one), first, "another key");
    Ok(())
}

/// Whether members have a way out is the network's, on all hosts.
fn internal_networks_are_so_on_all_hosts() -> Outcome {
    let hosts = Hosts::new()?;
    let (one, other) = (hosts.one.path(), hosts.other.path());
    printed(one, &["network", "rm", "far"]);
    let create = ["network", "create", "--scope=cluster", "--internal", &hosts.address, "far"];
    printed(one, &create);
    let entry = hosts.invited(one);
    assert!(entry.ends_with("internal = true\n"), "{entry}");
    join(other, &hosts.file("list.toml", &entry), &[&hosts.address, PORT]);
    let shown = printed(other, &["network", "inspect", "far", "-f", "{{.Internal}}"]);
    assert_eq!(shown, "true\n");
    let said = hosts.refused(one, &entry.replace("internal = true\n", ""), &[]);
    assert!(said.contains("internal = false differs from this host's network"), "{said}");
    Ok(())
}

fn keys_are_for_their_user_only() -> Outcome {
    use std::os::unix::fs::PermissionsExt as _;
    let hosts = Hosts::new()?;
    let networks = hosts.one.path().join(".local/share/coracle/networks/far");
    let networks = if networks.exists() { networks } else { found(hosts.one.path()).unwrap() };
    let keys: Vec<PathBuf> = fs::read_dir(&networks)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("key-"))
        .collect();
    assert_eq!(keys.len(), 1, "{}", networks.display());
    assert_eq!(fs::metadata(&keys[0]).unwrap().permissions().mode() & 0o777, 0o600);
    fs::set_permissions(&keys[0], fs::Permissions::from_mode(0o644)).unwrap();
    let output = coracle(hosts.one.path(), &["network", "invite", "far"]);
    assert!(transcript(&output).contains("others may read it"), "{}", transcript(&output));
    Ok(())
}

/// The directory of the network, wherever the store is.
fn found(directory: &Path) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.filter_map(Result::ok).find_map(|entry| {
        let path = entry.path();
        if path.ends_with("networks/far") { Some(path) } else { found(&path) }
    })
}

fn mistakes_when_a_network_of_several_hosts_is_made() -> Outcome {
    let home = TempDir::new().unwrap();
    let create = |words: &[&str]| {
        let output = coracle(home.path(), &[&["network", "create"], words].concat());
        assert!(!output.status.success(), "{words:?}");
        transcript(&output)
    };
    insta::assert_snapshot!(create(&["--address=10.0.0.1", "far"]), @r"
    error: --address is for networks of several hosts
      hint: give --scope cluster too, or leave it out
    status 1
    ");
    let foreign = create(&["--scope=cluster", "--address=203.0.113.9", "far"]);
    assert!(
        foreign.starts_with("error: address 203.0.113.9 is none of this host's\n  hint: its ad")
    );
    for loopback in ["127.0.0.1", "127.0.71.1"] {
        let text = create(&["--scope=cluster", &format!("--address={loopback}"), "far"]);
        let fact = format!("error: address {loopback} is loopback, where no other host reaches");
        assert!(text.starts_with(&fact) && text.contains("\n  hint: give the address"), "{text}");
    }
    let at = &*address()?;
    for (words, part) in [
        (&["--address=x"][..], "--address 'x' is not an IPv4 address"),
        (&["--port=0", at], "--port 0 is no port"),
        (&["--port=70000", at], "70000"),
        (&["--port=9-7", at], "9 comes after 7"),
        (&["--subnet=10.209.0.0/29", at], "has at most 28 bits"),
        (&["--subnet=10.209.0.0/24", "--ip-range=10.209.0.0/25", at], "--ip-range is not possible"),
        (&["--subnet=10.209.0.0/24", "--gateway=10.209.0.9", at], "--gateway is not possible"),
    ] {
        let text = create(&[&["--scope=cluster"], words, &["far"]].concat());
        assert!(text.contains(part) && text.contains("\n  hint: "), "{words:?}: {text}");
    }
    assert_eq!(printed(home.path(), &["network", "ls", "-q"]).lines().count(), 3);
    printed(home.path(), &["network", "create", "near"]);
    let output = coracle(home.path(), &["network", "invite", "near"]);
    insta::assert_snapshot!(transcript(&output), @r"
    error: network near has the scope host: its members are on one host
      hint: make one of several hosts: coracle network create --scope cluster NAME, and leave near as it is
    status 1
    ");
    Ok(())
}

fn lists_that_are_refused() -> Outcome {
    let hosts = Hosts::new()?;
    let one = hosts.one.path();
    let [first, second] = hosts.entries();
    let both = format!("{first}\n{second}");
    let refused = |text: &str| hosts.refused(one, text, &[]);
    insta::assert_snapshot!(refused(&first.replace("address", "adress")), @r"
    error: hosts.toml:3: there is no key 'adress'
      hint: did you mean 'address'?
    status 1
    ");
    insta::assert_snapshot!(refused(&first.replace("=\"\nsubnet", "\"\nsubnet")), @r"
    error: hosts.toml:5: key '...': it is not ed25519:KEY and 44 characters of base64
      hint: copy it from what 'coracle network invite' prints on that host
    status 1
    ");
    insta::assert_snapshot!(refused(&format!("{first}\n{first}")), @r"
    error: hosts.toml:8: HOST and HOST have the same key
      hint: a host is listed once; make a network of its own on a copied machine
    status 1
    ");
    let key = second.lines().find(|line| line.starts_with("key")).unwrap();
    let same_place = first.lines().map(|line| if line.starts_with("key") { key } else { line });
    let same_place: Vec<&str> = same_place.collect();
    insta::assert_snapshot!(refused(&format!("{first}\n{}", same_place.join("\n"))), @r"
    error: hosts.toml:8: HOST and HOST have the same address and port ADDRESS:7370
      hint: give one of them another address or port, and invite it again
    status 1
    ");
    insta::assert_snapshot!(refused(&both.replacen("10.209.0.0/24", "10.210.0.0/24", 1)), @r"
    error: hosts.toml:8: subnet 10.209.0.0/24 differs from 10.210.0.0/24 of HOST
      hint: all hosts have the same subnet: make the network on one host, and join its list on the others
    status 1
    ");
    insta::assert_snapshot!(refused(&both.replace("10.209.0.0/24", "10.210.0.0/24")), @r"
    error: hosts.toml:1: subnet 10.210.0.0/24 differs from 10.209.0.0/24 of this host's network
      hint: remove it here and join again (coracle network rm far), or choose another name
    status 1
    ");
    let near = refused(&both.replacen(own(), "127.0.71.1", 1));
    assert!(near.starts_with("error: hosts.toml:1: address 127.0.71.1 is loopback"), "{near}");
    let foreign = refused(&both.replacen(own(), "203.0.113.9", 1));
    let fact =
        "error: hosts.toml:1: address 203.0.113.9 is none of this host's\n  hint: its addresses";
    assert!(foreign.starts_with(fact), "{foreign}");
    insta::assert_snapshot!(refused(&both.replacen(own(), "10.209.0.9", 1)), @r"
    error: hosts.toml:1: address 10.209.0.9 lies in the network's own subnet 10.209.0.0/24
      hint: write the address at which other hosts reach it
    status 1
    ");
    insta::assert_snapshot!(refused("epoch = \"x\"\n"), @r"
    error: hosts.toml:1: epoch is not a number from 1 to 9223372036854775807
      hint: count the lists: epoch = 2
    status 1
    ");
    insta::assert_snapshot!(refused("[[member]\n"), @r"
    error: hosts.toml:1: unclosed array table, expected `]`
      hint: 'coracle network invite' prints entries
    status 1
    ");
    insta::assert_snapshot!(refused(""), @r"
    error: hosts.toml: it names no host
      hint: 'coracle network invite NETWORK' prints the entry of a host
    status 1
    ");
    let named =
        both.lines().map(|line| if line.starts_with("name") { "name = \"a b\"" } else { line });
    let named: Vec<&str> = named.collect();
    insta::assert_snapshot!(refused(&named.join("\n")), @r#"
    error: hosts.toml:1: name "a b" is not a host name
      hint: use letters, digits, '-', '_' and '.'
    status 1
    "#);
    insta::assert_snapshot!(hosts.refused(one, &both, &["--port=9"]), @r"
    error: hosts.toml:1: this host has ADDRESS:7370 there, and not what was given
      hint: leave --address and --port out, or correct the list
    status 1
    ");
    let missing = coracle(one, &["network", "join", "far", "--member=/nothing"]);
    insta::assert_snapshot!(transcript(&missing), @r"
    error: cannot read the list /nothing
      cause: No such file or directory (os error 2)
      hint: 'coracle network invite NETWORK' prints the entry of a host
    status 1
    ");
    let unsaid = coracle(one, &["network", "join", "far"]);
    assert!(!unsaid.status.success() && transcript(&unsaid).contains("--member"));
    assert_eq!(cluster(one)["Joined"], false, "nothing was joined");
    printed(one, &["network", "create", "near"]);
    let list = format!("--member={}", hosts.file("hosts.toml", &both).display());
    let near = coracle(one, &["network", "join", "near", &list]);
    insta::assert_snapshot!(transcript(&near), @r"
    error: network near has the scope host: its members are on one host
      hint: make one of several hosts: coracle network create --scope cluster NAME, and leave near as it is
    status 1
    ");
    Ok(())
}

fn epochs_tell_lists_apart() -> Outcome {
    let hosts = Hosts::new()?;
    let one = hosts.one.path();
    let [first, second] = hosts.entries();
    let list = |epoch: u64, entries: &[&str]| {
        let head = if epoch == 1 { String::new() } else { format!("epoch = {epoch}\n") };
        head + &entries.concat()
    };
    let joined = |text: &str| join(one, &hosts.file("joined.toml", text), &[]);
    joined(&list(1, &[&first]));
    joined(&list(1, &[&first, &second]));
    insta::assert_snapshot!(hosts.refused(one, &list(1, &[&first]), &[]), @r"
    error: hosts.toml: epoch 1 was joined before with another entry of HOST
      hint: hosts may be added at the end; for every other change raise 'epoch', and join the list on all hosts
    status 1
    ");
    let moved = second.replace("port = 7371", "port = 7372");
    insta::assert_snapshot!(hosts.refused(one, &list(1, &[&first, &moved]), &[]), @r"
    error: hosts.toml:7: epoch 1 was joined before with another entry of HOST
      hint: hosts may be added at the end; for every other change raise 'epoch', and join the list on all hosts
    status 1
    ");
    joined(&list(3, &[&first, &moved]));
    insta::assert_snapshot!(hosts.refused(one, &list(2, &[&first, &second]), &[]), @r"
    error: hosts.toml: epoch 2 is lower than 3, which was joined before
      hint: join the newest list
    status 1
    ");
    joined(&list(4, &[&first, &format!("{second}revoked = true\n")]));
    let seen = cluster(one);
    assert_eq!((&seen["Epoch"], &seen["Hosts"][1]["State"]), (&4.into(), &"revoked".into()));
    // This host itself.
    let warned = joined(&list(5, &[&format!("{first}revoked = true\n"), &second]));
    assert!(warned.contains("this host has left network far"), "{warned}");
    assert!(!warned.contains("add its entry"), "{warned}");
    let seen = cluster(one);
    assert_eq!(seen["Hosts"][1]["Why"], "this host is not in the list, or has left");
    let warned = joined(&list(6, &[&second]));
    assert!(warned.contains("this host is not in the list"), "{warned}");
    Ok(())
}
