//! Tests of devices and memory: the interface between accelerator programs and the kernel, which
//! must pass unchanged.
//!
//! Drivers are opened by name, and from then on use numbers for `ioctl` with pointers to
//! structures, and mapped memory. Other devices suffice to check that all of it arrives unchanged:
//! their answers are the same natively.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::command::{Input, run_with};
use testkit::scratch::Scratch;
use testkit::skip::{Outcome, need_program};

use crate::programs::stage::{Case, IMAGE, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[("untouched", untouched)];

fn untouched(w: &World) -> Outcome {
    need_program("gcc")?;
    if !Path::new("/dev/net/tun").exists() {
        testkit::skip!("this machine has no /dev/net/tun");
    }
    let scratch = Scratch::new("devices").expect("a directory");
    let program = scratch.path().join("devices");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/programs/guests/devices.c");
    let mut build = Command::new("gcc");
    run_with(build.args(["-O1", "-static", "-o"]).arg(&program).arg(source), Input::Null, LIMIT)
        .ok();
    let natively = run_with(&mut w.other(&program), Input::Null, LIMIT);
    let expected = natively.ok().out();
    assert!(expected.contains("mapped shm: shared 42\n"), "{natively:?}");
    let c = w.container_with(IMAGE, &["--device", "/dev/net/tun", "--device", "/dev/fuse"]);
    let bytes = fs::read(&program).expect("the program");
    let done = c.feed("cat > /devices; chmod 755 /devices; /devices", bytes);
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}
