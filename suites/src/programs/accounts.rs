//! Tests of users, groups and the programs that change to another user.

use testkit::skip::Outcome;

use crate::programs::stage::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("users_and_passwords", users_and_passwords),
    ("becoming_somebody", becoming_somebody),
    ("privileges_are_dropped_permanently", privileges_are_dropped_permanently),
    ("ping_refuses", ping_refuses),
];

fn users_and_passwords(w: &World) -> Outcome {
    let c = w.container();
    let done = c.sh("\
        groupadd -g 2000 crew; useradd -m -u 2001 -g crew -G www-data,mail -s /bin/sh jim
        echo jim:secret | chpasswd; passwd -S jim; printf 'new1\\nnew1\\n' | passwd jim
        id jim; stat -c '%U:%G %a' /home/jim /home/jim/.profile /etc/shadow /etc/gshadow
        usermod -aG daemon -d /home/james -m jim; getent passwd jim; stat -c '%U:%G' /home/james/.profile
        chage -l jim | head -1; useradd -r -M ghost; userdel -r jim; ! id jim 2>/dev/null; pwck -rq; grpck -r");
    let text = done.ok().out();
    for line in [
        "jim P ",
        "uid=2001(jim) gid=2000(crew) groups=2000(crew),8(mail),33(www-data)",
        "jim:crew 755\njim:crew 644\nroot:shadow 640\nroot:shadow 640\n",
        "jim:x:2001:2000::/home/james:/bin/sh\njim:crew\n",
    ] {
        assert!(text.contains(line), "{line:?} in {done:?}");
    }
    Ok(())
}

fn becoming_somebody(w: &World) -> Outcome {
    let c = w.container();
    let who = "echo \"$(id -u):$(id -g):$(id -G | tr \" \" ,)\"";
    let done = c.sh(&format!(
        "useradd -m -u 2001 -G mail jim; echo 'jim ALL=(www-data) NOPASSWD: ALL' > /etc/sudoers.d/jim; chmod 440 /etc/sudoers.d/jim
        visudo -cq; su jim -c '{who}'; su - jim -c pwd; runuser -u jim -- sh -c '{who}'
        sudo -u jim sh -c '{who}'; gosu jim sh -c '{who}'; setpriv --reuid 7 --regid 8 --clear-groups sh -c '{who}'
        setpriv --reuid jim --init-groups --regid jim sh -c '{who}'; chroot --userspec=jim:mail / sh -c '{who}'
        su jim -c 'sudo -n -u www-data sh -c \"{}\"'",
        who.replace('"', "\\\"").replace('$', "\\$")
    ));
    let expected = "2001:2001:2001,8\n/home/jim\n2001:2001:2001,8\n2001:2001:2001,8\n2001:2001:2001,8\n7:8:8\n\
         2001:2001:2001,8\n2001:8:8\n33:33:33\n";
    assert_eq!(done.ok().out(), expected, "{done:?}");
    Ok(())
}

/// A process that has permanently become a user stays one: cannot return, read root's files, or
/// write others' files.
fn privileges_are_dropped_permanently(w: &World) -> Outcome {
    let c = w.container();
    let done = c.sh("\
        echo mine > /secret; chmod 600 /secret; chmod 1777 /tmp; echo x > /tmp/roots
        cat > /t.sh <<'END'
        for try in 'cat /secret' 'cat /etc/shadow' 'touch /etc/x' 'rm /tmp/roots' 'chown 0 /tmp/own' 'chmod 777 /secret' 'chroot / true' \
            'mknod /tmp/n c 1 3' 'setpriv --reuid 0 true' 'mount -t tmpfs x /mnt' 'kill -0 1' 'su -c true </dev/null'; do
            sh -c \"$try\" >/dev/null 2>&1 && echo \"may $try\"
        done
        touch /tmp/own; stat -c %u:%g /tmp/own; cat /secret 2>&1; passwd -S root 2>&1 | head -1
END
        setpriv --reuid 2001 --regid 2001 --clear-groups sh /t.sh");
    let out = done.ok().out();
    assert!(
        out.starts_with("2001:2001\ncat: /secret: Permission denied\n") && !out.contains("may "),
        "{done:?}"
    );
    Ok(())
}

/// `ping` needs a raw socket, which no emulation provides: it has to report that, and not to hang
/// or to crash. On a host that allows everybody its sockets, it works.
fn ping_refuses(w: &World) -> Outcome {
    let c = w.container();
    let done = c.sh("code=0; ping -c 1 -W 2 127.0.0.1 || code=$?; echo code $code");
    let works = done.out().contains("1 received") && done.out().ends_with("code 0\n");
    let refuses =
        done.err().contains("Operation not permitted") && done.out().ends_with("code 2\n");
    assert!(done.code() == 0 && (works || refuses), "{done:?}");
    Ok(())
}
