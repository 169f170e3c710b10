//! Tests of OpenSSH's server: privilege separation, filters of its own, terminals, logins.

use testkit::skip::Outcome;

use crate::programs::stage::{Case, World};

pub(crate) const CASES: &[(&str, Case)] = &[("login", login)];

fn login(w: &World) -> Outcome {
    let c = w.container();
    // The network is the host's; a fixed port would collide with other runs.
    let done = c.sh("\
        useradd -m -s /bin/bash -u 2001 jim; mkdir -p /run/sshd; install -d -m 700 /root/.ssh; install -d -m 700 -o jim -g jim /home/jim/.ssh
        test -e /root/.ssh/id || ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id
        cp /root/.ssh/id.pub /root/.ssh/authorized_keys; install -o jim -g jim -m 600 /root/.ssh/id.pub /home/jim/.ssh/authorized_keys
        port=$(python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 0)); print(s.getsockname()[1])')
        /usr/sbin/sshd -o ListenAddress=127.0.0.1:$port -o PrintMotd=no -o PrintLastLog=no -E /var/log/sshd
        # Its first process ends before it listens; it writes this file afterwards.
        n=0; until test -s /run/sshd.pid; do n=$((n + 1)); test $n -lt 200; sleep 0.1; done
        s=\"ssh -q -o StrictHostKeyChecking=no -o BatchMode=yes -o ConnectTimeout=20 -i /root/.ssh/id -p $port\"
        $s root@127.0.0.1 'id -u; echo $HOME; exit 3' </dev/null || echo code $?
        $s jim@127.0.0.1 'id -u; pwd; cat /etc/shadow 2>&1; touch here; stat -c %U here' </dev/null
        $s -tt jim@127.0.0.1 'tty; test -w $(tty) && echo hi > $(tty)' </dev/null | tr -d '\\r'
        echo payload > /tmp/p; printf 'put /tmp/p p\\nchmod 640 p\\n' > /tmp/batch
        sftp -q -b /tmp/batch -o StrictHostKeyChecking=no -i /root/.ssh/id -P $port jim@127.0.0.1 >/dev/null
        stat -c '%U %a' /home/jim/p; $s nobody@127.0.0.1 true </dev/null || echo nobody came in
        kill $(cat /run/sshd.pid); grep -ci fatal /var/log/sshd || true");
    let out = done.ok().out();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..3], ["0", "/root", "code 3"], "{done:?}");
    assert_eq!(lines[3..5], ["2001", "/home/jim"], "{done:?}");
    assert_eq!(lines[5..7], ["cat: /etc/shadow: Permission denied", "jim"], "{done:?}");
    assert!(lines[7].starts_with("/dev/pts/"), "{done:?}");
    assert_eq!(lines[8..], ["hi", "jim 640", "nobody came in", "0"], "{done:?}");
    Ok(())
}
