//! The engines of this build, and the choice among them.
//!
//! An engine is one module and one line in [`ENGINES`]. To add one:
//!
//! 1. Write its module under [`crate::engines`]: a type with an `impl` of [`Engine`], and its
//!    [`Properties`], which say all that the rest of the program asks: its names, when it is taken,
//!    what it makes the root of, what decides about ids, which program of the host it needs.
//!    What it shares with others stands in `namespaces`, `interpose` and `external`.
//! 2. Add its line to [`ENGINES`], where it belongs in the order of preference.
//! 3. Add its row to the table of modes in `docs/engines.md`.
//!
//! A helper program that users may name in their settings also needs its setting in `cli`. No other
//! code of this crate decides by the name of an engine.

pub mod options;

pub use crate::engines::{CallsBy, Caps, Engine, Fit, IdsFrom, MadeFiles, Properties, RootKind};
pub use crate::exit::Ended;
pub use crate::launch::streams::{Child, Session, Streams};

use crate::error::{Error, Result};
use crate::facts::{Facts, FoundHelper};
use crate::plan::KEEP_GROUPS;
use crate::spec::{ContainerConfig, MountSpec, NetworkMode};
use host::{Context, Host};

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

/// All modes with one line about each, aliases too, in the order in which they are listed.
#[must_use]
pub fn modes() -> Vec<(&'static str, &'static str)> {
    let properties = || ENGINES.iter().map(|engine| engine.properties());
    let mut all: Vec<_> = properties()
        .flat_map(|engine| [(engine.name, engine.about)].into_iter().chain(engine.aliases.to_vec()))
        .collect();
    let family = |name: &str| properties().position(|engine| engine.name[..1] == name[..1]);
    all.sort_by_key(|(name, _)| (family(name), *name));
    all
}

/// The engine of a mode name, in any case.
pub fn by_name(mode: &str) -> Option<&'static dyn Engine> {
    let is_it = |name: &str| name.eq_ignore_ascii_case(mode);
    ENGINES.iter().copied().find(|engine| {
        let Properties { name, aliases, .. } = engine.properties();
        is_it(name) || aliases.iter().any(|(alias, _)| is_it(alias))
    })
}

impl Facts {
    /// The facts that matter to this container.
    #[must_use]
    pub fn of(host: &Host, context: &Context, config: &ContainerConfig) -> Self {
        let mut facts = Self::of_host(host, context, config);
        let engine = config.exec_mode.as_deref().and_then(by_name);
        if engine.is_some_and(|engine| engine.properties().helper.is_some()) {
            let keeps = config.group_add.iter().any(|group| group == KEEP_GROUPS);
            facts.find_helpers_for(host, keeps);
        }
        facts
    }

    /// Looks for the programs that engines need.
    pub fn find_helpers(&mut self, host: &Host) {
        self.find_helpers_for(host, false);
    }

    fn find_helpers_for(&mut self, host: &Host, keeps_groups: bool) {
        for helper in ENGINES.iter().filter_map(|engine| engine.properties().helper) {
            let first = helper.keeping.filter(|_| keeps_groups);
            let mut names =
                [helper.key].into_iter().chain(first).chain(helper.names.iter().copied());
            if !self.helpers.contains_key(helper.key)
                && let Some(path) = names.find_map(|name| host.programs.find(name))
            {
                let privileged = (helper.is_privileged)(&path);
                self.helpers.insert(helper.key.to_owned(), FoundHelper { path, privileged });
            }
        }
    }
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
        let named_network = matches!(config.network.mode, NetworkMode::Named(_));
        // With --isolate namespaces are wanted, however limited the way out of them is.
        let own_network = named_network
            || config.network.mode == NetworkMode::Private && !config.security.isolate;
        let mut free = ENGINES.iter().copied().filter(|engine| {
            let has_networks = !named_network || engine.caps().named_networks;
            has_networks && !engine.is_only_by_name(facts)
        });
        // One that cannot share the network that is to be shared is refused by its name.
        let (mut lesser, mut unfit) = (None, None);
        let first = free.find(|engine| match fit(*engine, facts, own_network) {
            Fit::Unusable(why) => {
                reasons.push(format!("{}: {why}", engine.name()));
                false
            }
            _ if !options::can_share(&engine.caps(), facts, config) => {
                unfit.get_or_insert(*engine);
                false
            }
            // With something less, but it works.
            Fit::Degraded(why) => {
                reasons.push(format!("{}: {why}", engine.name()));
                lesser.get_or_insert(*engine);
                false
            }
            Fit::Ready => true,
        });
        first.or(lesser).or(unfit).ok_or_else(|| Error::NoEngine(reasons.join("; ")))?
    };
    check(engine, facts, config)?;
    Ok(engine)
}

