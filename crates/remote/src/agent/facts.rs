//! What an agent tells about its node. Everything is read from the kernel, from files, and from the
//! environment that the caller gave; no program is run.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};

use super::Options;
use crate::wire::messages::Facts;
use crate::wire::{ROOM, VERSION};

/// Variables that are told. They name a place in a batch system, and are no secrets.
const VARIABLES: [&str; 14] = [
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_NODELIST",
    "SLURM_NODEID",
    "SLURMD_NODENAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_MEM_PER_NODE",
    "SLURM_TMPDIR",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "PBS_JOBID",
    "SSH_CONNECTION",
];

/// All facts of this node. `room` is how many bytes a store with the images needs.
pub(super) fn gather(options: &Options, runtime: &Path, room: u64) -> Facts {
    let system = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let caller = host::users::Caller::from_files();
    let home = options.variable("HOME").map(PathBuf::from).or(caller.home);
    let noexec = |home: &PathBuf| {
        statvfs(home).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::NOEXEC))
    };
    let variables = VARIABLES.iter().filter_map(|&name| {
        options.variable(name).map(|value| (name.to_owned(), value.to_owned()))
    });
    let scratch = scratch(options, caller.uid, room);
    Facts {
        version: VERSION,
        release: options.release.clone(),
        digest: own_digest(),
        executable: std::env::current_exe().unwrap_or_default(),
        pid: std::process::id(),
        host: text(system.nodename()),
        uid: caller.uid,
        user: caller.name,
        boot_id: sys::machine::Machine::here().boot_id.clone(),
        time: crate::clock::now(),
        kernel: text(system.release()),
        machine: text(system.machine()),
        cpus: std::thread::available_parallelism().map_or(1, Into::into),
        memory: memory(),
        home_writable: home.as_ref().is_some_and(|home| access(home, Access::WRITE_OK).is_ok()),
        home_noexec: home.as_ref().is_some_and(noexec),
        home,
        runtime: runtime.to_owned(),
        scratch: scratch.first,
        roomy: scratch.roomy,
        passed: scratch.passed,
        addresses: addresses(),
        interfaces: host::interfaces(),
        equipment: host::Equipment::read(),
        variables: variables.collect::<BTreeMap<_, _>>(),
    }
}

/// Where stores of the node's own can be.
struct Scratch {
    /// The first directory with room for one without images.
    first: Option<PathBuf>,
    /// The first with room for images.
    roomy: Option<PathBuf>,
    /// The places before that, see [`Facts::passed`].
    passed: Vec<(String, String)>,
}

/// The directories of this user for a store that needs so much room.
fn scratch(options: &Options, uid: u32, room: u64) -> Scratch {
    let variables = ["SLURM_TMPDIR", "TMPDIR"].map(|name| options.variable(name));
    let places = variables.into_iter().flatten().chain(["/tmp", "/var/tmp", "/dev/shm"]);
    let mut found = Scratch { first: None, roomy: None, passed: Vec::new() };
    for place in places {
        // A variable may name one of the usual places.
        if found.passed.iter().any(|(before, _)| before == place) {
            continue;
        }
        let free = free(place, uid);
        if let Ok(free) = free
            && free >= ROOM
        {
            let path = directory(place, uid);
            found.first.get_or_insert_with(|| path.clone());
            if free >= room {
                found.roomy = Some(path);
                break;
            }
        }
        let told = free.map_or_else(|why| why, |free| free.to_string());
        found.passed.push((place.to_owned(), told));
    }
    found
}

/// The directory of this user in a place.
fn directory(place: &str, uid: u32) -> PathBuf {
    Path::new(place).join(format!("coracle-{uid}"))
}

/// The free bytes in a place. If they are enough for a store, the directory of this user is made.
fn free(place: &str, uid: u32) -> Result<u64, String> {
    let found = statvfs(place).map_err(|errno| std::io::Error::from(errno).to_string())?;
    if found.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err("programs there are not executed (noexec)".to_owned());
    }
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    if free >= ROOM {
        super::private_directory(&directory(place, uid))?;
    }
    Ok(free)
}

/// SHA-256 of this program's file; empty if it cannot be read.
fn own_digest() -> String {
    let read = || -> std::io::Result<String> {
        crate::digest::digest(&mut std::fs::File::open("/proc/self/exe")?)
    };
    read().unwrap_or_default()
}

/// The memory of this machine, in bytes; 0 if that is not known.
pub fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

fn addresses() -> Vec<(String, IpAddr)> {
    let four = sys::link::addresses().unwrap_or_default().into_iter();
    let four = four.map(|(name, address)| (name, IpAddr::V4(address)));
    let six = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let six: Vec<_> = six.lines().filter_map(version_6).collect();
    let all = four.chain(six);
    all.filter(|(_, address)| !address.is_loopback() && !address.is_unspecified()).collect()
}

/// A line of `/proc/net/if_inet6`: address, index, bits, scope, flags, device. Addresses of one
/// link (scope 20) lead nowhere without it.
fn version_6(line: &str) -> Option<(String, IpAddr)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let &[address, _, _, scope, _, device] = fields.as_slice() else { return None };
    let address = u128::from_str_radix(address, 16).ok()?;
    (scope == "00").then(|| (device.to_owned(), IpAddr::V6(Ipv6Addr::from_bits(address))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_this_host() {
        let environment = [("SLURM_JOB_ID", "7"), ("HOME", "/proc"), ("SECRET", "x")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = Options { environment: environment.into(), ..Options::default() };
        let facts = gather(&options, Path::new("/run/x"), 0);
        assert_eq!(facts.variables, BTreeMap::from([("SLURM_JOB_ID".into(), "7".into())]));
        assert_eq!((facts.digest.len(), facts.pid), (64, std::process::id()));
        assert!(facts.memory > 1 << 20 && facts.cpus > 0 && !facts.kernel.is_empty());
        assert_eq!(facts.home, Some("/proc".into()));
        assert!(facts.addresses.iter().all(|(name, _)| name != "lo"));
    }

    #[test]
    fn without_room_the_first_place_is_named_with_what_is_free() {
        let uid = rustix::process::geteuid().as_raw();
        let own = tempfile::tempdir().unwrap();
        let path = own.path().to_str().unwrap().to_owned();
        let environment = [("SLURM_TMPDIR", "/proc/none"), ("TMPDIR", &path)];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = Options { environment: environment.into(), ..Options::default() };
        let found = |room| scratch(&options, uid, room);
        let place = Some(own.path().join(format!("coracle-{uid}")));
        assert_eq!((found(0).first, found(0).roomy), (place.clone(), place.clone()));
        let Scratch { first, roomy, passed } = found(u64::MAX);
        assert_eq!((first, roomy), (place, None));
        let free = |told: &str| told.parse::<u64>().ok();
        assert_eq!((&*passed[0].0, free(&passed[0].1)), ("/proc/none", None));
        assert!(passed[1].0 == path && free(&passed[1].1).is_some_and(|free| free >= ROOM));
    }

    #[test]
    fn lines_of_version_6() {
        let line = "20010db8000000000000000000000001 02 40 00 80     eth0";
        let address = "2001:db8::1".parse().unwrap();
        assert_eq!(version_6(line), Some(("eth0".to_owned(), address)));
        let local = "fe8000000000000000000000000000ff 02 40 20 80     eth0";
        assert_eq!((version_6(local), version_6("x")), (None, None));
    }
}
