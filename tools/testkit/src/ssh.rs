//! Servers of SSH for tests.

/// For `KexAlgorithms` of `sshd_config(5)`: OpenSSH's own choice, which no quantum computer breaks,
/// takes a client ten times as much processor time, a tenth of a second.
pub const QUICK_EXCHANGE: &str = "curve25519-sha256";

/// A shell script that serves SSH for root, who comes with the key that all machines of a Debian
/// tree have, until it is ended.
pub const SERVER: &str = "\
    mkdir -p /run/sshd; install -d -m 700 /root/.ssh; cd /root/.ssh
    cp /etc/ssh/ssh_host_ed25519_key id_ed25519; cp /etc/ssh/ssh_host_ed25519_key.pub authorized_keys
    printf 'StrictHostKeyChecking no\\nUserKnownHostsFile /dev/null\\nLogLevel ERROR\\n' > config
    exec /usr/sbin/sshd -D -e -o UsePAM=no -o KexAlgorithms=curve25519-sha256";
