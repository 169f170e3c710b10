//! Reads `/proc`: which processes live, whose children they are, and what they execute.
//!
//! Descent is read from a scan of `/proc`, which a process that forks faster than it is killed can
//! escape for one round; callers repeat until nothing is left.
//!
//! A process id alone proves nothing: the kernel gives it to another process later. The functions
//! here return identities, which are read before the property that makes a process the container's
//! ([`which`]); a signal goes through a descriptor that is compared with the identity after it was
//! opened ([`send`]).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sys::event::{send_signal, send_signal_fd};

use sys::machine::Machine;

use crate::spec::ProcessId;

/// What `/proc/PID/stat` says, as far as it is needed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Process id.
    pub pid: u32,
    /// Command name, at most 15 bytes.
    pub name: String,
    /// `R`, `S`, `D`, `T`, `Z`, ...
    pub state: char,
    /// Parent.
    pub parent: u32,
    /// Process group.
    pub group: i32,
    /// Session.
    pub session: i32,
    /// Controlling terminal as a device number, 0 for none.
    pub terminal: u32,
    /// User plus system time, clock ticks.
    pub ticks: u64,
    /// The same of its children that have ended and were waited for.
    pub ended_ticks: u64,
    /// How many threads it has, also a first one that has ended.
    pub threads: u64,
    /// Start, clock ticks after boot.
    pub start_time: u64,
    /// Resident pages.
    pub resident: u64,
}

/// Reads `/proc/PID/stat`; `None` when there is no such process.
pub fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&sys::life::stat(pid)?)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    let open = text.iter().position(|&byte| byte == b'(')?;
    let close = text.iter().rposition(|&byte| byte == b')')?;
    let pid = std::str::from_utf8(text.get(..open)?).ok()?.trim().parse().ok()?;
    let rest = std::str::from_utf8(text.get(close + 2..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // proc(5) counts from 1; the state is field 3.
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |at: usize| field(at)?.parse::<u64>().ok();
    Some(Stat {
        pid,
        name: String::from_utf8_lossy(text.get(open + 1..close)?).into_owned(),
        state: field(3)?.chars().next()?,
        parent: field(4)?.parse().ok()?,
        group: field(5)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        terminal: field(7)?.parse::<i32>().ok()? as u32,
        ticks: number(14)? + number(15)?,
        ended_ticks: number(16)? + number(17)?,
        threads: number(20)?,
        start_time: number(22)?,
        resident: number(24)?,
    })
}

impl Stat {
    /// Whether all threads have ended. The state is that of the first one alone ([`sys::life`]).
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X') && self.threads <= 1
    }

    fn identity(&self) -> ProcessId {
        identity_of(self.pid, self.start_time)
    }
}

