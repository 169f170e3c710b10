//! Lines on equipment besides the kernel: GPUs, fabrics, a batch system, MPI, helper programs.

use super::{Finding, Level};
use crate::{Depth, GpuVendor, Host, MpiKind, PROGRAMS};

pub(super) fn devices(host: &Host) -> Vec<Finding> {
    let mut findings = Vec::new();
    for gpu in &host.gpus {
        let vendor = match gpu.vendor {
            GpuVendor::Nvidia => "NVIDIA",
            GpuVendor::Amd => "AMD",
            GpuVendor::Intel => "Intel",
            GpuVendor::Other => "other",
        };
        let models: Vec<&str> =
            gpu.models.iter().map(|model| model.trim_start_matches(vendor).trim_start()).collect();
        let models = models.join(", ");
        let driver =
            gpu.driver.as_deref().map_or(String::new(), |version| format!(", driver {version}"));
        let value = format!("{vendor} {models}{driver}, device nodes: {}", gpu.nodes.len());
        let finding = Finding::note(
            "GPU",
            value.replace("  ", " ").replace(" ,", ","),
            "/dev, /sys, /proc/driver",
        );
        findings.push(if gpu.forbidden.is_empty() {
            finding.at(Level::Good)
        } else {
            let nodes: Vec<String> =
                gpu.forbidden.iter().map(|node| node.display().to_string()).collect();
            finding.at(Level::Warn).advise(format!(
                "no permission to open {}; members of the groups render and video often have it",
                nodes.join(" ")
            ))
        });
    }
    if host.gpus.is_empty() && host.depth == Depth::Thorough {
        findings.push(Finding::note("GPU", "none", "/dev, /sys"));
    }
    if !host.cdi.is_empty() {
        findings.push(Finding::note("CDI", host.cdi.join(" "), "/etc/cdi, /var/run/cdi"));
    }
    let fabric = &host.infiniband;
    let value = match (fabric.devices.is_empty(), fabric.nodes.is_empty()) {
        (true, _) => "none".to_owned(),
        (false, true) => format!("{}; no nodes in /dev/infiniband", fabric.devices.join(", ")),
        (false, false) => fabric.devices.join(", "),
    };
    findings.push(Finding::note("InfiniBand", value, "/sys/class/infiniband, /dev/infiniband"));
    findings.push(slurm(host));
    findings.push(mpi(host));
    findings
}

fn slurm(host: &Host) -> Finding {
    let slurm = &host.slurm;
    let value = match (&slurm.srun, &slurm.job) {
        (_, Some(job)) => format!(
            "in job {job}{}{}",
            slurm.nodes.as_deref().map_or(String::new(), |nodes| format!(" on {nodes}")),
            slurm.ranks.map_or(String::new(), |ranks| format!(", {ranks} tasks")),
        ),
        (Some(srun), None) => format!("{}, not in a job", srun.display()),
        (None, None) => "none".into(),
    };
    Finding::note("Slurm", value, "environment, PATH")
}

fn mpi(host: &Host) -> Finding {
    let mpi = &host.mpi;
    let kind = match mpi.kind {
        MpiKind::Unknown => "",
        MpiKind::OpenMpi => " (Open MPI)",
        MpiKind::Mpich => " (MPICH)",
        MpiKind::Intel => " (Intel MPI)",
        MpiKind::Mvapich => " (MVAPICH)",
    };
    let value = match (&mpi.launcher, &mpi.version) {
        (Some(launcher), Some(version)) => format!("{}{kind}: {version}", launcher.display()),
        (Some(launcher), None) => format!("{}, version unknown", launcher.display()),
        (None, _) => "none".into(),
    };
    Finding::note("MPI", value, "PATH, mpiexec --version")
}

/// What connects a container's own network with the outside. The helper programs open the TUN.
fn private_network(host: &Host, helpers: &[String]) -> Finding {
    let by_switch = |why: &str, advice: Option<&str>| {
        let value = format!("without a helper program, with limits: {why}");
        let finding = Finding::note("private network", value, "PATH, /dev/net/tun");
        match advice {
            Some(advice) => finding.advise(advice),
            None => finding,
        }
    };
    match host.networking.tun.why() {
        _ if helpers.is_empty() => by_switch(
            "neither pasta nor slirp4netns is installed",
            Some("install passt (pasta) or slirp4netns"),
        ),
        Some(why) => by_switch(why, host.networking.tun.advice()),
        None => Finding::note("private network", helpers.join(" "), "PATH, /dev/net/tun")
            .at(Level::Good),
    }
}

pub(super) fn programs(host: &Host) -> Vec<Finding> {
    let list = |names: &[&str]| -> Vec<String> {
        let found = names.iter().filter_map(|name| host.programs.found.get(*name));
        found.map(|path| path.display().to_string()).collect()
    };
    let network = private_network(host, &list(&["pasta", "slirp4netns"]));
    let runtimes = list(&["runc", "crun", "apptainer", "singularity"]);
    let runtimes = if runtimes.is_empty() { "none".into() } else { runtimes.join(" ") };
    let known = ["pasta", "slirp4netns", "runc", "crun", "apptainer", "singularity"];
    let others = PROGRAMS.iter().filter(|program| !known.contains(&program.name));
    let others: Vec<&str> = others
        .map(|program| program.name)
        .filter(|name| host.programs.found.contains_key(*name))
        .collect();
    vec![
        network,
        Finding::note("other runtimes", runtimes, "PATH"),
        Finding::note("helpers", others.join(" "), "PATH"),
    ]
}
