//! Adds up the space that the parts of the store take.

use engine::supervise::state::{self, Observed};
use store::{Amount, ContainerDir, Usage};

use crate::container::volumes;
use crate::error::Result;
use crate::session::Session;

/// The space that the parts of the store take. Containers that do not run and volumes that no
/// container mounts count as unused.
pub fn usage(session: &Session) -> Result<Usage> {
    let store = session.store()?;
    let mut usage = store.usage()?;
    let running = store.containers().map_nameless(runs)?;
    let running = running.iter().filter(|running| **running).count() as u64;
    usage.containers.unused_count = usage.containers.count.saturating_sub(running);
    // A record that cannot be read must not keep the rest from being shown.
    let used = volumes::used(session).unwrap_or_default();
    for volume in store.volumes().list()? {
        session.cancel().check()?;
        if !used.contains(volume.name()) && volume.is_local() {
            let Amount { unused_count, reclaimable, .. } = &mut usage.volumes;
            *unused_count += 1;
            *reclaimable += store.volume_size(volume.name())?;
        }
    }
    Ok(usage)
}

fn runs(container: &ContainerDir) -> bool {
    let observed = state::observe(&container.path());
    matches!(observed, Ok(Observed::Running(_) | Observed::Restarting { .. }))
}

/// Each volume in the store with the bytes that it takes.
pub fn volumes(session: &Session) -> Result<Vec<(String, u64)>> {
    let store = session.store()?;
    let mut sizes = Vec::new();
    for volume in store.volumes().list()?.into_iter().filter(store::Volume::is_local) {
        session.cancel().check()?;
        sizes.push((volume.name().to_owned(), store.volume_size(volume.name())?));
    }
    Ok(sizes)
}
