//! Tests of a tree in which every dynamically linked program uses musl: Lua from Debian's sources
//! with a test module, over Busybox.

use std::fs;

use testkit::scratch::Scratch;
use testkit::skip::Outcome;

use crate::programs::languages::guest;
use crate::programs::stage::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[("lua", lua)];

fn lua(w: &World) -> Outcome {
    let archive = testkit::trees::lua()?;
    let c = w.container();
    let bytes = fs::read(archive).expect("the archive of the source");
    c.feed("mkdir /l; tar xz -C /l --strip-components=1", bytes).ok();
    c.feed("cat > /l/src/workers.c", guest("workers.c")).ok();
    let made = c.sh("\
        mkdir -p /m/bin /m/lib /m/etc /m/proc /m/dev /m/tmp; cd /l/src
        musl-gcc -O1 -DLUA_USE_LINUX -Wl,-E -o /m/bin/lua $(ls l*.c | grep -v '^luac') -lm
        musl-gcc -O1 -shared -fPIC -o /m/lib/workers.so workers.c; cp -L /lib/ld-musl-x86_64.so.1 /m/lib/
        cp /bin/busybox /m/bin/; chroot /m /bin/busybox --install -s /bin; head -n 3 /etc/passwd > /m/etc/passwd; tar c -C /m .");
    let scratch = Scratch::new("musl").expect("a directory");
    let tree = scratch.path().join("musl.tar");
    fs::write(&tree, &made.ok().stdout).expect("the tree");
    let name = format!("localhost/musl:{}", w.engine.to_lowercase());
    w.import(&tree, &name).ok();
    let c = w.container_of(&name);
    let done = c.feed("cat > /tree.lua; cd /tmp; lua /tree.lua", guest("tree.lua"));
    let expected = "\
        Lua 5.4\t3\n100\t\t/tmp\ntrue\texit\t0\nnil\texit\t3\nnil\tsignal\t9\nnil\t/nowhere/file: No such file or directory\t2\n\
        nil\t/etc: Directory not empty\t39\n800\t1\ntrue\ttrue\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}
