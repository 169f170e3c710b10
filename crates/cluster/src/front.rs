//! The front-end of a batch system of containers: `sshd`, which users log in to.

/// The port: one below 1024 is root's in a network namespace.
pub(crate) const PORT: u16 = 2222;

/// The words of a shell that starts it: with a key of its own in the directory `state`, for those
/// whose keys are in the file `logins`, with these variables in their sessions. It looks at no
/// one's directories: they may belong to ids that the container does not know.
pub(crate) fn sshd(state: &str, logins: &str, variables: &str) -> String {
    format!(
        "key={state}/ssh_host_ed25519_key && \
         {{ [ -e $key ] || ssh-keygen -q -t ed25519 -N '' -f $key; }} && \
         exec /usr/sbin/sshd -D -e -f /dev/null -p {PORT} -h $key -o UsePAM=no \
         -o PidFile=none -o StrictModes=no -o PasswordAuthentication=no \
         -o KbdInteractiveAuthentication=no \
         -o 'AuthorizedKeysFile=.ssh/authorized_keys {logins}' -o 'SetEnv={variables}' \
         -o 'Subsystem=sftp internal-sftp'"
    )
}
