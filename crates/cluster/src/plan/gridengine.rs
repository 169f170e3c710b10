//! What containers of a Grid Engine have that those of other services have not.

use super::{Site, pair, processors};
use crate::gridengine::{
    CELL, CELL_FILE, CONFIGURATION, CONTROL, CONTROL_FILE, MASTER_FILE, NODES_FILE, STATE,
    SUBMIT_FILE, variables,
};
use crate::parts::{self, Part};
use crate::plan;
use crate::spec::{Compute, Spec};

impl Site {
    /// The path of the directory with Grid Engine's configuration.
    pub(crate) fn gridengine(&self) -> String {
        format!("{}/gridengine", self.kept)
    }
}

/// Options of `run`.
pub(super) fn options(site: &Site, part: Part) -> Vec<String> {
    let mut words = pair("-v", &format!("{}:{CONFIGURATION}:ro", site.gridengine())).to_vec();
    words.extend(variables().iter().flat_map(|variable| pair("-e", variable)));
    // It starts jobs as itself alone, and knows users by the names that the host has for them.
    words.extend(pair("--user", &site.user));
    words.push("--hostauth".to_owned());
    let state = match part {
        Part::Control => Some("gridengine-control"),
        Part::Front => Some("gridengine-front"),
        Part::Compute => None,
    };
    words
        .extend(state.iter().flat_map(|name| pair("-v", &format!("{}/{name}:{STATE}", site.kept))));
    // What the image starts by itself is not what is wanted here.
    words.extend(pair("--entrypoint", "/bin/sh"));
    words
}

/// The files of its configuration for a cluster on these hosts, of which there is at least one: the
/// name of each, and what is in it.
pub(crate) fn files(spec: &Spec, sites: &[Site]) -> Vec<(&'static str, String)> {
    let line = |(kind, host): (&Compute, String)| {
        format!("{} {} {host}\n", kind.name, processors(kind, sites))
    };
    vec![
        (CELL_FILE, CELL.to_owned()),
        (CONTROL_FILE, CONTROL.to_owned()),
        (MASTER_FILE, host(spec, parts::CONTROL) + "\n"),
        (SUBMIT_FILE, host(spec, parts::FRONT) + "\n"),
        (NODES_FILE, nodes(spec).map(line).collect()),
    ]
}

/// The first host of a service.
fn host(spec: &Spec, service: &str) -> String {
    let found = spec.services.iter().find(|own| own.name == service);
    found.map(|own| plan::service_container(spec, own, 1)).unwrap_or_default()
}

/// All nodes that the file allows: their kind, and the name of each host.
fn nodes(spec: &Spec) -> impl Iterator<Item = (&Compute, String)> {
    let kinds = spec.batch.iter().flat_map(|batch| &batch.compute);
    kinds.flat_map(move |kind| {
        let service = spec.services.iter().find(|service| service.name == kind.name);
        service.into_iter().flat_map(move |service| {
            (1..=kind.max).map(move |number| (kind, plan::service_container(spec, service, number)))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn nodes_are_known_to_the_controller_with_their_slots() {
        let text = "name = \"farm\"\n[batch]\nkind = \"gridengine\"\nfront = \"f\"\ncontrol = \"c\"\n\
                    compute = [{ image = \"a\", max = 2 }, \
                    { name = \"large\", image = \"b\", max = 1, cpus = 16 }]\n";
        let spec = crate::spec::parse(Path::new("farm.toml"), text).unwrap();
        let sites = [8, 4].map(|processors| Site { processors, ..Site::default() });
        let files = files(&spec, &sites);
        let text = |name: &str| &*files.iter().find(|(own, _)| *own == name).unwrap().1;
        let nodes = "compute 4 farm-compute-1\ncompute 4 farm-compute-2\nlarge 16 farm-large-1\n";
        assert_eq!(text(NODES_FILE), nodes);
        assert_eq!((text(MASTER_FILE), text(SUBMIT_FILE)), ("farm-control-1\n", "farm-front-1\n"));
        let said = plan::plan(&spec, &sites[..1]).to_string();
        for wanted in ["--hostname farm-control-1", "-e SGE_ROOT=/tmp/gridengine", "--hostauth"] {
            assert!(said.contains(wanted), "{wanted} in {said}");
        }
    }
}
