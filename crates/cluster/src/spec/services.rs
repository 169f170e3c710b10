//! Services: `[service.NAME]`.

use std::time::Duration;

use super::condition::{Condition, Measure, Sign};
use super::reader::{Table, Value};
use super::{Image, command, env, image};
use crate::error::Result;
use crate::parts::Part;

/// A service: containers of one image, which others find by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Its name, which is a host name in the cluster's network.
    pub name: String,
    /// Its image; `None` for the file's.
    pub image: Option<Image>,
    /// The command; empty for the image's.
    pub command: Vec<String>,
    /// Variables, in the file's order.
    pub env: Vec<(String, String)>,
    /// Volumes in Docker's short form; paths that begin with `.` are relative to the file.
    pub volumes: Vec<String>,
    /// Published ports in Docker's short form.
    pub publish: Vec<String>,
    /// Services that are ready before this one starts.
    pub after: Vec<String>,
    /// When a replica counts as ready.
    pub ready: Ready,
    /// A replica that is not ready after so long has failed.
    pub ready_within: Duration,
    /// How many containers.
    pub replicas: Replicas,
    /// A load balancer before the replicas.
    pub balance: Option<Balance>,
    /// What happens when a container ends.
    pub restart: RestartPolicy,
    /// The user in the container.
    pub user: Option<String>,
    /// The directory in the container.
    pub directory: Option<String>,
    /// The zones whose hosts take replicas; empty for all.
    pub zones: Vec<String>,
    /// What it is to the file's batch system; `None` for a service of its own.
    pub part: Option<Part>,
}

/// When a replica counts as ready (`ready`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ready {
    /// When its program has started.
    Started,
    /// When it takes a connection at this port.
    Tcp(u16),
    /// When it answers this path at this port with a status below 400.
    Http {
        /// The port.
        port: u16,
        /// The path.
        path: String,
    },
    /// When this command ends with 0 in the container.
    Command(Vec<String>),
}

/// How many containers a service has (`replicas`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replicas {
    /// Always so many.
    Fixed(u32),
    /// As many as a rule says.
    Scaled(Box<Scaling>),
}

/// The rule of [`Replicas::Scaled`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scaling {
    /// The fewest.
    pub min: u32,
    /// The most.
    pub max: u32,
    /// When there is to be one more.
    pub up: Condition,
    /// When there is to be one less.
    pub down: Condition,
    /// Nothing is changed for so long after a change.
    pub cool: Duration,
}

/// A load balancer (`balance`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balance {
    /// The program: `haproxy`.
    pub by: String,
    /// Its image.
    pub image: String,
    /// What it balances.
    pub mode: Mode,
    /// A second one takes over from the first.
    pub pair: bool,
    /// How long a container that is to go has for the requests that it is at.
    pub drain: Duration,
    /// A connection on which nothing comes for so long is closed.
    pub timeout: Duration,
}

/// What a load balancer balances (`balance.mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Requests of HTTP.
    Http,
    /// Connections.
    Tcp,
}

/// What happens when a container of a service ends (`restart`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    /// It is started again.
    Always,
    /// It is started again if its status was not 0.
    OnFailure,
    /// Nothing.
    No,
}

impl Scaling {
    /// Whether the rule asks in which times requests are answered.
    pub fn asks_for_times(&self) -> bool {
        let mut terms = self.up.terms.iter().chain(&self.down.terms);
        terms.any(|term| matches!(term.measure, Measure::Percentile(_)))
    }
}

impl RestartPolicy {
    /// The word of `coracle run --restart`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::OnFailure => "on-failure",
            Self::No => "no",
        }
    }
}

