//! `migrate udocker`: images and containers of udocker become ours.
//!
//! Images come first: their layers are hashed and kept. A container's tree, with all that was changed in it, becomes an image of one layer
//! and a container of that, under its old names. What is ours already is passed over, so the command can be given again.

use std::path::Path;

use crate::args::archives::ImportArgs;
use crate::args::system::MigrateArgs;
use crate::context::Context;
use crate::output;
use crate::report::{Exit, Report};
use containers::container::{make, record};
use containers::images::remote;
use containers::request::ContainerRequest;
use containers::request::gpus::GpuRequest;
use containers::udocker::legacy::{self, LABEL, OldContainer, OldImage};

/// Takes all over; what cannot be is told at the end.
pub(crate) fn run(context: &Context, args: &MigrateArgs) -> Result<Exit, Report> {
    let settings = context.udocker()?;
    let place = |name: &str| match &args.from {
        Some(top) => top.join(name),
        None => settings.directory(name),
    };
    let (repos, layers, containers) = (place("repos"), place("layers"), place("containers"));
    if !repos.is_dir() && !containers.is_dir() {
        return Err(Report::new(format!("udocker has nothing in {}", repos.display()))
            .hint("name its directory: --from DIR"));
    }
    let mut failures = Vec::new();
    let mut keep = |ended: Result<(), Report>| failures.extend(ended.err());
    for old in legacy::images_in(&repos, &layers) {
        keep(image(context, args, &old));
    }
    for old in legacy::containers_in(&containers) {
        keep(container(context, args, &old));
    }
    let last = failures.pop();
    failures.iter().for_each(Report::show);
    last.map_or(Ok(Exit::OK), |report| Err(report.exit(Exit(1))))
}

fn image(context: &Context, args: &MigrateArgs, old: &OldImage) -> Result<(), Report> {
    let reference = remote::reference(context.session()?, &old.name)?;
    if context.store()?.images().get(&reference)?.is_none() {
        old.take(context.session()?, None)?;
        output::line(format!("image {}", old.name))?;
    }
    if args.remove_source { remove(&old.directory) } else { Ok(()) }
}

fn container(context: &Context, args: &MigrateArgs, old: &OldContainer) -> Result<(), Report> {
    let name = old.names.first().unwrap_or(&old.id);
    old.check().map_err(|report| report.within(format!("cannot take over {name}")))?;
    let store = context.store()?;
    let mut protected = old.directory.join("PROTECT").exists();
    for ours in store.containers().list()? {
        let record = record::read(&ours)?;
        if record.config.labels.get(LABEL) != Some(&old.id) {
            continue;
        }
        if record.config.rootfs.is_none() {
            return if args.remove_source { gone(old) } else { Ok(()) };
        }
        // So far its root is udocker's tree: that record goes, the tree stays.
        protected |=
            record.config.labels.contains_key(containers::container::protection::CONTAINER_LABEL);
        if !containers::container::removal::remove_idle(context.session()?, &ours)? {
            return Err(containers::container::running::running(&ours).into());
        }
    }
    let image = format!("localhost/udocker/{}:latest", old.id.to_ascii_lowercase());
    let wishes = old.config()?;
    let import = ImportArgs {
        change: Vec::new(),
        message: Some(format!("made by udocker of {}", old.image())),
        platform: None,
        quiet: true,
        tocontainer: false,
        clone: false,
        container: None,
        remove_source: false,
        source: old.directory.join("ROOT"),
        name: Some(image.clone()),
    };
    super::import::make(context, &import, Some(&wishes))?;
    let mut request = ContainerRequest::default();
    request.record.name = Some(name.clone());
    request.record.labels.insert(LABEL.to_owned(), old.id.clone());
    if protected {
        let label = containers::container::protection::CONTAINER_LABEL;
        request.record.labels.insert(label.to_owned(), "true".to_owned());
    }
    // A mode that this program does not have would keep the container from running.
    let own = Some(old.mode());
    request.image.exec_mode = own.filter(|own| engine::choose::by_name(own).is_some());
    let nvidia = old.directory.join("nvidia").exists();
    request.files.gpus = GpuRequest::new(None, nvidia, &[])?;
    request.image.name = Some(image);
    let (made, mut record) = make::make(&context.session_for(true)?, &request)?;
    let mut made = made.into_container();
    record.own.image_name = old.image();
    made.write(&record)?;
    for further in old.names.iter().skip(1) {
        made.add_name(further)?;
    }
    output::line(format!("container {name} {}", made.id()))?;
    if args.remove_source { gone(old) } else { Ok(()) }
}

/// Removes a container from udocker's directory, with the links that are its names.
fn gone(old: &OldContainer) -> Result<(), Report> {
    for name in &old.names {
        let link = old.directory.with_file_name(name);
        std::fs::remove_file(&link).map_err(|error| {
            Report::new(format!("cannot remove {}", link.display())).cause(error)
        })?;
    }
    remove(&old.directory)
}

fn remove(directory: &Path) -> Result<(), Report> {
    store::remove_owned(directory).map_err(|error| {
        Report::new(format!("cannot remove {}", directory.display())).because(error.to_string())
    })
}
