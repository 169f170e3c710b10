//! Measures what running containers use: processors, memory, network, disk, processes.
//!
//! A container with a control group of its own is measured by it. Others are summed up from `/proc`
//! over the processes that live in them: processor time includes children that have ended and were
//! waited for, memory counts a shared page once in all (`Pss`). What a child did whose parent
//! ignores its end is lost there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::launch::cgroup;
use engine::processes;
use engine::spec::NetworkMode;
use engine::supervise::state::{self, Observed};
use engine::supervise::{self, Process};
use store::ContainerDir;

use super::{list, record, running};
use crate::error::Result;

/// What a container has used until now, and uses now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Processor time.
    pub cpu: Duration,
    /// Processor time of the whole machine, idle time included.
    pub system_cpu: Duration,
    /// Processors of the machine.
    pub online_cpus: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory that it can have.
    pub memory_limit: u64,
    /// Threads.
    pub pids: u64,
    /// Bytes received and sent by a network of its own.
    pub network: Option<(u64, u64)>,
    /// Bytes read from disks.
    pub read: u64,
    /// Bytes written to disks.
    pub written: u64,
}

impl Sample {
    /// Hundredths of one processor since an earlier sample, as Docker shows them: 200 for two whole
    /// processors.
    pub fn cpu_percent(&self, earlier: &Self) -> f64 {
        let used = self.cpu.saturating_sub(earlier.cpu).as_secs_f64();
        let all = self.system_cpu.saturating_sub(earlier.system_cpu).as_secs_f64();
        if all > 0.0 { used / all * f64::from(self.online_cpus) * 100.0 } else { 0.0 }
    }

    /// Hundredths of the memory that it can have.
    pub fn memory_percent(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
        let share = |part: u64, whole: u64| part as f64 / whole as f64 * 100.0;
        if self.memory_limit == 0 { 0.0 } else { share(self.memory, self.memory_limit) }
    }
}

/// Measures a container; `None` if it does not run on this machine.
pub fn sample(container: &ContainerDir) -> Result<Option<Sample>> {
    let Observed::Running(running) = state::observe(&container.path())? else { return Ok(None) };
    let Some(main) = running.main().filter(|_| running.elsewhere.is_none()) else {
        return Ok(None);
    };
    let config = record::read(container)?.config;
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let (system_cpu, online_cpus) = machine(&stat);
    let whole = rustix::system::sysinfo();
    let whole = whole.totalram as u64 * u64::from(whole.mem_unit);
    let mode = list::network_mode(&config.network, config.security.isolate);
    let own = matches!(mode, NetworkMode::Private | NetworkMode::Named(_))
        && running::has_own_network(main.pid);
    let network = own
        .then(|| std::fs::read_to_string(format!("/proc/{}/net/dev", main.pid)).ok())
        .flatten()
        .map(|text| traffic(&text));
    let mut sample = Sample { system_cpu, online_cpus, network, ..Sample::default() };
    let group = cgroup::of(main.pid);
    let is_whole = |group: &PathBuf| FILES.iter().all(|file| group.join(file).exists());
    if !group.as_ref().is_some_and(is_whole) {
        let Ok(processes) = supervise::top(&container.path()) else { return Ok(None) };
        let supervisor = running.supervisor.as_ref().map(|process| process.pid);
        by_processes(&mut sample, &processes, supervisor);
    }
    if let Some(group) = group {
        by_group(&mut sample, &group);
    }
    sample.memory_limit = config.limits.memory.filter(|limit| *limit < whole).unwrap_or(whole);
    Ok(Some(sample))
}

/// The files of a control group of version 2 that has all controllers which count here.
const FILES: [&str; 4] = ["cpu.stat", "memory.current", "pids.current", "io.stat"];

/// By the files of a control group, as far as it has them.
fn by_group(sample: &mut Sample, group: &Path) {
    let read = |file: &str| std::fs::read_to_string(group.join(file)).ok();
    let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
    if let Some(text) = read("cpu.stat") {
        sample.cpu = Duration::from_micros(field(&text, "usage_usec"));
    }
    if let Some(memory) = number("memory.current") {
        // As Docker: what the kernel can drop at once is not counted.
        let cache = read("memory.stat").map_or(0, |text| field(&text, "inactive_file"));
        sample.memory = memory.saturating_sub(cache);
    }
    sample.pids = number("pids.current").unwrap_or(sample.pids);
    let Some(io) = read("io.stat") else { return };
    (sample.read, sample.written) = (0, 0);
    for word in io.split_whitespace() {
        let bytes = |text: &str| text.parse::<u64>().unwrap_or(0);
        match word.split_once('=') {
            Some(("rbytes", count)) => sample.read += bytes(count),
            Some(("wbytes", count)) => sample.written += bytes(count),
            _ => {}
        }
    }
}

