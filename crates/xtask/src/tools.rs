//! What the tests and the demo need from the system: Debian packages and two unprivileged users.
//!
//! Only root on a Debian-like system gets anything installed; everybody else works with what is
//! there, and what misses a program skips with its name. A package that cannot be had is a note,
//! not an error: the tests that need it say so themselves.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use testkit::users;

use crate::shell::{Outcome, has, step};

/// A program and the package that brings it.
const WANTED: &[(&str, &str)] = &[
    ("docker-registry", "docker-registry"),
    ("skopeo", "skopeo"),
    ("umoci", "umoci"),
    ("podman", "podman"),
    ("bwrap", "bubblewrap"),
    ("runc", "runc"),
    ("mmdebstrap", "mmdebstrap"),
    ("newuidmap", "uidmap"),
    ("fuse-overlayfs", "fuse-overlayfs"),
    ("strace", "strace"),
    ("pasta", "passt"),
    ("slirp4netns", "slirp4netns"),
    ("setfattr", "attr"),
    ("zstd", "zstd"),
    ("openssl", "openssl"),
    ("setpriv", "util-linux"),
    ("python3", "python3-minimal"),
    ("gcc", "gcc"),
];

/// Installs what is missing and makes the test users, as root; else says what is missing.
pub(crate) fn set_up() -> Outcome {
    let root = is_root();
    let missing: Vec<&(&str, &str)> = WANTED.iter().filter(|(program, _)| !has(program)).collect();
    if !missing.is_empty() {
        step("tools");
        let names: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
        if root && has("apt-get") {
            install(&names);
        } else {
            println!("not installed (only root on Debian can change that): {}", names.join(" "));
        }
    }
    if root {
        users::create().map_err(|error| format!("making the test users: {error}"))?;
        open_tun();
    }
    Ok(())
}

/// Gives the network helpers' device the mode that udev gives it everywhere (50-udev-default.rules); a machine without udev has it for
/// root alone, and then private networks cannot be tested.
fn open_tun() {
    if let Err(error) = fs::set_permissions("/dev/net/tun", Permissions::from_mode(0o666)) {
        println!("/dev/net/tun: {error}; private networks will not be tested");
    }
}

/// Whether this is root.
pub(crate) fn is_root() -> bool {
    Command::new("id")
        .arg("-u")
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn install(packages: &[&str]) {
    println!("installing {}", packages.join(" "));
    // Package sources that do not belong to Debian may be out of order; ours need not care.
    let _ = apt(&["update", "-qq"]);
    if apt(&[&["install", "-y", "-qq", "--no-install-recommends"], packages].concat()) {
        return;
    }
    for package in packages {
        if !apt(&["install", "-y", "-qq", "--no-install-recommends", package]) {
            println!("could not install {package}: what needs it will be skipped");
        }
    }
}

fn apt(words: &[&str]) -> bool {
    let output = Command::new("apt-get")
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // A package must not start its service (docker-registry would take a port).
        .env("RUNLEVEL", "1")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            println!("apt-get {}: {}", words.join(" "), text.trim());
            false
        }
        Err(error) => {
            println!("apt-get: {error}");
            false
        }
    }
}
