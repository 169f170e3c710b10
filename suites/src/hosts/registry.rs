//! Registries on hosts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use testkit::command::{Input, find_program, run_with, until};
use testkit::image::Built;
use testkit::push::Target;
use testkit::skip::{Skip, need_program};

use crate::hosts::lab::{LIMIT, Lab, REGISTRY};

/// A registry on the last host.
pub(crate) struct Registry {
    process: Child,
    /// The directory of its files.
    at: PathBuf,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    pub(crate) fn start(lab: &Lab) -> Result<Self, Skip> {
        let at = lab.shared.join("registry");
        let address = format!("{}:5000", lab.hosts.address(REGISTRY));
        let on = |command: &Command| lab.hosts.command(REGISTRY, command);
        Ok(Self { process: serve(&at, &address, on)?, at })
    }

    /// Puts an image into its files.
    pub(crate) fn push(&self, name: &str, image: &Built) {
        push(&self.at, name, image).expect("a registry");
    }
}

/// Starts one with the files of a directory that listens here, on any host.
pub(crate) fn serve(
    at: &Path,
    address: &str,
    on: impl Fn(&Command) -> Command,
) -> Result<Child, Skip> {
    let program = need_program("docker-registry")?;
    fs::create_dir_all(at).expect("a directory");
    let (config, log) = (at.join("config.yml"), at.join("log"));
    let text = format!(
        "version: 0.1\nlog:\n  level: warn\nstorage:\n  filesystem:\n    \
         rootdirectory: {}/storage\nhttp:\n  addr: {address}\n  secret: tests\n",
        at.display()
    );
    fs::write(&config, text).expect("a file");
    let mut command = Command::new(program);
    command.arg("serve").arg(&config);
    let mut process = on(&command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).expect("a file"))
        .spawn()
        .expect("a registry");
    let (host, port) = address.split_once(':').expect("an address");
    let up = until(Duration::from_secs(20), || {
        let mut command = Command::new(find_program("bash").expect("bash"));
        command.args(["-c", &format!("exec 3<>/dev/tcp/{host}/{port}")]);
        (run_with(&mut on(&command), Input::Null, LIMIT).code() == 0).then_some(())
    });
    if up.is_none() {
        let _ = process.kill();
        let _ = process.wait();
        let why = fs::read_to_string(log).unwrap_or_default();
        return Err(Skip(format!("no registry: {why}")));
    }
    Ok(process)
}

/// Puts an image into the files of a registry, whether or not it runs.
pub(crate) fn push(at: &Path, name: &str, image: &Built) -> Result<(), Skip> {
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let here = |command: &Command| {
        let mut same = Command::new(command.get_program());
        same.args(command.get_args());
        same
    };
    let mut process = serve(at, &address.to_string(), here)?;
    let pushed = Target { address, basic: None }.image(name, "1", image);
    let _ = process.kill();
    let _ = process.wait();
    pushed.expect("an image in the registry");
    Ok(())
}
