//! Images of many names: the guest's few files, and packages of one-byte modules beside them.

use std::path::PathBuf;

use testkit::layer::Layer;

use super::Bench;
use xtask::shell::Outcome;

/// Modules of a package.
const MODULES: usize = 42;
/// A program of the image that does nothing.
pub(super) const TRUE: [&str; 3] = ["/bin/guest", "exit", "0"];

/// An image.
pub(super) struct Names {
    pub(super) image: String,
    /// Its layout, for others to load.
    pub(super) layout: PathBuf,
}

/// An image of 43,000 names.
pub(super) fn many(bench: &Bench) -> Outcome<Names> {
    load(bench, "names", 1_000)
}

/// An image of 400,000 names.
pub(super) fn most(bench: &Bench) -> Outcome<Names> {
    load(bench, "most", 9_302)
}

/// Loads an image of so many packages.
fn load(bench: &Bench, name: &str, packages: usize) -> Outcome<Names> {
    let mut layer = Layer::new();
    for package in 0..packages {
        let path = format!("usr/lib/package-{package}");
        layer = layer.dir(&path);
        for module in 0..MODULES {
            layer = layer.file(&format!("{path}/module_of_it_{module}.py"), 0o644, "x");
        }
    }
    let layout = bench.scratch.path().join(format!("{name}-{}", bench.user.name));
    let image = format!("localhost/bench/{name}:1");
    testkit::guest::image()
        .layer(layer)
        .build()
        .write_layout(&layout, &image)
        .map_err(|error| error.to_string())?;
    bench.coracle(&["load", "-q", "-i", &layout.display().to_string()])?;
    Ok(Names { image, layout })
}
