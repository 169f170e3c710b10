//! Where nodes come from: `[[backend]]`.

use std::time::Duration;

use super::reader::{Table, Value};
use crate::error::Result;

/// A backend of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// What makes the nodes.
    pub kind: Kind,
    /// How long the nodes are wanted (`time`).
    pub time: Option<Duration>,
}

/// What makes the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// This machine, as many nodes as are wanted.
    Local,
    /// Hosts that `ssh` reaches.
    Ssh {
        /// The hosts.
        hosts: Vec<SshHost>,
        /// Words for `ssh`.
        options: Vec<String>,
    },
    /// Slurm: an allocation that this is in, or one that `sbatch` asks for.
    Slurm {
        /// The partition.
        partition: Option<String>,
        /// Words for `sbatch`, passed on as they are.
        options: Vec<String>,
    },
    /// PBS or LSF, by a template of the batch script.
    Template {
        /// `pbs` or `lsf`.
        system: String,
        /// The site's template, in place of the built-in one.
        template: Option<String>,
        /// The queue.
        queue: Option<String>,
        /// Words for the submitting command, passed on as they are.
        options: Vec<String>,
    },
    /// Virtual machines on this host.
    Qemu {
        /// Memory of each, in bytes.
        memory: Option<u64>,
        /// Processors of each.
        cpus: Option<u32>,
        /// How they are linked.
        network: Topology,
        /// How they share files.
        storage: Storage,
    },
    /// A cloud, reached by a program of its own.
    Cloud {
        /// `aws` or `openstack`.
        provider: String,
        /// The machine type, in the cloud's own words.
        machine: Option<String>,
        /// The region or zone.
        region: Option<String>,
        /// Shared storage, in the cloud's own words.
        storage: Option<String>,
    },
}

/// A host of [`Kind::Ssh`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    /// What `ssh` is given.
    pub host: String,
    /// Services are spread over zones.
    pub zone: Option<String>,
    /// The address by which the other hosts reach it.
    pub address: Option<std::net::Ipv4Addr>,
}

/// How virtual machines are linked (BEE, section III-A).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// One segment for all.
    Multicast,
    /// All to the first.
    Star,
    /// A binary tree.
    Tree,
}

/// How virtual machines share files (BEE, section III-B).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// A directory of the host in each.
    Virtio,
    /// A disk image at the first, which the others mount from it.
    Nfs,
}

impl Kind {
    /// The word of the file.
    pub fn word(&self) -> &str {
        match self {
            Self::Local => "local",
            Self::Ssh { .. } => "ssh",
            Self::Slurm { .. } => "slurm",
            Self::Qemu { .. } => "qemu",
            Self::Template { system: word, .. } | Self::Cloud { provider: word, .. } => word,
        }
    }
}

/// The words of `kind`, each with its keys besides `kind`.
const KINDS: &[(&str, &[&str])] = &[
    ("local", &[]),
    ("ssh", &["hosts", "options"]),
    ("slurm", &["partition", "time", "options"]),
    ("pbs", &["template", "queue", "time", "options"]),
    ("lsf", &["template", "queue", "time", "options"]),
    ("qemu", &["memory", "cpus", "network", "storage", "time"]),
    ("aws", &["type", "region", "storage", "time"]),
    ("openstack", &["type", "region", "storage", "time"]),
];

/// The backends of a file; this machine where it names none.
pub(super) fn read(top: &Table<'_>) -> Result<Vec<Backend>> {
    let Some(all) = top.get("backend") else {
        return Ok(vec![Backend { kind: Kind::Local, time: None }]);
    };
    let one = all.is_table();
    let all = if one { vec![all.clone()] } else { all.array()? };
    if all.is_empty() {
        let hint = "leave the key out for this machine, or write [[backend]]";
        return Err(top.need("backend", "")?.wrong("there is none", hint));
    }
    all.iter().map(backend).collect()
}

fn backend(value: &Value<'_>) -> Result<Backend> {
    // The kind says which keys there are.
    let every: Vec<&str> =
        KINDS.iter().flat_map(|(_, keys)| *keys).chain(&["kind"]).copied().collect();
    let table = value.table(&every)?;
    let words: Vec<(&str, usize)> =
        KINDS.iter().enumerate().map(|(number, (word, _))| (*word, number)).collect();
    let number = table.need("kind", "write kind = \"ssh\"")?.one_of(&words)?;
    let (word, keys) = KINDS[number];
    let known: Vec<&str> = keys.iter().chain(&["kind"]).copied().collect();
    let table = value.table(&known)?;
    let text = |key: &str| table.get(key).map(|value| value.filled()).transpose();
    let name = |key: &str| table.get(key).map(|value| value.word()).transpose();
    let kind = match word {
        "local" => Kind::Local,
        "ssh" => Kind::Ssh { hosts: hosts(&table)?, options: table.texts("options")? },
        "slurm" => Kind::Slurm { partition: name("partition")?, options: table.texts("options")? },
        "pbs" | "lsf" => Kind::Template {
            system: word.to_owned(),
            template: text("template")?,
            queue: name("queue")?,
            options: table.texts("options")?,
        },
        "qemu" => Kind::Qemu {
            memory: table.get("memory").map(|value| value.size()).transpose()?,
            cpus: table
                .get("cpus")
                .map(|value| value.number(1..=255))
                .transpose()?
                .map(|cpus| cpus as u32),
            network: table.get("network").map_or(Ok(Topology::Multicast), |value| {
                value.one_of(&[
                    ("multicast", Topology::Multicast),
                    ("star", Topology::Star),
                    ("tree", Topology::Tree),
                ])
            })?,
            storage: table.get("storage").map_or(Ok(Storage::Virtio), |value| {
                value.one_of(&[("virtio", Storage::Virtio), ("nfs", Storage::Nfs)])
            })?,
        },
        _ => Kind::Cloud {
            provider: word.to_owned(),
            machine: text("type")?,
            region: text("region")?,
            storage: text("storage")?,
        },
    };
    Ok(Backend { kind, time: table.get("time").map(|value| value.time()).transpose()? })
}

fn hosts(table: &Table<'_>) -> Result<Vec<SshHost>> {
    let hint = "write hosts = [\"a\", \"b\"]";
    let value = table.need("hosts", hint)?;
    let all = value.array()?;
    if all.is_empty() {
        return Err(value.wrong("there is none", hint));
    }
    let mut hosts: Vec<SshHost> = Vec::new();
    for value in &all {
        let host = if value.is_text() {
            SshHost { host: host_name(value)?, zone: None, address: None }
        } else {
            let table = value.table(&["host", "zone", "address"])?;
            let address = table.get("address").map(|value| {
                let text = value.text()?;
                text.parse()
                    .map_err(|_| value.wrong("this is no IPv4 address", "write it as \"10.0.0.7\""))
            });
            SshHost {
                host: host_name(&table.need("host", "write host = \"a\"")?)?,
                zone: table.get("zone").map(|value| value.filled()).transpose()?,
                address: address.transpose()?,
            }
        };
        if hosts.iter().any(|other| other.host == host.host) {
            let fact = format!("{} stands there twice", host.host);
            return Err(value.wrong(&fact, "a host is one node: name each once"));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

/// A word that `ssh` takes for a host: none that it takes for an option.
fn host_name(value: &Value<'_>) -> Result<String> {
    let text = value.filled()?;
    if text.starts_with('-') || text.contains(char::is_whitespace) {
        return Err(value.wrong("this is no host", "write what you give to ssh: \"user@host\""));
    }
    Ok(text)
}
