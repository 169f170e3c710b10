//! Services: their order, names, ports and volumes, and what goes wrong with them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use testkit::command::until;
use testkit::skip::Outcome;

use crate::cluster::Case;
use crate::cluster::world::{BOX, Lab, port};

pub(crate) const SIX: Case = ("six_services", six_services);

pub(crate) const CASES: &[Case] = &[
    SIX,
    ("never_ready", never_ready),
    ("ends_at_once", ends_at_once),
    ("ended_well", ended_well),
    ("starts_again", starts_again),
    ("image_is_missing", image_is_missing),
    ("port_is_taken", port_is_taken),
    ("up_twice", up_twice),
    ("two_stores", two_stores),
    ("foreign_objects_stay", foreign_objects_stay),
];

/// How long a server may take for an answer.
const SOON: Duration = Duration::from_secs(5);

/// The first page of a server on this machine.
pub(crate) fn page(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&(Ipv4Addr::LOCALHOST, port).into(), SOON).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Each service notes when it starts, and fails if what it waits for is not there yet.
fn six_services(lab: &Lab<'_>) {
    let (port, listener) = port();
    drop(listener);
    lab.world.person.dir(&format!("{}/out", lab.dir.display()));
    lab.world.person.dir(&format!("{}/data", lab.dir.display()));
    lab.world.person.file(&lab.dir.join("data/word"), "from a volume\n");
    lab.file(&format!(
        r#"
name = "six"
image = "{BOX}"

[service.web]
after = ["api", "cache"]
replicas = 2
volume = ["./out:/out", "./data:/data:ro"]
env = {{ WORD = "from the file", NUMBER = 7, FLAG = true }}
command = "echo web >>/out/order; wget -qO- http://api:81/ && wget -qO- http://api-1:81/ && cat /data/word && echo $WORD $NUMBER $FLAG && exec httpd -f -p 80 -h /www"
ready = {{ http = "80/index.html", within = "40s" }}

[service.front]
after = ["web"]
publish = ["127.0.0.1:{port}:80"]
volume = ["./out:/out"]
command = "echo front >>/out/order; for name in web web-1 web-2 six-web-2; do wget -qO- http://$name:80/ >/dev/null || exit 4; done; exec httpd -f -p 80 -h /www"
ready = {{ http = "80" }}

[service.db]
volume = ["./out:/out"]
command = "echo db >>/out/order; sleep 0.5; exec nc -ll -p 5432 -e cat"
ready = {{ tcp = 5432 }}

[service.cache]
after = ["db"]
volume = ["./out:/out"]
command = "echo cache >>/out/order; sleep 0.5; touch /tmp/ready; exec sleep 600"
ready = {{ command = ["ls", "/tmp/ready"] }}

[service.api]
after = ["db"]
volume = ["./out:/out"]
command = "echo api >>/out/order; echo x | nc db 5432 && sleep 0.5; exec httpd -f -p 81 -h /www"
ready = {{ tcp = 81 }}

[service.last]
after = ["front"]
user = "bob"
directory = "/www"
volume = ["./out:/out"]
command = ["sh", "-c", "id -un; pwd; exec sleep 600"]
"#
    ));
    let up = lab.cluster("up", &["-d"]);
    up.ok();
    let order = std::fs::read_to_string(lab.dir.join("out/order")).expect("the order");
    let words: Vec<&str> = order.lines().collect();
    assert_eq!(words[0], "db", "{order}");
    assert!(words[1..3] == ["cache", "api"] || words[1..3] == ["api", "cache"], "{order}");
    assert_eq!(words[3..], ["web", "web", "front"], "{order}");
    let names = ["api-1", "cache-1", "db-1", "front-1", "last-1", "web-1", "web-2"];
    assert_eq!(lab.containers(), names.map(|name| format!("six-{name}")));
    let log = lab.run(&["logs", "six-web-2"]);
    assert!(log.ok().out().ends_with("from a volume\nfrom the file 7 true\n"), "{log:?}");
    let log = || (lab.run(&["logs", "six-last-1"]).out() == "bob\n/www\n").then_some(());
    assert!(until(Duration::from_secs(10), log).is_some());
    let text = page(port).unwrap_or_default();
    assert!(text.ends_with("page\n"), "{text}");

    let status = lab.cluster("status", &[]);
    let table = status.ok().out();
    let (head, rows) = table.split_once('\n').expect("a table");
    let columns: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(columns, ["NAME", "ROLE", "HOST", "STATUS", "IMAGE", "PORTS"]);
    assert_eq!(rows.lines().count(), 7, "{table}");
    assert!(rows.contains(&format!("{port}->80/tcp")), "{table}");
    let json = lab.run(&["cluster", "status", "six", "--format", "json"]);
    let rows: Vec<serde_json::Value> =
        json.ok().out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.len(), 7);
    assert!(rows.iter().all(|row| row["State"] == "running" && row["Host"] == "this machine"));
    assert_eq!(rows[3]["Role"], "front");
    lab.cluster("down", &[]).ok();
    assert!(page(port).is_none(), "the port is still served");
    let status = lab.cluster("status", &[]);
    assert_eq!(status.ok().out().lines().count(), 1, "{status:?}");
    let again = lab.cluster("down", &[]);
    assert!(again.ok().err().contains("had no containers"), "{again:?}");
}