/// How well an engine fits where no mode is asked for. One whose networks are made of packets comes
/// after the others where no helper can lead out of them: with addresses that are translated,
/// programs reach what the host's programs reach, at the host's speed and without the limits of the
/// way out by the switch. `own_network`: the container has one, with a name or without.
fn fit(engine: &dyn Engine, facts: &Facts, own_network: bool) -> Fit {
    let caps = engine.caps();
    let is_of_packets = own_network && caps.named_networks && caps.network;
    let needs_way_out = is_of_packets && !facts.internal_networks;
    match (engine.probe(facts), facts.no_helper_out()) {
        (Fit::Ready, Some(why)) if needs_way_out => Fit::Degraded(format!(
            "networks have a limited way out in it, by their switch, because {why}"
        )),
        (fit, _) => fit,
    }
}

fn named(facts: &Facts, mode: &str) -> Result<&'static dyn Engine> {
    let engine = by_name(mode).ok_or_else(|| Error::UnknownMode {
        mode: mode.into(),
        known: modes().into_iter().map(|(known, _)| known.to_owned()).collect(),
    })?;
    match engine.probe(facts) {
        Fit::Unusable(why) => {
            let (mode, able) = (mode.to_ascii_uppercase(), able(facts, |_| true));
            Err(Error::Unusable { mode, why, able })
        }
        Fit::Ready | Fit::Degraded(_) => Ok(engine),
    }
}

fn check(engine: &dyn Engine, facts: &Facts, config: &ContainerConfig) -> Result<()> {
    let caps = engine.caps();
    match options::OPTIONS.iter().find(|row| row.refuses(&caps, facts, config)) {
        None => check_mounts(engine, facts, &config.mounts),
        Some(row) => Err(unsupported(engine, facts, row.flag, row.has)),
    }
}

/// Whether an engine can make these mounts.
///
/// # Errors
/// [`Error::Unsupported`] with the engines that can.
pub fn check_mounts(engine: &dyn Engine, facts: &Facts, mounts: &[MountSpec]) -> Result<()> {
    let caps = engine.caps();
    let refused = |row: &&options::MountRow| (row.wanted)(mounts) && !(row.has)(&caps, facts);
    match options::MOUNTS.iter().find(refused) {
        None => Ok(()),
        Some(row) => Err(unsupported(engine, facts, row.flag, row.has)),
    }
}

