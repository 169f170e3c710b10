//! The messages. Those with few fields are bytes: code that reads JSON into a type is large. Of the
//! others, fields that a reader does not know are passed over; [`Hello`] and
//! [`Facts`] therefore stay readable between versions, as far as the version itself.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Error, Kind, VERSION};

/// The word that stands for the agent's own executable, as the first word of a command.
pub const OWN: &str = "{coracle}";

/// Who speaks: the driver's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the driver.
    pub version: u32,
    /// The cluster's name.
    #[serde(default)]
    pub cluster: String,
    /// This driver runs the cluster: agents of earlier drivers on the node clean nothing up any
    /// more. False for one that only looks.
    #[serde(default)]
    pub holds: bool,
    /// Time between the loss of the stream and the command of [`AtEnd`].
    #[serde(default)]
    pub grace: Duration,
    /// Bytes that a store needs which gets the cluster's images.
    #[serde(default)]
    pub room: u64,
}

impl Hello {
    /// One of this version, of a driver that brings no images.
    pub fn new(cluster: &str, holds: bool, grace: Duration) -> Self {
        Self { version: VERSION, cluster: cluster.to_owned(), holds, grace, room: 0 }
    }
}

/// What the agent knows of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// [`VERSION`] of the agent.
    pub version: u32,
    /// The release of the program.
    #[serde(default)]
    pub release: String,
    /// SHA-256 of the executable, in hexadecimal digits.
    #[serde(default)]
    pub digest: String,
    /// Where the executable is.
    #[serde(default)]
    pub executable: PathBuf,
    /// Process id of the agent.
    #[serde(default)]
    pub pid: u32,
    /// The host's name.
    #[serde(default)]
    pub host: String,
    /// The user's id.
    #[serde(default)]
    pub uid: u32,
    /// The user's name, if it is known without a name service.
    #[serde(default)]
    pub user: Option<String>,
    /// Tells hosts, and boots of one host, apart.
    #[serde(default)]
    pub boot_id: String,
    /// Its clock: seconds since 1970.
    #[serde(default)]
    pub time: Option<u64>,
    /// Release of the kernel.
    #[serde(default)]
    pub kernel: String,
    /// `x86_64`, for example.
    #[serde(default)]
    pub machine: String,
    /// CPUs that the agent may use.
    #[serde(default)]
    pub cpus: usize,
    /// Memory of the host, in bytes.
    #[serde(default)]
    pub memory: u64,
    /// The user's home directory.
    #[serde(default)]
    pub home: Option<PathBuf>,
    /// The user may write there.
    #[serde(default)]
    pub home_writable: bool,
    /// Programs there cannot be executed.
    #[serde(default)]
    pub home_noexec: bool,
    /// A directory of the node that only this user can enter, for what the driver puts there.
    #[serde(default)]
    pub runtime: PathBuf,
    /// A directory of the node's own disk or memory that only this user can enter, where programs
    /// can be executed, with room for a store without images; `None`: there is none.
    #[serde(default)]
    pub scratch: Option<PathBuf>,
    /// The first such directory with [`Hello::room`].
    #[serde(default)]
    pub roomy: Option<PathBuf>,
    /// The places before that, or all, in this order, each with the free bytes there, as a decimal
    /// number, or with the reason why no store can be there. Less than [`ROOM`](super::ROOM) is too
    /// little for any. Two strings, because the code that reads an enum adds 3 kB.
    #[serde(default)]
    pub passed: Vec<(String, String)>,
    /// Addresses with the names of their devices, without loopback.
    #[serde(default)]
    pub addresses: Vec<(String, IpAddr)>,
    /// Interfaces with IPv4 addresses, without loopback.
    #[serde(default)]
    pub interfaces: Vec<host::Interface>,
    /// What it has for parallel programs.
    #[serde(default)]
    pub equipment: host::Equipment,
    /// Variables of the batch system that say where this is.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
}

