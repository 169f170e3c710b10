//! A small image, so that what is tried does not wait for bytes.

use testkit::command::{Input, run_with};
use testkit::image::Image;
use testkit::layer::Layer;
use testkit::person::Person;
use testkit::skip::{Outcome, Skip};

use crate::hosts::lab::{LIMIT, Lab};

/// Its name: busybox and a page.
pub(crate) const BOX: &str = "lab/box:1";
const APPLETS: [&str; 9] =
    ["sh", "cat", "sleep", "httpd", "echo", "test", "hostname", "wget", "seq"];

/// Its layer.
pub(crate) fn layer() -> Result<Layer, Skip> {
    let layer = Layer::busybox(&APPLETS)?;
    let layer = layer.file("etc/passwd", 0o644, "root:x:0:0:root:/:/bin/sh\n");
    Ok(layer.dir("www").file("www/index.html", 0o644, "page\n"))
}

/// Puts it into a store, on the first host.
pub(crate) fn load(lab: &Lab, person: &Person) -> Outcome {
    let layout = lab.shared.join("box");
    if !layout.exists() {
        let image = Image::new().layer(layer()?).env("PATH", "/bin").build();
        image.write_layout(&layout, BOX).expect("a layout");
    }
    let mut command = person.user.command(&person.program, &person.home);
    command.args(["load", "-q", "-i"]).arg(&layout);
    run_with(&mut lab.hosts.command(0, &command), Input::Null, LIMIT).ok();
    Ok(())
}

/// Bytes that nothing packs, other ones for each seed.
pub(crate) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(length).collect()
}
