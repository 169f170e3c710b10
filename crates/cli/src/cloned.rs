//! `import --clone`: a container with all that it was told, from one archive.
//!
//! The form is udocker's, so containers go both ways: `ROOT/`, and beside it `container.json` (the image's configuration),
//! `imagerepo.name` and `execmode`. What only Coracle knows (mounts, limits, labels, ...) stands in `coracle.json`, which udocker passes over.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::Value;
use store::ContainerDir;

use containers::container::record::Record;
use containers::container::{export, make, spool};
use containers::request::ContainerRequest;
use containers::udocker::legacy;

use crate::args::archives::ImportArgs;
use crate::commands::import;
use crate::context::Context;
use crate::report::Report;

/// Makes the container that an archive holds.
pub(crate) fn make(context: &Context, args: &ImportArgs) -> Result<ContainerDir, Report> {
    let limits = rootfs::Limits::default();
    let spool = spool::file(context.session()?)?;
    let layer =
        || spool.try_clone().map_err(|error| Report::new("cannot keep the tree").cause(error));
    let beside = if args.source == Path::new("-") {
        import::check_input(context)?;
        read(std::io::stdin(), &limits, layer()?)
    } else {
        let file = File::open(&args.source).map_err(|error| {
            Report::new(format!("cannot read {}", args.source.display())).cause(error)
        })?;
        read(file, &limits, layer()?)
    };
    let source = args.source.display();
    let beside = beside.map_err(|report| report.within(format!("cannot import {source}")))?;
    if !beside.contains_key("container.json") {
        return Err(Report::new(format!(
            "{source} is no container that was exported with --clone"
        ))
        .hint("a tree alone is imported without it: coracle import --tocontainer"));
    }
    spool::rewind(&spool)?;
    rebuild(context, args, &beside, spool)
}

fn read(
    archive: impl Read + Send + 'static,
    limits: &rootfs::Limits,
    layer: File,
) -> Result<BTreeMap<String, Vec<u8>>, Report> {
    let plain = rootfs::decode::open(archive, limits)?;
    Ok(rootfs::cloned::read(plain, limits, std::io::BufWriter::with_capacity(1 << 20, layer))?)
}

/// An image of the tree, a container of that, and what the old one was told.
fn rebuild(
    context: &Context,
    args: &ImportArgs,
    beside: &BTreeMap<String, Vec<u8>>,
    layer: File,
) -> Result<ContainerDir, Report> {
    let text =
        |name: &str| beside.get(name).map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    let json =
        |name: &str| beside.get(name).and_then(|bytes| serde_json::from_slice::<Value>(bytes).ok());
    let wishes = legacy::image_config(&json("container.json").unwrap_or_default(), &[])?;
    let (_, reference) = import::make_from(context, args, Some(&wishes), Some(layer))?;
    let mut request = ContainerRequest::default();
    request.record.name.clone_from(&args.container);
    request.image.name = Some(reference.to_string());
    let mode = text("execmode").map(|mode| mode.trim_matches('"').to_owned());
    request.image.exec_mode = mode.filter(|mode| engine::choose::by_name(mode).is_some());
    let (new, mut record) = make::make(&context.session_for(true)?, &request)?;
    let container = new.into_container();
    if let Some(name) = text("imagerepo.name").filter(|name| !name.is_empty()) {
        record.own.image_name = name;
    }
    let old = json(export::RECORD).and_then(|value| serde_json::from_value::<Record>(value).ok());
    if let Some(old) = old {
        let new = record.config;
        record.config = old.config;
        record.config.id = new.id;
        record.config.created = new.created;
        record.config.image = new.image;
        record.config.rootfs = None;
        record.own.entrypoint = old.own.entrypoint;
        record.own.cmd = old.own.cmd;
        record.own.gpus = old.own.gpus;
        record.own.hostauth = old.own.hostauth;
    }
    container.write(&record)?;
    Ok(container)
}
