//! Changed text, as the engines without filters keep it.

use std::fs;
use std::path::{Path, PathBuf};

use testkit::skip::Outcome;

use crate::world::{Case, Container, World};

pub(crate) const CASES: &[(&str, Case)] = &[("kept_with_the_image", kept_with_the_image)];

/// Files below a directory whose names begin as those of changed text do.
fn texts(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut stack) = (Vec::new(), vec![root.to_owned()]);
    while let Some(dir) = stack.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                stack.push(entry.path());
            } else if entry.file_name().to_string_lossy().starts_with("text-") {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// What one container has made of the image's files serves all others; what is made of a container's own goes with it.
fn kept_with_the_image(w: &World) -> Outcome {
    let (home, files) = (w.dir("kept"), w.dir("kept-files"));
    let world = w.at(&home);
    world.fetch(Path::new("/nonexistent")).expect("the image in a store of its own");
    let w = &world;
    w.guest(&[], &["exit", "0"]).ok();
    let trees = w.store().join("trees");
    let first = texts(&trees);
    assert!(!first.is_empty(), "nothing is kept in {}", trees.display());
    let written = |paths: &[PathBuf]| -> Vec<_> {
        paths.iter().map(|path| path.metadata().and_then(|found| found.modified()).ok()).collect()
    };
    let times = written(&first);
    let name = w.name("other");
    let _container = Container::named(w, &name);
    let again = |script: &[&str]| w.coracle(&w.words_for(&["run"], &["--name", &name], script));
    again(&["exit", "0"]).ok();
    assert_eq!((texts(&trees), written(&first)), (first.clone(), times));
    let places = w.store().join("containers");
    assert_eq!(texts(&places), Vec::<PathBuf>::new());
    // The same program, as a file of the container's own.
    let copy = files.join("guest");
    w.coracle(&["cp", &format!("{name}:/bin/guest"), &copy.display().to_string()]).ok();
    w.coracle(&["cp", &copy.display().to_string(), &format!("{name}:/own")]).ok();
    let own = w.coracle(&["run", &w.mode(), &name, "/own", "exit", "7"]);
    assert_eq!(own.code(), 7, "{own:?}");
    let own = texts(&places);
    assert!(!own.is_empty() && texts(&trees) == first, "{own:?}");
    w.coracle(&["rm", "-f", &name]).ok();
    assert_eq!(texts(&places), Vec::<PathBuf>::new());
    Ok(())
}
