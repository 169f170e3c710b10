//! What survives the loss of a place: `PostgreSQL` with a replica in another zone, and containers
//! of nginx behind two balancers.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use testkit::command::{Input, run_with, until};
use testkit::running::Running;
use testkit::skip::Outcome;

use crate::hosts::failures::fail;
use crate::hosts::lab::{COUNT, Case, HOME, LIMIT, Lab};

pub(crate) const CASES: &[(&str, Case)] = &[("zones::replica", replica), ("zones::web", web)];

const IMAGE: &str = "lab/services:1";

/// Three zones with a host each.
const ZONES: &str = r#"
name = "zones"
image = "IMAGE"
network = "names"
backend = [{ kind = "ssh", options = ["-F", "CONFIG", "-o", "ConnectTimeout=3"], hosts = [
    { host = "host1", zone = "home" }, { host = "host2", zone = "east" },
    { host = "host3", zone = "west" }] }]
"#;

/// A database, a replica that has all that it has acknowledged, and a client, each in a zone.
const FILE: &str = r#"
[service.db]
zone = "east"
user = "postgres"
command = """
printf 'local all all trust\nhost all all 0.0.0.0/0 trust\nhost replication all 0.0.0.0/0 trust\n' >/tmp/hba
cd /var/lib/postgresql
SERVER -D 15/main"""
ready = { tcp = 5432 }

[service.replica]
zone = "west"
after = ["db"]
user = "postgres"
command = """
printf 'local all all trust\nhost all all 0.0.0.0/0 trust\n' >/tmp/hba
cd /var/lib/postgresql
rm -rf own
/usr/lib/postgresql/15/bin/pg_basebackup -h db -U postgres -D own -R -X stream
SERVER -D own -c data_directory=/var/lib/postgresql/own"""
ready = { tcp = 5432 }

[service.client]
zone = "home"
command = ["sleep", "600"]
"#;
const SERVER: &str = "exec /usr/lib/postgresql/15/bin/postgres \
    -c config_file=/etc/postgresql/15/main/postgresql.conf -c hba_file=/tmp/hba \
    -c 'listen_addresses=*' -c unix_socket_directories=/tmp -c ssl=off";
/// Writes rows one after the other, and tells each that was acknowledged.
const WRITER: &str = "n=1; while psql -h db -U postgres -qc \"insert into t values ($n)\"; do \
    echo row $n; n=$((n + 1)); done";

/// The zone of the database is cut off: what it has acknowledged is in the replica, which takes
/// over.
fn replica(lab: &Lab) -> Outcome {
    load(lab)?;
    let file = in_zones(lab, &FILE.replace("SERVER", SERVER));
    lab.run(0, &["cluster", "up", "-d", "-f", &file]).ok();
    let sql = |service: &str, ask: &str| {
        let words = ["exec", "-u", "postgres", "zones", service, "psql", "-h", "/tmp", "-Atc", ask];
        lab.run(0, &[&["cluster"], &words[..]].concat())
    };
    sql("db", "create table t (n int)").ok();
    sql("db", "alter system set synchronous_standby_names = '*'").ok();
    sql("db", "select pg_reload_conf()").ok();
    let waits = until(LIMIT, || {
        let state = sql("db", "select sync_state from pg_stat_replication").out();
        (state == "sync\n").then_some(())
    });
    assert!(waits.is_some(), "{:?}", lab.run(0, &["cluster", "logs", "zones", "replica"]));

    let words = ["cluster", "exec", "zones", "client", "/bin/sh", "-c", WRITER];
    let writer = Running::start(&mut lab.command(0, &lab.people[0].program, &words));
    let acknowledged = |text: &str| {
        text.lines().filter_map(|line| line.trim().strip_prefix("row ")?.parse::<u32>().ok()).max()
    };
    let enough = until(LIMIT, || acknowledged(&writer.text()).filter(|&row| row >= 20));
    assert!(enough.is_some(), "{}", writer.text());
    lab.hosts.cut(1, true);
    // What is under way may still be told.
    std::thread::sleep(Duration::from_secs(1));
    let rows = acknowledged(&writer.text()).unwrap_or_default();
    assert_eq!(sql("replica", "select pg_promote()").ok().out(), "t\n");
    let there = sql("replica", "select count(*) from t").ok().out();
    let there: u32 = there.trim().parse().expect("a number");
    assert!(there >= rows, "{there} rows are there, and {rows} were acknowledged");
    let last = format!("select count(*) from t where n = {rows}");
    assert_eq!(sql("replica", &last).ok().out(), "1\n");
    // It takes more by the name that its clients know.
    let ask = ["psql", "-h", "replica", "-U", "postgres", "-qc", "insert into t values (0)"];
    lab.run(0, &[&["cluster", "exec", "zones", "client"], &ask[..]].concat()).ok();

    lab.hosts.cut(1, false);
    drop(writer);
    lab.run(0, &["cluster", "down", "-f", &file]).ok();
    Ok(())
}