/// Waits until these processes, which were sent SIGSTOP, have stopped or ended; for a second at
/// most, because one that waits for a disk stops late.
///
/// One that was reading the terminal when the signal came may still take a line from it before it
/// stops (`n_tty_read` of the kernel looks for input first), a line that is meant for the shell.
pub(crate) fn until_stopped(pids: impl IntoIterator<Item = u32>) {
    let limit = Instant::now() + Duration::from_secs(1);
    for pid in pids {
        let runs = || stat(pid).is_some_and(|stat| !matches!(stat.state, 'T' | 't' | 'Z' | 'X'));
        while runs() && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub(crate) fn identity_of(pid: u32, start_time: u64) -> ProcessId {
    let Machine { boot_id, pid_namespace, .. } = Machine::here();
    ProcessId { pid, start_time, boot_id: boot_id.clone(), pid_namespace: *pid_namespace }
}

/// The identity of a process.
pub fn identity(pid: u32) -> Option<ProcessId> {
    stat(pid).map(|stat| stat.identity())
}

/// The identity of a living process for which `holds` is true, asked before and after the identity
/// is read: then a process with this identity is the one for which it was true.
pub fn which(pid: u32, holds: impl Fn(u32) -> bool) -> Option<ProcessId> {
    if !holds(pid) {
        return None;
    }
    let stat = stat(pid).filter(|stat| !stat.is_over())?;
    holds(pid).then(|| stat.identity())
}

/// Whether exactly this process still runs here: same number, same start, same boot, same pid
/// namespace, a thread that has not ended.
pub fn alive(id: &ProcessId) -> bool {
    let here = Machine::here();
    id.boot_id == here.boot_id
        && (id.pid_namespace == 0 || id.pid_namespace == here.pid_namespace)
        && sys::life::start_time(id.pid) == Some(id.start_time)
}

/// A descriptor of exactly this process; `Ok(None)` when it is gone, `Err` where the kernel has
/// no such descriptors.
pub(crate) fn open(process: &ProcessId) -> Result<Option<OwnedFd>, Errno> {
    let Some(pid) = pid(process.pid) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        // Checked after opening: from here on the descriptor cannot change its meaning.
        Ok(fd) => Ok(alive(process).then_some(fd)),
        Err(Errno::SRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends a signal to exactly this process. Succeeds also where it is gone.
pub(crate) fn send(process: &ProcessId, number: i32) -> io::Result<()> {
    let Some(pid) = pid(process.pid) else { return Ok(()) };
    let sent = match open(process) {
        Ok(Some(fd)) => send_signal_fd(fd, number),
        Err(_) if alive(process) => send_signal(pid, number),
        Ok(None) | Err(_) => return Ok(()),
    };
    sent.or_else(|error| {
        let gone = error.raw_os_error() == Some(Errno::SRCH.raw_os_error());
        if gone { Ok(()) } else { Err(error) }
    })
}

/// The ids of all processes that `/proc` shows.
pub fn all() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Identity of a process's mount namespace (`mnt:[4026531841]`), `None` where it may not be
/// read or the process is gone.
pub fn mount_namespace(pid: u32) -> Option<String> {
    sys::life::link(pid, "ns/mnt").ok()?.into_os_string().into_string().ok()
}

/// Whether a process executes this very program: an init, a tracer or a helper that an engine
/// forked. Told by the file, which has other names elsewhere.
pub(crate) fn is_ours(pid: u32) -> bool {
    // Not by its name: it may be executed through a mount of its own.
    let program = |pid: u32| {
        let found = sys::life::of_any_thread(pid, |of| rustix::fs::stat(of.join("exe"))).ok()?;
        Some((found.st_dev, found.st_ino))
    };
    program(std::process::id()).is_some_and(|own| program(pid) == Some(own))
}

/// All living descendants of these processes, as far as they are there themselves (without them).
pub fn descendants(roots: &[ProcessId]) -> Vec<ProcessId> {
    if roots.is_empty() {
        return Vec::new();
    }
    let mut children: HashMap<u32, Vec<Stat>> = HashMap::new();
    let mut queue = Vec::new();
    for stat in all().into_iter().filter_map(stat) {
        let is_root = |root: &ProcessId| (root.pid, root.start_time) == (stat.pid, stat.start_time);
        if roots.iter().any(is_root) {
            queue.push(stat.pid);
        }
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found = Vec::new();
    while let Some(pid) = queue.pop() {
        for stat in children.remove(&pid).unwrap_or_default() {
            queue.push(stat.pid);
            if !stat.is_over() {
                found.push(stat.identity());
            }
        }
    }
    found
}

/// Living descendants of these processes by the kernel's lists of children, which cost no look at
/// all processes. A list that changes while it is read may miss one (`proc_pid_task(5)`): that is
/// for callers to whom such a process comes as an orphan when its parents have ended.
pub(crate) fn listed_below(roots: &[ProcessId]) -> Vec<ProcessId> {
    if children(std::process::id()).is_none() {
        return descendants(roots);
    }
    let mut queue: Vec<u32> =
        roots.iter().filter(|root| alive(root)).map(|root| root.pid).collect();
    let mut found = Vec::new();
    while let Some(parent) = queue.pop() {
        let is_child = |pid: u32| stat(pid).is_some_and(|stat| stat.parent == parent);
        for process in
            children(parent).into_iter().flatten().filter_map(|child| which(child, is_child))
        {
            queue.push(process.pid);
            found.push(process);
        }
    }
    found
}

/// The children of all threads of a process; `None` where it is gone, or the kernel has no such
/// lists (`CONFIG_PROC_CHILDREN`).
fn children(pid: u32) -> Option<Vec<u32>> {
    let mut found = Vec::new();
    let mut has_lists = false;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        if let Ok(text) = fs::read_to_string(thread.path().join("children")) {
            has_lists = true;
            found.extend(ids(&text));
        }
    }
    has_lists.then_some(found)
}

/// Whether a living process is `pid` itself, or its parent, or that one's, and so on.
pub fn is_above(above: u32, pid: u32) -> bool {
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|&pid| pid != 0) {
        if pid == above {
            return true;
        }
        next = stat(pid).map(|stat| stat.parent);
    }
    false
}

/// Process ids with blanks between them.
fn ids(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok())
}

/// The children of this process (not their children), zombies too.
pub(crate) fn own_children() -> Vec<u32> {
    let own = std::process::id();
    // One read where the kernel has CONFIG_PROC_CHILDREN.
    if let Ok(text) = fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        return ids(&text).collect();
    }
    all().into_iter().filter(|&pid| stat(pid).is_some_and(|stat| stat.parent == own)).collect()
}

/// By number, each once.
pub(crate) fn sort(list: &mut Vec<ProcessId>) {
    list.sort_unstable_by_key(|process| (process.pid, process.start_time));
    list.dedup();
}

/// Those whose parents are not among them, the oldest first.
pub(crate) fn roots(list: &[ProcessId]) -> Vec<ProcessId> {
    let there: HashSet<u32> = list.iter().map(|process| process.pid).collect();
    let is_root =
        |process: &&ProcessId| stat(process.pid).is_some_and(|stat| !there.contains(&stat.parent));
    let mut roots: Vec<ProcessId> = list.iter().filter(is_root).cloned().collect();
    roots.sort_by_key(|process| (process.start_time, process.pid));
    roots
}

/// Whether the first process of a pid namespace would not notice this signal: the kernel drops
/// what such a process neither catches nor has another default for.
pub(crate) fn ignores_as_init(pid: u32, number: i32) -> bool {
    let Ok(text) = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"))
    else {
        return false;
    };
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let first_inside =
        line("NSpid:").is_some_and(|ids| ids.split_ascii_whitespace().skip(1).last() == Some("1"));
    let caught = line("SigCgt:")
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << (number - 1)) != 0);
    first_inside && !caught
}

