//! Tests of databases: `PostgreSQL` with Debian's cluster and passwords, Redis with a replica.

use testkit::skip::Outcome;

use crate::servers::In;
use crate::servers::stage::{Case, World};

pub(crate) const CASES: &[(&str, In, Case)] =
    &[("postgresql", In::First, postgresql), ("redis", In::All, redis)];

/// Each of two databases has port 5432, and its own directory, whose inode's number is the key of
/// its shared memory (System V's keys are the host's).
fn postgresql(w: &World) -> Outcome {
    let lab = w.lab();
    let serve = "\
        conf=/etc/postgresql/15/main; cd /var/lib/postgresql/15; cp -a main own; rm -r main; mv own main
        echo 'host all all 0.0.0.0/0 scram-sha-256' >> $conf/pg_hba.conf
        printf \"listen_addresses = '*'\\nfsync = off\\n\" >> $conf/postgresql.conf
        quietly pg_ctlcluster 15 main start
        su postgres -c \"psql -qc \\\"alter user postgres password 'word'\\\"\"
        echo ready; trap 'pg_ctlcluster 15 main stop; exit 0' TERM; while :; do sleep 1000 & wait $!; done";
    for name in ["db", "other"] {
        lab.serve(name, serve);
    }
    for name in ["db", "other"] {
        lab.expect(name, "ready");
    }
    let done = lab.run(
        "client",
        "export PGUSER=postgres PGPASSWORD=word
        sql() { psql -qAt -h \"$@\"; }
        sql db -c 'create table t(a int, b text)' \
            -c 'insert into t select i, repeat(md5(i::text), 40) from generate_series(1,2000) i' \
            -c 'select count(*), sum(a), sum(length(b)) from t'
        sql db -c 'copy t to stdout' | sql other -c 'create table t(a int, b text)' -c 'copy t from stdin' -c 'select sum(length(b)) from t'
        PGPASSWORD=wrong sql db -c 'select 1' 2>&1 | grep -o -m 1 'password authentication failed' | head -n 1
        quietly /usr/lib/postgresql/15/bin/pgbench -h db -i -s 1 -q; quietly /usr/lib/postgresql/15/bin/pgbench -h db -c 4 -j 2 -t 25
        grep 'actually processed' /tmp/said
        hostname -i; sql db -c 'select host(inet_client_addr())' -c 'select host(inet_server_addr()), inet_server_port()'",
    );
    let out = done.ok().out();
    let lines: Vec<&str> = out.lines().collect();
    let [first, copied, refused, processed, client, seen, server] = lines[..] else {
        panic!("{done:?}")
    };
    assert_eq!((first, copied), ("2000|2001000|2560000", "2560000"), "{done:?}");
    assert_eq!(refused, "password authentication failed", "{done:?}");
    assert!(processed.ends_with("100/100"), "{done:?}");
    assert_eq!((client, server), (seen, &*format!("{}|5432", lab.address("db"))), "{done:?}");
    Ok(())
}

/// A replica finds its master by name, and the master finds it again at the address from which it
/// has come.
fn redis(w: &World) -> Outcome {
    let lab = w.lab();
    let serve = "exec redis-server --protected-mode no --save '' --repl-diskless-sync-delay 0 \
        --repl-ping-replica-period 1";
    lab.serve("master", serve);
    lab.serve("replica", &format!("{serve} --replicaof master 6379"));
    let done = lab.run(
        "client",
        "replicated() { test \"$(redis-cli -h replica get key)\" = \"$1\"; }
        wait_for redis-cli -h master set key value; wait_for replicated value; redis-cli -h replica get key
        redis-cli -h master set key other; wait_for replicated other; redis-cli -h replica get key
        redis-cli -h master info replication | tr -d '\\r' | sed -n 's/^slave0:ip=\\([0-9.]*\\),.*state=\\([a-z]*\\),.*/\\1 \\2/p'
        redis-cli -h master client info | tr ' ' '\\n' | sed -n 's/^addr=\\(.*\\):.*/\\1/p'
        redis-benchmark -h master -t set,get -n 2000 -c 20 -q | tr '\\r' '\\n' | grep -c 'requests per second'
        hostname -i",
    );
    let out = done.ok().out();
    let lines: Vec<&str> = out.lines().collect();
    let [.., client] = lines[..] else { panic!("{done:?}") };
    let replica = format!("{} online", lab.address("replica"));
    assert_eq!(lines, ["value", "OK", "other", &replica, client, "2", client], "{done:?}");
    Ok(())
}
