//! Volumes whose directory a program of the site mounts: by sshfs, 9p, NFS, or what else it has.
//!
//! A driver `NAME` is the executable `coracle-volume-NAME` in `PATH`. It is called as the caller,
//! with the caller's environment and without a shell:
//!
//! ```text
//! coracle-volume-NAME mount   VOLUME DIRECTORY [KEY=VALUE]...
//! coracle-volume-NAME unmount VOLUME DIRECTORY [KEY=VALUE]...
//! ```
//!
//! Status 0 means that it is done. Whether a directory is mounted is asked of the kernel each time
//! and stands in no record: mounts end with the machine, with a server, or by the user's hand. So a
//! driver has to mount; one that only fills the directory is refused, because its next start could
//! not tell that from an empty directory below a mount that has failed.
//!
//! A start mounts what is not mounted, and nothing is unmounted when a container ends, because
//! another one may just be starting, on this host or, with a shared store, on others. `volume
//! unmount` and `volume rm` do that. The order of locks: a start holds its container's lock until
//! the program runs, and takes the volume's while it looks and mounts. Who unmounts takes the
//! volume's and only tries those of the containers.
//!
//! A driver that hangs is ended by the terminal's keys, since it is in this process's group, or by
//! the session's [`crate::Cancel`]. The program may leave a server behind (FUSE has one): what it
//! prints goes to a file, because the end of a pipe would come with the server's end.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use engine::spec::{MountKind, MountSpec};
use store::{Volume, VolumeInfo};

use super::record::Record;
use super::{running, spool};
use crate::error::{Error, Result};
use crate::journal::{self, Actor, Kind};
use crate::session::Session;

/// The driver of volumes in the store.
pub const DRIVER: &str = "local";

/// What the names of driver programs begin with.
const PREFIX: &str = "coracle-volume-";

/// So much of what a driver has said is read, in bytes; so many lines of it are told.
const SAID: u64 = 4096;
const LINES: usize = 5;

/// How often a driver is looked at while it runs.
const PAUSE: Duration = Duration::from_millis(5);

/// The name of a volume's driver.
pub fn driver_of(info: &VolumeInfo) -> &str {
    if info.driver.is_empty() { DRIVER } else { &info.driver }
}

/// A volume in events.
pub(crate) fn actor(name: &str, info: &VolumeInfo) -> Actor {
    Actor::volume(name).with("driver", driver_of(info))
}

/// The program of a driver.
pub(crate) fn program(session: &Session, driver: &str) -> Result<PathBuf> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if driver.is_empty() || !driver.bytes().all(plain) {
        return Err(Error::invalid(format!("'{driver}' is not the name of a volume driver"))
            .with_hint("it has letters, digits, '-', '_' and '.': 'x' means coracle-volume-x"));
    }
    let name = format!("{PREFIX}{driver}");
    host::Host::quick(&session.probing()).programs.find(&name).ok_or_else(|| {
        Error::unsupported(format!("there is no volume driver '{driver}'"))
            .because(format!("no directory of PATH has an executable {name}"))
            .with_hint("put a program of that name there: docs/volumes.md has examples")
    })
}

/// Mounts the volumes of a driver that a container is about to use. As long as the caller holds the
/// container's lock, they are not unmounted.
pub fn ready<'a>(session: &Session, mounts: impl Iterator<Item = &'a MountSpec>) -> Result<()> {
    let names = mounts.filter(|mount| mount.kind == MountKind::Volume);
    for name in names.filter_map(|mount| mount.name.as_deref()) {
        let Some(volume) = session.store()?.volumes().get(name)? else { continue };
        mount(session, &volume)?;
    }
    Ok(())
}

/// Mounts a volume, unless it is mounted or has no driver.
pub fn mount(session: &Session, volume: &Volume) -> Result<()> {
    let info = volume.info()?;
    if info.driver.is_empty() {
        return Ok(());
    }
    // Nobody can take the lock of a read-only store, so nobody unmounts it either.
    let read_only = session.store()?.read_only().is_some();
    let _lock = if read_only && is_mounted(volume)? { None } else { Some(volume.lock()?) };
    if is_mounted(volume)? {
        return check_usable(volume);
    }
    call(session, &info, "mount", volume)?;
    if !is_mounted(volume)? {
        return Err(Error::failed(format!("volume '{}' is not mounted", volume.name()))
            .because(format!(
                "{PREFIX}{} ended with status 0 and has mounted nothing at {}",
                info.driver,
                volume.data().display()
            ))
            .with_hint("a driver has to mount before it ends, in the caller's mount namespace"));
    }
    check_usable(volume)?;
    journal::tell(session, Kind::Volume, "mount", actor(volume.name(), &info));
    Ok(())
}

