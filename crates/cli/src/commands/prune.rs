//! `prune` and its parts.

use containers::storage::prune;
use store::Freed;

use crate::args::containers::ContainerPruneArgs;
use crate::args::images::ImagePruneArgs;
use crate::args::networks::NetworkPruneArgs;
use crate::args::system::{PruneArgs, VolumePruneArgs};
use crate::context::Context;
use crate::output::{self, size};
use crate::report::{Exit, Report};
use crate::{prompt, terminal};

/// `prune`, `system prune`.
pub(crate) fn all(context: &Context, args: &PruneArgs) -> Result<Exit, Report> {
    let filters = prune::filters(&args.filter)?;
    let images =
        if args.all { "all images without a container" } else { "all images without a name" };
    let volumes = if args.volumes { ", unnamed volumes without a container" } else { "" };
    let what = "all stopped containers, networks without a container";
    sure(args.force, &format!("{what}, {images}{volumes}, and leftovers"))?;
    let mut total = Freed::default();
    let session = context.session()?;
    prune::check(session)?;
    add(&mut total, "Deleted Containers:", &prune::containers(session, &filters)?)?;
    list("Deleted Networks:", &prune::networks(session, &filters)?)?;
    if args.volumes {
        add(&mut total, "Deleted Volumes:", &prune::volumes(session, false, &filters)?)?;
    }
    add(&mut total, "Deleted Images:", &prune::images(session, args.all, &filters)?)?;
    end(&total)
}

/// `container prune`.
pub(crate) fn containers(context: &Context, args: &ContainerPruneArgs) -> Result<Exit, Report> {
    let filters = prune::filters(&args.filter)?;
    sure(args.force, "all stopped containers")?;
    let mut total = Freed::default();
    add(&mut total, "Deleted Containers:", &prune::containers(context.session()?, &filters)?)?;
    end(&total)
}

/// `image prune`.
pub(crate) fn images(context: &Context, args: &ImagePruneArgs) -> Result<Exit, Report> {
    let filters = prune::filters(&args.filter)?;
    sure(
        args.force,
        if args.all { "all images without a container" } else { "all images without a name" },
    )?;
    let mut total = Freed::default();
    add(&mut total, "Deleted Images:", &prune::images(context.session()?, args.all, &filters)?)?;
    end(&total)
}

/// `volume prune`.
pub(crate) fn volumes(context: &Context, args: &VolumePruneArgs) -> Result<Exit, Report> {
    let filters = prune::filters(&args.filter)?;
    let which = if args.all { "all volumes" } else { "all unnamed volumes" };
    sure(args.force, &format!("{which} that no container uses"))?;
    let mut total = Freed::default();
    add(&mut total, "Deleted Volumes:", &prune::volumes(context.session()?, args.all, &filters)?)?;
    end(&total)
}

/// `network prune`.
pub(crate) fn networks(context: &Context, args: &NetworkPruneArgs) -> Result<Exit, Report> {
    let filters = prune::filters(&args.filter)?;
    sure(args.force, "all networks in which no container is")?;
    list("Deleted Networks:", &prune::networks(context.session()?, &filters)?)?;
    Ok(Exit::OK)
}

fn sure(force: bool, what: &str) -> Result<(), Report> {
    if force || prompt::sure(&format!("This removes {what}. Go on?"))? {
        return Ok(());
    }
    Err(Report::new("nothing was removed").exit(Exit(1)))
}

fn add(total: &mut Freed, heading: &str, freed: &Freed) -> Result<(), Report> {
    list(heading, &freed.items)?;
    total.bytes += freed.bytes;
    total.deferred |= freed.deferred;
    Ok(())
}

fn list(heading: &str, items: &[String]) -> Result<(), Report> {
    if !items.is_empty() {
        output::print(&format!("{heading}\n{}\n\n", items.join("\n")))?;
    }
    Ok(())
}

fn end(total: &Freed) -> Result<Exit, Report> {
    if total.deferred {
        terminal::note("some content is removed later, because another process is using the store");
    }
    output::line(format!("Total reclaimed space: {}", size::human(total.bytes)))?;
    Ok(Exit::OK)
}
