//! `volume create`, `ls`, `rm`, `inspect`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use store::VolumeInfo;

use crate::args::system::{VolumeCreateArgs, VolumeInspectArgs, VolumeLsArgs, VolumeRmArgs};
use crate::context::Context;
use crate::describe;
use crate::filter::{self, Filters};
use crate::output::listing::{Column, Listing};
use crate::output::{self, template::Template, time};
use crate::report::{Exit, Report};
use containers::container::{ids, volumes};

const COLUMNS: &[Column] = &[("Driver", "DRIVER"), ("Name", "VOLUME NAME")];
const MORE: &[Column] = &[
    ("Mountpoint", "MOUNTPOINT"),
    ("Labels", "LABELS"),
    ("Scope", "SCOPE"),
    ("CreatedAt", "CREATED AT"),
];

/// `volume create`.
pub(crate) fn create(context: &Context, args: &VolumeCreateArgs) -> Result<Exit, Report> {
    if args.driver != "local" {
        return Err(Report::usage(format!("there is no volume driver '{}'", args.driver))
            .hint("local is the only one"));
    }
    let name = match &args.name {
        Some(name) => name.clone(),
        None => volumes::random_name()?,
    };
    let mut labels = BTreeMap::new();
    for text in &args.label {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        labels.insert(key.to_owned(), value.to_owned());
    }
    let info = VolumeInfo { created: time::now().to_string(), labels, ..VolumeInfo::default() };
    // Also one that was there: another command may just have made it.
    context.store()?.volumes().create(&name, &info)?.0.sync()?;
    output::line(name)?;
    Ok(Exit::OK)
}

/// `volume ls`.
pub(crate) fn list(context: &Context, args: &VolumeLsArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    let filters = Filters::parse(&args.filter, &["name", "label", "dangling", "driver"])?;
    // One record that cannot be read is no reason to show nothing.
    let used = volumes::used(session).unwrap_or_default();
    let mut rows: Vec<Value> = Vec::new();
    for volume in context.store()?.volumes().list()? {
        let info = volume.info()?;
        let dangling = !used.contains(volume.name());
        let meant = filters.any("name", |wanted| volume.name().contains(wanted))
            && filters.any("driver", |wanted| wanted == "local")
            && filters.all("dangling", |value| filter::truth(value) == dangling)
            && filters.labels(&info.labels);
        if !meant {
            continue;
        }
        let labels: Vec<String> =
            info.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        rows.push(json!({
            "Name": volume.name(), "Driver": "local", "Scope": "local", "Mountpoint": volume.data(),
            "CreatedAt": info.created, "Labels": labels.join(","), "@labels": info.labels,
        }));
    }
    let listing = Listing {
        format: args.format.as_deref(),
        shown: COLUMNS,
        more: MORE,
        quiet: args.quiet.then_some("Name"),
    };
    output::print(&listing.render(&rows)?)?;
    Ok(Exit::OK)
}

/// `volume rm`.
pub(crate) fn remove(context: &Context, args: &VolumeRmArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    let used = volumes::used(session)?;
    let ended = super::each(&args.names, |name| {
        if context.store()?.volumes().get(name)?.is_none() {
            return if args.force { Ok(()) } else { Err(missing(name)) };
        }
        let in_use = || {
            Report::new(format!("volume '{name}' is in use")).hint(format!(
                "'coracle ps -a --filter volume={name}' lists the containers that use it"
            ))
        };
        if used.contains(name) {
            return Err(in_use());
        }
        // Looked up again while nobody can make a container that mounts it.
        let is_it = |volume: &store::Volume| {
            volume.name() == name && volumes::used(session).is_ok_and(|used| !used.contains(name))
        };
        let delete = |path: &std::path::Path| ids::delete(session, path);
        context.store()?.prune_volumes(&is_it, &delete)?;
        if context.store()?.volumes().get(name)?.is_some() {
            return Err(in_use());
        }
        output::line(name)
    });
    context.store()?.volumes().sync_removals()?;
    ended
}

/// `volume inspect`.
pub(crate) fn inspect(context: &Context, args: &VolumeInspectArgs) -> Result<Exit, Report> {
    let template = match args.format.as_deref() {
        None | Some("json" | "") => None,
        Some(format) => Some(Template::parse(format)?),
    };
    let mut found = Vec::new();
    let ended = super::each(&args.names, |name| {
        let volume = context.store()?.volumes().get(name)?.ok_or_else(|| missing(name))?;
        let value = describe::volume(&volume)?;
        if let Some(template) = &template {
            output::line(template.render(&value)?)
        } else {
            found.push(value);
            Ok(())
        }
    });
    if template.is_none() {
        output::line(output::pretty(&Value::Array(found)))?;
    }
    ended
}

fn missing(name: &str) -> Report {
    Report::new(format!("there is no volume '{name}'"))
        .hint("'coracle volume ls' lists what is there")
        .exit(Exit(1))
}
