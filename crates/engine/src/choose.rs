//! The engines of this build, and the choice among them.
//!
//! An engine is one module and one entry in [`ENGINES`]. [`MODES`] also knows the modes of the design that this build does not have, so
//! that asking for one gives a reason instead of "unknown".

use crate::error::{Error, Result};
use crate::facts::Facts;
use crate::mount_options::Propagation;
use crate::plan::Plan;
use crate::spec::{
    ContainerConfig, MountKind, MountSpec, NamespaceMode, NetworkMode, SeccompChoice,
};
use std::os::fd::{BorrowedFd, OwnedFd};

/// What an engine can do beyond running a program in another tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a table of independent abilities")]
pub struct Caps {
    /// Root's own calls succeed for a user without privilege.
    pub fake_root: bool,
    /// Host files under other names (`-v`).
    pub binds: bool,
    /// Binds that the host's later mounts do not reach (`private`).
    pub private_binds: bool,
    /// Memory file systems.
    pub tmpfs: bool,
    /// Private pid, ipc, uts and cgroup namespaces, host names.
    pub namespaces: bool,
    /// A network of its own.
    pub network: bool,
    /// Capability sets and system call filters of the user's choice.
    pub security: bool,
    /// A read-only root, read-only binds.
    pub read_only: bool,
    /// `exec` into the same namespaces.
    pub enter: bool,
    /// Limits on memory, processors and processes.
    pub limits: bool,
    /// Ids are the engine's own affair: any user and any group, whatever the kernel would map. Its root is one directory, since nothing
    /// is mounted.
    pub own_ids: bool,
    /// Its programs write to that directory by themselves, so no file in it may be the image's; and they are the caller.
    pub bare: bool,
    /// It keeps what it makes of an image's files beside the image's tree.
    pub keeps_texts: bool,
}

/// How well an engine fits a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
    /// Everything works.
    Ready,
    /// It works, with something less.
    Degraded(String),
    /// It does not work.
    Unusable(String),
}

/// How the program's session and terminal are set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Session {
    /// The caller's.
    #[default]
    Inherit,
    /// A session of its own without a terminal.
    New,
    /// A session of its own whose controlling terminal is the standard input.
    Terminal,
}

/// Standard streams of a spawned program; `None` is the caller's.
#[derive(Debug, Clone, Copy, Default)]
pub struct Streams<'a> {
    /// Descriptor 0.
    pub stdin: Option<BorrowedFd<'a>>,
    /// Descriptor 1.
    pub stdout: Option<BorrowedFd<'a>>,
    /// Descriptor 2.
    pub stderr: Option<BorrowedFd<'a>>,
    /// Session and terminal.
    pub session: Session,
    /// The program is killed when the caller ends, however that happens.
    pub tied: bool,
}

