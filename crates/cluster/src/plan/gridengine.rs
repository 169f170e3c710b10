//! What containers of a Grid Engine have that those of other services have not.

use super::{Site, pair, processors};
use crate::gridengine::{
    CELL, CELL_FILE, CONFIGURATION, CONTROL, CONTROL_FILE, MASTER_FILE, NODES_FILE, STATE,
    SUBMIT_FILE, variables,
};
use crate::plan;
use crate::spec::{self, Part, Service, Spec};

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
    let host = |name: &str| {
        let service = spec.services.iter().find(|service| service.name == name);
        service.map(|service| plan::service_container(spec, service, 1)).unwrap_or_default()
    };
    let kinds = spec.batch.iter().flat_map(|batch| &batch.compute);
    let nodes = kinds.flat_map(|kind| {
        let slots = processors(kind, sites);
        let is_its = |service: &&Service| service.name == kind.name;
        let service = spec.services.iter().find(is_its);
        service.into_iter().flat_map(move |service| {
            (1..=kind.max).map(move |number| {
                let host = plan::service_container(spec, service, number);
                format!("{} {slots} {host}\n", kind.name)
            })
        })
    });
    vec![
        (CELL_FILE, CELL.to_owned()),
        (CONTROL_FILE, CONTROL.to_owned()),
        (MASTER_FILE, host(spec::CONTROL) + "\n"),
        (SUBMIT_FILE, host(spec::FRONT) + "\n"),
        (NODES_FILE, nodes.collect()),
    ]
}