/// A `Pid` as `/proc` names it.
pub(crate) fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get() as u32
}

/// A checked `Pid`.
pub(crate) fn pid(number: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(number).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_any_command_name() {
        let text =
            b"77 (a) b (c) R 1 77 77 34816 77 4194304 1 0 0 0 10 5 0 0 20 0 2 0 900 1 20 18 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.pid, stat.name.as_str(), stat.state), (77, "a) b (c", 'R'));
        assert_eq!((stat.parent, stat.ticks, stat.start_time, stat.resident), (1, 15, 900, 20));
        // The first thread alone may have ended.
        assert!(!Stat { state: 'Z', ..stat.clone() }.is_over());
        assert!(Stat { state: 'Z', threads: 1, ..stat }.is_over());
        assert_eq!(parse_stat(b"1 (x"), None);
    }

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let own = identity(std::process::id()).unwrap();
        assert!(alive(&own));
        assert!(!alive(&ProcessId { start_time: own.start_time + 1, ..own.clone() }));
        assert!(!alive(&ProcessId { boot_id: "other".into(), ..own.clone() }));
        assert!(!alive(&ProcessId { pid_namespace: 1, ..own }));
    }

    #[test]
    fn it_waits_for_a_stop() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let stop = rustix::process::Signal::STOP;
        rustix::process::kill_process(Pid::from_child(&child), stop).unwrap();
        until_stopped([child.id(), u32::MAX]);
        assert_eq!(stat(child.id()).unwrap().state, 'T');
        child.kill().unwrap();
        until_stopped([child.id()]);
        assert!(child.wait().is_ok());
    }

    #[test]
    fn descendants_include_a_child() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (own, id) = (identity(std::process::id()).unwrap(), identity(child.id()).unwrap());
        assert!(descendants(std::slice::from_ref(&own)).contains(&id));
        assert!(listed_below(std::slice::from_ref(&own)).contains(&id));
        // A later process with that number is another one.
        let earlier = ProcessId { start_time: own.start_time + 1, ..own };
        assert!(!descendants(&[earlier]).contains(&id));
        assert!(own_children().contains(&child.id()) || cfg!(test));
        let other = ProcessId { start_time: id.start_time + 1, ..id.clone() };
        send(&other, 9).unwrap();
        assert!(alive(&id));
        send(&id, 9).unwrap();
        child.wait().unwrap();
    }
}
