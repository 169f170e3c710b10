//! Tests that copies and archives keep everything that root's copies keep, and that Git works.

use testkit::skip::Outcome;

use crate::programs::stage::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[("trees", trees), ("git", git)];

/// A tree with every kind of file, owner and bit, and its expected listing.
const MAKE: &str = "\
    mkdir /a; cd /a; mkdir -m 2775 shared; chown 5:6 shared; mkdir -m 1777 sticky; mkdir -m 0 closed; echo data > plain; chown 1:2 plain
    cp plain setid; chown 3:4 setid; chmod 6755 setid; echo ro > readonly; chmod 400 readonly; echo none > none; chmod 0 none; chown 65534:65534 none
    ln -s plain link; chown -h 7:8 link; ln plain hard; mkfifo -m 640 pipe; chown 9:10 pipe
    python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'; chown 11:12 socket
    ln -s /nowhere dangling; touch -d 2001-02-03T04:05:06.789 plain; touch -hd 2002-02-03 link; touch -d 2003-01-01 shared
    truncate -s 1M sparse; ls -la > shared/listing";
const DEVICES: &str = "mknod -m 666 null c 1 3; mknod -m 660 disk b 8 1; chown 0:6 disk";
const SHOW: &str = "find . -printf '%P %y %m %U %G %s %n %T@ %l\\n' | sort | grep -v '^ d'; stat -c '%n %F %t:%T' null disk 2>/dev/null || true";

fn trees(w: &World) -> Outcome {
    let c = w.container();
    c.sh(&format!("{MAKE}; {DEVICES}")).ok();
    let expected = c.sh(&format!("cd /a; {SHOW}")).ok().out();
    assert!(expected.contains("setid f 6755 3 4 5 1"), "{expected}");
    assert!(expected.contains("link l 777 7 8 5 1"), "{expected}");
    for (what, copy) in [
        (
            "tar",
            "tar cf /t.tar --format=posix -C /a . ; mkdir /b; tar xpf /t.tar -C /b --same-owner",
        ),
        ("cp -a", "cp -a /a /b"),
        (
            "rsync -a",
            "rsync -aHXS --modify-window=-1 /a/ /b/; rsync -aHXSn --modify-window=-1 --itemize-changes /a/ /b/",
        ),
    ] {
        let done = c.sh(&format!("rm -rf /b; {copy}"));
        assert_eq!(done.ok().out(), "", "{what}: {done:?}");
        let seen = c.sh(&format!("cd /b; {SHOW}")).ok().out();
        // A tar archive cannot hold sockets.
        let kept = expected.lines().filter(|line| what != "tar" || !line.starts_with("socket"));
        let (kept, seen): (Vec<_>, Vec<_>) = (kept.collect(), seen.lines().collect());
        assert_eq!(kept, seen, "{what}");
    }
    Ok(())
}

fn git(w: &World) -> Outcome {
    let c = w.container();
    let done = c.sh("\
        git config --global user.email a@b; git config --global user.name A; git config --global init.defaultBranch main
        git init -q --bare /srv/r.git; cp -a /usr/lib/python3.11/json /w; cd /w; rm -rf __pycache__; git init -q; git add .; git commit -qm one
        chmod +x tool.py; ln -s tool.py link; git add .; git commit -qm two; git push -q /srv/r.git main; git clone -q /srv/r.git /v; cd /v
        git status --porcelain; git log --oneline | wc -l; git fsck --strict 2>&1; git ls-files -s link tool.py | cut -d' ' -f1
        echo more >> tool.py; git status --porcelain; git stash -q; git gc -q; git checkout -q HEAD~1; ls link 2>&1 || true; git diff main --stat | tail -1");
    let out = done.ok().out();
    let expected =
        "2\n120000\n100755\n M tool.py\nls: cannot access 'link': No such file or directory\n";
    assert!(out.starts_with(expected), "{done:?}");
    Ok(())
}
