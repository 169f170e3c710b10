//! Has balancers know the containers of a service.
//!
//! The file comes first, so a balancer that is started again meanwhile knows what it has to know.
//! Then what a balancer knows is compared with what is wanted, so a balancer that ends in the
//! middle is told once more, and what a killed driver has left is mended. A container that goes
//! takes no new requests before it is ended, and has its time for those that it is at.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::admin::Admin;
use super::at::words;
use super::hosts::{Host, Hosts, at_once};
use super::{Container, INTERRUPTED, status};
use crate::balance::Server;
use crate::error::{Error, Result};
use crate::plan::{Balanced, Balancer};
use crate::spec::units;

/// How often is looked whether a container has ended its requests.
const LOOK: Duration = Duration::from_millis(100);
/// A balancer that was started again takes commands within so long, and lets go of idle
/// connections.
const LAST: Duration = Duration::from_secs(5);

/// The containers of a service.
#[derive(Debug, Clone, Default)]
pub(super) struct Servers {
    /// Those that run, with their addresses, by name.
    pub(super) running: Vec<Server>,
    /// The names of those that are being started again. A balancer that knows them keeps them: it
    /// sees itself when they are well.
    pub(super) restarting: Vec<String>,
}

impl Servers {
    /// Those of a service.
    pub(super) fn of(cluster: &str, service: &str, hosts: &Hosts) -> Result<Self> {
        let mut all = Self::default();
        for found in hosts.each(|host| servers_on(cluster, service, host)) {
            let found = found?;
            all.running.extend(found.running);
            all.restarting.extend(found.restarting);
        }
        all.running.sort();
        Ok(all)
    }

    pub(super) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.running.retain(|server| wanted(&server.name));
        self.restarting.retain(|name| wanted(name));
    }
}

fn servers_on(cluster: &str, service: &str, host: &dyn Host) -> Result<Servers> {
    let all = status::on(cluster, host)?.into_iter().filter(|one| one.role == service);
    let (running, others): (Vec<Container>, Vec<Container>) =
        all.partition(|one| one.state == "running");
    let short = |name: &str| status::short(cluster, name).to_owned();
    let others = others.into_iter().filter(|one| one.state == "restarting");
    let mut found =
        Servers { running: Vec::new(), restarting: others.map(|one| short(&one.name)).collect() };
    if running.is_empty() {
        return Ok(found);
    }
    let format = "{{.Name}} {{.State.StoppedByUser}} \
                  {{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
    let mut inspect = words(&["container", "inspect", "--format", format]);
    inspect.extend(running.into_iter().map(|one| one.name));
    // One that has ended meanwhile has no address, and one that is gone no line.
    let done = host.run(&inspect)?;
    for line in done.text().lines() {
        let mut cells = line.splitn(3, ' ');
        // One whose end somebody has asked for takes no more requests.
        let (Some(name), Some("false"), Some(address)) = (cells.next(), cells.next(), cells.next())
        else {
            continue;
        };
        let name = short(name.trim_start_matches('/'));
        match address.trim().parse() {
            Ok(address) => found.running.push(Server { name, address }),
            Err(_) => found.restarting.push(name),
        }
    }
    Ok(found)
}

/// What the caller of a change of balancers says and is told meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Whether the change is not wanted any more.
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
    /// Takes the names of servers that had not ended what they were at.
    pub(super) note: &'a (dyn Fn(&str) + Sync),
}

/// Has the balancers of a service know these servers, and no others but those on hosts that are
/// lost: a balancer sees itself whether these are well. One whose own host is lost is told when
/// that is back.
///
/// # Errors
/// If a file cannot be written. A balancer that does not answer is an error at the end, when the
/// others know them.
pub(super) fn give(
    balanced: &Balanced,
    servers: &Servers,
    hosts: &Hosts,
    asked: Asked<'_>,
) -> Result<()> {
    let give = |balancer: &Balancer| {
        let host = hosts.of(balancer.host.as_deref())?;
        let until = Instant::now() + LAST;
        loop {
            match give_one(balanced, balancer, servers, (host, asked)) {
                // It may have been started again in the middle.
                Err(_) if Instant::now() < until && !(asked.stop)() => std::thread::sleep(LOOK),
                done => return done,
            }
        }
    };
    let there = |one: &&Balancer| !hosts.is_away(one.host.as_deref());
    at_once(balanced.balancers.iter().filter(there), give).into_iter().collect()
}

/// A server of a part of the balancer.
struct At<'s> {
    port: u16,
    name: &'s str,
}

