//! `import`: a root tree becomes an image of one layer.

use std::fs::File;
use std::io;
use std::path::Path;

use oci::{ConfigEditor, Descriptor, Digest, ImageConfig, Manifest, Platform, Reference, media};
use store::Store;

use crate::args::archives::ImportArgs;
use crate::change;
use crate::cloned;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use containers::container::make;
use containers::images::layers::described;
use containers::images::pull::{self, Road};
use containers::images::remote;
use containers::request::{ContainerRequest, options};

/// Makes the image, and with `--tocontainer` a container of it; prints its id.
pub(crate) fn run(context: &Context, args: &ImportArgs) -> Result<Exit, Report> {
    if args.clone {
        let container = cloned::make(context, args)?;
        container.sync()?;
        output::line(container.id())?;
        return remove_source(args);
    }
    let (id, reference) = make(context, args, None)?;
    if args.tocontainer {
        let mut request = ContainerRequest::default();
        request.record.name.clone_from(&args.container);
        // As it is listed, unless another registry is asked for names that say none.
        let familiar = reference.familiar();
        let is_it =
            remote::reference(context.session()?, &familiar).is_ok_and(|other| other == reference);
        let name = if is_it { familiar } else { reference.to_string() };
        request.image.name = Some(name);
        let (made, _) = make::make(&context.session_for(true)?, &request)?;
        made.container().sync()?;
        output::line(made.container().id())?;
    } else {
        output::line(id)?;
    }
    remove_source(args)
}

fn remove_source(args: &ImportArgs) -> Result<Exit, Report> {
    if args.remove_source && args.source != Path::new("-") {
        std::fs::remove_file(&args.source).map_err(|error| {
            Report::new(format!("cannot remove {}", args.source.display())).cause(error)
        })?;
    }
    Ok(Exit::OK)
}

/// Makes the image, which asks for what another one (`like`) asks for: its id and its name.
pub(crate) fn make(
    context: &Context,
    args: &ImportArgs,
    like: Option<&ImageConfig>,
) -> Result<(Digest, Reference), Report> {
    make_from(context, args, like, None)
}

/// The same, of a tree's archive that is open already where there is one.
pub(crate) fn make_from(
    context: &Context,
    args: &ImportArgs,
    like: Option<&ImageConfig>,
    tree: Option<File>,
) -> Result<(Digest, Reference), Report> {
    let session = context.session_for(args.quiet)?;
    let store = session.store()?;
    let progress = session.progress();
    let road = Road::new(&session, &progress)?;
    let platform = match args.platform.as_deref() {
        Some(text) => options::platform(text)?,
        None => Platform::host(),
    };
    let named = args.name.as_deref().map(|name| remote::reference(&session, name)).transpose()?;
    let lease = store.lease()?;
    let (layer, diff_id) = match tree {
        Some(mut tree) => {
            let (blob, size) = store.blobs().put_reader(&mut tree)?;
            described(&road, &blob, size, &args.source)?
        }
        None => layer(context, &road, &args.source)?,
    };
    let now = engine::supervise::now();
    let mut editor = like.map_or_else(|| ConfigEditor::new(&platform), ImageConfig::edit);
    editor.created(&now).layer(&diff_id).history(
        &now,
        "coracle import",
        args.message.as_deref().unwrap_or_default(),
        false,
    );
    for instruction in &args.change {
        change::apply(&mut editor, instruction)?;
    }
    let config = editor.finish()?;
    let config_descriptor = Descriptor::of(media::OCI_CONFIG, config.raw());
    pull::put(store, &config_descriptor, config.raw())?;
    let id = config_descriptor.digest.clone();
    let manifest = Manifest::build(media::OCI_MANIFEST, config_descriptor, vec![layer]);
    let mut descriptor = manifest.descriptor().clone();
    pull::put(store, &descriptor, manifest.raw())?;
    descriptor.platform = Some(config.platform());
    // Without a name nothing would lead to the image, and the next cleaning would take it away.
    let reference = match named {
        Some(reference) => reference,
        None => Reference::parse(&format!("imported/{}", containers::images::find::short(&id)))?,
    };
    store.images().tag(&reference, &descriptor)?;
    if let Some(image) = store.images().get(&reference)? {
        // Unpacked at once: a broken archive is told now, not when the image is first run.
        if let Err(report) = pull::unpack(&road, &image) {
            // Who still holds it waits for itself.
            drop(lease);
            store.images().remove(&reference.to_string(), true)?;
            return Err(report.within(format!("cannot import {}", args.source.display())).into());
        }
    }
    Ok((id, reference))
}

/// Stores the layer: a directory is packed, an archive kept as it is.
fn layer(
    context: &Context,
    road: &Road<'_>,
    source: &Path,
) -> Result<(Descriptor, Digest), Report> {
    let store = road.store;
    let (blob, size) = if source == Path::new("-") {
        check_input(context)?;
        store.blobs().put_reader(&mut io::stdin().lock())?
    } else if source.is_dir() {
        pack(store, source)?
    } else {
        let mut file = File::open(source).map_err(|error| {
            Report::new(format!("cannot read {}", source.display())).cause(error)
        })?;
        store.blobs().put_reader(&mut file)?
    };
    Ok(described(road, &blob, size, source)?)
}

/// Refuses a terminal in the place of an archive.
pub(crate) fn check_input(context: &Context) -> Result<(), Report> {
    if context.input_is_terminal() {
        return Err(Report::usage("standard input is a terminal, not an archive")
            .hint("redirect it: coracle import - NAME < root.tar"));
    }
    Ok(())
}

/// Packs a directory; the archive goes through a pipe, so that nothing is held twice on disk.
fn pack(store: &Store, source: &Path) -> Result<(Digest, u64), Report> {
    let keep_owners = rustix::process::geteuid().is_root();
    let (mut output, input) =
        io::pipe().map_err(|error| Report::new("cannot make a pipe").cause(error))?;
    std::thread::scope(|scope| {
        let packing = scope.spawn(move || {
            let input = io::BufWriter::with_capacity(1 << 20, input);
            rootfs::import::directory(source, keep_owners, input)
        });
        let put = store.blobs().put_reader(&mut output);
        drop(output);
        match packing.join() {
            Ok(Ok(packed)) => {
                for path in &packed.skipped {
                    crate::terminal::note(&format!(
                        "left out: socket /{}",
                        String::from_utf8_lossy(path)
                    ));
                }
            }
            Ok(Err(error)) => {
                return Err(Report::from(error).within(format!("cannot pack {}", source.display())));
            }
            Err(_) => return Err(Report::new("the packing thread failed")),
        }
        Ok(put?)
    })
}
