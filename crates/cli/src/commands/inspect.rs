//! `inspect`: containers, images, networks and volumes as Docker's JSON.

use serde_json::Value;

use crate::args::images::{ImageInspectArgs, InspectArgs};
use crate::context::Context;
use crate::output::{self, template::Template};
use crate::report::{Exit, Report};
use containers::container::{convert, image_index, record, root_form};
use containers::images::find as image;

/// What a name may mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Any,
    Container,
    Image,
    /// The index of an image.
    Index,
    Network,
    Volume,
}

/// `inspect`.
pub(crate) fn run(context: &Context, args: &InspectArgs) -> Result<Exit, Report> {
    let kind = match args.r#type.as_deref() {
        None | Some("") => Kind::Any,
        Some("container") => Kind::Container,
        Some("image") => Kind::Image,
        Some("network") => Kind::Network,
        Some("volume") => Kind::Volume,
        Some(other) => {
            return Err(Report::usage(format!("--type '{other}' is not known"))
                .hint("there are container, image, network and volume"));
        }
    };
    show(context, args, kind)
}

/// `container inspect`.
pub(crate) fn container(context: &Context, args: &InspectArgs) -> Result<Exit, Report> {
    show(context, args, Kind::Container)
}

/// `image inspect`.
pub(crate) fn image(context: &Context, args: &ImageInspectArgs) -> Result<Exit, Report> {
    show(context, &args.inspect, if args.index { Kind::Index } else { Kind::Image })
}

fn show(context: &Context, args: &InspectArgs, kind: Kind) -> Result<Exit, Report> {
    if args.root_path {
        return super::each(&args.names, |name| root_path(context, name));
    }
    let bare = context.presentation().bare_inspect && kind != Kind::Index;
    if let ([name], None, true) = (&args.names[..], &args.format, bare)
        && let Some(value) = as_udocker(context, name)?
    {
        output::line(output::pretty(&value))?;
        return Ok(Exit::OK);
    }
    let template = match args.format.as_deref() {
        None | Some("json" | "") => None,
        Some(format) => Some(Template::parse(format)?),
    };
    // A template that asks for the size gets it, also without `--size`.
    let size = args.size || args.format.as_deref().is_some_and(|text| text.contains(".SizeR"));
    let mut found = Vec::new();
    let ended = super::each(&args.names, |name| {
        let value = describe(context, name, kind, size)?;
        if let Some(template) = &template {
            output::line(template.render(&value)?)
        } else {
            found.push(value);
            Ok(())
        }
    });
    let nothing = found.is_empty() && context.presentation().bare_inspect;
    if template.is_none() && !nothing {
        let all = Value::Array(found);
        output::line(if args.format.as_deref() == Some("json") {
            all.to_string()
        } else {
            output::pretty(&all)
        })?;
    }
    ended
}

/// A container or an image as udocker shows it: the configuration alone, with its keys in order.
fn as_udocker(context: &Context, name: &str) -> Result<Option<Value>, Report> {
    if let Some(container) = record::find_some(context.session()?, name)? {
        return Ok(Some(containers::container::export::configuration(&record::read(&container)?)));
    }
    let Some(image) = image::local(context.session()?, name)? else { return Ok(None) };
    Ok(Some(containers::images::inspect::configuration(&image)?))
}

fn describe(context: &Context, name: &str, kind: Kind, size: bool) -> Result<Value, Report> {
    if kind == Kind::Index {
        let image = image::stored(context.session()?, name)?;
        return Ok(image_index::describe(context.store()?, &image)?);
    }
    if matches!(kind, Kind::Any | Kind::Container)
        && let Some(container) = record::find_some(context.session()?, name)?
    {
        let session = context.session()?;
        return Ok(containers::container::inspect::container(session, &container, size)?);
    }
    if matches!(kind, Kind::Any | Kind::Image)
        && let Some(image) = image::local(context.session()?, name)?
    {
        let driver = root_form::driver(context.session()?, context.store()?);
        return Ok(containers::images::inspect::describe(&image, driver)?);
    }
    // As in Docker, a network comes before a volume of the same name.
    if matches!(kind, Kind::Any | Kind::Network)
        && let Some(value) = containers::networks::inspect_some(context.session()?, name)?
    {
        return Ok(value);
    }
    if matches!(kind, Kind::Any | Kind::Volume)
        && let Some(volume) = context.store()?.volumes().get(name).ok().flatten()
    {
        return Ok(containers::volumes::describe(&volume)?);
    }
    let what = match kind {
        Kind::Any => "container, image, network or volume",
        Kind::Container => "container",
        Kind::Image | Kind::Index => "image",
        Kind::Network => "network",
        Kind::Volume => "volume",
    };
    Err(Report::new(format!("there is no {what} '{name}'")).exit(Exit(1)))
}

/// Where the tree of a container is, as udocker's `inspect -p`.
fn root_path(context: &Context, name: &str) -> Result<(), Report> {
    let container = record::find(context.session()?, name)?;
    let mut record = record::read(&container)?;
    if context.session()?.dialect().shows_whole_tree {
        // The caller wants to use the tree.
        convert::to_plain(context.session()?, context.store()?, &container, &mut record)?;
    }
    match root_form::prepare(context.session()?, context.store()?, &record, &container.path())? {
        rootfs::Root::Directory(path) | rootfs::Root::Given { directory: path, .. } => output::line(path.display()),
        rootfs::Root::Overlay { upper, .. } | rootfs::Root::Stacked { upper, .. } => Err(Report::new(format!("{name} has no tree of its own on disk"))
            .because(format!("its root is an overlay: what was changed is in {}, above the image's layers", upper.display()))
            .hint("'coracle export' writes the whole tree, 'coracle cp' copies files, 'coracle diff' lists changes")),
    }
}
