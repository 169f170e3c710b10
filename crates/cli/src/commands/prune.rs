//! `prune` and its parts.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::Duration;

use engine::supervise::state::{self, Observed};
use store::{CollectOptions, ContainerDir, Freed, Image, Volume};

use crate::args::containers::ContainerPruneArgs;
use crate::args::images::ImagePruneArgs;
use crate::args::system::{PruneArgs, VolumePruneArgs};
use crate::context::Context;
use crate::filter::Filters;
use crate::output::{self, size, time};
use crate::report::{Exit, Report};
use crate::{prompt, terminal};
use containers::container::record;
use containers::container::{ids, protection, volumes as used_volumes};

/// `prune`, `system prune`.
pub(crate) fn all(context: &Context, args: &PruneArgs) -> Result<Exit, Report> {
    let filters = filters(&args.filter)?;
    let images =
        if args.all { "all images without a container" } else { "all images without a name" };
    let volumes = if args.volumes { ", unnamed volumes without a container" } else { "" };
    sure(args.force, &format!("all stopped containers, {images}{volumes}, and leftovers"))?;
    let mut total = Freed::default();
    // Where that is damaged, nothing goes at all.
    context.store()?.images().list()?;
    add(&mut total, "Deleted Containers:", &remove_containers(context, &filters)?)?;
    if args.volumes {
        add(&mut total, "Deleted Volumes:", &remove_volumes(context, false, &filters)?)?;
    }
    add(&mut total, "Deleted Images:", &remove_images(context, args.all, &filters)?)?;
    end(&total)
}

/// `container prune`.
pub(crate) fn containers(context: &Context, args: &ContainerPruneArgs) -> Result<Exit, Report> {
    let filters = filters(&args.filter)?;
    sure(args.force, "all stopped containers")?;
    let mut total = Freed::default();
    add(&mut total, "Deleted Containers:", &remove_containers(context, &filters)?)?;
    end(&total)
}

/// `image prune`.
pub(crate) fn images(context: &Context, args: &ImagePruneArgs) -> Result<Exit, Report> {
    let filters = filters(&args.filter)?;
    sure(
        args.force,
        if args.all { "all images without a container" } else { "all images without a name" },
    )?;
    let mut total = Freed::default();
    add(&mut total, "Deleted Images:", &remove_images(context, args.all, &filters)?)?;
    end(&total)
}

/// `volume prune`.
pub(crate) fn volumes(context: &Context, args: &VolumePruneArgs) -> Result<Exit, Report> {
    let filters = filters(&args.filter)?;
    let which = if args.all { "all volumes" } else { "all unnamed volumes" };
    sure(args.force, &format!("{which} that no container uses"))?;
    let mut total = Freed::default();
    add(&mut total, "Deleted Volumes:", &remove_volumes(context, args.all, &filters)?)?;
    end(&total)
}

fn filters(texts: &[String]) -> Result<Filters, Report> {
    let filters = Filters::parse(texts, &["until", "label"])?;
    match filters.last("until") {
        Some(text) if time::point(text).is_none() => {
            Err(Report::usage(format!("--filter until={text}: that is no time"))
                .hint("write 24h, or 2026-01-02T13:23:37Z"))
        }
        _ => Ok(filters),
    }
}

fn sure(force: bool, what: &str) -> Result<(), Report> {
    if force || prompt::sure(&format!("This removes {what}. Go on?"))? {
        return Ok(());
    }
    Err(Report::new("nothing was removed").exit(Exit(1)))
}

fn add(total: &mut Freed, heading: &str, freed: &Freed) -> Result<(), Report> {
    if !freed.items.is_empty() {
        output::print(&format!("{heading}\n{}\n\n", freed.items.join("\n")))?;
    }
    total.bytes += freed.bytes;
    total.deferred |= freed.deferred;
    Ok(())
}

fn end(total: &Freed) -> Result<Exit, Report> {
    if total.deferred {
        terminal::note("some content is removed later, because another process is using the store");
    }
    output::line(format!("Total reclaimed space: {}", size::human(total.bytes)))?;
    Ok(Exit::OK)
}

/// Whether something of this age and with these labels is meant.
fn meant(filters: &Filters, created: &str, labels: &BTreeMap<String, String>) -> bool {
    let old = |until: &str| match (time::point(until), time::parse(created)) {
        (Some(until), Some(created)) => created < until,
        _ => false,
    };
    filters.all("until", old) && filters.labels(labels)
}

fn remove_containers(context: &Context, filters: &Filters) -> Result<Freed, Report> {
    let select = |container: &ContainerDir| {
        let idle = !matches!(
            state::observe(&container.path()),
            Ok(Observed::Running(_) | Observed::Restarting { .. }) | Err(_)
        );
        // A record that cannot be read belongs to nobody who could still use it.
        idle && record::read(container).map_or(filters.is_empty(), |record| {
            !protection::holds(&record.config)
                && meant(filters, &record.config.created, &record.config.labels)
        })
    };
    let session = context.session()?;
    Ok(session.store()?.prune_containers(&select, &|path| ids::delete(session, path))?)
}

fn remove_images(context: &Context, every: bool, filters: &Filters) -> Result<Freed, Report> {
    let select = |image: &Image| {
        let summary = image.summary();
        (every && !protection::holds_image(image) || image.reference().is_none())
            && summary.map_or(filters.is_empty(), |summary| {
                meant(filters, summary.created.as_deref().unwrap_or_default(), &summary.labels)
            })
    };
    // With every image that could still be pulled again in mind, what was fetched of it by halves is kept; else not.
    let mut options = CollectOptions::default();
    if every {
        options.partials_older_than = Duration::ZERO;
    }
    let session = context.session()?;
    Ok(session.store()?.prune_images(&select, &options, &|path| ids::delete(session, path))?)
}

fn remove_volumes(context: &Context, named: bool, filters: &Filters) -> Result<Freed, Report> {
    let session = context.session()?;
    let store = session.store()?;
    // Looked up when the first volume is asked about: then nobody is making a container that will use it. Where that
    // cannot be known, every volume is in use.
    let used = OnceCell::new();
    let select = |volume: &Volume| {
        used.get_or_init(|| used_volumes::used(session))
            .as_ref()
            .is_ok_and(|used| !used.contains(volume.name()))
            && volume.info().map_or(named && filters.is_empty(), |info| {
                (named || info.anonymous) && meant(filters, &info.created, &info.labels)
            })
    };
    let freed = store.prune_volumes(&select, &|path| ids::delete(session, path))?;
    match used.into_inner() {
        Some(Err(error)) => Err(error.into()),
        _ => Ok(freed),
    }
}
