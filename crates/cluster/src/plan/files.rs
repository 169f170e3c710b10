//! What is copied to nodes before the application runs, and from them afterwards.

use std::path::{Path, PathBuf};

use super::{Act, Copy, Site, Step, node_container, site};
use crate::spec::Spec;

/// Stands for the node's name in a path of the machine that drives.
const NODE: &str = "{node}";

/// Every node gets all of `input`.
pub(super) fn input(spec: &Spec, sites: &[Site]) -> Vec<Step> {
    let pairs = spec.input.iter().filter_map(|text| text.split_once(':'));
    let step = |(from, to): (&str, &str), number: u32| {
        let node = format!("node{number}");
        let from = here(sites, from, &node);
        let act = Act::Input(copy(spec, node, from, to.to_owned()));
        Step { host: site(sites, number).host.clone(), act }
    };
    pairs.flat_map(|pair| (1..=spec.nodes).map(move |number| step(pair, number))).collect()
}

/// What of `output` comes from which node: from that of the application, unless the node's name is
/// in the path that the copy gets.
pub(super) fn output(spec: &Spec, sites: &[Site]) -> Vec<Step> {
    let Some(run) = &spec.run else { return Vec::new() };
    let pairs = spec.output.iter().filter_map(|text| text.split_once(':'));
    let steps = |(from, to): (&str, &str)| {
        let wanted = |number: &u32| to.contains(NODE) || run.on == format!("node{number}");
        let step = |number: u32| {
            let node = format!("node{number}");
            let to = here(sites, to, &node);
            let act = Act::Output(copy(spec, node, from.to_owned(), to));
            Step { host: site(sites, number).host.clone(), act }
        };
        (1..=spec.nodes).filter(wanted).map(step).collect::<Vec<_>>()
    };
    pairs.flat_map(steps).collect()
}

fn copy(spec: &Spec, node: String, from: String, to: String) -> Copy {
    Copy { container: node_container(spec, &node), node, from, to }
}

/// A path of the machine that drives, which starts from the file.
fn here(sites: &[Site], path: &str, node: &str) -> String {
    let path = path.replace(NODE, node);
    let end = if path.ends_with('/') { "/" } else { "" };
    let full = Path::new(&sites[0].directory).join(path);
    // Without `.` in the middle.
    format!("{}{end}", full.components().collect::<PathBuf>().display())
}
