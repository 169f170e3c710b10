//! Mounts for one case: root makes them in a mount namespace that ends with its holder, and
//! programs enter it by `nsenter`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::skip::{Skip, need_program};

/// A mount namespace, held by a sleeping process.
pub struct Mounts {
    holder: Child,
}

impl Mounts {
    /// Makes it by a script of a shell.
    ///
    /// # Errors
    /// If `unshare` or `nsenter` is missing, or the script fails: then with `why`.
    pub fn made(script: &str, why: &str) -> Result<Self, Skip> {
        for program in ["unshare", "nsenter"] {
            need_program(program)?;
        }
        let script = format!("{script} && echo ready && exec sleep 1000");
        let mut holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Skip(format!("unshare: {error}")))?;
        // The script has done its work then.
        let mut said = String::new();
        if let Some(out) = holder.stdout.take() {
            let _ = BufReader::new(out).read_line(&mut said);
        }
        let mounts = Self { holder };
        if said.trim() == "ready" { Ok(mounts) } else { Err(Skip(why.to_owned())) }
    }

    /// Ends it.
    pub fn end(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }

    /// The process that holds it.
    pub fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// A command of root there, whose words are missing.
    pub fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.holder()));
        command.stdin(Stdio::null());
        command
    }

    /// A command there, with its own variables alone.
    pub fn command(&self, inner: &Command) -> Command {
        let mut command = self.enter();
        command.arg(inner.get_program()).args(inner.get_args()).env_clear();
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        self.end();
    }
}
