//! Why a launcher has failed, from its exit status and its last words.
//!
//! `ssh` exits with 255 for everything of its own. The words are those of OpenSSH's source (9.2),
//! which are not translated.

use super::{Launcher, Way};

/// What kept a launcher from starting an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The launcher's program is not installed.
    Missing,
    /// The host would ask for a password.
    Password,
    /// The host takes none of the user's keys.
    Login,
    /// The host has another key than before.
    ChangedKey,
    /// The host's key is not known.
    UnknownKey,
    /// The host's name is not known.
    Name,
    /// The host does not answer.
    Unreachable,
    /// The batch system does not start a step.
    Step,
    /// Something else.
    Other,
}

impl Cause {
    /// What happened, after the node's name.
    pub fn text(self) -> &'static str {
        match self {
            Self::Missing => "cannot be reached: the program is not installed here",
            Self::Password => "asks for a password",
            Self::Login => "refuses the login",
            Self::ChangedKey => "has another host key than the one that is known",
            Self::UnknownKey => "has a host key that is not known",
            Self::Name => "has a name that cannot be resolved",
            Self::Unreachable => "cannot be reached",
            Self::Step => "gets no step of the batch system",
            Self::Other => "starts no agent",
        }
    }

    /// Advice for the user about a node.
    pub fn hint(self, node: &str) -> Option<String> {
        Some(match self {
            Self::Missing => "install the OpenSSH client, or run inside an allocation".into(),
            Self::Password => format!(
                "passwords are never asked for: give the host your key (ssh-copy-id {node}), or \
                 add it to your agent (ssh-add)"
            ),
            Self::Login => format!("try it by hand: ssh -v {node} true"),
            Self::ChangedKey => format!(
                "if the host was installed anew, remove the old key (ssh-keygen -R {node}); if \
                 not, somebody else may answer in its place"
            ),
            Self::UnknownKey => format!(
                "log in once by hand and compare the key's fingerprint: ssh {node} true; or add \
                 it to ~/.ssh/known_hosts"
            ),
            Self::Name => "check the name, or give it an entry in ~/.ssh/config".into(),
            Self::Unreachable => format!(
                "check that it is on, its port, and a jump host in ~/.ssh/config: ssh -v {node} true"
            ),
            Self::Step => "check that the node is in this allocation (squeue --me), and that \
                           other steps leave room"
                .into(),
            Self::Other => return None,
        })
    }
}

/// The cause, from the exit code and what was printed to standard error.
pub fn explain(launcher: &Launcher, code: Option<i32>, said: &str) -> Cause {
    match (&launcher.way, code) {
        (Way::Ssh { .. }, Some(255)) => of_ssh(said),
        (Way::Srun { .. }, Some(1..)) if said.contains("srun: error:") => Cause::Step,
        _ => Cause::Other,
    }
}

fn of_ssh(said: &str) -> Cause {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&["REMOTE HOST IDENTIFICATION HAS CHANGED"]) {
        Cause::ChangedKey
    } else if has(&["Host key verification failed", "host key is known for"]) {
        Cause::UnknownKey
    } else if let Some((_, methods)) = said.split_once("Permission denied (") {
        let methods = methods.split(')').next().unwrap_or_default();
        let asks = methods.contains("password") || methods.contains("keyboard-interactive");
        if asks { Cause::Password } else { Cause::Login }
    } else if has(&["Too many authentication failures", "Permission denied"]) {
        Cause::Login
    } else if has(&["Could not resolve hostname"]) {
        Cause::Name
    } else if has(&[
        "Connection refused",
        "Connection timed out",
        "No route to host",
        "Network is unreachable",
        "Connection reset",
        "Connection closed by",
        "Operation timed out",
        "banner exchange",
    ]) {
        Cause::Unreachable
    } else {
        Cause::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_ssh() {
        for (said, cause) in [
            ("me@h: Permission denied (publickey,password).", Cause::Password),
            ("me@h: Permission denied (publickey).", Cause::Login),
            (
                "No ED25519 host key is known for [h]:1 and you have requested strict checking.\nHost key verification failed.",
                Cause::UnknownKey,
            ),
            (
                "@  WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!   @\nHost key verification failed.",
                Cause::ChangedKey,
            ),
            ("ssh: Could not resolve hostname h: Name or service not known", Cause::Name),
            ("ssh: connect to host h port 22: Connection refused", Cause::Unreachable),
            ("command-line: line 0: Bad configuration option: x", Cause::Other),
        ] {
            assert_eq!(of_ssh(said), cause, "{said}");
        }
        assert!(Cause::Password.hint("h").is_some_and(|hint| hint.contains("ssh-copy-id h")));
    }
}
