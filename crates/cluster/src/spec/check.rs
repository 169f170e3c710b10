//! What parts of a file say of each other.

use std::collections::HashMap;

use containers::config::nearest::nearest;

use super::reader::{Table, Value};
use super::{Kind, Launch, Mode, Network, Replicas, Service, Spec};
use crate::error::{Error, Result};

/// Checks a file whose values are right each for itself; `top` shows where they are.
pub(super) fn check(top: &Table<'_>, spec: &Spec) -> Result<()> {
    something(top, spec)?;
    images(top, spec)?;
    batch(top, spec)?;
    services(top, spec)?;
    run(top, spec)?;
    backends(top, spec)?;
    if let Some(value) = top.get("subnet")
        && spec.network == Some(Network::Host)
    {
        let fact = "a network of kind host has no addresses of its own";
        return Err(value.wrong(fact, "leave it out, or write network = \"names\""));
    }
    if let Some(value) = top.get("checkpoint")
        && spec.run.is_none()
    {
        return Err(value.wrong("there is no [run] that could go on", "add [run]"));
    }
    pairs(top, "input", &spec.input)?;
    pairs(top, "output", &spec.output)?;
    match (top.get("input"), top.get("output")) {
        (Some(value), _) if spec.nodes == 0 => {
            Err(value.wrong("the file has no node to copy it to", "add nodes = 1, or use volume"))
        }
        (_, Some(value)) if spec.run.is_none() => {
            Err(value.wrong("there is no [run] after which it is copied", "add [run]"))
        }
        _ => Ok(()),
    }
}

fn something(top: &Table<'_>, spec: &Spec) -> Result<()> {
    if spec.nodes == 0 && spec.services.is_empty() && spec.batch.is_none() {
        let hint = "add nodes = 4 with an image, [service.NAME], or [batch]";
        return Err(top.wrong("the file starts nothing", hint));
    }
    Ok(())
}

fn images(top: &Table<'_>, spec: &Spec) -> Result<()> {
    if spec.image.is_some() {
        return Ok(());
    }
    if spec.nodes > 0 {
        return Err(top.wrong("the nodes have no image", "write image = \"REFERENCE\""));
    }
    match spec.services.iter().find(|service| service.image.is_none()) {
        Some(service) => {
            let value = at_service(top, &service.name);
            Err(wrong(top, value, "it has no image", "write image = \"REFERENCE\""))
        }
        None => Ok(()),
    }
}

/// What a batch system and the rest of the file say of each other.
fn batch(top: &Table<'_>, spec: &Spec) -> Result<()> {
    let Some(value) = top.get("batch") else { return Ok(()) };
    if spec.network == Some(Network::Host) {
        let fact = "in a network of kind host its containers would share their ports";
        return Err(value.wrong(fact, "leave network out, or write network = \"names\""));
    }
    for (number, service) in spec.services.iter().enumerate() {
        if spec.services[..number].iter().any(|other| other.name == service.name) {
            let own = at_service(top, &service.name);
            let fact = format!("the batch system has containers of the name {:?}", service.name);
            return Err(wrong(top, own.or(Some(value)), &fact, "rename yours"));
        }
    }
    Ok(())
}

fn at_service<'r>(top: &Table<'r>, name: &str) -> Option<Value<'r>> {
    let all = top.get("service")?.named_tables().ok()?;
    all.into_iter().find(|(other, _)| other == name).map(|(_, value)| value)
}

fn at_key<'r>(top: &Table<'r>, service: &str, key: &str) -> Option<Value<'r>> {
    let table = at_service(top, service)?;
    table.table(super::services::ALL).ok()?.get(key)
}

fn wrong(top: &Table<'_>, value: Option<Value<'_>>, fact: &str, hint: &str) -> Error {
    value.map_or_else(|| top.wrong(fact, hint), |value| value.wrong(fact, hint))
}