impl Service {
    /// The ports at which a balancer takes connections for it: those of its containers that are
    /// published, or else the one that is looked at. `None` if they are not single ports of TCP, or
    /// there is none.
    pub fn ports(&self) -> Option<Vec<u16>> {
        let port = |text: &String| {
            let port = text.rsplit(':').next()?;
            port.strip_suffix("/tcp").unwrap_or(port).parse().ok().filter(|port| *port > 0)
        };
        let mut ports: Vec<u16> = self.publish.iter().map(port).collect::<Option<_>>()?;
        if let (true, Ready::Tcp(port) | Ready::Http { port, .. }) = (ports.is_empty(), &self.ready)
        {
            ports.push(*port);
        }
        ports.sort_unstable();
        ports.dedup();
        (!ports.is_empty()).then_some(ports)
    }

    /// Whether a port of the host is named, which one container alone can have.
    pub fn has_fixed_port(&self) -> bool {
        self.publish.iter().any(|publish| publish.contains(':'))
    }
}

/// The name of a service's balancers, which are a service themselves.
pub fn balancers(service: &str) -> String {
    format!("{service}-balance")
}

impl Replicas {
    /// How many there are at the beginning.
    pub fn first(&self) -> u32 {
        match self {
            Self::Fixed(count) => *count,
            Self::Scaled(rule) => rule.min.max(1),
        }
    }
}

pub(super) const ALL: &[&str] = &[
    "image",
    "build",
    "command",
    "env",
    "volume",
    "publish",
    "after",
    "ready",
    "replicas",
    "balance",
    "restart",
    "user",
    "directory",
    "zone",
];
const READY: &[&str] = &["tcp", "http", "command", "within"];
const RULE: &[&str] = &["min", "max", "up", "down", "cool"];
/// The image of a balancer for which the file names none.
pub(super) const IMAGE: &str = "docker.io/library/haproxy:2.6";
const BALANCE: &[&str] = &["by", "image", "mode", "pair", "drain", "timeout"];
/// The most containers of a service.
pub const REPLICAS: u32 = 1000;

pub(super) fn read(top: &Table<'_>) -> Result<Vec<Service>> {
    let Some(all) = top.get("service") else { return Ok(Vec::new()) };
    let mut services = Vec::new();
    for (name, value) in all.named_tables()? {
        services.push(service(name, &value.table(ALL)?)?);
    }
    Ok(services)
}

fn service(name: String, table: &Table<'_>) -> Result<Service> {
    let text = |key: &str| table.get(key).map(|value| value.filled()).transpose();
    let (ready, ready_within) = ready(table)?;
    Ok(Service {
        name,
        image: image(table)?,
        command: table.get("command").map_or(Ok(Vec::new()), |value| command(&value))?,
        env: env(table)?,
        volumes: table.texts("volume")?,
        publish: table.texts("publish")?,
        after: table.texts("after")?,
        ready,
        ready_within,
        replicas: table.get("replicas").map_or(Ok(Replicas::Fixed(1)), |value| replicas(&value))?,
        balance: table.get("balance").map(|value| balance(&value)).transpose()?,
        restart: table.get("restart").map_or(Ok(RestartPolicy::Always), |value| {
            value.one_of(&[
                ("always", RestartPolicy::Always),
                ("on-failure", RestartPolicy::OnFailure),
                ("no", RestartPolicy::No),
            ])
        })?,
        user: text("user")?,
        directory: table.get("directory").map(|value| value.absolute()).transpose()?,
        zones: table.texts("zone")?,
        part: None,
    })
}

fn ready(table: &Table<'_>) -> Result<(Ready, Duration)> {
    const PATIENCE: Duration = Duration::from_mins(1);
    let Some(value) = table.get("ready") else { return Ok((Ready::Started, PATIENCE)) };
    let table = value.table(READY)?;
    let within = table.get("within").map_or(Ok(PATIENCE), |value| value.time())?;
    let port = |value: &Value<'_>| value.number(1..=65_535).map(|port| port as u16);
    let forms = [table.get("tcp"), table.get("http"), table.get("command")];
    let ready = match forms {
        [Some(tcp), None, None] => Ready::Tcp(port(&tcp)?),
        [None, Some(http), None] => http_at(&http)?,
        [None, None, Some(words)] => Ready::Command(command(&words)?),
        _ => {
            let hint = "write ready = { tcp = 80 }, { http = \"80/path\" } or { command = [...] }";
            return Err(value.wrong("one of tcp, http and command is needed", hint));
        }
    };
    Ok((ready, within))
}

