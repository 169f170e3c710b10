//! Commands from the container of one node to the container of another one, without `sshd`.
//!
//! ```text
//! rsh in node1 -> socket -> door of node1's host -> driver -> Host::start -> exec in node2
//! ```
//!
//! [`rsh`] is the program in the containers, with words like those of `ssh`; launchers of MPI start
//! it. [`serve`] is the *door*, a process of the driver on each host: it has a socket, in a
//! directory that the host's node containers have as a volume, and passes on what comes from the
//! socket to the driver and back. The driver's end is [`crate::driver`].
//!
//! All three speak in the frames of [`remote::wire`], with the roles the other way round: `rsh`
//! asks like a driver ([`Kind::Start`] with a [`Request`]), and the driver answers like an agent.
//! On the socket the number of all frames is 0; on the door's stream it is that of a connection. So
//! credit goes from end to end, and the door need not keep more than that.

mod options;
mod rsh;
mod serve;

pub use options::parse;
pub use rsh::rsh;
pub use serve::serve;

use remote::wire::{Error, Kind};

/// The variable with the path of the door's socket in the containers.
pub const VARIABLE: &str = "CORACLE_DOOR";

/// The command that `rsh` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The node, or the name of its container.
    pub node: String,
    /// The user in the container; `None` for its own.
    pub user: Option<String>,
    /// The command, for a shell.
    pub command: String,
    /// It has a standard input.
    pub input: bool,
}

impl Request {
    /// As a payload: a byte that is 1 for one with input, and the others, with NUL between them.
    pub fn pack(&self) -> Vec<u8> {
        let user = self.user.as_deref().unwrap_or_default();
        let words = [&self.node, user, &self.command].join("\0");
        [&[u8::from(self.input)], words.as_bytes()].concat()
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Error::Payload`].
    pub fn unpack(payload: &[u8]) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Payload { kind: Kind::Start, why: why.to_owned() };
        let (&input, rest) = payload.split_first().ok_or_else(|| wrong("it is empty"))?;
        let text = str::from_utf8(rest).map_err(|_| wrong("it is not UTF-8"))?;
        let mut words = text.splitn(3, '\0').map(str::to_owned);
        let mut next = || words.next().ok_or_else(|| wrong("a word is missing"));
        let (node, user, command) = (next()?, next()?, next()?);
        let user = Some(user).filter(|user| !user.is_empty());
        Ok(Self { node, user, command, input: input == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_arrives_as_it_was() {
        for (user, input) in [(None, true), (Some("root".to_owned()), false)] {
            let command = "echo 'a b'; exit 3".to_owned();
            let request = Request { node: "node2".to_owned(), user, command, input };
            assert_eq!(Request::unpack(&request.pack()), Ok(request));
        }
        for bad in [&b""[..], b"\x01node2\0root", b"\x01node2\0\0\xff"] {
            let Err(error) = Request::unpack(bad) else { panic!("{bad:?} was taken") };
            assert!(matches!(error, Error::Payload { kind: Kind::Start, .. }), "{error}");
        }
    }
}
