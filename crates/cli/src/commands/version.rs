//! `version` and `info`.

use containers::info;

use crate::args::system::FormatArgs;
use crate::context::Context;
use crate::output::{self, template::Template};
use crate::report::{Exit, Report};

/// The version of this program.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// `version`.
pub(crate) fn run(context: &Context, args: &FormatArgs) -> Result<Exit, Report> {
    let FormatArgs { format } = args;
    let platform = oci::Platform::host();
    let target = format!("{}/{}", platform.os, platform.architecture);
    match format.as_deref() {
        None if context.presentation().own_lines => output::print(&crate::udocker::version()),
        None => output::print(&format!("{}Platform: {target}\n", crate::version_line())),
        Some("json") => output::line(info::version(PROGRAM)),
        Some(format) => output::line(Template::parse(format)?.render(&info::version(PROGRAM))?),
    }?;
    Ok(Exit::OK)
}

/// `info`.
pub(crate) fn info(context: &Context, args: &FormatArgs) -> Result<Exit, Report> {
    let FormatArgs { format } = args;
    let facts = info::describe(context.session()?, PROGRAM)?;
    match format.as_deref() {
        Some("json") => output::line(facts),
        Some(format) => output::line(Template::parse(format)?.render(&facts)?),
        None => {
            let map = facts.as_object().cloned().unwrap_or_default();
            let shown = |value: &serde_json::Value| {
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            };
            map.iter().try_for_each(|(key, value)| output::line(format!("{key}: {}", shown(value))))
        }
    }?;
    Ok(Exit::OK)
}
