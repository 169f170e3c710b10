//! Makes the few trials on which the choice of an engine depends, and caches the results.
//!
//! `run` must know whether user namespaces, filters and tracing work, and files alone do not show
//! it. Trying costs milliseconds, so the results are kept in a file, under a key of everything that
//! they are known to depend on: boot, kernel, user, user namespace, the switches in `/proc/sys`,
//! the label of the security module, the filters of this process, the root directory. A failure
//! that may be temporary is not kept, nor what a process finds that is traced itself.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sys::namespace::Kinds;

use crate::attempt::{Step as _, attempt};
use crate::namespaces::Barrier;
use crate::programs::{own_status, read_trimmed};
use crate::security::{Security, status_field};
use crate::{Host, Trial};

/// Switches in the key.
const SWITCHES: [&str; 6] = [
    "user/max_user_namespaces",
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
    "kernel/apparmor_restrict_unprivileged_unconfined",
    "kernel/yama/ptrace_scope",
    "kernel/seccomp/actions_avail",
];
/// Lines of `/proc/self/status` in the key.
const LINES: [&str; 4] = ["NoNewPrivs", "Seccomp", "Seccomp_filters", "CapEff"];

/// Results of the trials.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
struct Trials {
    key: String,
    user_namespace: Trial,
    barrier: Option<Barrier>,
    filter: Trial,
    trace: Trial,
    seccomp_stops: Trial,
    overlay: Trial,
}

impl Host {
    /// Adds to the quick facts the trials on which the choice of an engine depends: from the file
    /// `memory` if it is valid now, else by trying (and the file is written, if that is possible).
    ///
    /// `store` is the directory in which overlays would be mounted, if there is one.
    pub fn try_engines(&mut self, memory: Option<&Path>, store: Option<&Path>, timeout: Duration) {
        let key = key(self, timeout);
        let known = memory.and_then(|path| std::fs::read(path).ok());
        let known = known.and_then(|bytes| serde_json::from_slice::<Trials>(&bytes).ok());
        let known = known.filter(|known| known.key == key);
        // A tracer that follows forks, as `strace -f`, has what this process would trace.
        let is_traced = status_field(own_status(), "TracerPid").is_some_and(|pid| pid != "0");
        let trials = match known {
            Some(known) if is_traced => known.with_tracing_tried(timeout),
            Some(known) => known,
            None => {
                let trials = Trials::make(key, store, timeout);
                if trials.will_last()
                    && !is_traced
                    && let Some(path) = memory
                {
                    let _ = store_trials(path, &trials);
                }
                trials
            }
        };
        self.namespaces.user = trials.user_namespace;
        self.namespaces.barrier = trials.barrier;
        self.seccomp.filter = trials.filter;
        self.ptrace.child = trials.trace;
        self.ptrace.seccomp_stops = trials.seccomp_stops;
        self.overlay.kernel = trials.overlay;
    }
}

fn key(host: &Host, timeout: Duration) -> String {
    // The number is that of the list of trials.
    let mut key = format!("2:{}", host.cache_key());
    let status = own_status();
    for name in LINES {
        let _ = write!(key, ":{}", status_field(status, name).unwrap_or_default());
    }
    for name in SWITCHES {
        let value = read_trimmed(format!("/proc/sys/{name}")).unwrap_or_default();
        let _ = write!(key, ":{value}");
    }
    if status_field(status, "Seccomp") == Some("2") {
        key.push_str(&under_filters(timeout));
    }
    let label = read_trimmed("/proc/self/attr/current").unwrap_or_default();
    let root = rustix::fs::stat("/").map_or((0, 0), |stat| (stat.st_dev, stat.st_ino));
    let _ = write!(key, ":{}:{}:{}", label.trim_end_matches('\0'), root.0, root.1);
    key
}

