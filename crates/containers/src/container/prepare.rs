//! Plans a run of a container: which engine, which root, which accounts, which devices.

use engine::choose;
use engine::choose::Engine;
use engine::facts::Facts;
use engine::plan::{self, Accounts, NetworkPlace, Overrides, Plan, Request};
use engine::spec::{ContainerConfig, UserNamespace};
use rootfs::Driver;
use store::{ContainerDir, Store};

use super::ranks::Rank;
use super::record::Record;
use super::running::main_process;
use super::{accounts, convert, gpus, image_index, naming, networks, root_form};
use crate::error::Result;
use crate::session::Session;

/// A plan with the engine that will execute it.
pub struct Prepared {
    /// What will be done.
    pub plan: Plan,
    /// What will do it.
    pub engine: &'static dyn Engine,
}

/// Plans a run (or, where `overrides.exec` is set, an `exec` beside process `member`).
pub fn prepare(
    session: &Session,
    store: &Store,
    container: &ContainerDir,
    record: &Record,
    overrides: &Overrides,
    member: Option<u32>,
    network: Option<&NetworkPlace>,
) -> Result<Prepared> {
    let config = &record.config;
    let place = container.path();
    // One for all that is looked up here.
    let _lease = store.lease()?;
    let facts = networks::facts(session, config);
    let engine = convert::engine(&facts, record, &place, member, overrides.exec)?;
    let root =
        root_form::for_engine(root_form::prepare_for(session, store, record, &place, engine)?);
    let mut run =
        Run { effective: gpus::effective(session, record, overrides, &root)?, config, overrides };
    let known = run.name_users(session, container, record, (&facts, engine), &root)?;
    let by = (engine, overrides.exec);
    if let Some(name) = networks::host_name_there(session, container, config, by) {
        run.change().0.hostname = Some(name);
    }
    if engine.properties().ids == choose::IdsFrom::Caller {
        // Without a user of its own, a program runs as the caller.
        run.change().0.namespaces.user = UserNamespace::Host;
    }
    let keeps_caller = session.dialect().keeps_caller || Rank::of(session.environment()).is_some();
    // A runtime of the host may set others, and a wish that is only implied is no error.
    let properties = engine.properties();
    let by_runtime = properties.helper.is_some() && properties.ids != choose::IdsFrom::Caller;
    if keeps_caller && !by_runtime {
        run.change().0.group_add.push(plan::KEEP_GROUPS.to_owned());
    }
    let (config, overrides) = run.as_planned();
    let of_root = engine::accounts::OfRoot(&root);
    // Without mounts, what a process has as its root is the host's.
    let own_root = overrides.exec && !engine.root().is_tree();
    let of_process = member.filter(|_| own_root).map(engine::accounts::OfProcess);
    let accounts: &dyn Accounts = match (&known, &of_process) {
        (Some(known), _) => known,
        (None, Some(process)) => process,
        (None, None) => &of_root,
    };
    let running = |name: &str| main_process(session, name).and_then(plan::Neighbour::of);
    let request = Request {
        config,
        root: &root,
        place: &place,
        facts: &facts,
        overrides,
        own_ids: engine.properties().ids != choose::IdsFrom::Map,
        fake_root: engine.caps().fake_root,
        keep_umask: keeps_caller,
        accounts,
        private: networks::private_by(engine),
        network,
        running: &running,
    };
    let mut plan = plan::plan(&request)?;
    networks::share_files(session, config, &mut plan);
    let by_view = plan.emulate_root && engine.properties().calls == choose::CallsBy::Kernel;
    if by_view || engine.properties().made == choose::MadeFiles::BesideImage {
        plan.beside_image = root_form::beside_image(store, record);
    }
    if engine.root().is_tree() && record.own.root_form.driver == Some(Driver::Layered) {
        plan.index = Some(image_index::needed(store, record)?);
    }
    Ok(Prepared { plan, engine })
}

/// What a run is planned from. It is copied only where something is changed.
struct Run<'a> {
    effective: Option<(ContainerConfig, Overrides)>,
    config: &'a ContainerConfig,
    overrides: &'a Overrides,
}

impl Run<'_> {
    fn change(&mut self) -> &mut (ContainerConfig, Overrides) {
        self.effective.get_or_insert_with(|| (self.config.clone(), self.overrides.clone()))
    }

    fn as_planned(&self) -> (&ContainerConfig, &Overrides) {
        self.effective
            .as_ref()
            .map_or((self.config, self.overrides), |(config, overrides)| (config, overrides))
    }

    /// Shows the host's users where that is asked for, and tells programs who and where they are
    /// where the dialect wants it.
    fn name_users(
        &mut self,
        session: &Session,
        container: &ContainerDir,
        record: &Record,
        (facts, engine): (&Facts, &dyn Engine),
        root: &plan::Root,
    ) -> Result<Option<accounts::Known>> {
        let (dialect, host) = (session.dialect(), record.own.hostauth);
        let image = engine::accounts::OfRoot(root);
        let mut known = None;
        if dialect.knows_caller || host {
            let (config, overrides) = self.change();
            let user = overrides.user.as_ref().unwrap_or(&config.user).clone();
            known = accounts::effective(session, host, &image, &user)?;
            if let Some(known) = &known {
                let mounts = known.mounts(&container.path())?;
                accounts::add_mounts(mounts, host, config, overrides);
            }
        }
        if dialect.starts_at_home {
            let accounts: &dyn Accounts = match &known {
                Some(known) => known,
                None => &image,
            };
            let (config, overrides) = self.change();
            if let Some(home) = naming::home(config, overrides, (facts, accounts), root)? {
                overrides.cwd = Some(home);
            }
        }
        if dialect.names_container {
            let (config, overrides) = self.change();
            let user = overrides.user.as_deref();
            naming::name_container(config, container, user, engine.name())?;
        }
        Ok(known)
    }
}
