//! Tests of shells and their programs: Busybox as one static program, Bash with its job control,
//! Perl. The scripts are in `guests`.

use std::fs;

use testkit::scratch::Scratch;
use testkit::skip::Outcome;

use crate::programs::languages::guest;
use crate::programs::stage::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[("busybox", busybox), ("bash", bash), ("perl", perl)];

/// A tree with only Busybox, links to it, and some files.
fn busybox(w: &World) -> Outcome {
    let c = w.container();
    let archive = c.sh("\
        mkdir -p /b/bin /b/etc /b/proc /b/dev /b/tmp; cp /bin/busybox /b/bin/; chroot /b /bin/busybox --install -s /bin
        echo root:x:0:0:root:/:/bin/sh > /b/etc/passwd; cp -a /usr/share/doc/base-files /b/docs; tar c -C /b .");
    let scratch = Scratch::new("busybox").expect("a directory");
    let tree = scratch.path().join("busybox.tar");
    fs::write(&tree, &archive.ok().stdout).expect("the tree");
    let name = format!("localhost/busybox:{}", w.engine.to_lowercase());
    w.import(&tree, &name).ok();
    let expected = "\
        50 of /bin/busybox\nfound\nunpacked\nzipped\n500500 a b \n0\nroot\nroot 644 regular file\n7:8\n/docs\nthrough\nkilled 143\nsession\n\
        timeout 143\nserved\nmissing 1\n0\n";
    let c = w.container_of(&name);
    let done = c.feed("cat > /try; exec sh /try", guest("busybox.sh"));
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}

fn bash(w: &World) -> Outcome {
    let c = w.container();
    c.feed("cat > /try", guest("bash.sh")).ok();
    // Job control needs a terminal; `script` makes one inside.
    let done = c.sh("script -qec 'bash /try' /dev/null < /dev/null | tr -d '\\r'");
    let expected = "\
        1998\npipe 1 0 0\n3a4\n> 4\none\ntwo\nthree\nthrough\nTHROUGH\nagain hello\ncoprocess 143\ncaught\n/etc/host.conf /etc/hostname\n\
        seven\n64\nends 40\n[1]- Running sleep 100 &\n[2]+ Running sleep 101 | cat &\n[1]+ Stopped sleep 100\nfirst 143\nsecond 143\nwent on\n0\n\
        another\nthird|\\0|||";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}

fn perl(w: &World) -> Outcome {
    let c = w.container();
    c.feed("cat > /try.pl", guest("files.pl")).ok();
    let expected = "\
        seen 20000, alarms came\nfiles 200 49200\n100 of 400 f7\nmissing: No such file or directory\nkept: Directory not empty\nends 465\n\
        pipes 12345678910\nhello\nroot 0 /root here /try.pl\nsame\nsignal 9\n";
    let done = c.sh("perl /try.pl");
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}
