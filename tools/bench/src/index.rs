//! Measures the index of an image, and containers that need no tree of their own.
//!
//! - [`file`]: the index itself, of an image with 43,000 names;
//! - [`fresh`]: containers of it, made, run and removed;
//! - [`work`]: calls and commands in a Debian tree of as many names, beside a plain chroot of it
//!   and beside containers with `--index=off`, which have a tree of links;
//! - [`faults`]: page faults of a process that asks for twenty names.

mod faults;
mod file;
mod fresh;
mod work;

use super::places::{Place, container, import, native, prepared, unpacked};
use super::{Bench, Line, names};
use xtask::shell::Outcome;
use xtask::tools;

pub(crate) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !tools::is_root() {
        return Err("only root can chroot, which is what the index is compared with".to_owned());
    }
    let many = names::many(bench)?;
    let mut lines = file::measure(bench, &many.image)?;
    lines.extend(fresh::measure(bench, &many.image)?);
    let places = places(bench)?;
    lines.extend(work::measure(bench, &places)?);
    lines.extend(faults::measure(bench, &places)?);
    lines.extend(fresh::first(bench, &places)?);
    Ok(lines)
}

const IMAGE: &str = "bench/index:1";
const PACKAGES: &[&str] = &["git", "perl", "python3", "python3-numpy"];

/// Containers by name, mode, and whether they use the index.
const CONTAINERS: &[(&str, &str, &str)] = &[
    ("I1", "I1", "on"),
    ("I1, index off", "I1", "off"),
    ("F2", "F2", "on"),
    ("F2, index off", "F2", "off"),
    ("I2", "I2", "on"),
    ("P1", "P1", "on"),
    ("F1", "F1", "on"),
];

/// A chroot, and containers in which one directory of the image is their own.
fn places(bench: &Bench) -> Outcome<Vec<Place>> {
    let tree = unpacked(bench, "index", PACKAGES)?;
    prepared(bench, &tree, &[super::engines::PREPARE, include_str!("index/prepare.sh")])?;
    import(bench, &tree, IMAGE)?;
    let mut places = vec![Place::new("native", native(bench, &tree))];
    for (name, mode, index) in CONTAINERS {
        let container_name = format!("index-{mode}-{index}");
        let options = [format!("--execmode={mode}"), format!("--index={index}")];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let prefix = container(bench, IMAGE, &container_name, &options)?;
        bench.coracle(&["run", &container_name, "touch", "/bench/own/new"])?;
        places.push(Place::new(name, prefix));
    }
    Ok(places)
}

/// The place of that name.
fn named<'a>(places: &'a [Place], name: &str) -> Outcome<&'a Place> {
    places.iter().find(|place| place.name == name).ok_or_else(|| format!("no place {name}"))
}
