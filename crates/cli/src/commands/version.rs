//! `version` and `info`.

use serde_json::json;

use crate::args::system::FormatArgs;
use crate::context::Context;
use crate::output::{self, template::Template};
use crate::report::{Exit, Report};

/// `version`.
pub(crate) fn run(_: &Context, args: FormatArgs) -> Result<Exit, Report> {
    let target = format!("{}/{}", oci::Platform::host().os, oci::Platform::host().architecture);
    let facts = json!({
        "Version": env!("CARGO_PKG_VERSION"),
        "Os": oci::Platform::host().os,
        "Arch": oci::Platform::host().architecture,
        "Client": {"Version": env!("CARGO_PKG_VERSION"), "Os": oci::Platform::host().os, "Arch": oci::Platform::host().architecture},
    });
    match args.format.as_deref() {
        None => output::print(&format!("{}Platform: {target}\n", crate::version_line())),
        Some("json") => output::line(facts),
        Some(format) => output::line(Template::parse(format)?.render(&facts)?),
    }?;
    Ok(Exit::OK)
}

/// `info`.
pub(crate) fn info(_: &Context, _: FormatArgs) -> Result<Exit, Report> {
    Err(Report::new("this is not built yet"))
}
