//! The engines of this build, and the choice among them.
//!
//! An engine is one module and one entry in [`ENGINES`]. [`MODES`] also knows the modes of the design that this build does not have, so
//! that asking for one gives a reason instead of "unknown".

pub use crate::engines::{Caps, Engine, Fit};
use crate::error::{Error, Result};
pub use crate::exit::Ended;
use crate::facts::Facts;
pub use crate::launch::streams::{Child, Session, Streams};
use crate::spec::mount_options::Propagation;
use crate::spec::{
    ContainerConfig, MountKind, MountSpec, NamespaceMode, NetworkMode, SeccompChoice,
};

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

/// Becomes the first process of a container that another program has made; returns the exit code of
/// a failure, which has been reported.
#[must_use]
pub fn be_first_process() -> u8 {
    crate::engines::external::first_process::be_first(by_name)
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