/// Unmounts a volume; whether it was mounted. What is in it stays where it is.
///
/// # Errors
/// If a container that runs or is starting mounts it, or the driver cannot.
pub fn unmount(session: &Session, volume: &Volume) -> Result<bool> {
    let info = volume.info()?;
    if info.driver.is_empty() {
        return Ok(false);
    }
    let _lock = volume.lock()?;
    check_idle(session, volume)?;
    unmount_locked(session, volume, &info)
}

/// The same for who holds the volume's lock and knows that no container uses it.
pub(crate) fn unmount_locked(
    session: &Session,
    volume: &Volume,
    info: &VolumeInfo,
) -> Result<bool> {
    if !is_mounted(volume)? {
        return Ok(false);
    }
    call(session, info, "unmount", volume)?;
    if is_mounted(volume)? {
        return Err(Error::conflict(format!("volume '{}' is still mounted", volume.name()))
            .because(format!("{PREFIX}{} ended with status 0", info.driver))
            .with_hint("something may be mounted twice there: do it once more"));
    }
    journal::tell(session, Kind::Volume, "unmount", actor(volume.name(), info));
    Ok(true)
}

/// Whether a volume's directory is a mount point here.
pub fn is_mounted(volume: &Volume) -> Result<bool> {
    Ok(volume.mount_points()?.contains(&volume.data()))
}

/// A mount whose server has ended stays, and each access to it fails. The directory is opened,
/// because its attributes may still be in the kernel's memory.
fn check_usable(volume: &Volume) -> Result<()> {
    let name = volume.name();
    match std::fs::read_dir(volume.data()) {
        Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => {
            let what = format!("volume '{name}' is mounted and cannot be used");
            Err(Error::failed(what).cause(error).with_hint(format!(
                "after 'coracle volume unmount {name}' its next use mounts it again"
            )))
        }
        _ => Ok(()),
    }
}

/// Refuses if a container that mounts the volume runs or is being started or changed.
fn check_idle(session: &Session, volume: &Volume) -> Result<()> {
    for container in session.store()?.containers().list()? {
        let record = match container.read::<Record>() {
            Ok(record) => record,
            Err(store::Error::NoContainer { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let mounts = &record.config.mounts;
        if !mounts.iter().any(|mount| mount.name.as_deref() == Some(volume.name())) {
            continue;
        }
        let busy = match container.try_lock_exclusive() {
            Err(store::Error::NoContainer { .. }) => false,
            lock => lock?.is_none() || running::is_running(&container)?,
        };
        if busy {
            return Err(in_use(volume.name()));
        }
    }
    Ok(())
}

/// Calls the driver, and waits for its end.
fn call(session: &Session, info: &VolumeInfo, verb: &str, volume: &Volume) -> Result<()> {
    let (name, driver) = (volume.name(), &info.driver);
    let program = program(session, driver)?;
    let options = info.options.iter().map(|(key, value)| format!("{key}={value}"));
    let mut said = spool::file(session)?;
    let failed = || Error::failed(format!("driver '{driver}' cannot {verb} volume '{name}'"));
    let broken = |error: std::io::Error| failed().cause(error);
    let mut command = Command::new(&program);
    command.args([verb, name]).arg(volume.data()).args(options);
    command.env_clear().envs(session.environment()).stdin(Stdio::null());
    command.stdout(said.try_clone().map_err(broken)?);
    command.stderr(said.try_clone().map_err(broken)?);
    let child = command.spawn().map_err(|error| {
        broken(error).with_hint(format!("{} is its program", program.display()))
    })?;
    let status = wait(session, child)?.map_err(broken)?;
    if status.success() {
        return Ok(());
    }
    let words = last_lines(&mut said);
    let words = if words.is_empty() { status.to_string() } else { words };
    Err(failed().because(words).with_hint(format!("its program is {}", program.display())))
}

/// Waits for a program, or ends it if somebody cancels the operation.
fn wait(session: &Session, mut child: Child) -> Result<std::io::Result<ExitStatus>> {
    loop {
        match child.try_wait() {
            Ok(None) => {}
            Ok(Some(status)) => return Ok(Ok(status)),
            Err(error) => return Ok(Err(error)),
        }
        if let Err(cancelled) = session.cancel().check() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(cancelled);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The end of what a program has said.
fn last_lines(said: &mut File) -> String {
    let size = said.metadata().map_or(0, |meta| meta.len());
    let mut bytes = Vec::new();
    let _ = said.seek(SeekFrom::Start(size.saturating_sub(SAID)));
    let _ = said.take(SAID).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|l| !l.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// The error for a volume that containers use.
pub(crate) fn in_use(name: &str) -> Error {
    Error::conflict(format!("volume '{name}' is in use")).with_hint(format!(
        "'coracle ps -a --filter volume={name}' lists the containers that use it"
    ))
}
