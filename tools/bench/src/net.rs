//! Measures networks of containers, beside connections of the host that have no container.
//!
//! [`names`] and [`packets`] are networks of one host, [`hosts`] are those of several hosts, beside
//! other programs that join hosts, and [`hpl`] is a parallel program on several hosts.
//!
//! A server and a caller ([`work`]) have a processor each. Every place ([`place`]) in turn does
//! each work once in a round, and medians are compared.

pub(super) mod cluster;
mod hosts;
pub(super) mod hpl;
mod names;
mod packets;
mod peers;
pub(super) mod place;
pub(super) mod work;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use testkit::layer::Layer;

use super::{Bench, Line};
use xtask::shell::{Outcome, built, cargo, check};
use xtask::tools;

const IMAGE: &str = "localhost/bench/net:1";
/// The device for networks of packets.
const TUN: &str = "/dev/net/tun";

/// Measures with the program of both ends.
type Part = fn(&Bench, &str) -> Outcome<Vec<Line>>;

const PARTS: [(&str, Part); 4] = [
    ("names", names::measure),
    ("packets", packets::measure),
    ("hosts", hosts::measure),
    ("hpl", hpl::measure),
];

/// The names of what can be measured alone.
pub(super) fn parts() -> impl Iterator<Item = &'static str> {
    PARTS.iter().map(|(name, _)| *name)
}

/// Measures the chosen parts, or all.
pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    let program = optimised(bench)?;
    load(bench, &program)?;
    let program = program.display().to_string();
    let _opened = OpenTun::new();
    let chosen = PARTS.iter().filter(|(name, _)| bench.wants(name));
    super::each(chosen.map(|(name, part)| (*name, part(bench, &program))))
}

/// This program, compiled for speed, where users can read it.
fn optimised(bench: &Bench) -> Outcome<PathBuf> {
    check(&mut cargo(&["build", "--release", "--locked", "--quiet", "--package", "bench"]))?;
    let public = bench.scratch.path().join("bench-net");
    fs::copy(built("release", "bench"), &public).map_err(|error| error.to_string())?;
    Ok(public)
}

/// The image has this program alone.
fn load(bench: &Bench, program: &Path) -> Outcome {
    let program = fs::read(program).map_err(|error| error.to_string())?;
    let layer = Layer::new().file("bin/bench", 0o755, program);
    let layout = bench.scratch.path().join("net");
    let image = testkit::guest::image().layer(layer).build();
    image.write_layout(&layout, IMAGE).map_err(|error| error.to_string())?;
    bench.coracle(&["load", "-q", "-i", &layout.display().to_string()]).map(drop)
}

/// Processes, chosen by their names and programs.
fn processes(is_one: impl Fn(&str, &Path) -> bool) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let program = fs::read_link(entry.path().join("exe")).unwrap_or_default();
        is_one(name.trim(), &program).then_some(pid)
    });
    numbers.collect()
}

/// The agents of all networks of this binary: others may be there, begun by other binaries.
fn agents(binary: &Path) -> Vec<u32> {
    processes(|name, program| name == "coracle-names" && program == binary)
}

/// Opens the device to all users for the time of the run, if root calls and it is closed.
struct OpenTun(Option<fs::Permissions>);

impl OpenTun {
    fn new() -> Self {
        let before = fs::metadata(TUN).map(|about| about.permissions()).ok();
        let closed = before.filter(|mode| tools::is_root() && mode.mode() & 0o006 != 0o006);
        if closed.is_some() {
            let _ = fs::set_permissions(Path::new(TUN), fs::Permissions::from_mode(0o666));
        }
        Self(closed)
    }
}

impl Drop for OpenTun {
    fn drop(&mut self) {
        if let Some(before) = self.0.take() {
            let _ = fs::set_permissions(Path::new(TUN), before);
        }
    }
}
