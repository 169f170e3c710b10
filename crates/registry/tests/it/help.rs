//! Helpers of several test modules.

use std::io::Read;
use std::time::Duration;

use oci::{Descriptor, Digest, Platform, Reference};
use registry::auth::{Credential, FixedCredentials};
use registry::{Client, Error, ResolverSettings, Retries, Settings, Timeouts};
use testkit::image::{Built, Image, Pack};

/// Settings with short waits and without any files of this host.
pub(crate) fn settings() -> Settings {
    Settings {
        retries: Retries {
            attempts: 3,
            base: Duration::from_millis(1),
            most: Duration::from_millis(5),
            retry_after: Duration::from_secs(2),
        },
        timeouts: Timeouts { idle: Duration::from_secs(10), ..Timeouts::default() },
        certs_dirs: Vec::new(),
        resolver: ResolverSettings {
            hosts: "/nonexistent".into(),
            resolv_conf: "/nonexistent".into(),
            getent: Vec::new(),
        },
        ..Settings::default()
    }
}

pub(crate) fn client() -> Client {
    Client::new(settings()).unwrap()
}

pub(crate) fn client_as(registry: &str, user: &str, password: &str) -> Client {
    let credential = basic(user, password);
    let credentials = FixedCredentials { registry: registry.to_owned(), credential };
    Client::new(Settings { credentials: std::sync::Arc::new(credentials), ..settings() }).unwrap()
}

pub(crate) fn basic(user: &str, password: &str) -> Credential {
    Credential::Basic { username: user.into(), password: password.into() }
}

pub(crate) fn reference(host: &str, rest: &str) -> Reference {
    Reference::parse(&format!("{host}/{rest}")).unwrap()
}

pub(crate) fn amd64() -> Platform {
    "linux/amd64".parse().unwrap()
}

/// Bytes that do not repeat soon, so that a resumption at a wrong offset is detected.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// An image with one layer of this many bytes (which is not a tar stream).
pub(crate) fn image(length: usize) -> Built {
    Image::new().packed(noise(length), Pack::Plain).cmd(&["true"]).build()
}

pub(crate) fn layer_of(image: &Built) -> Descriptor {
    let blob = &image.layers[0];
    Descriptor::new(&blob.media_type, blob.digest.parse().unwrap(), blob.bytes.len() as u64)
}

/// Reads a blob to its end.
pub(crate) fn read(
    client: &Client,
    reference: &Reference,
    blob: &Descriptor,
    offset: u64,
) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    match client.blob(reference, blob, offset)?.read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Error::from_io(error).unwrap()),
    }
}

/// Checks for `docker-registry`; without it a test is skipped with a message.
pub(crate) fn have(program: &str, test: &str) -> bool {
    let found = testkit::command::find_program(program).is_some();
    if !found {
        testkit::skip::note(test, &format!("{program} is not installed"));
    }
    found
}

pub(crate) fn digest(text: &str) -> Digest {
    text.parse().unwrap()
}
