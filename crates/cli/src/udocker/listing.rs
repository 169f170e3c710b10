//! udocker's answers: `images`, `ps`, `inspect`, `showconf`.

use std::fmt::Write as _;

use containers::container::{list, protection, record};
use containers::udocker::legacy;
use containers::udocker::listing::{self, Wanted};

use crate::context::Context;
use crate::output;
use crate::report::Report;

fn mark(protected: bool) -> char {
    if protected { 'P' } else { '.' }
}

/// `images`: one line each, `NAME:TAG`, and `P` if it is protected.
pub(crate) fn images(context: &Context, long: bool, platform: bool) -> Result<(), Report> {
    let wanted = Wanted { layers: long, platform };
    let mut text = if context.is_quiet() { String::new() } else { "REPOSITORY\n".to_owned() };
    for image in listing::images(context.session()?, wanted)? {
        let protected = mark(image.protected);
        let _ = if platform {
            writeln!(text, "{:<18.18} {protected} {}", image.platform, image.name)
        } else {
            writeln!(text, "{}    {protected}", image.name)
        };
        if long {
            let _ = writeln!(text, "  {}", image.directory.display());
            for (name, bytes) in &image.layers {
                let _ = writeln!(text, "    {name} ({} MB)", megabytes(*bytes));
            }
        }
    }
    output::print(&text)
}

fn megabytes(bytes: u64) -> u64 {
    match bytes >> 20 {
        0 => u64::from(bytes > 0),
        some => some,
    }
}

/// The columns of `ps` that are asked for.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub mode: bool,
    pub size: bool,
    pub platform: bool,
}

/// A container as `ps` shows it.
struct Row {
    id: String,
    protected: bool,
    access: char,
    mode: String,
    bytes: u64,
    platform: String,
    names: Vec<String>,
    image: String,
}

/// `ps`: all containers, one line each.
pub(crate) fn containers(context: &Context, columns: Columns) -> Result<(), Report> {
    let store = context.store()?;
    let mut rows = Vec::new();
    let mut taken = Vec::new();
    for container in store.containers().list()? {
        let Ok(record) = record::read(&container) else { continue };
        taken.extend(record.config.labels.get(legacy::LABEL).cloned());
        let bytes = if columns.size { store.container_size(container.id())? } else { 0 };
        rows.push(Row {
            id: container.id().to_owned(),
            protected: protection::holds(&record.config),
            access: if record.config.read_only { 'R' } else { 'W' },
            mode: record.config.exec_mode.clone().unwrap_or_default(),
            bytes,
            platform: record.config.platform.clone(),
            names: container.names().unwrap_or_default(),
            image: list::image_name(&record),
        });
    }
    for found in legacy::containers(context.session()?) {
        if taken.contains(&found.id) {
            continue;
        }
        rows.push(Row {
            protected: found.directory.join("PROTECT").exists(),
            access: found.access(),
            mode: found.mode(),
            bytes: 0,
            platform: String::new(),
            names: found.names.clone(),
            image: found.image(),
            id: found.id,
        });
    }
    let mut text = if context.is_quiet() {
        String::new()
    } else {
        line(columns, "CONTAINER ID", "P M", "MOD", "SIZE", "PLATFORM", "NAMES", "IMAGE")
    };
    for row in rows {
        let names: Vec<String> = row.names.iter().map(|name| format!("'{name}'")).collect();
        let marks = format!("{} {}", mark(row.protected), row.access);
        let mode = if row.mode.is_empty() { "-" } else { &row.mode };
        let bytes = megabytes(row.bytes).to_string();
        let names = format!("[{}]", names.join(", "));
        text += &line(columns, &row.id, &marks, mode, &bytes, &row.platform, &names, &row.image);
    }
    output::print(&text)
}

#[expect(clippy::too_many_arguments, reason = "one for each column")]
fn line(
    columns: Columns,
    id: &str,
    marks: &str,
    mode: &str,
    bytes: &str,
    platform: &str,
    names: &str,
    image: &str,
) -> String {
    let mut text = format!("{id:<36.36} {marks} ");
    for (wanted, value, width) in
        [(columns.mode, mode, 3), (columns.size, bytes, 5), (columns.platform, platform, 12)]
    {
        if wanted {
            let _ = write!(text, "{value:<width$} ");
        }
    }
    text + &format!("{names:<18} {image}\n")
}

/// `showconf`.
pub(crate) fn configuration(context: &Context) -> Result<(), Report> {
    let settings = context.udocker()?;
    let wishes = context.settings()?;
    let line = "_".repeat(80);
    let path = |name: &str| settings.directory(name).display().to_string();
    let mut text = format!("{line}\n\t\tConfiguration options\n{line}\n");
    for (key, value) in [
        ("verbose_level", settings.level().to_string()),
        ("topdir", settings.top.display().to_string()),
        ("reposdir", path("repos")),
        ("layersdir", path("layers")),
        ("containersdir", path("containers")),
        ("store", context.session()?.store_path()?.display().to_string()),
        ("dockerio_registry_url", format!("https://{}", wishes.default_registry)),
        ("http_insecure", if wishes.tls_verify { "False" } else { "True" }.to_owned()),
        ("override_default_execution_mode", wishes.execmode.clone().unwrap_or_default()),
    ] {
        let _ = writeln!(text, "{key} = {value}");
    }
    output::print(&(text + &line + "\n"))
}
