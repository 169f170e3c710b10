//! Describes this program, its store and the host in the form of Docker's `version` and `info`, as
//! far as the fields have a meaning here.
//!
//! Editors, CI services and test libraries read these before anything else. A field that cannot be
//! true here is empty or absent.

use std::path::Path;

use engine::choose::{self, ENGINES, Fit};
use engine::facts::Facts;
use engine::spec::ContainerConfig;
use engine::supervise::state::{self, Observed};
use host::{Cgroup, CgroupLayout, Host, Trial};
use serde_json::{Map, Value, json};
use store::{ContainerDir, Store};
use sys::machine::Machine;

use crate::container::root_form;
use crate::error::Result;
use crate::session::Session;

/// The version of Docker's API whose objects `inspect`, `info` and the listings have.
pub const API_VERSION: &str = "1.43";

/// Client and server of Docker's `version`: one program here. `program` is its version.
pub fn version(program: &str) -> Value {
    let platform = oci::Platform::host();
    let (os, arch) = (&platform.os, &platform.architecture);
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy();
    json!({
        "Version": program,
        "Os": os,
        "Arch": arch,
        "Client": {
            "Platform": {"Name": "Coracle"},
            "Version": program,
            "ApiVersion": API_VERSION,
            "DefaultAPIVersion": API_VERSION,
            "GitCommit": "",
            "GoVersion": "",
            "Os": os,
            "Arch": arch,
            "BuildTime": "",
            "Context": "default",
        },
        "Server": {
            "Platform": {"Name": "Coracle"},
            "Components": [{
                "Name": "Engine",
                "Version": program,
                "Details": {
                    "ApiVersion": API_VERSION,
                    "Arch": arch,
                    "Experimental": "false",
                    "KernelVersion": kernel,
                    "MinAPIVersion": API_VERSION,
                    "Os": os,
                },
            }],
            "Version": program,
            "ApiVersion": API_VERSION,
            "MinAPIVersion": API_VERSION,
            "GitCommit": "",
            "GoVersion": "",
            "Os": os,
            "Arch": arch,
            "KernelVersion": kernel,
            "Experimental": false,
            "BuildTime": "",
        },
    })
}