/// A server and a run of programs of Debian.
pub(crate) fn debian_service(lab: &Lab<'_>) -> Outcome {
    let image = lab.debian()?;
    lab.file(&format!(
        r#"
name = "debian"
image = "{image}"
nodes = 2
[service.files]
command = ["python3", "-m", "http.server", "8000", "--directory", "/etc"]
ready = {{ http = "8000/debian_version" }}
[run]
on = "node2"
command = "getent hosts node1 node2 files >/dev/null && python3 -c 'import urllib.request as u; print(u.urlopen(\"http://files-1:8000/debian_version\").status)'; cat /etc/coracle/hosts | wc -l"
"#
    ));
    let up = lab.cluster("up", &[]);
    assert_eq!(up.ok().out(), "200\n2\n", "{up:?}");
    Ok(())
}

const NEVER: &str = r#"
[service.slow]
command = "echo one; echo my last words; exec sleep 600"
ready = { tcp = 99, within = "1s" }
"#;

fn never_ready(lab: &Lab<'_>) {
    lab.file(&format!("name = \"never\"\nimage = \"{BOX}\"\n{NEVER}"));
    let up = lab.cluster("up", &[]);
    up.expect(125);
    let said = up.err();
    assert!(said.contains("never-slow-1 is not ready after 1s"), "{said}");
    assert!(said.contains("my last words"), "{said}");
    lab.is_clean();
    // With -d what was started stays to be looked at.
    let up = lab.cluster("up", &["-d"]);
    assert!(up.expect(125).err().contains("hint: what was started stays"), "{up:?}");
    assert_eq!(lab.containers(), ["never-slow-1"]);
    assert!(lab.cluster("logs", &[]).ok().out().contains("slow-1 | my last words\n"));
    lab.cluster("down", &[]).ok();
}

fn ends_at_once(lab: &Lab<'_>) {
    for ready in ["{ tcp = 99 }", "{ http = \"99\" }", "{ command = [\"true\", \"x\"] }"] {
        let service = format!(
            "[service.short]\ncommand = \"echo no file; exit 3\"\nrestart = \"no\"\nready = {ready}\n"
        );
        lab.file(&format!("name = \"ends\"\nimage = \"{BOX}\"\n{service}"));
        let up = lab.cluster("up", &[]);
        let said = up.expect(125).err();
        assert!(said.contains("ends-short-1 has ended with status 3"), "{ready}: {said}");
        assert!(said.contains("no file"), "{ready}: {said}");
        lab.is_clean();
    }
}

/// One that has done its work before somebody looks.
fn ended_well(lab: &Lab<'_>) {
    lab.world.person.dir(&format!("{}/out", lab.dir.display()));
    lab.file(&format!(
        "name = \"well\"\nimage = \"{BOX}\"\n[service.init]\nvolume = [\"./out:/out\"]\n\
         restart = \"no\"\ncommand = \"echo x >/out/done\"\n\
         [service.web]\nafter = [\"init\"]\nvolume = [\"./out:/out\"]\ncommand = \"sleep 600\"\n\
         ready = {{ command = [\"cat\", \"/out/done\"] }}\n"
    ));
    lab.cluster("up", &["-d"]).ok();
    lab.cluster("down", &[]).ok();
}

/// A service that fails at first is ready later.
fn starts_again(lab: &Lab<'_>) {
    lab.world.person.dir(&format!("{}/out", lab.dir.display()));
    lab.file(&format!(
        r#"
name = "again"
image = "{BOX}"
[service.third]
volume = ["./out:/out"]
command = "echo x >>/out/tries; test \"$(cat /out/tries)\" = \"$(echo x; echo x; echo x)\" || exit 1; exec httpd -f -p 80 -h /www"
ready = {{ tcp = 80 }}
"#
    ));
    lab.cluster("up", &["-d"]).ok();
    lab.cluster("down", &[]).ok();
}

fn image_is_missing(lab: &Lab<'_>) {
    lab.file("name = \"none\"\nimage = \"127.0.0.1:1/none:1\"\nnodes = 2\n");
    for detach in [&["-d"][..], &[]] {
        let up = lab.cluster("up", detach);
        let said = up.expect(125).err();
        assert!(said.contains("image 127.0.0.1:1/none:1: "), "{said}");
        assert!(said.contains("hint: "), "{said}");
        lab.cluster("down", &[]).ok();
    }
}

