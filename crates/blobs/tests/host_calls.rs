//! Tests of the calls that the stage makes for the view: descriptors and their limit, bad pointers,
//! copies of the image's files, the inode log, names of sockets, other processes; and of the state
//! after processes were killed at any moment.

mod container;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use abi::shared::Switches;
use container::{Container, Way, text};

/// The usual, and without what older kernels do not have.
const SWITCHES: [Switches; 3] = [
    Switches(0),
    Switches::NO_OPENAT2,
    Switches::NO_STATX.with(Switches::NO_WIPE_ON_FORK).with(Switches::NO_REWRITING),
];

fn run(source: &str) {
    for switches in SWITCHES {
        let container = Container::new();
        let Some(built) = container.compile(source, &["-O1", "-static", "-pthread"]) else {
            return;
        };
        let guest = container.grow(&built);
        // What others have made in /tmp is not believed, nor removed.
        fs::write(container.alias(0), "").unwrap();
        std::os::unix::fs::symlink("/", container.alias(1)).unwrap();
        let way = Way { switches, tree: true, ..Way::default() };
        assert_eq!(text(&container.run(&way, &guest, &["guest"])), "good\n", "{switches:?}");
        assert_eq!(fs::read_link(container.alias(1)).unwrap(), Path::new("/"));
        let names_sockets = source == "host_calls.c";
        assert_eq!(fs::read_link(container.alias(2)).is_ok(), names_sockets);
        for image in fs::read_dir(container.file("image")).unwrap() {
            let image = image.unwrap();
            let bytes = fs::read(image.path()).unwrap();
            assert!(
                bytes.iter().all(|byte| *byte == b'x'),
                "{} was changed",
                image.path().display()
            );
            let length = image.metadata().unwrap().size();
            assert!([10, 100, 1000, 4 << 20].contains(&length), "{}", image.path().display());
        }
    }
}

#[test]
fn the_views_wishes_are_done() {
    run("host_calls.c");
}

#[test]
fn who_is_killed_leaves_nothing_half_done() {
    run("killed.c");
}
