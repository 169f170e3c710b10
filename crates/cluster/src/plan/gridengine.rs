//! What containers of a Grid Engine have that those of other batch systems have not.

use super::parts::Own;
use super::{Site, processors};
use crate::gridengine::{
    CELL, CELL_FILE, CONFIGURATION, CONTROL, CONTROL_FILE, MASTER_FILE, NODES_FILE, STATE,
    SUBMIT_FILE, variables,
};
use crate::parts;
use crate::plan;
use crate::spec::{Compute, Spec};

/// What its containers have.
pub(super) fn own() -> Own {
    let variables = variables().to_vec();
    Own { configuration: CONFIGURATION, state: STATE, variables, mounts: Vec::new() }
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
