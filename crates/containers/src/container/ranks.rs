//! Recognises a rank of a parallel job, a `run` that `mpiexec`, `srun` or the like has started, and
//! adds to its request what a rank needs.
//!
//! Launchers speak to ranks by variables, by descriptors and by directories that the variables
//! name. Descriptors pass through every engine by themselves; here the rest is asked for as the
//! user would: variables, mounts at the same place, and the caller's own id, since a `PMIx` server
//! (`psec/native`) compares the id that a rank says it has with the launcher's. Ranks on one
//! machine share one container (`--join`): only in one user namespace may they copy from memory to
//! memory, and a tree is laid out once. What the command line says itself stands.
//!
//! A shell's commands inherit these variables too. So a step with a terminal (`srun --pty`) has no
//! ranks; and a container is shared only by what launchers have started themselves: of a script's
//! runs, one after the other, each has its own.
//!
//! | launcher | tells a rank by |
//! |---|---|
//! | Hydra (MPICH, Intel MPI, MVAPICH) | `PMI_RANK`, `PMI_FD` or `PMI_PORT`, `HYDI_...`, `MPI_LOCAL...` |
//! | Open MPI, PRRTE | `PMIX_RANK`, `PMIX_...`, `OMPI_...`, `PRTE_...` |
//! | Slurm, a step | `SLURM_STEP_ID`, `SLURM_...`, and by `--mpi` one of the two above |
//! | PALS, Flux | `PALS_...`, `FLUX_...` and `PMI_...` |

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Component, Path};

use engine::spec::{MountKind, MountSpec, UserNamespace};

use crate::request::ContainerRequest;
use crate::request::environment::Change;
use crate::request::mounts::MountRequest;

/// Any of these makes a run a rank, and so does `PMI_PORT`.
const RANKS: &[&str] = &["PMI_RANK", "PMI_FD", "PMIX_RANK", "SLURM_STEP_ID"];
/// Set in a step with a terminal.
const TERMINAL: &str = "SLURM_PTY_PORT";
/// Beginnings of the names of processes that start ranks, on their machine: Slurm's, Hydra's, Open
/// MPI's and PRRTE's, those of PALS and Flux.
const LAUNCHERS: &[&str] =
    &["slurmstepd", "hydra", "pmi_proxy", "mpiexec", "mpirun", "orte", "prte", "pals", "flux"];
/// Slurm's interactive steps, those of batch scripts and the like have numbers from here (slurm.h:
/// `SLURM_MAX_NORMAL_STEP_ID`).
const SPECIAL_STEPS: u32 = 0xffff_fff0;
/// Beginnings of the names of a launcher's variables.
const PREFIXES: &[&str] = &[
    "PMI_",
    "PMI2_",
    "PMIX_",
    "OMPI_",
    "OPAL_",
    "PRTE_",
    "ORTE_",
    "HYDI_",
    "HYDRA_",
    "MPI_LOCAL",
    "MPIR_CVAR_",
    "MPICH_",
    "I_MPI_",
    "MV2_",
    "UCX_",
    "SLURM_",
    "PALS_",
    "FLUX_",
];
/// Variables that name directories of the job, or places in them; Open MPI's is the one above all
/// jobs of the user, which is what ranks look for.
const DIRECTORIES: &[&str] = &["OMPI_MCA_orte_top_session_dir", "PMIX_SERVER_TMPDIR"];
/// Variables that tell one job from another, where the launcher sets them; Hydra does not.
const JOBS: &[&str] = &["PMIX_NAMESPACE", "PMIX_SERVER_URI2", "SLURM_JOB_ID", "SLURM_STEP_ID"];
/// UCX, below MPICH, opens what another rank has open through `/proc`, which no engine shows
/// between containers; without this it asks by name.
const BY_NAME: (&str, &str) = ("UCX_POSIX_USE_PROC_LINK", "n");

type Environment = BTreeMap<OsString, OsString>;

/// Who has been started, and by whom.
pub struct Rank<'a> {
    host: &'a Environment,
    /// User and group id.
    caller: (u32, u32),
    /// The launcher's process on this machine and when it began, unless another is in between.
    launcher: Option<(u32, u64)>,
}

impl<'a> Rank<'a> {
    /// This process, if its variables say that it is one.
    pub fn of(host: &'a Environment) -> Option<Self> {
        if !is_rank(host) {
            return None;
        }
        let caller = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Some(Self { host, caller, launcher: launcher() })
    }