/// The number behind a name, as `NAME NUMBER` or `NAME: NUMBER kB`.
fn field(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().map(str::split_whitespace);
    let found = lines.find_map(|mut words| {
        (words.next()?.trim_end_matches(':') == name).then(|| words.next()?.parse().ok()).flatten()
    });
    found.unwrap_or(0)
}

/// By the processes that live in it. Its supervisor waits for those that have no other parent.
fn by_processes(sample: &mut Sample, processes: &[Process], supervisor: Option<u32>) {
    let mut ticks = supervisor.and_then(processes::stat).map_or(0, |stat| stat.ended_ticks);
    for Process { stat, .. } in processes {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", stat.pid)).ok();
        ticks += stat.ticks + stat.ended_ticks;
        sample.pids += stat.threads;
        sample.memory += match read("smaps_rollup").map(|text| field(&text, "Pss")) {
            Some(kilobytes) if kilobytes > 0 => kilobytes * 1024,
            _ => stat.resident * rustix::param::page_size() as u64,
        };
        let io = read("io").unwrap_or_default();
        sample.read += field(&io, "read_bytes");
        sample.written += field(&io, "write_bytes");
    }
    sample.cpu = time_of(ticks);
}

/// Clock ticks as time.
fn time_of(ticks: u64) -> Duration {
    let second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(ticks * 1000 / second)
}

/// The machine's time and processors in `/proc/stat`. Time of guests is part of the user's.
fn machine(stat: &str) -> (Duration, u32) {
    let numbers = |line: &str| -> u64 {
        line.split_whitespace().skip(1).take(8).filter_map(|word| word.parse::<u64>().ok()).sum()
    };
    let total = stat.lines().find(|line| line.starts_with("cpu ")).map_or(0, numbers);
    let is_one = |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| !rest.starts_with(' '));
    let count = stat.lines().filter(is_one).count();
    (time_of(total), u32::try_from(count).unwrap_or(1).max(1))
}

/// Bytes received and sent in `/proc/PID/net/dev`, without the loopback device.
fn traffic(text: &str) -> (u64, u64) {
    let mut sum = (0, 0);
    for line in text.lines() {
        let Some((device, counts)) = line.split_once(':') else { continue };
        if device.trim() == "lo" {
            continue;
        }
        let mut counts = counts.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        sum.0 += counts.next().unwrap_or(0);
        sum.1 += counts.nth(7).unwrap_or(0);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_kernel() {
        let stat = "cpu  100 0 50 800 50 0 0 0 30 0\ncpu0 50 0 25 400\ncpu1 50 0 25 400\nintr 1\n";
        assert_eq!(machine(stat), (time_of(1000), 2));
        let dev = "Inter-|   Receive\n face |bytes\n    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n\
                   tap0: 70 1 0 0 0 0 0 0 50 1 0 0 0 0 0 0\n";
        assert_eq!(traffic(dev), (70, 50));
        assert_eq!(field("Rss:  12 kB\nPss:     7 kB\n", "Pss"), 7);
        assert_eq!(field("usage_usec 12345\nuser_usec 5\n", "usage_usec"), 12345);
    }

    #[test]
    fn shares() {
        let at = |cpu, system| Sample {
            cpu: Duration::from_secs(cpu),
            system_cpu: Duration::from_secs(system),
            online_cpus: 4,
            memory: 1,
            memory_limit: 4,
            ..Sample::default()
        };
        // Two of four processors.
        assert!((at(2, 4).cpu_percent(&at(0, 0)) - 200.0).abs() < 0.01);
        assert!(at(2, 4).cpu_percent(&at(2, 4)).abs() < 0.01);
        // The first sample, and a sum that went back.
        assert!(at(1, 8).cpu_percent(&at(2, 4)).abs() < 0.01);
        assert!((at(0, 0).memory_percent() - 25.0).abs() < 0.01);
        assert!(Sample::default().memory_percent().abs() < 0.01);
    }

    #[test]
    fn a_control_group() {
        let group = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("cpu.stat", "usage_usec 2500000\n"),
            ("memory.current", "5000\n"),
            ("memory.stat", "anon 1\ninactive_file 1000\n"),
            ("pids.current", "3\n"),
            ("io.stat", "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=1 wbytes=2\n"),
        ] {
            std::fs::write(group.path().join(file), text).unwrap();
        }
        let mut sample = Sample::default();
        by_group(&mut sample, group.path());
        assert_eq!(sample.cpu, Duration::from_millis(2500));
        assert_eq!((sample.memory, sample.pids), (4000, 3));
        assert_eq!((sample.read, sample.written), (11, 22));
        // What the group does not have stays.
        std::fs::remove_file(group.path().join("pids.current")).unwrap();
        sample.pids = 9;
        by_group(&mut sample, group.path());
        assert_eq!((sample.pids, sample.read), (9, 11));
    }
}
