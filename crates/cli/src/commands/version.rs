//! `version` and `info`.

use serde_json::json;

use crate::args::system::FormatArgs;
use crate::context::Context;
use crate::output::{self, template::Template};
use crate::report::{Exit, Report};

/// `version`.
pub(crate) fn run(context: &Context, args: &FormatArgs) -> Result<Exit, Report> {
    let target = format!("{}/{}", oci::Platform::host().os, oci::Platform::host().architecture);
    let facts = json!({
        "Version": env!("CARGO_PKG_VERSION"),
        "Os": oci::Platform::host().os,
        "Arch": oci::Platform::host().architecture,
        "Client": {"Version": env!("CARGO_PKG_VERSION"), "Os": oci::Platform::host().os, "Arch": oci::Platform::host().architecture},
    });
    match args.format.as_deref() {
        None if context.presentation().own_lines => output::print(&crate::udocker::version()),
        None => output::print(&format!("{}Platform: {target}\n", crate::version_line())),
        Some("json") => output::line(facts),
        Some(format) => output::line(Template::parse(format)?.render(&facts)?),
    }?;
    Ok(Exit::OK)
}

/// `info`.
pub(crate) fn info(context: &Context, args: &FormatArgs) -> Result<Exit, Report> {
    let store = context.store()?;
    let host = context.session()?.host();
    let containers = store.containers().map_nameless(|container| {
        containers::container::running::is_running(container).unwrap_or(false)
    })?;
    let running = containers.iter().filter(|running| **running).count();
    let abilities = store.abilities();
    let facts = json!({
        "ServerVersion": env!("CARGO_PKG_VERSION"),
        "Containers": containers.len(),
        "ContainersRunning": running,
        "ContainersStopped": containers.len() - running,
        "Images": store.images().list()?.len(),
        "DockerRootDir": store.path(),
        "Driver": containers::container::root_form::driver(context.session()?, store).name(),
        "FileSystem": abilities.file_system,
        "ReadOnly": store.read_only(),
        "KernelVersion": host.kernel.release,
        "OSType": "linux",
        "Architecture": oci::Platform::host().architecture,
        "Rootless": host.caller.uid != 0,
        "SubordinateIds": host.subordinate.any(),
        "NCPU": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    });
    match args.format.as_deref() {
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