fn services(top: &Table<'_>, spec: &Spec) -> Result<()> {
    let names: Vec<&str> = spec.services.iter().map(|service| &*service.name).collect();
    for service in &spec.services {
        let number = service.name.strip_prefix("node").map(str::parse::<u32>);
        if matches!(number, Some(Ok(1..))) && spec.nodes > 0 {
            let value = at_service(top, &service.name);
            let fact = "a node has this name";
            return Err(wrong(top, value, fact, "node containers are node1, node2 and so on"));
        }
        let numbered = |other: &&&str| {
            let number = service.name.strip_prefix(**other).and_then(|rest| rest.strip_prefix('-'));
            matches!(number.map(str::parse::<u32>), Some(Ok(1..)))
        };
        if let Some(other) = names.iter().find(numbered) {
            let value = at_service(top, &service.name);
            let fact = format!("a container of service {other:?} has this name");
            return Err(wrong(top, value, &fact, "rename one of the two"));
        }
        for other in &service.after {
            if !names.contains(&&**other) {
                let hint = match nearest(other, names.iter().copied(), 3) {
                    Some(near) => format!("did you mean {near:?}?"),
                    None => format!("there are {}", names.join(", ")),
                };
                let value = at_key(top, &service.name, "after");
                return Err(wrong(top, value, &format!("there is no service {other:?}"), &hint));
            }
        }
        let zones = zones(spec);
        if let Some(zone) = service.zones.iter().find(|zone| !zones.contains(&&***zone)) {
            let hint = "hosts carry zones: hosts = [{ host = \"a\", zone = \"x\" }]";
            let value = at_key(top, &service.name, "zone");
            return Err(wrong(top, value, &format!("no host is in zone {zone:?}"), hint));
        }
        let several = match &service.replicas {
            Replicas::Fixed(count) => *count > 1,
            Replicas::Scaled(_) => true,
        };
        if several && service.has_fixed_port() && service.balance.is_none() {
            let fact = "replicas cannot share a port of the host";
            let hint = "add balance = { by = \"haproxy\" }, or publish without a port of the host";
            return Err(wrong(top, at_key(top, &service.name, "publish"), fact, hint));
        }
    }
    for service in &spec.services {
        balance(top, spec, service)?;
    }
    if let Some(circle) = circle(spec) {
        let value = at_key(top, &circle[0], "after");
        let fact = format!("services wait for each other: {}", circle.join(" -> "));
        return Err(wrong(top, value, &fact, "take one of them out of after"));
    }
    Ok(())
}