fn unsupported(
    engine: &dyn Engine,
    facts: &Facts,
    flag: &str,
    has: fn(&Caps, &Facts) -> bool,
) -> Error {
    Error::Unsupported {
        flag: flag.into(),
        engine: engine.name().into(),
        able: able(facts, |caps| has(caps, facts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::SharedNetwork;
    use crate::spec::NetworkSpec;

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
        let crun = FoundHelper { path: "/usr/bin/crun".into(), privileged: false };
        let helpers = [(crate::engines::oci::RUNTIME.key.to_owned(), crun)].into();
        let found = Facts { helpers, ..Facts::default() };
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
    fn a_private_network_without_a_helper_is_one_of_names() {
        let network = |mode| NetworkSpec { mode, ..NetworkSpec::default() };
        let private =
            ContainerConfig { network: network(NetworkMode::Private), ..Default::default() };
        let mut facts = Facts { inside_works: true, ..Facts::default() };
        assert_eq!(choose(&facts, None, &private).unwrap().name(), "I1");
        let mut isolated = private.clone();
        isolated.security.isolate = true;
        assert_eq!(choose(&facts, None, &isolated).unwrap().name(), "N1");
        facts.pasta = Some("/usr/bin/pasta".into());
        assert_eq!(choose(&facts, None, &private).unwrap().name(), "N1");
        facts.no_tun = Some("EACCES".into());
        assert_eq!(choose(&facts, None, &private).unwrap().name(), "I1");
        assert_eq!(choose(&facts, None, &ContainerConfig::default()).unwrap().name(), "N1");
    }

    /// It is made as the other container's is.
    #[test]
    fn a_shared_network_decides() {
        let mut config = ContainerConfig::default();
        config.network.mode = NetworkMode::Container("db".into());
        let mut facts = Facts { inside_works: true, ..Facts::default() };
        let name = |facts: &Facts, mode| choose(facts, mode, &config).map(Engine::name);
        let refused = |facts: &Facts, mode| {
            let error = name(facts, mode).unwrap_err();
            (error.to_string(), error.hint().unwrap())
        };
        for mode in ["N1", "I1", "P2"] {
            assert_eq!(name(&facts, Some(mode)).unwrap(), mode, "the host's is everybody's");
        }
        facts.shared_network = Some(SharedNetwork::Namespace);
        assert_eq!(name(&facts, None).unwrap(), "N1");
        let (error, hint) = refused(&facts, Some("I1"));
        assert!(error.contains("network namespace is not possible with engine I1"), "{error}");
        assert_eq!(hint, "use --execmode=N1");
        facts.shared_network = Some(SharedNetwork::Names);
        assert_eq!(name(&facts, None).unwrap(), "I1");
        assert_eq!(name(&facts, Some("P2")).unwrap(), "P2");
        let (error, hint) = refused(&facts, Some("N1"));
        assert!(error.contains("translated is not possible with engine N1"), "{error}");
        assert!(hint.contains("--execmode=I1") && !hint.contains("N1"), "{hint}");
        facts.shared_network = Some(SharedNetwork::Namespace);
        facts.no_user_namespace = Some("AppArmor".into());
        let (error, _) = refused(&facts, None);
        assert!(error.contains("network namespace is not possible with engine I1"), "{error}");
    }

    #[test]
    fn an_engine_with_something_less_comes_after_the_others() {
        let config = ContainerConfig::default();
        let mut facts = Facts { no_overlay: Some("EINVAL".into()), ..Facts::default() };
        assert_eq!(choose(&facts, None, &config).unwrap().name(), "P1");
        facts.inside_works = true;
        assert_eq!(choose(&facts, None, &config).unwrap().name(), "I1");
        assert_eq!(choose(&facts, Some("N1"), &config).unwrap().name(), "N1");
        let none = Some("refused".to_owned());
        let facts =
            Facts { no_ptrace: none.clone(), no_inside: none.clone(), no_texts: none, ..facts };
        let facts = Facts { inside_works: false, ..facts };
        assert_eq!(choose(&facts, None, &config).unwrap().name(), "N1");
    }

    /// Also after the last network was disconnected, which must not be a riddle.
    #[test]
    fn no_network_is_explained() {
        let mut config = ContainerConfig::default();
        config.network.mode = NetworkMode::None;
        let inside = Facts { inside_works: true, ..Facts::default() };
        let without = Facts { no_user_namespace: Some("AppArmor".into()), ..inside.clone() };
        for (facts, also) in [(inside, true), (without, false)] {
            let error = choose(&facts, Some("I1"), &config).err().unwrap();
            assert_eq!(error.to_string(), "--network=none is not possible with engine I1");
            let hint = error.hint().unwrap();
            assert!(hint.starts_with("the container is in no network"), "{hint}");
            assert!(hint.contains("coracle network connect NETWORK CONTAINER"), "{hint}");
            assert_eq!(hint.contains("--execmode=N1"), also, "{hint}");
        }
    }

    #[test]
    fn a_network_with_a_name_needs_a_helper() {
        let mut config = ContainerConfig::default();
        config.network.mode = NetworkMode::Named("lab".into());
        let facts = Facts { inside_works: true, ..Facts::default() };
        let name = |facts: &Facts| choose(facts, None, &config).unwrap().name();
        assert_eq!(name(&facts), "I1", "there is no program for it");
        let open = Facts { slirp4netns: Some("/usr/bin/slirp4netns".into()), ..facts.clone() };
        assert_eq!(name(&open), "N1");
        let closed = Facts { no_tun: Some("EACCES".into()), ..open.clone() };
        assert_eq!(name(&closed), "I1");
        assert_eq!(name(&Facts { internal_networks: true, ..closed.clone() }), "N1");
        let pasta = Facts { pasta: Some("/usr/bin/pasta".into()), ..facts.clone() };
        assert_eq!(name(&pasta), "N1");
        assert_eq!(name(&Facts { no_default_route: true, ..pasta }), "I1");
        // Where it is asked for, and where no other works.
        assert_eq!(choose(&closed, Some("N1"), &config).unwrap().name(), "N1");
        let none = Some("refused".to_owned());
        let alone = Facts {
            inside_works: false,
            no_inside: none.clone(),
            no_ptrace: none.clone(),
            no_texts: none,
            ..closed
        };
        assert_eq!(name(&alone), "N1");
        let nothing = Facts { no_user_namespace: Some("AppArmor".into()), ..alone };
        let error = choose(&nothing, None, &config).err().unwrap().to_string();
        assert!(error.contains("AppArmor"), "{error}");
    }

    #[test]
    fn modes_are_listed_by_family_with_their_aliases() {
        let names: Vec<_> = modes().into_iter().map(|(name, _)| name).collect();
        let listed = ["N1", "I1", "I2", "P1", "P2", "F1", "F2", "F3", "F4", "R1", "R2", "R3", "S1"];
        assert_eq!(names, listed);
        for name in names {
            assert!(by_name(&name.to_lowercase()).is_some());
        }
    }
}