/// Starts a program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The program, found in `PATH`, and its arguments. [`OWN`] is the agent's own executable.
    pub words: Vec<String>,
    /// Variables in addition to the agent's own.
    #[serde(default)]
    pub variables: Vec<(String, String)>,
    /// Where it starts; `None`: where the agent is.
    #[serde(default)]
    pub directory: Option<PathBuf>,
    /// It has a standard input that the driver writes; else that is empty.
    #[serde(default)]
    pub input: bool,
}

impl Start {
    /// A program without input.
    pub fn new<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Self {
        Self { words: words.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The same with an input.
    #[must_use]
    pub fn with_input(self) -> Self {
        Self { input: true, ..self }
    }
}

/// Begins a file, which replaces one of that name when it is complete. Its payload is the mode as
/// `u32` and the path's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// An absolute path. Directories that are missing are made for this user only.
    pub path: PathBuf,
    /// Permission bits, whatever the umask is.
    pub mode: u32,
}

impl Put {
    /// As a payload.
    pub fn pack(&self) -> Vec<u8> {
        [&self.mode.to_le_bytes(), self.path.as_os_str().as_bytes()].concat()
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Error::Payload`].
    pub fn unpack(payload: &[u8]) -> Result<Self, Error> {
        let (mode, path) = payload.split_at_checked(4).unwrap_or_default();
        Ok(Self { mode: number(Kind::Put, mode)?, path: path_of(path) })
    }
}

/// The payload of [`Kind::Get`]: a path's bytes.
pub fn path_of(payload: &[u8]) -> PathBuf {
    OsStr::from_bytes(payload).into()
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// By a signal of this number.
    Signal(i32),
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Self {
        let code = status.code().map(Self::Code);
        code.unwrap_or_else(|| Self::Signal(status.signal().unwrap_or(0)))
    }
}

impl Ended {
    /// As a payload: a byte that is 0 for a code and 1 for a signal, and an `i32`.
    pub fn pack(self) -> [u8; 5] {
        let (tag, number) = match self {
            Self::Code(code) => (0, code),
            Self::Signal(number) => (1, number),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [tag, a, b, c, d]
    }

    /// From a payload.
    ///
    /// # Errors
    /// [`Error::Payload`].
    pub fn unpack(payload: &[u8]) -> Result<Self, Error> {
        let (tag, rest) = payload.split_first().unwrap_or((&2, &[]));
        let number = number(Kind::Ended, rest)?.cast_signed();
        match tag {
            0 => Ok(Self::Code(number)),
            1 => Ok(Self::Signal(number)),
            _ => Err(Error::Payload { kind: Kind::Ended, why: "it is of no kind".to_owned() }),
        }
    }

    /// The code that a shell would report: that of the program, or 128 and the signal's number.
    pub fn status(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => 128 + number,
        }
    }

    /// The same as the exit status of a process.
    pub fn exit_status(self) -> u8 {
        u8::try_from(self.status()).unwrap_or(u8::MAX)
    }
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The reason, with the step that failed.
    pub why: String,
    /// [`VERSION`] of the agent, where the driver's is the reason.
    #[serde(default)]
    pub version: Option<u32>,
}

/// A message as a payload.
pub fn pack(message: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and lists always have a form; only a path of other bytes has none.
    serde_json::to_vec(message).unwrap_or_default()
}

/// A payload as a message.
///
/// # Errors
/// [`Error::Payload`].
pub fn unpack<T: DeserializeOwned>(kind: Kind, payload: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(payload).map_err(|error| Error::Payload { kind, why: error.to_string() })
}

/// A payload that is one number: [`Kind::Credit`], [`Kind::Signal`].
///
/// # Errors
/// [`Error::Payload`].
pub fn number(kind: Kind, payload: &[u8]) -> Result<u32, Error> {
    let why = || Error::Payload { kind, why: "it is not a number".to_owned() };
    payload.try_into().map(u32::from_le_bytes).map_err(|_| why())
}
