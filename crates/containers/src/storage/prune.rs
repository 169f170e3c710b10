//! Removes what nothing uses: stopped containers, images, networks, volumes, leftovers.
//!
//! Files of subordinate users are removed by a child in a user namespace ([`ids::delete`]): these
//! operations may fork.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use engine::supervise::state::{self, Observed};
use store::{CollectOptions, ContainerDir, Freed, Image, Volume};

use crate::container::{ids, networks, record, told, volumes};
use crate::error::{Error, Result};
use crate::filter::Filters;
use crate::journal::{self, Actor, Kind};
use crate::protection;
use crate::session::Session;
use crate::time;
use crate::volumes::UNNAMED;

/// The filters that a removal knows: `until` a time, and `label`.
const FILTERS: &[&str] = &["until", "label"];

/// Reads the filters of a removal.
///
/// # Errors
/// If a filter is not known, or the value of `until` is not a time.
pub fn filters(texts: &[String]) -> Result<Filters> {
    let filters = Filters::parse(texts, FILTERS)?;
    match filters.last("until") {
        Some(text) if time::point(text).is_none() => {
            Err(Error::invalid(format!("--filter until={text}: the value is not a time"))
                .with_hint("write 24h, or 2026-01-02T13:23:37Z"))
        }
        _ => Ok(filters),
    }
}

/// Whether something of this age and with these labels is to be removed.
fn matches(filters: &Filters, created: &str, labels: &BTreeMap<String, String>) -> bool {
    let old = |until: &str| match (time::point(until), time::parse(created)) {
        (Some(until), Some(created)) => created < until,
        _ => false,
    };
    filters.all("until", old) && filters.labels(labels)
}

/// Refuses if the index of images cannot be read: then nothing may be removed.
pub fn check(session: &Session) -> Result<()> {
    session.store()?.images().list()?;
    Ok(())
}

/// Removes containers that do not run and are not protected.
pub fn containers(session: &Session, filters: &Filters) -> Result<Freed> {
    let actors = RefCell::new(Vec::new());
    let select = |container: &ContainerDir| {
        let observed = state::observe(&container.path());
        let busy = matches!(observed, Ok(Observed::Running(_) | Observed::Restarting { .. }));
        // A container whose record cannot be read cannot be used any more.
        let wanted = || {
            record::read(container).map_or(filters.is_empty(), |record| {
                !protection::holds(&record.config)
                    && matches(filters, &record.config.created, &record.config.labels)
            })
        };
        let chosen = !session.cancel().is_cancelled() && observed.is_ok() && !busy && wanted();
        if chosen {
            actors.borrow_mut().push(told::actor_of(container));
        }
        chosen
    };
    let freed = session.store()?.prune_containers(&select, &|path| ids::delete(session, path))?;
    for actor in actors.take().into_iter().filter(|actor| freed.items.contains(&actor.id)) {
        journal::tell(session, Kind::Container, "destroy", actor);
    }
    tell_prune(session, Kind::Container, &freed);
    session.cancel().check()?;
    Ok(freed)
}

fn tell_prune(session: &Session, kind: Kind, freed: &Freed) {
    let actor = Actor::default().with("reclaimed", freed.bytes.to_string());
    journal::tell(session, kind, "prune", actor);
}

/// Removes images that no container uses: those without a name, or with `every` also those with
/// one, unless they are protected.
pub fn images(session: &Session, every: bool, filters: &Filters) -> Result<Freed> {
    let names = RefCell::new(Vec::new());
    let select = |image: &Image| {
        let summary = image.summary();
        let chosen = (every && !protection::holds_image(image) || image.reference().is_none())
            && summary.map_or(filters.is_empty(), |summary| {
                matches(filters, summary.created.as_deref().unwrap_or_default(), &summary.labels)
            });
        if chosen && let Ok(id) = image.id() {
            names.borrow_mut().push((id.to_string(), image.reference()));
        }
        chosen
    };
    // What was fetched of an image in part shortens its next pull. It is kept, unless every image
    // is to go.
    let mut options = CollectOptions::default();
    if every {
        options.partials_older_than = Duration::ZERO;
    }
    session.cancel().check()?;
    let delete = |path: &std::path::Path| ids::delete(session, path);
    let freed = session.store()?.prune_images(&select, &options, &delete)?;
    for (id, name) in names.take() {
        let name = name.map(|reference| reference.familiar());
        if let Some(name) = &name {
            journal::tell(session, Kind::Image, "untag", Actor::named(&id, name));
        }
        journal::tell(session, Kind::Image, "delete", Actor::named(&id, &id));
    }
    tell_prune(session, Kind::Image, &freed);
    Ok(freed)
}

/// Removes volumes that no container mounts: unnamed ones, or with `named` all. Those of a driver
/// stay, as in Docker: what is in them may be of use to others.
pub fn volumes(session: &Session, named: bool, filters: &Filters) -> Result<Freed> {
    let store = session.store()?;
    // Looked up when the store asks about the first volume: at that time no other process can make
    // a container that will use it. If it cannot be known, every volume counts as used.
    let used = OnceCell::new();
    let select = |volume: &Volume| {
        !session.cancel().is_cancelled()
            && used
                .get_or_init(|| volumes::used(session))
                .as_ref()
                .is_ok_and(|used| !used.contains(volume.name()))
            && volume.info().map_or(named && filters.is_empty(), |info| {
                let unnamed = info.anonymous || info.labels.contains_key(UNNAMED);
                let chosen = info.driver.is_empty() && (named || unnamed);
                chosen && matches(filters, &info.created, &info.labels)
            })
    };
    let freed = store.prune_volumes(&select, &|path| ids::delete(session, path))?;
    for name in &freed.items {
        journal::tell(session, Kind::Volume, "destroy", Actor::volume(name));
    }
    tell_prune(session, Kind::Volume, &freed);
    session.cancel().check()?;
    match used.into_inner() {
        Some(Err(error)) => Err(error),
        _ => Ok(freed),
    }
}

/// Removes the networks in which no container is, running or not; their names.
pub fn networks(session: &Session, filters: &Filters) -> Result<Vec<String>> {
    let used = networks::used(session)?;
    let select = |network: &net::Definition| {
        !session.cancel().is_cancelled()
            && !used.contains(&network.name)
            && matches(filters, &network.created, &network.labels)
    };
    let removed =
        net::removal::prune(session.store()?, &select, &|id| networks::is_alive(session, id))?;
    for definition in &removed {
        journal::tell(session, Kind::Network, "destroy", crate::networks::actor(definition));
    }
    tell_prune(session, Kind::Network, &Freed::default());
    session.cancel().check()?;
    Ok(removed.into_iter().map(|definition| definition.name).collect())
}