fn http_at(value: &Value<'_>) -> Result<Ready> {
    let text = value.filled()?;
    let (port, path) = text.split_once('/').unwrap_or((&text, ""));
    match port.parse() {
        Ok(port) if port > 0 && !path.contains(char::is_whitespace) => {
            Ok(Ready::Http { port, path: format!("/{path}") })
        }
        _ => Err(value.wrong("this is not PORT/PATH", "write \"80/health\"")),
    }
}

fn replicas(value: &Value<'_>) -> Result<Replicas> {
    if !value.is_table() {
        return Ok(Replicas::Fixed(value.number(0..=REPLICAS.into())? as u32));
    }
    let table = value.table(RULE)?;
    let hint = "write replicas = { min = 1, max = 8, up = \"...\", down = \"...\" }";
    let number = |key: &str| table.need(key, hint)?.number(0..=REPLICAS.into());
    let (min, max) = (number("min")?, number("max")?);
    if min > max {
        return Err(value.wrong("max is less than min", "write min = 1, max = 8"));
    }
    if min == 0 {
        let fact = "a service without containers answers nothing that could be measured";
        return Err(value.wrong(fact, "write min = 1"));
    }
    let cool = table.get("cool").map_or(Ok(Duration::from_secs(10)), |value| value.time())?;
    let up = condition(&table.need("up", hint)?, Sign::Above)?;
    let down_value = table.need("down", hint)?;
    let down = condition(&down_value, Sign::Below)?;
    if up.collides_with(&down) {
        let hint =
            "leave room between the limits: up = \"p95 > 40ms ...\", down = \"p95 < 15ms ...\"";
        return Err(down_value.wrong("up and down can hold at once", hint));
    }
    let (min, max) = (min as u32, max as u32);
    Ok(Replicas::Scaled(Box::new(Scaling { min, max, up, down, cool })))
}

/// `MEASURE < NUMBER[UNIT] [and ...] for TIME`, with at least one term of a sign.
fn condition(value: &Value<'_>, sign: Sign) -> Result<Condition> {
    let text = value.filled()?;
    let hint = "write \"p95 > 40ms for 3s\", or \"p95 < 15ms and rate/replica < 200 for 30s\"";
    let found = Condition::parse(&text);
    let found = found.ok_or_else(|| value.wrong("this is not a condition", hint))?;
    if !found.is_possible() {
        return Err(value.wrong("this can never hold", hint));
    }
    if !found.terms.iter().any(|term| term.sign == sign) {
        let fact = match sign {
            Sign::Above => "a service grows when it is slow or busy",
            Sign::Below => "a service shrinks when it is fast or idle",
        };
        return Err(value.wrong(fact, hint));
    }
    Ok(found)
}

fn balance(value: &Value<'_>) -> Result<Balance> {
    let table = value.table(BALANCE)?;
    let by = table.need("by", "write balance = { by = \"haproxy\" }")?;
    let text = |key: &str| table.get(key).map(|value| value.filled()).transpose();
    let time = |key: &str| table.get(key).map(|value| value.time()).transpose();
    Ok(Balance {
        by: by.one_of(&[("haproxy", "haproxy")])?.to_owned(),
        image: text("image")?.unwrap_or_else(|| IMAGE.to_owned()),
        mode: table.get("mode").map_or(Ok(Mode::Http), |value| {
            value.one_of(&[("http", Mode::Http), ("tcp", Mode::Tcp)])
        })?,
        pair: table.get("pair").map_or(Ok(false), |value| value.flag())?,
        drain: time("drain")?.unwrap_or(Duration::from_secs(30)),
        timeout: time("timeout")?.unwrap_or(Duration::from_mins(1)),
    })
}