/// Docker's `info`. It tries what the host allows, as a run does, and control groups.
pub fn describe(session: &Session, program: &str) -> Result<Value> {
    let store = session.store()?;
    let host = session.host();
    let limits = Limits::of(&host.cgroup_now(&session.probing()), host);
    let parts = [
        program_facts(session, program),
        store_facts(session, store)?,
        host_facts(host, store.path()),
        limits.facts(),
        modes(session, host),
    ];
    let mut warnings: Vec<String> = limits.missing.into_iter().collect();
    if store.read_only().is_some() {
        warnings.push("WARNING: the store is read-only".to_owned());
    }
    let mut all = Map::new();
    for part in parts {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    all.insert("Warnings".to_owned(), warnings.into());
    Ok(Value::Object(all))
}

fn program_facts(session: &Session, program: &str) -> Value {
    json!({
        "ServerVersion": program,
        "ClientInfo": {"Version": program, "Context": "default", "Plugins": [], "Warnings": null},
        "Debug": false,
        "ExperimentalBuild": false,
        "IndexServerAddress": session.settings().default_registry,
        "Labels": [],
        "LoggingDriver": "json-file",
        "Plugins": {
            "Volume": ["local"],
            "Network": ["host", "none", "private"],
            "Authorization": null,
            "Log": ["json-file", "none"],
        },
        "Swarm": {
            "NodeID": "",
            "NodeAddr": "",
            "LocalNodeState": "inactive",
            "ControlAvailable": false,
            "Error": "",
            "RemoteManagers": null,
        },
        "SystemTime": jiff::Timestamp::now().to_string(),
    })
}

/// What a container does, for the three counts.
enum Does {
    Run,
    Pause,
    Nothing,
}

fn does(container: &ContainerDir) -> Does {
    match state::observe(&container.path()) {
        Ok(Observed::Running(running)) if running.paused => Does::Pause,
        Ok(Observed::Running(_) | Observed::Restarting { .. }) => Does::Run,
        _ => Does::Nothing,
    }
}

fn store_facts(session: &Session, store: &Store) -> Result<Value> {
    let containers = store.containers().map_nameless(does)?;
    let count = |wanted: fn(&Does) -> bool| containers.iter().filter(|does| wanted(does)).count();
    let file_system = &store.abilities().file_system;
    Ok(json!({
        "Containers": containers.len(),
        "ContainersRunning": count(|does| matches!(does, Does::Run)),
        "ContainersPaused": count(|does| matches!(does, Does::Pause)),
        "ContainersStopped": count(|does| matches!(does, Does::Nothing)),
        "Images": store.images().list()?.len(),
        "DockerRootDir": store.path(),
        "Driver": root_form::driver(session, store).name(),
        "DriverStatus": [["Backing Filesystem", file_system]],
        "FileSystem": file_system,
        "ReadOnly": store.read_only(),
    }))
}

fn host_facts(host: &Host, store: &Path) -> Value {
    let machine = Machine::here();
    let memory = rustix::system::sysinfo();
    json!({
        "ID": id(machine, store),
        "Name": machine.name,
        "KernelVersion": host.kernel.release,
        "OperatingSystem": operating_system(),
        "OSType": "linux",
        "Architecture": host.kernel.machine,
        "NCPU": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "MemTotal": memory.totalram as u64 * u64::from(memory.mem_unit),
        "Rootless": host.caller.uid != 0,
        "SubordinateIds": host.subordinate.any(),
    })
}

/// The same for each call with this store on this machine, in the form of Docker's. The machine's
/// own id is not to be told to others, so this one does not show it.
fn id(machine: &Machine, store: &Path) -> String {
    let text = format!("{}\n{}\n{}", machine.machine_id, machine.name, store.display());
    let digest = oci::Digest::of(text.as_bytes()).to_string();
    let hex = digest.rsplit(':').next().unwrap_or_default();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

/// The distribution's name for people.
fn operating_system() -> String {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let text = read("/etc/os-release").or_else(|| read("/usr/lib/os-release"));
    text.as_deref().and_then(pretty_name).unwrap_or_else(|| "Linux".to_owned())
}

fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?.trim();
    let name = value.trim_matches(['"', '\'']);
    (!name.is_empty()).then(|| name.to_owned())
}

/// Which limits containers can have, and by whom.
struct Limits {
    driver: &'static str,
    version: &'static str,
    memory: bool,
    cpu: bool,
    pids: bool,
    missing: Option<String>,
}

impl Limits {
    fn of(cgroup: &Cgroup, host: &Host) -> Self {
        let scope = !matches!(cgroup.systemd_user, Trial::Fails { .. })
            && host.programs.find("systemd-run").is_some();
        let driver = match (&cgroup.delegated, scope) {
            (Some(_), _) => "cgroupfs",
            (None, true) => "systemd",
            (None, false) => "none",
        };
        let has = |controller: &str| {
            driver != "none" && cgroup.controllers.iter().any(|name| name == controller)
        };
        let (memory, cpu, pids) = (has("memory"), has("cpu"), has("pids"));
        let lacks: Vec<&str> = [("memory", memory), ("cpu", cpu), ("pids", pids)]
            .into_iter()
            .filter_map(|(name, there)| (!there).then_some(name))
            .collect();
        let missing = (!lacks.is_empty())
            .then(|| format!("WARNING: no limits by the control groups' {}", lacks.join(", ")));
        let version = if cgroup.layout == CgroupLayout::V2 { "2" } else { "1" };
        Self { driver, version, memory, cpu, pids, missing }
    }

    fn facts(&self) -> Value {
        json!({
            "CgroupDriver": self.driver,
            "CgroupVersion": self.version,
            "MemoryLimit": self.memory,
            "SwapLimit": false,
            "CpuCfsPeriod": self.cpu,
            "CpuCfsQuota": self.cpu,
            "CPUShares": false,
            "CPUSet": true,
            "PidsLimit": self.pids,
            "OomKillDisable": false,
        })
    }
}

/// The modes of execution that work here stand for Docker's runtimes.
fn modes(session: &Session, host: &Host) -> Value {
    let mut config = ContainerConfig::default();
    config.security.isolate = session.settings().isolate;
    let mut facts = Facts::of(host, &session.probing(), &config);
    facts.find_helpers(host);
    let works = |engine: &&&dyn choose::Engine| !matches!(engine.probe(&facts), Fit::Unusable(_));
    let runtimes: Map<String, Value> = ENGINES
        .iter()
        .filter(works)
        .map(|engine| {
            let helper = engine.properties().helper.and_then(|helper| facts.helper(helper.key));
            let path = helper.map_or_else(|| "coracle".into(), |found| found.path.clone());
            (engine.name().to_owned(), json!({"path": path}))
        })
        .collect();
    let chosen = choose::choose(&facts, session.settings().execmode.as_deref(), &config);
    let mut options = Vec::new();
    if !matches!(host.seccomp.filter, Trial::Fails { .. }) {
        let profile = if config.security.isolate { "builtin" } else { "unconfined" };
        options.push(format!("name=seccomp,profile={profile}"));
    }
    if host.caller.uid != 0 {
        options.push("name=rootless".to_owned());
    }
    json!({
        "Runtimes": runtimes,
        "DefaultRuntime": chosen.map_or("", choose::Engine::name),
        "SecurityOptions": options,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_distributions() {
        for (text, name) in [
            (
                "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
                "Debian GNU/Linux 12 (bookworm)",
            ),
            ("PRETTY_NAME='A B'", "A B"),
            ("PRETTY_NAME=Void\n", "Void"),
        ] {
            assert_eq!(pretty_name(text).as_deref(), Some(name));
        }
        assert_eq!(pretty_name("NAME=x\n").or_else(|| pretty_name("PRETTY_NAME=\"\"\n")), None);
    }

    #[test]
    fn the_id_is_of_machine_and_store() {
        let machine = Machine { machine_id: "abc".into(), name: "n".into(), ..Machine::default() };
        let first = id(&machine, Path::new("/a"));
        assert_eq!((first.len(), first.matches('-').count()), (36, 4), "{first}");
        assert_eq!(first, id(&machine, Path::new("/a")));
        assert_ne!(first, id(&machine, Path::new("/b")));
    }

    #[test]
    fn limits_that_are_missing_are_named() {
        let mut cgroup = Cgroup { layout: CgroupLayout::V2, ..Cgroup::default() };
        cgroup.controllers = ["memory".to_owned(), "pids".to_owned()].to_vec();
        cgroup.delegated = Some("/sys/fs/cgroup/mine".into());
        let limits = Limits::of(&cgroup, &Host::default());
        assert_eq!((limits.driver, limits.version), ("cgroupfs", "2"));
        assert!(limits.memory && limits.pids && !limits.cpu);
        assert!(limits.missing.is_some_and(|text| text.ends_with("' cpu")));
        cgroup.delegated = None;
        cgroup.systemd_user = Trial::fails("systemd-run", "no session");
        let limits = Limits::of(&cgroup, &Host::default());
        assert_eq!(limits.driver, "none");
        assert!(!limits.memory && limits.missing.is_some_and(|text| text.contains("memory")));
    }
}
