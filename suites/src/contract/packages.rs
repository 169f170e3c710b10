//! Tests of a real distribution: Debian's shell and tools, its users and owners.

use std::sync::{Mutex, OnceLock, PoisonError};

use testkit::command::{Input, run_with};
use testkit::image::Built;
use testkit::push::Target;
use testkit::skip::{Outcome, Skip};

use crate::contract::environment::{OF_THE_C_LIBRARY, mask, may_be_ignored};
use crate::contract::world::{Case, LIMIT, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("shell_and_tools", shell_and_tools),
    ("accounts_and_owners", accounts_and_owners),
    ("ids_bind_and_are_shown", ids_bind_and_are_shown),
    ("what_cannot_be_caught_runs", what_cannot_be_caught_runs),
];

/// Pulls Debian into the user's store, once.
pub(crate) fn debian(w: &World) -> Result<String, Skip> {
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

pub(crate) fn sh(
    w: &World,
    image: &str,
    flags: &[&str],
    script: &str,
) -> testkit::command::Finished {
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
    let masks = sh(w, &image, &[], "cat /proc/self/status").ok().out();
    // The C library of a runtime, or of what starts this, may take its own two signals back.
    let differs = (mask(&masks, "SigIgn:") ^ may_be_ignored(w)) & !OF_THE_C_LIBRARY;
    assert!(differs == 0 && mask(&masks, "SigBlk:") == 0, "{masks}");
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

/// What root sets is what programs see and copy, and a process that has dropped its ids has the
/// rights of its user.
fn ids_bind_and_are_shown(w: &World) -> Outcome {
    let image = debian(w)?;
    if !w.has_ids() {
        testkit::skip!("one mapped id of the kernel's: other owners cannot be had");
    }
    let script = "set -e
        echo 1 >/f; chown 7:8 /f; chmod 640 /f; cp -a /f /g; stat -c '%u:%g %a' /f /g
        ln -s f /l; chown -h 5:6 /l; cp -a /l /k; stat -c %u:%g /k
        stat -c '%U:%G %a' /etc/shadow /usr/bin/chage
        as='setpriv --reuid 33 --regid 33 --clear-groups'
        $as cat /etc/shadow 2>/dev/null && echo read || true
        $as sh -c 'echo x >>/etc/passwd' 2>/dev/null && echo written || true
        $as sh -c 'cd /tmp; echo x >own; cp -a own copy; stat -c %U own copy'
        useradd -m u; su u -c 'touch ~/x'; stat -c %U ~u/x; ls -ld ~u | cut -d' ' -f3";
    let done = sh(w, &image, &[], script);
    let wanted =
        "7:8 640\n7:8 640\n5:6\nroot:shadow 640\nroot:shadow 2755\nwww-data\nwww-data\nu\nu\n";
    assert_eq!(done.ok().out(), wanted, "{done:?}");
    if w.user.range && w.has_overlay() {
        testkit::skip!("with a range the kernel judges mknod of a device itself, and refuses it");
    }
    let script = "mknod /d c 1 3 && cp -a /d /e && test -c /e && echo x >/e && stat -c %t:%T /e";
    assert_eq!(sh(w, &image, &[], script).ok().out(), "1:3\n");
    Ok(())
}

/// Mounts, and namespaces of a program's own, are the kernel's where the container has them.
fn what_cannot_be_caught_runs(w: &World) -> Outcome {
    w.boundary()?;
    if w.engine == "R1" {
        testkit::skip!("the runtime has its own rules");
    }
    let image = debian(w)?;
    let script = "set -e
        mount -t tmpfs none /mnt; touch /mnt/a; grep -c ' /mnt tmpfs' /proc/self/mounts
        umount /mnt; ls /mnt | wc -l
        unshare -m sh -c 'mount -t tmpfs none /mnt; touch /mnt/b; ls /mnt'
        unshare -r sh -c 'id -u; cat /proc/self/uid_map | wc -l'
        id -u";
    assert_eq!(sh(w, &image, &[], script).ok().out(), "1\n0\nb\n0\n1\n0\n");
    Ok(())
}