/// What a service and its balancer, or its rule without one, say of each other.
fn balance(top: &Table<'_>, spec: &Spec, service: &Service) -> Result<()> {
    let Some(balance) = &service.balance else {
        if let Replicas::Scaled(_) = service.replicas {
            let value = at_key(top, &service.name, "replicas");
            let fact = "nothing measures what the rule asks for";
            return Err(wrong(top, value, fact, "add balance = { by = \"haproxy\" }"));
        }
        return Ok(());
    };
    let at = || at_key(top, &service.name, "balance");
    if spec.network == Some(Network::Host) {
        let fact = "in a network of kind host its containers would share their ports";
        return Err(wrong(top, at(), fact, "leave network out, or write network = \"names\""));
    }
    if service.ports().is_none() {
        let fact = "its ports are not known, or no single ports of TCP";
        return Err(wrong(top, at(), fact, "write publish = [\"8080:80\"]"));
    }
    if balance.pair && service.has_fixed_port() && hosts_of(spec, service) == Some(1) {
        let fact = "two balancers on one host cannot share its port";
        let hint = "publish without a port of the host, or have a second host";
        return Err(wrong(top, at_key(top, &service.name, "publish"), fact, hint));
    }
    if spec.has_moving_address(service) && balance.image == super::services::IMAGE {
        let fact =
            "the image of a pair in a network of kind overlay needs keepalived besides haproxy";
        return Err(wrong(top, at(), fact, "write image = \"...\" with one that has both"));
    }
    let own = super::balancers(&service.name);
    let is_own = |name: &str| {
        let rest = name.strip_prefix(&*own);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    if let Some(other) = spec.services.iter().find(|other| is_own(&other.name)) {
        let value = at_service(top, &other.name);
        let fact = format!("the balancer of {} has this name", service.name);
        return Err(wrong(top, value, &fact, "rename it"));
    }
    if let (Mode::Tcp, Replicas::Scaled(rule)) = (balance.mode, &service.replicas)
        && rule.asks_for_times()
    {
        let value = at_key(top, &service.name, "replicas");
        let fact = "without HTTP there are no times of answers";
        return Err(wrong(top, value, fact, "use rate and rate/replica, or mode = \"http\""));
    }
    Ok(())
}

/// On how many hosts a service's containers can be, if the file says so.
fn hosts_of(spec: &Spec, service: &Service) -> Option<usize> {
    match &spec.backends.first()?.kind {
        Kind::Local => Some(1),
        Kind::Ssh { hosts, .. } => {
            let fits = |zone: &Option<String>| {
                service.zones.is_empty()
                    || zone.as_ref().is_some_and(|zone| service.zones.contains(zone))
            };
            Some(hosts.iter().filter(|host| fits(&host.zone)).count())
        }
        _ => None,
    }
}

fn zones(spec: &Spec) -> Vec<&str> {
    let all = spec.backends.iter().flat_map(|backend| match &backend.kind {
        Kind::Ssh { hosts, .. } => &hosts[..],
        _ => &[],
    });
    all.filter_map(|host| host.zone.as_deref()).collect()
}

/// Services that wait for each other, the first of them at both ends.
fn circle(spec: &Spec) -> Option<Vec<String>> {
    let after: HashMap<&str, &[String]> =
        spec.services.iter().map(|service| (&*service.name, &*service.after)).collect();
    let mut done: Vec<&str> = Vec::new();
    for service in &spec.services {
        // Depth first, with the way to where it is.
        let mut way: Vec<(&str, usize)> = vec![(&service.name, 0)];
        while let Some((name, next)) = way.last_mut() {
            let Some(other) = after.get(*name).and_then(|all| all.get(*next)) else {
                done.push(name);
                way.pop();
                continue;
            };
            *next += 1;
            if let Some(at) = way.iter().position(|(name, _)| *name == other) {
                let names = way[at..].iter().map(|(name, _)| (*name).to_owned());
                return Some(names.chain([other.clone()]).collect());
            }
            if !done.contains(&&**other) {
                way.push((other, 0));
            }
        }
    }
    None
}

fn run(top: &Table<'_>, spec: &Spec) -> Result<()> {
    let Some(run) = &spec.run else { return Ok(()) };
    let value = top.table("run", super::RUN)?.and_then(|table| table.get("on"));
    let number = run.on.strip_prefix("node").and_then(|rest| rest.parse::<u32>().ok());
    if !number.is_some_and(|number| (1..=spec.nodes).contains(&number)) {
        let hint = match spec.nodes {
            0 => "write nodes = 4, or leave nodes out for one".to_owned(),
            1 => "there is node1".to_owned(),
            nodes => format!("there are node1 to node{nodes}"),
        };
        return Err(wrong(top, value, &format!("there is no node {:?}", run.on), &hint));
    }
    if let Some(value) = value
        && run.launch == Launch::Ranks
    {
        let fact = "ranks run on all nodes";
        return Err(value.wrong(fact, "leave on out, or write launch = \"inside\""));
    }
    if run.launch == Launch::Ranks && spec.network != Some(Network::Host) {
        let fact = "ranks cannot reach the host's launcher from a network of their own";
        let hint = "leave network out, write network = \"host\", or launch = \"inside\"";
        return Err(wrong(top, top.get("network"), fact, hint));
    }
    Ok(())
}

fn backends(top: &Table<'_>, spec: &Spec) -> Result<()> {
    for (number, backend) in spec.backends.iter().enumerate() {
        if let Kind::Ssh { hosts, .. } = &backend.kind
            && spec.nodes as usize > hosts.len()
        {
            let value = top.get("backend").map(|all| match all.array() {
                Ok(all) => all[number].clone(),
                Err(_) => all,
            });
            let fact = format!("{} hosts are too few for {} nodes", hosts.len(), spec.nodes);
            return Err(wrong(top, value, &fact, "add hosts, or make nodes smaller"));
        }
    }
    Ok(())
}

/// Checks that a file wants nothing that the driver cannot do.
pub(super) fn is_carried_out(top: &Table<'_>, spec: &Spec) -> Result<()> {
    const HINT: &str = "'coracle cluster explain' shows what it will come to";
    let not_yet = |value: Option<Value<'_>>, what: &str| {
        Err(wrong(top, value, &format!("{what} is not carried out yet"), HINT))
    };
    let is_done = |kind: &Kind| {
        matches!(kind, Kind::Local | Kind::Ssh { .. } | Kind::Slurm { .. } | Kind::Template { .. })
    };
    if let Some(other) = spec.backends.iter().find(|backend| !is_done(&backend.kind)) {
        return not_yet(top.get("backend"), &format!("a backend of kind {}", other.kind.word()));
    }
    if spec.backends.len() > 1 {
        return not_yet(top.get("backend"), "a second backend");
    }
    for key in ["build", "checkpoint"] {
        if let Some(value) = top.get(key) {
            return not_yet(Some(value), key);
        }
    }
    for service in &spec.services {
        if let Some(value) = at_key(top, &service.name, "build") {
            return not_yet(Some(value), "build");
        }
        let is_pair = service.balance.as_ref().is_some_and(|balance| balance.pair);
        if is_pair && !matches!(spec.network, Some(Network::Names | Network::Overlay)) {
            let value = at_key(top, &service.name, "balance");
            return not_yet(
                value,
                "a pair of balancers without network = \"names\" or \"overlay\"",
            );
        }
    }
    Ok(())
}

/// `FROM:TO`.
fn pairs(top: &Table<'_>, key: &str, all: &[String]) -> Result<()> {
    for text in all {
        let fits = text.split_once(':').is_some_and(|(from, to)| {
            let inside = if key == "input" { to } else { from };
            !from.is_empty() && !to.is_empty() && inside.starts_with('/')
        });
        if !fits {
            let hint = match key {
                "input" => "write \"./here:/in/the/container\"",
                _ => "write \"/in/the/container:./here\"",
            };
            let fact = format!("{text:?} is not FROM:TO");
            return Err(top.need(key, hint)?.wrong(&fact, hint));
        }
    }
    Ok(())
}
