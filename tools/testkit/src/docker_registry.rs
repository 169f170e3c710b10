//! Runs a real registry: Debian's `docker-registry` on a free loopback port with temporary storage.
//!
//! Plain HTTP, or TLS with a generated certificate; open, or with basic authentication (user
//! `tester`, password `secret`). Stopped and deleted when dropped.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::command::{find_program, until};
use crate::push::Target;
use crate::scratch::Scratch;

/// The user name for [`Options::password`].
pub const USER: &str = "tester";
/// That user's password.
pub const PASSWORD: &str = "secret";
/// `bcrypt` of [`PASSWORD`] (crypt(5)), the only scheme that `docker-registry` accepts.
const HTPASSWD: &str = "tester:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";
/// Base64 of `tester:secret`.
const BASIC: &str = "dGVzdGVyOnNlY3JldA==";

/// Options of a registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// TLS with a private certificate ([`DockerRegistry::certificate`]).
    pub tls: bool,
    /// Require basic authentication.
    pub password: bool,
}

/// A running registry.
#[derive(Debug)]
pub struct DockerRegistry {
    child: Child,
    address: SocketAddr,
    options: Options,
    scratch: Scratch,
}

impl DockerRegistry {
    /// Starts a plain, open registry.
    pub fn start() -> io::Result<Self> {
        Self::start_with(Options::default())
    }

    /// Starts a registry and waits until it answers.
    pub fn start_with(options: Options) -> io::Result<Self> {
        let program = find_program("docker-registry").ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "docker-registry is not installed")
        })?;
        // Another process may take the free port before it is used.
        let mut last = io::Error::other("no try was made");
        for _ in 0..5 {
            match Self::attempt(&program, options) {
                Ok(registry) => return Ok(registry),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn attempt(program: &Path, options: Options) -> io::Result<Self> {
        let scratch = Scratch::new("registry")?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let config = scratch.path().join("config.yml");
        fs::write(&config, settings(scratch.path(), address, options)?)?;
        let log = fs::File::create(scratch.path().join("log"))?;
        let mut child = Command::new(program)
            .arg("serve")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let ready = until(Duration::from_secs(20), || {
            if child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Some(false);
            }
            TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok().then_some(true)
        });
        if ready == Some(true) {
            return Ok(Self { child, address, options, scratch });
        }
        let _ = child.kill();
        let _ = child.wait();
        let log = fs::read_to_string(scratch.path().join("log")).unwrap_or_default();
        Err(io::Error::other(format!("docker-registry did not start: {log}")))
    }

    /// `127.0.0.1:port`, the part before the repository in a reference.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Target for [`crate::push`].
    ///
    /// # Panics
    /// With TLS: the simple client does not support it; push with `skopeo`.
    pub fn target(&self) -> Target {
        assert!(!self.options.tls, "push to a TLS registry with skopeo");
        let basic = self.options.password.then(|| BASIC.to_owned());
        Target { address: self.address, basic }
    }

    /// The certificate to trust, with [`Options::tls`].
    pub fn certificate(&self) -> PathBuf {
        self.scratch.path().join("cert.pem")
    }

    /// The directory of the registry's files, which a test can damage.
    pub fn storage(&self) -> PathBuf {
        self.scratch.path().join("storage")
    }

    /// The path of a blob's bytes in the storage.
    pub fn blob_file(&self, digest: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        let two = hex.get(..2).unwrap_or_default();
        self.storage().join(format!("docker/registry/v2/blobs/sha256/{two}/{hex}/data"))
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn settings(dir: &Path, address: SocketAddr, options: Options) -> io::Result<String> {
    let at = dir.display();
    let mut text = format!(
        "version: 0.1\nlog:\n  level: warn\nstorage:\n  filesystem:\n    rootdirectory: {at}/storage\n  \
         delete:\n    enabled: true\nhttp:\n  addr: {address}\n  secret: tests\n"
    );
    if options.tls {
        certificate(dir)?;
        let _ = write!(text, "  tls:\n    certificate: {at}/cert.pem\n    key: {at}/key.pem\n");
    }
    if options.password {
        fs::write(dir.join("htpasswd"), HTPASSWD)?;
        let _ = write!(text, "auth:\n  htpasswd:\n    realm: tests\n    path: {at}/htpasswd\n");
    }
    Ok(text)
}

fn certificate(dir: &Path) -> io::Result<()> {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost,DNS:registry.test"])
        .arg("-keyout")
        .arg(dir.join("key.pem"))
        .arg("-out")
        .arg(dir.join("cert.pem"))
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}
