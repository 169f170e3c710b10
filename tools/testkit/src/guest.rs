//! Finds or builds the static program `guest` for the tests, and makes images that contain it.
//!
//! It is a binary of this crate ([`crate::built`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::built;
use crate::image::Image;
use crate::layer::{Entry, Layer};

/// The path of the program, which is built if necessary.
///
/// # Panics
/// If cargo cannot build it.
pub fn program() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build().unwrap_or_else(|error| panic!("building guest: {error}")))
}

fn build() -> io::Result<PathBuf> {
    std::env::var_os("CORACLE_GUEST")
        .map_or_else(|| built::program("guest"), |given| Ok(given.into()))
}

/// The tree of the contract suite: the program under several names, accounts, and files with owners
/// and modes that an unprivileged user cannot set on disk.
///
/// # Panics
/// If the program cannot be read.
pub fn layer() -> Layer {
    let bytes = fs::read(program()).expect("the guest program");
    let passwd = "root:x:0:0:root:/root:/bin/guest\n\
                  daemon:x:2:2:daemon:/:/bin/guest\n\
                  alice:x:1234:1235:Alice:/home/alice:/bin/guest\n";
    let group = "root:x:0:\ndaemon:x:2:\nalice:x:1235:\nwheel:x:77:alice\nstaff:x:50:alice,bob\n";
    let mut layer = Layer::new();
    for dir in ["bin", "etc", "home", "root", "usr", "usr/bin", "var", "var/empty", "proc", "sys"] {
        layer.push(&Entry::new(b'5', dir).mode(0o755));
    }
    layer
        .entry(&Entry::new(b'5', "tmp").mode(0o1777))
        .entry(&Entry::new(b'5', "dev").mode(0o755))
        .entry(&Entry::new(b'5', "home/alice").mode(0o700).owner(1234, 1235))
        .file("bin/guest", 0o755, bytes)
        .symlink("usr/bin/guest", "../../bin/guest")
        .symlink("bin/loop", "loop")
        .file("bin/not-executable", 0o644, "data")
        .file("bin/no-format", 0o755, "neither ELF nor script\n")
        .file("bin/no-interpreter", 0o755, "#!/no/such/interpreter\n")
        .file("bin/script", 0o755, "#!/bin/guest args\n")
        .file("etc/passwd", 0o644, passwd)
        .file("etc/group", 0o644, group)
        .file("etc/image-file", 0o644, "from the image\n")
        .entry(&Entry::new(b'0', "etc/alices").owner(1234, 1235).mode(0o640).data("hers\n"))
        .entry(&Entry::new(b'0', "bin/setuid").mode(0o4755).data("setuid\n"))
        .symlink("var/link-to-etc", "/etc")
        .symlink("var/link-out", "../../../../../../etc")
        .dir("data")
        .file("data/one", 0o644, "1\n")
        .dir("data/sub")
        .file("data/sub/two", 0o644, "2\n")
        .file("data/remove-me", 0o644, "x\n")
}

/// An image of [`layer`] whose command prints its arguments.
pub fn image() -> Image {
    Image::new().layer(layer()).env("PATH", "/usr/bin:/bin").env("FROM_IMAGE", "yes").cmd(&[
        "/bin/guest",
        "args",
        "default",
    ])
}
