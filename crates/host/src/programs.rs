//! Finds helper programs, and runs them with a time limit, nothing on stdin, and a clean
//! environment.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Context, Error};

/// A program of the host that Coracle can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Its name in `PATH`.
    pub name: &'static str,
    /// Its purpose.
    pub purpose: &'static str,
}

/// Every program that Coracle can use.
pub const PROGRAMS: &[Program] = &[
    Program { name: "newuidmap", purpose: "map a range of user ids" },
    Program { name: "newgidmap", purpose: "map a range of group ids" },
    Program { name: "getsubids", purpose: "subordinate ids of a directory service" },
    Program { name: "getent", purpose: "users and groups of a directory service" },
    Program { name: "fuse-overlayfs", purpose: "overlay if the kernel's own is refused" },
    Program { name: "fusermount3", purpose: "mounts by FUSE" },
    Program { name: "pasta", purpose: "private network" },
    Program { name: "slirp4netns", purpose: "private network" },
    Program { name: "runc", purpose: "engines R1 R2 R3" },
    Program { name: "crun", purpose: "engines R1 R2 R3" },
    Program { name: "apptainer", purpose: "engine S1" },
    Program { name: "singularity", purpose: "engine S1" },
    Program { name: "systemd-run", purpose: "resource limits in a user session" },
    Program { name: "srun", purpose: "Slurm" },
    Program { name: "scontrol", purpose: "Slurm" },
    Program { name: "mpiexec", purpose: "MPI" },
    Program { name: "mpirun", purpose: "MPI" },
    Program { name: "nvidia-smi", purpose: "NVIDIA GPUs" },
    Program { name: "nvidia-ctk", purpose: "CDI files for NVIDIA GPUs" },
];

/// The found programs, or the directories to search for them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Programs {
    /// Programs that were found, by name.
    pub found: BTreeMap<String, PathBuf>,
    /// Directories to search on demand; empty if everything in [`PROGRAMS`] was searched already.
    #[serde(skip)]
    search: Vec<PathBuf>,
    /// Names that the user's settings exclude.
    #[serde(skip)]
    hidden: Vec<&'static str>,
}

impl Programs {
    /// Searches on demand.
    pub(crate) fn lazy(context: &Context) -> Programs {
        Programs { search: context.search.clone(), ..Programs::default() }
    }

    /// Searches for all programs now.
    pub(crate) fn search(context: &Context) -> Programs {
        let found = PROGRAMS
            .iter()
            .filter_map(|program| {
                Some((program.name.to_owned(), look(&context.search, program.name)?))
            })
            .collect();
        Programs { found, ..Programs::default() }
    }

    /// Programs at fixed paths, for tests and fixtures.
    pub fn known<N: Into<String>, P: Into<PathBuf>>(
        found: impl IntoIterator<Item = (N, P)>,
    ) -> Self {
        let found = found.into_iter().map(|(name, path)| (name.into(), path.into())).collect();
        Programs { found, ..Programs::default() }
    }

    /// Treats a program as not installed, because the user has chosen another.
    pub fn hide(&mut self, name: &'static str) {
        self.hidden.push(name);
    }

    /// Sets the program to use for a name: a path, or another name to search. A name that is not
    /// found stays unchanged, so that starting it reports the error.
    pub fn name(&mut self, name: &str, program: &Path) {
        let is_path = program.components().count() > 1;
        let found = program.to_str().filter(|_| !is_path).and_then(|name| self.find(name));
        self.found.insert(name.to_owned(), found.unwrap_or_else(|| program.to_owned()));
    }

    /// Path of a program, if it is installed.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        if self.hidden.contains(&name) {
            return None;
        }
        self.found.get(name).cloned().or_else(|| look(&self.search, name))
    }
}

/// Directories to search without a `PATH`.
pub(crate) fn default_search() -> Vec<PathBuf> {
    ["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from).to_vec()
}

/// Searches the administrators' directories too: they are missing from many users' `PATH`, but hold
/// `runc` on Debian.
fn look(search: &[PathBuf], name: &str) -> Option<PathBuf> {
    if search.is_empty() {
        return None;
    }
    let further = [Path::new("/usr/sbin"), Path::new("/sbin"), Path::new("/usr/local/sbin")];
    search
        .iter()
        .map(PathBuf::as_path)
        .filter(|directory| directory.is_absolute())
        .chain(further)
        .map(|directory| directory.join(name))
        .find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Reads a small file of the kernel or of `/etc`, without the white space around it.
pub(crate) fn read_trimmed(path: impl AsRef<Path>) -> Option<String> {
    Some(read_short(path)?.trim().to_owned())
}

/// `/proc/self/status` as it was at the first call: for lines that do not change before this
/// process executes a program.
pub(crate) fn own_status() -> &'static str {
    static STATUS: OnceLock<String> = OnceLock::new();
    STATUS.get_or_init(|| read_short("/proc/self/status").unwrap_or_default())
}

/// Reads a file of `/proc`. Such files report no size, and without one the standard library begins
/// with 32 bytes at a time.
pub(crate) fn read_short(path: impl AsRef<Path>) -> Option<String> {
    use std::io::Read as _;
    let mut bytes = Vec::with_capacity(4096);
    std::fs::File::open(path).ok()?.take(FILE_LIMIT).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

/// Size limit in bytes of the files of `/proc` that are read here.
const FILE_LIMIT: u64 = 1 << 20;
/// Limit in bytes of a helper's output: LDAP groups can be long, endless output must end.
const ANSWER_LIMIT: u64 = 1 << 20;

/// Runs a helper; returns true if it succeeded, and its stdout (and stderr, if requested).
///
/// The environment is empty except for `env`: the caller's `LD_PRELOAD` must not affect a probe.
pub(crate) fn ask(
    program: &Path,
    arguments: &[&str],
    env: &[(&str, &str)],
    timeout: Duration,
) -> Result<(bool, String), Error> {
    let error = |what: String| Error::Helper { program: program.display().to_string(), what };
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("LC_ALL", "C")
        .envs(env.iter().copied())
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| error(format!("cannot be started: {source}")))?;
    let Some(stdout) = child.stdout.take() else {
        return Err(error("has no stdout".into()));
    };
    // A thread reads, because a grandchild of the helper may hold the pipe open long after the
    // helper has ended.
    let (sender, answers) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut answer = Vec::new();
        // The send fails if the helper was killed and the result is no longer wanted.
        let _ = stdout.take(ANSWER_LIMIT).read_to_end(&mut answer);
        let _ = sender.send(answer);
    });
    let deadline = Instant::now() + timeout;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() >= deadline => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error(format!("did not answer within {} s", timeout.as_secs_f32())));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(2)),
            Err(source) => return Err(error(format!("cannot be waited for: {source}"))),
        }
    };
    let rest = deadline.saturating_duration_since(Instant::now());
    let answer =
        answers.recv_timeout(rest).map_err(|_| error("keeps its output open".to_owned()))?;
    Ok((status.success(), String::from_utf8_lossy(&answer).into_owned()))
}