    /// Adds to a command line what a rank needs. `new` is whether the container is yet to be made:
    /// then the first rank makes it for all, and it has the caller's id by its mapping, else by
    /// `--user`.
    pub fn join(&self, request: &mut ContainerRequest, new: bool) {
        let process = &mut request.process;
        let every = process.host_environment;
        let mut variables = if every { Vec::new() } else { passed(self.host) };
        if !self.host.contains_key(OsStr::new(BY_NAME.0)) {
            variables.push(Change::Set(BY_NAME.0.to_owned(), BY_NAME.1.to_owned()));
        }
        // The user's own come later and so win.
        process.env.splice(0..0, variables);
        self.mount(request);
        let unsaid = request.process.user.is_none() && request.security.user.is_none();
        if unsaid && self.variable("PMIX_RANK").is_some() {
            if new {
                request.security.user = Some(UserNamespace::Host);
            } else {
                request.process.user = Some(format!("{}:{}", self.caller.0, self.caller.1));
            }
        }
        if let Some(launcher) = self.launcher
            && new
            && request.record.name.is_none()
            && request.security.join.is_none()
        {
            request.security.join = Some(self.container(launcher));
        }
    }

    /// The directories of the job, at the same place.
    fn mount(&self, request: &mut ContainerRequest) {
        let mut places: Vec<&str> = Vec::new();
        for place in DIRECTORIES.iter().filter_map(|name| directory(self.variable(name)?)) {
            let covered = |above: &&str| Path::new(place).starts_with(above);
            if !is_mounted(request, place) && !places.iter().any(covered) {
                places.push(place);
            }
        }
        request.files.mounts.extend(places.iter().map(|place| bind(place)));
    }

    /// Name of the container that this machine's ranks of the job share. Stores may be shared by
    /// machines, and numbers of jobs return.
    fn container(&self, launcher: (u32, u64)) -> String {
        let mut hasher = DefaultHasher::new();
        rustix::system::uname().nodename().hash(&mut hasher);
        let named: Vec<_> = JOBS.iter().filter_map(|name| self.variable(name)).collect();
        if named.is_empty() {
            launcher.hash(&mut hasher);
        }
        named.hash(&mut hasher);
        format!("job-{:016x}", hasher.finish())
    }

    fn variable(&self, name: &str) -> Option<&'a OsStr> {
        self.host.get(OsStr::new(name)).map(OsString::as_os_str)
    }
}

/// The process that started this one, if that is a launcher, and when it began.
fn launcher() -> Option<(u32, u64)> {
    let pid = rustix::process::getppid()?.as_raw_nonzero().get().cast_unsigned();
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let known = LAUNCHERS.iter().any(|known| name.starts_with(known));
    known.then(|| (pid, sys::process::start_time(pid).unwrap_or_default()))
}

/// Whether the variables of a process say that it is a rank. A number is below [`SPECIAL_STEPS`],
/// and `PMI_PORT` has none.
pub fn is_rank(host: &Environment) -> bool {
    if host.contains_key(OsStr::new(TERMINAL)) {
        return false;
    }
    let number = |name: &&str| host.get(OsStr::new(name))?.to_str()?.parse::<u32>().ok();
    RANKS.iter().filter_map(number).any(|number| number < SPECIAL_STEPS)
        || host.contains_key(OsStr::new("PMI_PORT"))
}

/// A bind of a directory of the job at the same place.
fn bind(place: &str) -> MountRequest {
    let spec = MountSpec { source: place.into(), target: place.into(), ..MountSpec::default() };
    MountRequest { spec, no_copy: false }
}