/// What filters around this process do: not how many they are, but how they answer calls that
/// engines make. The calls themselves have no effect.
fn under_filters(timeout: Duration) -> String {
    let nowhere = rustix::fs::CWD;
    let open = rustix::fs::openat2(
        nowhere,
        ".",
        rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
        rustix::fs::ResolveFlags::empty(),
    );
    let file = std::fs::File::open("/dev/null");
    let enter = file.map_or(Ok(()), |file| {
        use std::os::fd::AsFd as _;
        rustix::thread::move_into_link_name_space(file.as_fd(), None)
    });
    let unshare = |kinds| sys::namespace::unshare(kinds);
    // Filters look at its flags too, so the flag is tried, in a child.
    let user = attempt(timeout, |_| unshare(Kinds::USER).step("unshare"));
    let user = user.map_err(|failure| failure.errno.unwrap_or(Errno::INTR));
    let answers = [
        user,
        unshare(Kinds::NONE),
        open.map(drop),
        enter,
        rustix::mount::mount("", "", "", rustix::mount::MountFlags::empty(), None),
        rustix::process::pivot_root("", ""),
    ];
    let mut text = String::from(":f");
    for answer in answers {
        let _ = write!(text, ",{}", answer.err().map_or(0, Errno::raw_os_error));
    }
    text
}

impl Trials {
    fn make(key: String, store: Option<&Path>, timeout: Duration) -> Self {
        let (user_namespace, barrier) = crate::namespaces::user(&Security::read(), timeout);
        let overlay = match store {
            Some(store) if !user_namespace.is_fails() => crate::overlay::of_kernel(store, timeout),
            _ => Trial::Untried,
        };
        Self {
            overlay,
            key,
            user_namespace,
            barrier,
            filter: crate::seccomp::filter(timeout),
            trace: crate::ptrace::child(timeout),
            seccomp_stops: crate::ptrace::seccomp_stops(timeout),
        }
    }

    /// The same with the trials of tracing made now.
    fn with_tracing_tried(self, timeout: Duration) -> Self {
        let trace = crate::ptrace::child(timeout);
        let seccomp_stops = crate::ptrace::seccomp_stops(timeout);
        Self { trace, seccomp_stops, ..self }
    }

    /// Returns true if a failure is permanent: not caused by lack of memory or by a limit that
    /// others use up.
    fn will_last(&self) -> bool {
        let all =
            [&self.user_namespace, &self.filter, &self.trace, &self.seccomp_stops, &self.overlay];
        all.iter().all(|trial| match trial {
            Trial::Fails { errno: Some(errno), .. } => {
                let passing =
                    [Errno::NOMEM, Errno::AGAIN, Errno::USERS, Errno::MFILE, Errno::DQUOT];
                let number = Errno::from_raw_os_error(*errno);
                let full = number == Errno::NOSPC
                    && read_trimmed("/proc/sys/user/max_user_namespaces").as_deref() != Some("0");
                !full && !passing.contains(&number)
            }
            Trial::Fails { errno: None, .. } => false,
            Trial::Untried | Trial::Works { .. } => true,
        })
    }
}

/// Writes to a temporary name first: other processes may read and write at the same time.
fn store_trials(path: &Path, trials: &Trials) -> std::io::Result<()> {
    let bytes = serde_json::to_vec(trials)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", sys::random::suffix()?));
    let mut options = std::fs::File::options();
    let mut file = options.write(true).create_new(true).mode(0o600).open(&name)?;
    file.write_all(&bytes)?;
    drop(file);
    std::fs::rename(&name, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_remembered_while_its_key_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.json");
        let mut host = Host::quick(&crate::Context::default());
        let trials = Trials {
            key: key(&host, Duration::from_secs(20)),
            trace: Trial::fails("by a test", "no tracing today"),
            ..Trials::default()
        };
        store_trials(&path, &trials).unwrap();
        host.try_engines(Some(&path), None, Duration::from_secs(20));
        assert_eq!(host.ptrace.child.why(), Some("no tracing today"));
        store_trials(&path, &Trials { key: "of yesterday".into(), ..trials }).unwrap();
        host.try_engines(Some(&path), None, Duration::from_secs(20));
        assert_ne!(host.ptrace.child.why(), Some("no tracing today"));
        assert_ne!(host.ptrace.child, Trial::Untried);
    }

    #[test]
    fn a_failure_that_passes_is_not_kept() {
        let busy = Trial::fails("unshare", "EAGAIN").with_errno(Some(Errno::AGAIN.raw_os_error()));
        assert!(!Trials { user_namespace: busy, ..Trials::default() }.will_last());
        let denied = Trial::fails("unshare", "EPERM").with_errno(Some(Errno::PERM.raw_os_error()));
        assert!(Trials { user_namespace: denied, ..Trials::default() }.will_last());
    }
}