/// A program that was started: a child of the caller, whatever namespaces it is in.
#[derive(Debug)]
pub struct Child {
    /// Its number where the caller is.
    pub pid: u32,
    /// Readable when it has ended (`None` on kernels before 5.3; it is waited for like any child).
    pub pidfd: Option<OwnedFd>,
    /// The other end of the program's terminal, where that was opened in the container and is not the one given.
    pub master: Option<OwnedFd>,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Ended {
    /// The exit code as shells and Docker give it: 128 + signal.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// One way of running a program in another tree.
pub trait Engine: Sync {
    /// Its mode name.
    fn name(&self) -> &'static str;
    /// One line for people.
    fn about(&self) -> &'static str;
    /// What it can do.
    fn caps(&self) -> Caps;
    /// Whether it works here.
    fn probe(&self, facts: &Facts) -> Fit;
    /// Whether it runs only where its mode is asked for.
    fn is_asked_for(&self, facts: &Facts) -> bool {
        let _ = facts;
        false
    }
    /// Whether it works inside the guest's processes.
    fn is_inside(&self) -> bool {
        false
    }
    /// Starts the plan's program as a child. Returns when the program was executed, or with the step that failed.
    ///
    /// The caller must have one thread.
    fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child>;
    /// Starts the plan's program among the processes of a running container, as a child. Without namespaces there is nothing to enter:
    /// it is another program in the same world.
    fn enter(&self, pid: u32, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        let _ = pid;
        self.spawn(plan, streams)
    }
    /// Turns the calling process into the plan's program. Where the program needs a parent (a pid namespace of its own), the calling
    /// process stays as that parent, passes signals on, and this returns how the program ended.
    ///
    /// On an error the calling process may be anywhere (other namespaces, another root): it can print the error and exit, nothing else.
    fn become_guest(&self, plan: &Plan) -> Result<Ended>;
    /// As [`Engine::become_guest`], among the processes of a running container.
    fn become_resident(&self, pid: u32, plan: &Plan) -> Result<Ended> {
        let _ = pid;
        self.become_guest(plan)
    }
}

/// The engines of this build, best first.
pub static ENGINES: &[&dyn Engine] = &[
    &crate::engines::native::Native,
    &crate::engines::inprocess::Mode::Rewritten,
    &crate::engines::inprocess::Mode::Signals,
    &crate::engines::ptrace::Mode::Filtered,
    &crate::engines::ptrace::Mode::EveryCall,
    &crate::engines::inprocess::Mode::Texts,
    &crate::engines::inprocess::Mode::Traps,
    &crate::engines::oci::Mode::Plain,
    &crate::engines::oci::Mode::Filtered,
    &crate::engines::oci::Mode::EveryCall,
    &crate::engines::apptainer::Apptainer,
];

/// Every mode of the design with one line about it; those without an engine in [`ENGINES`] are not in this build.
pub const MODES: [(&str, &str); 13] = [
    ("N1", "user namespaces"),
    ("I1", "inside the process, call sites rewritten"),
    ("I2", "inside the process, by signals"),
    ("P1", "ptrace with seccomp"),
    ("P2", "ptrace"),
    ("F1", "text changed, by signals"),
    ("F2", "text changed, call sites rewritten"),
    ("F3", "the same as F2"),
    ("F4", "the same as F2"),
    ("R1", "runc or crun"),
    ("R2", "runc or crun, ptrace with seccomp inside"),
    ("R3", "runc or crun, ptrace inside"),
    ("S1", "Apptainer or Singularity"),
];

/// The engine of a mode name, in any case.
pub fn by_name(mode: &str) -> Option<&'static dyn Engine> {
    // What udocker does to loaders and headers there is not needed: where text is rewritten, whose it is makes no difference.
    let mode =
        if ["F3", "F4"].iter().any(|same| same.eq_ignore_ascii_case(mode)) { "F2" } else { mode };
    ENGINES.iter().copied().find(|engine| engine.name().eq_ignore_ascii_case(mode))
}

/// Names of the engines that work on this host and satisfy a condition.
fn able(facts: &Facts, condition: impl Fn(&Caps) -> bool) -> Vec<String> {
    ENGINES
        .iter()
        .filter(|engine| {
            condition(&engine.caps()) && !matches!(engine.probe(facts), Fit::Unusable(_))
        })
        .map(|engine| engine.name().to_owned())
        .collect()
}

/// Chooses the engine for a container: the mode asked for, or the first that works here.
///
/// A flag that the engine cannot honour is an error that names the engines which can.
pub fn choose(
    facts: &Facts,
    mode: Option<&str>,
    config: &ContainerConfig,
) -> Result<&'static dyn Engine> {
    let engine = if let Some(mode) = mode.or(config.exec_mode.as_deref()) {
        named(facts, mode)?
    } else {
        let mut reasons = Vec::new();
        let mut free = ENGINES.iter().copied().filter(|engine| !engine.is_asked_for(facts));
        let first = free.find(|engine| match engine.probe(facts) {
            Fit::Unusable(why) => {
                reasons.push(format!("{}: {why}", engine.name()));
                false
            }
            Fit::Ready | Fit::Degraded(_) => true,
        });
        first.ok_or_else(|| Error::NoEngine(reasons.join("; ")))?
    };
    check(engine, facts, config)?;
    Ok(engine)
}

fn named(facts: &Facts, mode: &str) -> Result<&'static dyn Engine> {
    let Some((known, _)) = MODES.iter().find(|(known, _)| known.eq_ignore_ascii_case(mode)) else {
        return Err(Error::UnknownMode {
            mode: mode.into(),
            known: MODES.iter().map(|(known, _)| (*known).to_owned()).collect(),
        });
    };
    let unusable =
        |why: String| Error::Unusable { mode: (*known).into(), why, able: able(facts, |_| true) };
    let engine = by_name(known).ok_or_else(|| unusable("this build does not have it".into()))?;
    match engine.probe(facts) {
        Fit::Unusable(why) => Err(unusable(why)),
        Fit::Ready | Fit::Degraded(_) => Ok(engine),
    }
}