fn port_is_taken(lab: &Lab<'_>) {
    let (port, _listener) = port();
    lab.file(&format!(
        "name = \"taken\"\nimage = \"{BOX}\"\n[service.web]\npublish = [\"127.0.0.1:{port}:80\"]\n\
         command = \"exec httpd -f -p 80 -h /www\"\nready = {{ tcp = 80 }}\n"
    ));
    let up = lab.cluster("up", &[]);
    let said = up.expect(125).err();
    assert!(said.contains("taken-web-1") && said.contains(&port.to_string()), "{said}");
}

/// The ids of containers.
fn ids(lab: &Lab<'_>) -> String {
    lab.run(&["ps", "-q", "--no-trunc"]).ok().out()
}

fn up_twice(lab: &Lab<'_>) {
    lab.file(&format!(
        "name = \"twice\"\nimage = \"{BOX}\"\nnodes = 2\n[service.web]\n\
         command = \"exec httpd -f -p 80 -h /www\"\nready = {{ tcp = 80 }}\n"
    ));
    let first = lab.cluster("up", &["-d"]);
    assert!(!first.ok().err().contains("already"), "{first:?}");
    let before = ids(lab);
    assert_eq!(before.lines().count(), 3, "{before}");
    let second = lab.cluster("up", &["-d"]);
    assert!(second.ok().err().contains("cluster twice was up already"), "{second:?}");
    assert_eq!(ids(lab), before);
    // What is missing is started, and nothing else.
    lab.run(&["rm", "-f", "twice-node2"]).ok();
    let third = lab.cluster("up", &["-d"]);
    assert!(!third.ok().err().contains("already"), "{third:?}");
    let after = ids(lab);
    let same = before.lines().filter(|id| after.contains(*id)).count();
    assert_eq!((same, after.lines().count()), (2, 3), "{before}\n{after}");
    let quiet = lab.run(&[
        "-q",
        "cluster",
        "up",
        "-d",
        "-f",
        &lab.dir.join("lab.toml").display().to_string(),
    ]);
    assert_eq!((quiet.ok().out(), quiet.err()), (String::new(), String::new()));
    lab.cluster("down", &[]).ok();
}

fn two_stores(lab: &Lab<'_>) {
    let file = lab.file(&format!(
        "name = \"both\"\nimage = \"{BOX}\"\n[service.web]\n\
         command = \"hostname; exec httpd -f -p 80 -h /www\"\nready = {{ tcp = 80 }}\n"
    ));
    let other = lab.dir.join("store").display().to_string();
    let main = lab.world.person.store().display().to_string();
    let there =
        |words: &[&str]| lab.run(&[&["--store", &other, "--store-ro", &main], words].concat());
    lab.cluster("up", &["-d"]).ok();
    there(&["cluster", "up", "-d", "-f", &file]).ok();
    lab.cluster("down", &[]).ok();
    lab.is_clean();
    let page = ["cluster", "exec", "both", "web", "wget", "-qO-", "http://web-1:80/"];
    assert_eq!(there(&page).ok().out(), "page\n");
    there(&["cluster", "down", "both"]).ok();
    assert_eq!(there(&["ps", "-aq"]).ok().out(), "");
}

/// What the cluster has not made, it neither uses nor removes.
fn foreign_objects_stay(lab: &Lab<'_>) {
    lab.file(&format!("name = \"mine\"\nimage = \"{BOX}\"\nnodes = 2\n"));
    lab.run(&["run", "-d", "--name", "mine-node2", BOX, "sleep", "600"]).ok();
    let up = lab.cluster("up", &[]);
    let said = up.expect(125).err();
    assert!(said.contains("container mine-node2 is there, and not of this cluster"), "{said}");
    assert!(said.contains("hint: "), "{said}");
    lab.cluster("down", &[]).ok();
    assert_eq!(lab.containers(), ["mine-node2"]);
    lab.run(&["rm", "-f", "mine-node2"]).ok();

    lab.run(&["network", "create", "mine"]).ok();
    let up = lab.cluster("up", &["-d"]);
    let said = up.expect(125).err();
    assert!(said.contains("network mine is there, and not of this cluster"), "{said}");
    lab.cluster("down", &[]).ok();
    lab.run(&["network", "rm", "mine"]).ok();

    // A cluster whose names begin as those of another one.
    let other = lab.dir.join("other.toml").display().to_string();
    let text = format!("name = \"mine-x\"\nimage = \"{BOX}\"\nnodes = 1\n");
    lab.world.person.file(&lab.dir.join("other.toml"), text);
    lab.cluster("up", &["-d"]).ok();
    lab.run(&["cluster", "up", "-d", "-f", &other]).ok();
    lab.cluster("down", &[]).ok();
    assert_eq!(lab.containers(), ["mine-x-node1"]);
    lab.run(&["cluster", "down", "mine-x"]).ok();
}
