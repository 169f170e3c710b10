//! The parts of a batch system of containers, whichever it is.

/// What a service is to the batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The controller.
    Control,
    /// Where users log in.
    Front,
    /// The nodes that compute. How many there are follows from the jobs.
    Compute,
}

/// The service of the controller.
pub(crate) const CONTROL: &str = "control";
/// The service that users log in to.
pub(crate) const FRONT: &str = "front";
/// The port of its `sshd`: one below 1024 is root's in a network namespace.
pub(crate) const FRONT_PORT: u16 = 2222;

/// The words of a shell that starts that `sshd`: with a key of its own in the directory `state`,
/// for those whose keys are in the file `logins`, with these variables in their sessions. It looks
/// at no one's directories: they may belong to ids that the container does not know.
pub(crate) fn sshd(state: &str, logins: &str, variables: &str) -> String {
    format!(
        "key={state}/ssh_host_ed25519_key && \
         {{ [ -e $key ] || ssh-keygen -q -t ed25519 -N '' -f $key; }} && \
         exec /usr/sbin/sshd -D -e -f /dev/null -p {FRONT_PORT} -h $key -o UsePAM=no \
         -o PidFile=none -o StrictModes=no -o PasswordAuthentication=no \
         -o KbdInteractiveAuthentication=no \
         -o 'AuthorizedKeysFile=.ssh/authorized_keys {logins}' -o 'SetEnv={variables}' \
         -o 'Subsystem=sftp internal-sftp'"
    )
}