/// A launcher's variables.
fn passed(host: &Environment) -> Vec<Change> {
    host.iter()
        .filter_map(|(name, value)| Some((name.to_str()?, value.to_str()?)))
        .filter(|(name, _)| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .map(|(name, value)| Change::Set(name.to_owned(), value.to_owned()))
        .collect()
}

/// A directory below another one than the root, in a form that `--volume` takes.
fn directory(value: &OsStr) -> Option<&str> {
    let text = value.to_str()?.trim_end_matches('/');
    let path = Path::new(text);
    let plain = path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
    let deep = path.components().count() > 2;
    (path.is_absolute() && plain && deep && !text.contains(':') && path.is_dir()).then_some(text)
}

/// Whether the request mounts something there itself, or around it at the same place.
fn is_mounted(request: &ContainerRequest, place: &str) -> bool {
    request.files.mounts.iter().map(|mount| &mount.spec).any(|spec| {
        let at_same_place = spec.kind == MountKind::Bind && spec.source == spec.target;
        spec.target == Path::new(place)
            || at_same_place && Path::new(place).starts_with(&spec.target)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn set(name: &str, value: &str) -> Change {
        Change::Set(name.to_owned(), value.to_owned())
    }

    fn joined(
        pairs: &[(&str, &str)],
        mut request: ContainerRequest,
        new: bool,
    ) -> ContainerRequest {
        let host = host(pairs);
        assert!(is_rank(&host), "{pairs:?}");
        let launcher = Some((7, 7));
        Rank { host: &host, caller: (1000, 100), launcher }.join(&mut request, new);
        request
    }

    #[test]
    fn a_batch_script_and_an_interactive_step_are_no_ranks() {
        let batch = [("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("UCX_TLS", "tcp")];
        let interactive = [("SLURM_STEP_ID", "4294967290")];
        let terminal = [("SLURM_STEP_ID", "0"), ("PMIX_RANK", "0"), ("SLURM_PTY_PORT", "1")];
        for pairs in [&batch[..], &interactive, &terminal] {
            assert!(!is_rank(&host(pairs)), "{pairs:?}");
        }
    }

    #[test]
    fn ranks_of_one_job_share_a_container() {
        let named = |pairs: &[(&str, &str)], launcher| {
            let rank = Rank { host: &host(pairs), caller: (1, 1), launcher: None };
            rank.container((launcher, 1))
        };
        let (first, second) = (("PMIX_NAMESPACE", "1"), ("PMIX_NAMESPACE", "2"));
        assert_eq!(named(&[first], 7), named(&[first], 8));
        assert_ne!(named(&[first], 7), named(&[second], 7));
        assert_eq!(named(&[], 7), named(&[], 7));
        assert_ne!(named(&[], 7), named(&[], 8));
        // Behind a shell each run has a container of its own.
        let (host, mut request) = (host(&[first]), ContainerRequest::default());
        Rank { host: &host, caller: (1, 1), launcher: None }.join(&mut request, true);
        assert_eq!(request.security.join, None);
    }

    #[test]
    fn a_rank_of_hydra_stays_root() {
        let pairs = [("PMI_RANK", "0"), ("PMI_FD", "6"), ("MPI_LOCALNRANKS", "2"), ("SHELL", "sh")];
        let request = joined(&pairs, ContainerRequest::default(), true);
        let expected = [
            ("MPI_LOCALNRANKS", "2"),
            ("PMI_FD", "6"),
            ("PMI_RANK", "0"),
            ("UCX_POSIX_USE_PROC_LINK", "n"),
        ];
        assert_eq!(request.process.env, expected.map(|(name, value)| set(name, value)));
        assert_eq!((request.security.user, request.process.user), (None, None));
        let port = joined(&[("PMI_PORT", "node:4711")], ContainerRequest::default(), true);
        assert_eq!(port.process.env[0], set("PMI_PORT", "node:4711"));
    }

    #[test]
    fn a_rank_of_pmix_has_the_callers_id_and_the_jobs_directories() {
        let scratch = tempfile::tempdir_in("/tmp").expect("a directory");
        let top = scratch.path().display().to_string();
        let job = format!("{top}/pid.1");
        std::fs::create_dir_all(&job).expect("a directory");
        let pairs = [
            ("PMIX_RANK", "0"),
            ("OMPI_MCA_orte_top_session_dir", &top),
            ("PMIX_SERVER_TMPDIR", &job),
            ("PMIX_SYSTEM_TMPDIR", "/tmp"),
        ];
        let request = joined(&pairs, ContainerRequest::default(), true);
        assert_eq!(request.files.mounts, [bind(&top)]);
        assert_eq!(request.security.user, Some(UserNamespace::Host));
        assert!(request.security.join.is_some());
        let request = joined(&pairs, ContainerRequest::default(), false);
        assert_eq!(request.security.join, None);
        assert_eq!(request.process.user.as_deref(), Some("1000:100"));
        let mut said = ContainerRequest::default();
        said.process.user = Some("root".into());
        said.process.env = vec![set("PMIX_RANK", "9")];
        said.files.mounts = vec![bind("/tmp")];
        let request = joined(&pairs, said, true);
        assert_eq!((request.process.user.as_deref(), request.security.user), (Some("root"), None));
        assert_eq!(request.process.env.last(), Some(&set("PMIX_RANK", "9")));
        assert_eq!(request.files.mounts, [bind("/tmp")]);
    }
}
