//! The process that serves a recorded disk, in its own mount namespace.
//!
//! It reads one command per line and answers each with a line that begins with `ok` or `no`. All
//! its mounts are in its namespace, and loop devices are released with their mount, so its end
//! cleans up in every case: at the end of its input, or when it is killed.

use std::fs::File;
use std::io::{self, BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, PoisonError};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::fuse::{self, Served};
use super::image::{Entry, Image, Tail};
use super::{BOOT, DISK, MOUNTED, SPOOL};

/// Runs the server; the arguments are the directory for its files and the disk's size.
pub(super) fn run(words: &[String]) -> ExitCode {
    let [place, size] = words else { return ExitCode::FAILURE };
    let size = size.parse().unwrap_or(256 << 20);
    match begin(Path::new(place), size) {
        Ok(server) => {
            say("ok");
            server.obey();
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("no {error}"));
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) {
    let mut out = io::stdout().lock();
    // If the test has ended, the write fails; the end of its commands shows that too.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

struct Server {
    served: Arc<Served>,
    place: PathBuf,
}

fn begin(place: &Path, size: u64) -> io::Result<Server> {
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    for name in [DISK, BOOT] {
        File::create(place.join(name))?;
    }
    std::fs::write(place.join(BOOT), "00000000-1111-4222-8333-444444444444\n")?;
    let spool = place.join(SPOOL);
    let file = File::options().read(true).write(true).create_new(true).open(&spool)?;
    // Only this process uses the file, which disappears with it.
    std::fs::remove_file(&spool)?;
    let served = Arc::new(Served::new(Image::new(size, file)));
    let device = fuse::attach(&place.join(DISK))?;
    let beside = Arc::clone(&served);
    std::thread::spawn(move || {
        if let Err(error) = fuse::serve(device, &beside) {
            eprintln!("the recorded disk: {error}");
        }
    });
    Ok(Server { served, place: place.to_owned() })
}

impl Server {
    fn obey(&self) {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            match self.command(&words) {
                Ok(answer) => say(format!("ok {answer}").trim_end()),
                Err(error) => say(&format!("no {error}").replace('\n', " ")),
            }
        }
        let _ = root("umount", &["-l"], &[&self.place.join(MOUNTED)]);
    }

    fn command(&self, words: &[&str]) -> io::Result<String> {
        let image = || self.served.image.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = self.place.join(DISK);
        let mounted = self.place.join(MOUNTED);
        let parsed = |text: &str| text.parse::<u64>().map_err(io::Error::other);
        match words {
            ["make"] => {
                let flags = ["-F", "-q", "-m", "0", "-N", "16384", "-E", "nodiscard"];
                root("mkfs.ext4", &flags, &[&disk])?;
            }
            ["mount", options] => {
                let options = format!("loop,{options}");
                root("mount", &["-t", "ext4", "-o", &options], &[&disk, &mounted])?;
            }
            ["umount"] => {
                root("umount", &[], &[&mounted])?;
                self.served.wait_closed()?;
            }
            ["check"] => root("e2fsck", &["-f", "-n"], &[&disk])?,
            ["mark", number] => image().mark(u32::try_from(parsed(number)?).unwrap_or(u32::MAX)),
            // From here on the boot id differs, as after a restart of the machine.
            ["boot"] => {
                let file = Path::new("/proc/sys/kernel/random/boot_id");
                root("mount", &["--bind"], &[&self.place.join(BOOT), file])?;
            }
            ["log"] => return Ok(shape(image().log())),
            ["cut", count, tail] => {
                let tail = match *tail {
                    "kept" => Tail::Kept,
                    "lost" => Tail::Lost,
                    seed => Tail::Part(parsed(seed)?),
                };
                image().cut(usize::try_from(parsed(count)?).unwrap_or(usize::MAX), tail)?;
            }
            _ => return Err(io::Error::other(format!("no command {words:?}"))),
        }
        Ok(String::new())
    }
}

/// The log without its bytes: `w` for a write, `f` for a flush, a number for a mark.
fn shape(log: &[Entry]) -> String {
    let mut text = String::with_capacity(2 * log.len());
    for entry in log {
        match entry {
            Entry::Write { .. } => text.push('w'),
            Entry::Flush => text.push('f'),
            Entry::Mark(number) => text.push_str(&number.to_string()),
        }
        text.push(' ');
    }
    text
}

fn root(program: &str, flags: &[&str], paths: &[&Path]) -> io::Result<()> {
    let output = Command::new(program).args(flags).args(paths).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program}: {}: {}", output.status, said.trim())))
}
