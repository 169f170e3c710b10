//! Tests of a real distribution: Debian's shell and tools, and a package installed as emulated
//! root.

use std::sync::{Mutex, OnceLock, PoisonError};

use serde_json::json;
use testkit::command::{Input, run_with};
use testkit::image::Built;
use testkit::push::Target;
use testkit::skip::{Outcome, Skip};

use crate::environment::inherited_ignores;
use crate::world::{Case, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("shell_and_tools", shell_and_tools),
    ("accounts_and_owners", accounts_and_owners),
    ("install_a_package", install_a_package),
];

/// Pulls Debian into the user's store, once.
fn debian(w: &World) -> Result<String, Skip> {
    static IMAGE: OnceLock<Result<Built, Skip>> = OnceLock::new();
    // If one layer is uploaded several times at once, docker-registry refuses some uploads
    // (DIGEST_INVALID).
    static ONE: Mutex<()> = Mutex::new(());
    let Some(host) = &w.registry else { testkit::skip!("no docker-registry here") };
    let built = IMAGE
        .get_or_init(|| Ok(testkit::debian::image()?.build()))
        .as_ref()
        .map_err(Clone::clone)?;
    let name = format!("{host}/debian:bookworm");
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if w.coracle(&["inspect", "--type=image", &name]).code() != 0 {
        let target = Target { address: host.parse().expect("an address"), basic: None };
        target.image("debian", "bookworm", built).expect("pushing");
        w.coracle(&["pull", "-q", "--tls-verify=false", &name]).ok();
    }
    Ok(name)
}

fn sh(w: &World, image: &str, flags: &[&str], script: &str) -> testkit::command::Finished {
    let mode = w.mode();
    let mut words = vec!["run", "--rm", &mode];
    words.extend(flags);
    words.extend([image, "sh", "-c", script]);
    run_with(&mut w.command(&words), Input::Null, LIMIT * 4)
}

fn shell_and_tools(w: &World) -> Outcome {
    let image = debian(w)?;
    let done = sh(w, &image, &[], "cat /etc/os-release; id -u; pwd; ls -la / | wc -l; echo \"$#\"");
    assert!(done.ok().out().contains("bookworm"), "{done:?}");
    let done = sh(
        w,
        &image,
        &[],
        "yes | head -1; find / -xdev -name passwd | sort | head -3; tar cf - /etc | wc -c",
    );
    assert!(done.ok().out().starts_with("y\n") && done.out().contains("/etc/passwd"), "{done:?}");
    let mask = sh(w, &image, &[], "grep -E 'Sig(Ign|Blk)' /proc/self/status").ok().out();
    assert!(
        mask.contains(&format!("SigIgn:\t{:016x}", inherited_ignores()))
            && mask.contains("SigBlk:\t0000000000000000"),
        "{mask}"
    );
    let facts = sh(
        w,
        &image,
        &["-v", "/dev/null:/x:ro", "--hostname=deb"],
        "hostname; df / >/dev/null && echo df; stat -c %a /tmp",
    );
    assert_eq!(facts.ok().out(), "deb\ndf\n1777\n");
    Ok(())
}

fn accounts_and_owners(w: &World) -> Outcome {
    let image = debian(w)?;
    let done = sh(
        w,
        &image,
        &[],
        "useradd -m somebody && id -u somebody && chown somebody /tmp && su somebody -c 'echo as $(id -un)'",
    );
    if w.has_ids() {
        assert!(done.ok().out().ends_with("as somebody\n"), "{done:?}");
    } else {
        assert!(done.out().starts_with("1000\n"), "useradd works with one id: {done:?}");
    }
    let done = sh(w, &image, &["-u", "www-data"], "id -un; id -gn");
    assert_eq!(done.ok().out(), "www-data\nwww-data\n");
    Ok(())
}

fn install_a_package(w: &World) -> Outcome {
    let image = debian(w)?;
    let reach = sh(w, &image, &[], "apt-get update -qq 2>&1 | tail -2");
    let done = sh(
        w,
        &image,
        &[],
        "apt-get update && apt-get install -y --no-install-recommends file && file /bin/sh",
    );
    let offline =
        ["Could not resolve", "Could not connect", "Connection refused", "Network is unreachable"];
    if offline.iter().any(|text| done.err().contains(text) || reach.out().contains(text)) {
        let host = std::process::Command::new("apt-get").args(["update", "-qq"]).output();
        if !host.is_ok_and(|host| host.status.success() && host.stderr.is_empty()) {
            testkit::skip!("no package mirror can be reached from this machine");
        }
    }
    assert!(done.ok().out().contains("/bin/sh: symbolic link"), "{done:?}");
    let _ = json!(null);
    Ok(())
}
