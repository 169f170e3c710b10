//! The images of a plan.

use super::{Act, Site, Step, balance, told};
use crate::spec::{Image, Kind, Spec};

/// The images of a file, each once.
pub(crate) fn of(spec: &Spec) -> Vec<Image> {
    let services = spec.services.iter().map(|service| service.image.as_ref());
    let more: Vec<Image> = balance::images(spec).collect();
    let nodes = (spec.nodes > 0).then_some(spec.image.as_ref());
    let all = nodes.into_iter().chain(services.map(|image| image.or(spec.image.as_ref())));
    let mut seen: Vec<Image> = Vec::new();
    for image in all.flatten().chain(&more) {
        if !seen.contains(image) {
            seen.push(image.clone());
        }
    }
    seen
}

/// The images of containers on this machine.
pub(super) fn all(spec: &Spec) -> Vec<Step> {
    let step = |image: Image| match image {
        Image::Named(name) => Step { host: None, act: Act::Image(name) },
        Image::Built(directory) => told(format!("build {directory}")),
    };
    of(spec).into_iter().map(step).collect()
}

/// The images of containers on other hosts. They are passed on within a zone before they go to the
/// next one.
pub(super) fn spread(spec: &Spec, sites: &[Site]) -> Vec<Step> {
    let zone = |name: &String| match &spec.backends[0].kind {
        Kind::Ssh { hosts, .. } => {
            hosts.iter().find(|host| host.host == *name).and_then(|host| host.zone.clone())
        }
        _ => None,
    };
    let there = sites.iter().filter(|site| !site.is_lost);
    let mut hosts: Vec<String> = there.filter_map(|site| site.host.clone()).collect();
    let mut zones: Vec<Option<String>> = Vec::new();
    hosts.iter().map(zone).for_each(|zone| {
        if !zones.contains(&zone) {
            zones.push(zone);
        }
    });
    hosts.sort_by_key(|host| zones.iter().position(|other| *other == zone(host)));
    let slurm = matches!(spec.backends[0].kind, Kind::Slurm { .. });
    all(spec)
        .into_iter()
        .map(|step| match step.act {
            Act::Image(image) => Step {
                host: None,
                act: Act::Spread { image, hosts: hosts.clone(), pack: spec.pack, slurm },
            },
            _ => step,
        })
        .collect()
}
