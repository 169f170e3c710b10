//! `volume create`, `ls`, `rm`, `inspect`, `mount`, `unmount`.

use containers::container::volume_driver;
use containers::filter::Filters;
use containers::volumes::{self, Listed, Removal, VolumeRequest};
use serde_json::{Value, json};

use crate::args::system::{
    VolumeCreateArgs, VolumeInspectArgs, VolumeLsArgs, VolumeMountArgs, VolumeRmArgs,
};
use crate::context::Context;
use crate::output::listing::{Column, Listing};
use crate::output::{self, template::Template};
use crate::report::{Exit, Report};

const COLUMNS: &[Column] = &[("Driver", "DRIVER"), ("Name", "VOLUME NAME")];
const MORE: &[Column] = &[
    ("Mountpoint", "MOUNTPOINT"),
    ("Labels", "LABELS"),
    ("Scope", "SCOPE"),
    ("CreatedAt", "CREATED AT"),
];

/// `volume create`.
pub(crate) fn create(context: &Context, args: &VolumeCreateArgs) -> Result<Exit, Report> {
    let pair = |text: &String| {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        (key.to_owned(), value.to_owned())
    };
    let request = VolumeRequest {
        name: args.name.clone(),
        driver: args.driver.clone(),
        options: args.opt.iter().map(pair).collect(),
        labels: args.label.iter().map(pair).collect(),
    };
    output::line(volumes::create(context.session()?, request)?)?;
    Ok(Exit::OK)
}

/// `volume ls`.
pub(crate) fn list(context: &Context, args: &VolumeLsArgs) -> Result<Exit, Report> {
    let filters = Filters::parse(&args.filter, volumes::FILTERS)?;
    let rows: Vec<Value> = volumes::list(context.session()?, &filters)?.iter().map(row).collect();
    let listing = Listing {
        format: args.format.as_deref(),
        shown: COLUMNS,
        more: MORE,
        quiet: args.quiet.then_some("Name"),
    };
    output::print(&listing.render(&rows)?)?;
    Ok(Exit::OK)
}

fn row(Listed { volume, info }: &Listed) -> Value {
    let labels: Vec<String> =
        info.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    json!({
        "Name": volume.name(),
        "Driver": volumes::driver_of(info),
        "Scope": "local",
        "Mountpoint": volume.data(),
        "CreatedAt": info.created,
        "Labels": labels.join(","),
        "@labels": info.labels,
    })
}

/// `volume rm`.
pub(crate) fn remove(context: &Context, args: &VolumeRmArgs) -> Result<Exit, Report> {
    let removal = Removal::new(context.session()?)?;
    let ended = super::each(&args.names, |name| match removal.remove(name)? {
        true => output::line(name),
        false if args.force => Ok(()),
        false => Err(volumes::missing(name).into()),
    });
    removal.sync()?;
    ended
}

/// `volume mount`: prints where.
pub(crate) fn mount(context: &Context, args: &VolumeMountArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    super::each(&args.names, |name| {
        let volume = volumes::get(session, name)?;
        volume_driver::mount(session, &volume)?;
        output::line(volume.data().display())
    })
}

/// `volume unmount`.
pub(crate) fn unmount(context: &Context, args: &VolumeMountArgs) -> Result<Exit, Report> {
    let session = context.session()?;
    super::each(&args.names, |name| {
        volume_driver::unmount(session, &volumes::get(session, name)?)?;
        output::line(name)
    })
}

/// `volume inspect`.
pub(crate) fn inspect(context: &Context, args: &VolumeInspectArgs) -> Result<Exit, Report> {
    let template = match args.format.as_deref() {
        None | Some("json" | "") => None,
        Some(format) => Some(Template::parse(format)?),
    };
    let session = context.session()?;
    let mut found = Vec::new();
    let ended = super::each(&args.names, |name| {
        let value = volumes::inspect(session, name)?;
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
