//! Storage that survives the loss of a place: `PostgreSQL` with a replica in another zone.

use std::fs;
use std::time::Duration;

use testkit::command::until;
use testkit::running::Running;
use testkit::skip::Outcome;

use crate::lab::{Case, LIMIT, Lab};

pub(crate) const CASES: &[(&str, Case)] = &[("zones::replica", replica)];

const IMAGE: &str = "lab/postgres:1";

/// A database, a replica that has all that it has acknowledged, and a client, each in a zone.
const FILE: &str = r#"
name = "zones"
image = "IMAGE"
backend = [{ kind = "ssh", options = ["-F", "CONFIG", "-o", "ConnectTimeout=3"], hosts = [
    { host = "host1", zone = "home" }, { host = "host2", zone = "east" },
    { host = "host3", zone = "west" }] }]

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
    let tar = testkit::trees::services()?;
    let own = lab.shared.join("postgres.tar");
    fs::copy(tar, &own).expect("a copy");
    lab.run(0, &["import", "-q", &own.display().to_string(), IMAGE]).ok();
    fs::remove_file(&own).expect("its end");
    let config = lab.shared.join("config").display().to_string();
    let text = FILE.replace("IMAGE", IMAGE).replace("CONFIG", &config).replace("SERVER", SERVER);
    let file = lab.file("zones.toml", &text);
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
    lab.run(0, &["rmi", "-f", IMAGE]).ok();
    Ok(())
}
