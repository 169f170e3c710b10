//! What only containers with network namespaces have: devices, the switch between them, and the
//! processes that keep both.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use testkit::person::Person;
use testkit::scratch::Scratch;
use testkit::skip::Outcome;

use crate::containers::World;

/// A case of a mode.
type Case = fn(&World) -> Outcome;

/// All of them.
pub(crate) const CASES: &[(&str, Case)] = &[];

/// Why a user cannot make TAP devices.
pub(crate) fn no_tun(person: &Person) -> Option<String> {
    let open = person.other("sh", &["-c", ": <>/dev/net/tun"]);
    (open.code() != 0).then(|| "users may not open /dev/net/tun".to_owned())
}

/// A program that is Coracle with this kind of devices.
pub(crate) fn with_devices(
    scratch: &Scratch,
    person: &Person,
    device: &str,
) -> io::Result<PathBuf> {
    let path = scratch.path().join(format!("coracle-{device}"));
    let program = person.program.display();
    let text = format!("#!/bin/sh\nCORACLE_LINK={device} exec '{program}' \"$@\"\n");
    std::fs::write(&path, text)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}
