//! A small image, so that what is tried does not wait for bytes.

use std::fs;

use testkit::command::{Input, find_program, run_with};
use testkit::image::Image;
use testkit::layer::{Entry, Layer};
use testkit::person::Person;
use testkit::skip::{Outcome, Skip};

use crate::lab::{LIMIT, Lab};

/// Its name: busybox and a page.
pub(crate) const BOX: &str = "lab/box:1";
const APPLETS: [&str; 9] =
    ["sh", "cat", "sleep", "httpd", "echo", "test", "hostname", "wget", "seq"];

/// Its layer.
pub(crate) fn layer() -> Result<Layer, Skip> {
    let busybox = find_program("busybox").ok_or(Skip("busybox-static is not installed".into()))?;
    let busybox = fs::read(busybox).expect("busybox");
    let mut layer = Layer::new();
    for (dir, mode) in [("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("www", 0o755)] {
        layer.push(&Entry::new(b'5', dir).mode(mode));
    }
    layer = layer.file("bin/busybox", 0o755, busybox);
    for applet in APPLETS {
        layer = layer.symlink(&format!("bin/{applet}"), "busybox");
    }
    layer = layer.file("etc/passwd", 0o644, "root:x:0:0:root:/:/bin/sh\n");
    Ok(layer.file("www/index.html", 0o644, "page\n"))
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
