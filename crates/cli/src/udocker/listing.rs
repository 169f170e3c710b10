//! udocker's answers: `images`, `ps`, `inspect`, `showconf`.

use std::fmt::Write as _;

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

/// `ps`: all containers, one line each.
pub(crate) fn containers(context: &Context, columns: Columns) -> Result<(), Report> {
    let rows = listing::containers(context.session()?, columns.size)?;
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
