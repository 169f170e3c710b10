//! `cargo xtask kernels [--debug] [--kvm] [NAME]... [-- CASE...]`: runs the differential suite on
//! other kernels, in virtual machines.
//!
//! Kernels of distributions ([`crate::machines`]) boot under QEMU with a small Debian tree as
//! their disk ([`machine`]). There the suite runs the release binary as on a host: natively in a
//! chroot as root, and in every engine as an unprivileged user. Engines without namespaces run
//! with user namespaces forbidden, N1 with them allowed. The suite judges by its own list of known
//! differences; [`report`] only counts.
//!
//! Only root can run it, because the tree has files of several owners. An emulated kernel takes
//! half an hour or more; `--kvm` is for hosts with KVM. `cargo xtask ci` does not include it.

pub(crate) mod machine;
mod report;

use crate::machines::fetch::{self, Release};
use crate::shell::{Outcome, step};
use crate::table::Table;
use crate::{release, tools};

use machine::Machine;
use report::Report;

/// The kernels, oldest first. Debian's mirrors hold supported releases only; the older kernels are
/// Ubuntu's, whose archive keeps all releases.
const RELEASES: &[Release] = &[
    Release::ubuntu("xenial"),
    Release::ubuntu("bionic"),
    Release::ubuntu("focal"),
    Release::debian("bullseye"),
    Release::debian("bookworm"),
    Release::debian("trixie"),
    Release::debian("sid"),
];

/// How the machines run.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    /// Test the debug build, which compiles faster.
    debug: bool,
    /// Use KVM.
    kvm: bool,
}

/// Runs the suite on the named releases, or on all. Words after `--` choose cases.
pub(crate) fn run(words: &[String]) -> Outcome {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let cases = words.get(end + 1..).unwrap_or_default();
    let (flags, names): (Vec<&String>, Vec<&String>) =
        words[..end].iter().partition(|word| word.starts_with("--"));
    let mut manner = Manner::default();
    for flag in flags {
        match flag.as_str() {
            "--debug" => manner.debug = true,
            "--kvm" => manner.kvm = true,
            other => return Err(format!("no flag {other}: there are --debug and --kvm")),
        }
    }
    if let Some(name) = names.iter().find(|name| RELEASES.iter().all(|known| known.name != **name))
    {
        let all: Vec<&str> = RELEASES.iter().map(|release| release.name).collect();
        return Err(format!("no kernel {name}: there are {}", all.join(", ")));
    }
    tools::set_up_kernels()?;
    step("building");
    let program = if manner.debug { machine::debug_build()? } else { release::build()? };
    let disk = machine::disk(&program, cases)?;
    let mut table = Table::new(&["KERNEL", "RELEASE", "DEFAULT", "I1", "I2", "P1", "P2", "N1"]);
    let mut failed = Vec::new();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| *wanted == name);
    for release in RELEASES.iter().filter(|release| wanted(release.name)) {
        step(release.name);
        let end = fetch::kernel(release).and_then(|kernel| {
            println!("Linux {}", kernel.version);
            let log = Machine { kernel: &kernel, disk: &disk, kvm: manner.kvm }.run()?;
            Ok((kernel.version, Report::read(&log)))
        });
        match end {
            Ok((version, report)) => {
                report.print();
                let engines = report.cells();
                let mut row = vec![version.as_str(), release.name, report.default_engine()];
                row.extend(engines.iter().map(String::as_str));
                table.row(&row);
                if !report.is_good() {
                    failed.push(release.name);
                }
            }
            Err(error) => {
                println!("{error}");
                table.row(&["-", release.name, &error]);
                failed.push(release.name);
            }
        }
    }
    println!("\n{}", table.text());
    if failed.is_empty() { Ok(()) } else { Err(format!("not as natively: {}", failed.join(", "))) }
}