/// Has the image on the first host.
fn load(lab: &Lab) -> Outcome {
    if lab.run(0, &["image", "inspect", IMAGE]).code() == 0 {
        return Ok(());
    }
    let tar = testkit::trees::services()?;
    let own = lab.shared.join("services.tar");
    fs::copy(tar, &own).expect("a copy");
    lab.run(0, &["import", "-q", &own.display().to_string(), IMAGE]).ok();
    fs::remove_file(&own).expect("its end");
    Ok(())
}

/// A file of services in the three zones.
fn in_zones(lab: &Lab, services: &str) -> String {
    let config = lab.shared.join("config").display().to_string();
    let text = ZONES.replace("IMAGE", IMAGE).replace("CONFIG", &config) + services;
    lab.file("zones.toml", &text)
}

/// A port of the first host.
const PORT: &str = "8088";
/// Three containers of nginx, one in each zone, behind two balancers.
const WEB: &str = r#"
[service.web]
publish = ["PORT:80"]
replicas = 3
ready = { http = "80/" }
balance = { by = "haproxy", image = "IMAGE", pair = true, drain = "1s" }
command = "hostname >/var/www/html/index.html; exec nginx -g 'daemon off;'"
"#;
/// Asks for the page again and again, each time by a new connection, and tells who has answered.
const CLIENT: &str = "while :; do if exec 3<>/dev/tcp/127.0.0.1/PORT; then \
    printf 'GET / HTTP/1.0\r\n\r\n' >&3; \
    while read -r line <&3; do last=$line; done; exec 3>&-; echo page $last; \
    else echo nothing; fi; sleep 0.05; done";

/// A zone is lost, by its link where there is time for that, else with all that runs there: the
/// others answer, another container is started in its place, the number of containers can be
/// changed, and all is as before when the zone is back.
fn web(lab: &Lab) -> Outcome {
    load(lab)?;
    let file = in_zones(lab, &WEB.replace("PORT", PORT).replace("IMAGE", IMAGE));
    let said = lab.run(0, &["cluster", "up", "-d", "-f", &file]);
    assert!(said.ok().err().contains("it is followed in the background"), "{said:?}");
    let client = CLIENT.replace("PORT", PORT);
    let words = ["-c", &client];
    let client = Running::start(&mut lab.command(0, Path::new("/bin/bash"), &words));
    let log = || {
        let path = format!("{HOME}/.local/share/coracle/clusters/zones/watch.log");
        run_with(&mut lab.command(0, Path::new("/bin/cat"), &[&path]), Input::Null, LIMIT).out()
    };
    let are = |expected: &[&str]| {
        let mut last = Vec::new();
        let found = until(LIMIT, || {
            last = web_containers(lab);
            (last == expected).then_some(())
        });
        assert!(found.is_some(), "{last:?}, not {expected:?}: {}", log());
    };
    are(&["web-1 host1", "web-2 host2", "web-3 host3"]);
    answered_by(&client, &["web-1", "web-2", "web-3"]);

    let is_cut = testkit::share::is_whole();
    if is_cut {
        lab.hosts.cut(1, true);
    } else {
        fail(lab, 1);
    }
    are(&["web-1 host1", "web-3 host3", "web-4 host1"]);
    answered_by(&client, &["web-1", "web-3", "web-4"]);
    lab.run(0, &["cluster", "scale", "-f", &file, "web=4"]).ok();
    are(&["web-1 host1", "web-3 host3", "web-4 host1", "web-6 host3"]);
    lab.run(0, &["cluster", "scale", "-f", &file, "web=3"]).ok();
    are(&["web-1 host1", "web-3 host3", "web-4 host1"]);

    if is_cut {
        lab.hosts.cut(1, false);
    } else {
        lab.mend_servers()?;
    }
    are(&["web-1 host1", "web-2 host2", "web-3 host3"]);
    answered_by(&client, &["web-1", "web-2", "web-3"]);
    let told = client.text();
    drop(client);
    let bad: Vec<&str> = told.lines().filter(|line| !line.starts_with("page ")).collect();
    assert!(bad.is_empty(), "{bad:?} of {} lines: {}", told.lines().count(), log());
    lab.run(0, &["cluster", "down", "-f", &file]).ok();
    for host in 0..COUNT {
        lab.run(host, &["rmi", "-f", IMAGE]).ok();
    }
    Ok(())
}

/// The containers of nginx that run, with their hosts.
fn web_containers(lab: &Lab) -> Vec<String> {
    let format = "{{.Name}} {{.Host}} {{.State}}";
    let said = lab.run(0, &["cluster", "status", "zones", "--format", format]).out();
    let one = |line: &str| {
        let (name, rest) = line.strip_prefix("zones-web-")?.split_once(' ')?;
        let _: u32 = name.parse().ok()?;
        Some(format!("web-{name} {}", rest.strip_suffix(" running")?))
    };
    said.lines().filter_map(one).collect()
}

/// Waits until these have answered in a row, each at least once, and no others.
fn answered_by(client: &Running, names: &[&str]) {
    let mut last = BTreeSet::new();
    let found = until(LIMIT, || {
        let text = client.text();
        let pages = text.lines().rev().filter_map(|line| line.strip_prefix("page "));
        last = pages.take(3 * names.len()).map(str::to_owned).collect();
        last.iter().eq(names).then_some(())
    });
    assert!(found.is_some(), "{names:?} should answer, and {last:?} do");
}