fn give_one(
    balanced: &Balanced,
    one: &Balancer,
    servers: &Servers,
    (host, asked): (&dyn Host, Asked<'_>),
) -> Result<()> {
    let front = &balanced.front;
    let put =
        |servers: &[Server]| host.put(one.file.as_ref(), 0o644, front.text(servers).as_bytes());
    if !runs(host, one)? {
        put(&servers.running)?;
        // One that was started in between may have read the file before.
        if !runs(host, one)? {
            return Ok(());
        }
    }
    let mut admin = Admin::of(one, host);
    let mut known = Vec::new();
    for port in front.ports.iter().copied() {
        known.push((port, admin.servers(&front.proxy(port))?));
    }
    let mut wanted = servers.running.clone();
    for server in known.iter().flat_map(|(_, found)| found).map(|one| &one.server) {
        let may_come =
            servers.restarting.contains(&server.name) || balanced.is_on_lost_host(&server.name);
        if may_come && !wanted.contains(server) {
            wanted.push(server.clone());
        }
    }
    wanted.sort();
    // A server that goes takes no more requests, so one that is started meanwhile need not know it.
    put(&wanted)?;
    // A server whose address has changed is another one of the same name, and is gone already.
    let is_wanted = |name: &str| wanted.iter().any(|server| server.name == name);
    let (mut other, mut gone) = (Vec::new(), Vec::new());
    for (port, found) in &known {
        let proxy = front.proxy(*port);
        for known in found {
            let at = At { port: *port, name: &known.server.name };
            if !wanted.contains(&known.server) {
                if is_wanted(at.name) { other.push(at) } else { gone.push(at) }
            } else if !known.takes {
                admin.take_up(&proxy, at.name)?;
            }
        }
    }
    remove(&mut admin, balanced, &other, (Duration::ZERO, asked))?;
    for (port, found) in &known {
        for server in &wanted {
            if !found.iter().any(|one| one.server == *server) {
                admin.add(front, *port, server)?;
            }
        }
    }
    remove(&mut admin, balanced, &gone, (balanced.drain, asked))?;
    has_all(&mut admin, balanced, (one, &wanted))
}

/// Looks whether a balancer has all servers in the end. One that was started again after it was
/// asked what it knows may have read the file of before.
fn has_all(
    admin: &mut Admin<'_>,
    balanced: &Balanced,
    (one, wanted): (&Balancer, &[Server]),
) -> Result<()> {
    for port in &balanced.front.ports {
        let found = admin.servers(&balanced.front.proxy(*port))?;
        let takes = |server: &&Server| found.iter().any(|one| one.takes && one.server == **server);
        if let Some(server) = wanted.iter().find(|server| !takes(server)) {
            return Err(Error::new(format!("{} does not know {}", one.container, server.name)));
        }
    }
    Ok(())
}

/// Takes servers from a balancer, which have so long to end what they are at.
fn remove(
    admin: &mut Admin<'_>,
    balanced: &Balanced,
    gone: &[At<'_>],
    (drain, asked): (Duration, Asked<'_>),
) -> Result<()> {
    if gone.is_empty() {
        return Ok(());
    }
    let proxy = |at: &At<'_>| balanced.front.proxy(at.port);
    for at in gone {
        admin.drain(&proxy(at), at.name)?;
    }
    if !drain.is_zero() {
        wait_for(admin, gone, (drain, asked))?;
    }
    for at in gone {
        admin.put_out(&proxy(at), at.name)?;
        let until = Instant::now() + LAST;
        while let Err(error) = admin.forget(&proxy(at), at.name) {
            if Instant::now() >= until || (asked.stop)() {
                return Err(error);
            }
            std::thread::sleep(LOOK);
        }
    }
    Ok(())
}

/// Waits until servers have ended what they are at, at most for so long.
fn wait_for(
    admin: &mut Admin<'_>,
    gone: &[At<'_>],
    (drain, asked): (Duration, Asked<'_>),
) -> Result<()> {
    let began = Instant::now();
    loop {
        let mut busy: BTreeMap<String, u64> = BTreeMap::new();
        for one in admin.active()?.into_iter().filter(|one| one.count > 0) {
            if gone.iter().any(|at| at.name == one.name) {
                *busy.entry(one.name).or_default() += one.count;
            }
        }
        if busy.is_empty() {
            return Ok(());
        }
        if (asked.stop)() {
            return Err(Error::new(INTERRUPTED));
        }
        if began.elapsed() >= drain {
            for (name, count) in busy {
                let text = format!(
                    "connections closed that were not over within {}: {count}",
                    units::spell(drain)
                );
                (asked.note)(&format!("{name}: {text}"));
            }
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether a balancer's container runs.
fn runs(host: &dyn Host, balancer: &Balancer) -> Result<bool> {
    let inspect =
        words(&["container", "inspect", "--format", "{{.State.Running}}", &balancer.container]);
    let done = host.run(&inspect)?;
    Ok(done.is_good() && done.text() == "true")
}