/// A flag and the ability it needs.
type Need = (&'static str, bool, fn(&Caps) -> bool);

fn check(engine: &dyn Engine, facts: &Facts, config: &ContainerConfig) -> Result<()> {
    let asked = &config.namespaces;
    let private =
        |mode: &NamespaceMode| !matches!(mode, NamespaceMode::Default | NamespaceMode::Host);
    let own_network = !matches!(config.network.mode, NetworkMode::Default | NetworkMode::Host);
    let limited = config.limits.memory.is_some()
        || config.limits.cpus.is_some()
        || config.limits.pids.is_some();
    let filtered =
        !matches!(config.security.seccomp, SeccompChoice::Default | SeccompChoice::Unconfined);
    let needs: [Need; 12] = [
        ("--isolate", config.security.isolate, |caps| caps.namespaces && caps.security),
        ("--hostname", config.hostname.is_some(), |caps| caps.namespaces),
        ("--pid", private(&asked.pid), |caps| caps.namespaces),
        ("--ipc", private(&asked.ipc), |caps| caps.namespaces),
        ("--uts", private(&asked.uts), |caps| caps.namespaces),
        ("--cgroupns", private(&asked.cgroup), |caps| caps.namespaces),
        ("--join", config.join.is_some(), |caps| caps.namespaces),
        ("--network", own_network, |caps| caps.network),
        ("--read-only", config.read_only, |caps| caps.read_only),
        (
            "--cap-add and --cap-drop",
            !config.cap_add.is_empty() || !config.cap_drop.is_empty(),
            |caps| caps.security,
        ),
        ("--security-opt seccomp", filtered, |caps| caps.security),
        ("--memory, --cpus and --pids-limit", limited, |caps| caps.limits),
    ];
    honours(engine, facts, &needs)?;
    check_mounts(engine, facts, &config.mounts)
}

/// Whether an engine can make these mounts.
///
/// # Errors
/// [`Error::Unsupported`] with the engines that can.
pub fn check_mounts(engine: &dyn Engine, facts: &Facts, mounts: &[MountSpec]) -> Result<()> {
    let tmpfs = mounts.iter().any(|mount| mount.kind == MountKind::Tmpfs);
    let private =
        mounts.iter().any(|mount| mount.options.propagation == Some(Propagation::Private));
    let needs: [Need; 3] = [
        ("--volume", !mounts.is_empty(), |caps| caps.binds),
        ("a volume's option 'private'", private, |caps| caps.private_binds),
        ("--tmpfs", tmpfs, |caps| caps.tmpfs),
    ];
    honours(engine, facts, &needs)
}

fn honours(engine: &dyn Engine, facts: &Facts, needs: &[Need]) -> Result<()> {
    let caps = engine.caps();
    match needs.iter().find(|(_, wanted, has)| *wanted && !has(&caps)) {
        None => Ok(()),
        Some((flag, _, has)) => Err(Error::Unsupported {
            flag: (*flag).into(),
            engine: engine.name().into(),
            able: able(facts, has),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_without_an_engine_are_named() {
        let facts = Facts::default();
        let config = ContainerConfig::default();
        let error = choose(&facts, Some("s1"), &config).err().unwrap();
        let all = ["N1", "I1", "I2", "P1", "P2", "F2", "F1"];
        assert!(
            matches!(&error, Error::Unusable { mode, able, .. } if mode == "S1" && able == &all)
        );
        assert!(error.hint().unwrap().contains("N1"));
        let error = choose(&facts, Some("r2"), &config).err().unwrap().to_string();
        assert!(error.contains("neither runc nor crun"), "{error}");
        let found = Facts { runtime: Some("/usr/bin/crun".into()), ..Facts::default() };
        assert_eq!(choose(&found, Some("R1"), &config).unwrap().name(), "R1");
        assert_eq!(choose(&found, None, &config).unwrap().name(), "N1");
        assert_eq!(choose(&facts, Some("p2"), &config).unwrap().name(), "P2");
        assert_eq!(choose(&facts, Some("f4"), &config).unwrap().name(), "F2");
        assert!(matches!(
            choose(&facts, Some("Z9"), &config).err().unwrap(),
            Error::UnknownMode { .. }
        ));
        assert_eq!(choose(&facts, None, &config).unwrap().name(), "N1");
    }

    #[test]
    fn the_first_engine_that_works_is_taken() {
        let config = ContainerConfig::default();
        let mut facts = Facts { no_user_namespace: Some("AppArmor".into()), ..Facts::default() };
        assert_eq!(choose(&facts, None, &config).unwrap().name(), "P1");
        facts.inside_works = true;
        assert_eq!(choose(&facts, None, &config).unwrap().name(), "I1");
        facts.no_rewriting = Some("SELinux".into());
        assert_eq!(choose(&facts, None, &config).unwrap().name(), "I2");
        facts.no_inside = Some("it hung".into());
        assert_eq!(choose(&facts, None, &config).unwrap().name(), "P1");
        facts.no_seccomp = Some("no filters".into());
        assert_eq!(choose(&facts, None, &config).unwrap().name(), "P2");
        facts.no_ptrace = Some("Yama".into());
        let error = choose(&facts, None, &config).err().unwrap().to_string();
        assert!(error.contains("AppArmor") && error.contains("Yama"), "{error}");
        facts.texts_work = true;
        assert_eq!(choose(&facts, None, &config).unwrap().name(), "F2");
    }

    #[test]
    fn every_engine_has_a_mode() {
        for engine in ENGINES {
            assert!(MODES.iter().any(|(mode, _)| mode == &engine.name()));
        }
    }
}
