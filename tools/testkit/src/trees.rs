//! The Debian trees, packages and sources of the suites ([`ALL`]).
//!
//! Each takes a package mirror and up to minutes, so `cargo xtask ci` makes them while it compiles,
//! and a suite waits for its own alone. A suite that finds one missing makes it then.

use std::path::PathBuf;

use crate::debian;
use crate::skip::Skip;

/// What the tree of the suite `programs` holds beside the minimal base.
const PROGRAMS: &[&str] = &[
    "build-essential",
    "python3",
    "libpython3.11-testsuite",
    "git",
    "openssh-server",
    "openssh-client",
    "rsync",
    "sudo",
    "iputils-ping",
    "gosu",
    "rpm",
    "dnf",
    "createrepo-c",
    "busybox-static",
    "libopenmpi-dev",
    "openmpi-bin",
    "libmpich-dev",
    "mpich",
    "musl-tools",
    "gdb",
    "strace",
];

/// The same for the suite `integration`.
const INTEGRATION: &[&str] =
    &["x11-apps", "xauth", "dbus", "openssh-client", "python3-minimal", "libpython3-stdlib"];

/// The same for the large programs of the suites `contract` and `hosts`.
const SERVICES: &[&str] = &["postgresql", "redis-server", "rsync", "git", "nginx-light", "haproxy"];

/// The same for the suite `servers`.
const SERVERS: &[&str] = &[
    "nginx-light",
    "haproxy",
    "keepalived",
    "postgresql",
    "redis-server",
    "openssh-server",
    "openssh-client",
    "iperf3",
    "bind9-dnsutils",
    "curl",
    "python3",
    "gcc",
    "libc6-dev",
    "musl-tools",
    "openmpi-bin",
    "libopenmpi-dev",
    "mpich",
    "libmpich-dev",
];

/// The same for a Slurm or a Grid Engine whose nodes are containers.
const BATCH: &[&str] = &[
    "slurmctld",
    "slurmd",
    "slurm-client",
    "munge",
    "gridengine-master",
    "gridengine-exec",
    "gridengine-client",
    "openssh-server",
    "openssh-client",
    "openmpi-bin",
    "python3-mpi4py",
];

/// Grid Engine would set up a cell on the machine where it is installed.
const NO_CELL: &str = "gridengine-common shared/gridengineconfig boolean false";

/// The same for what the README's clusters run.
const README: &[&str] = &["openmpi-bin", "python3-mpi4py", "redis-server"];

/// Apptainer and the libraries that it needs, for a tree that is the host of that case.
const APPTAINER: &[&str] =
    &["apptainer", "libseccomp2", "libsqlite3-0", "libsubid6", "squashfs-tools", "uidmap"];

/// An LDAP server, and what asks it for the users and groups of a host: neither is installed, as a
/// package of this kind changes the machine's own users and starts daemons.
const DIRECTORY: &[&str] = &[
    "slapd",
    "nslcd",
    "libnss-ldapd",
    "libldap-2.5-0",
    "libltdl7",
    "libodbc2",
    "libwrap0",
    "libsasl2-2",
];

/// The tree of the suite `programs`.
pub fn programs() -> Result<PathBuf, Skip> {
    debian::tar_with("programs", PROGRAMS)
}

/// The tree of the suite `integration`.
pub fn integration() -> Result<PathBuf, Skip> {
    debian::tar_with("integration", INTEGRATION)
}

/// The tree of the large programs of the suite `contract`.
pub fn services() -> Result<PathBuf, Skip> {
    debian::tar_with("services", SERVICES)
}

/// The tree of the suite `servers`.
pub fn servers() -> Result<PathBuf, Skip> {
    debian::tar_with("servers", SERVERS)
}

/// The tree of a Slurm or a Grid Engine whose nodes are containers.
pub fn batch() -> Result<PathBuf, Skip> {
    debian::tar_answering("batch", BATCH, &[NO_CELL])
}

/// The tree of what the README's clusters run.
pub fn readme() -> Result<PathBuf, Skip> {
    debian::tar_with("readme", README)
}

/// Debian's newest release with Python.
pub fn newest() -> Result<PathBuf, Skip> {
    debian::newest_with("programs", &["python3"])
}

/// Apptainer's packages.
pub fn apptainer() -> Result<Vec<PathBuf>, Skip> {
    debian::package_files(debian::NEWEST, "apptainer", APPTAINER)
}

/// Packages of a directory service.
pub fn directory() -> Result<Vec<PathBuf>, Skip> {
    debian::package_files(debian::SUITE, "directory", DIRECTORY)
}

/// zlib's source.
pub fn zlib() -> Result<PathBuf, Skip> {
    debian::source("zlib")
}

/// Lua's source.
pub fn lua() -> Result<PathBuf, Skip> {
    debian::source("lua5.4")
}

/// What makes one of these, or several; gives why something could not be made.
pub type Make = fn() -> Vec<Skip>;

/// All of these by names.
pub const ALL: &[(&str, Make)] = &[
    ("debian", || skips([debian::tar()])),
    ("programs", || skips([programs()])),
    ("integration", || skips([integration()])),
    ("services", || skips([services()])),
    ("servers", || skips([servers()])),
    ("batch", || skips([batch()])),
    ("readme", || skips([readme()])),
    ("directory", || skips([directory().map(|_| PathBuf::new())])),
    // What single cases of the suite `programs` need.
    ("more", || skips([newest(), zlib(), lua(), apptainer().map(|_| PathBuf::new())])),
];

fn skips(made: impl IntoIterator<Item = Result<PathBuf, Skip>>) -> Vec<Skip> {
    made.into_iter().filter_map(Result::err).collect()
}
