//! The last steps before the program: directory, limits, groups, ids, capabilities, filters,
//! `execve`.
//!
//! Order matters. Filters that need `CAP_SYS_ADMIN` (without `no_new_privs`) come before the
//! capabilities go. The bounding set shrinks before the user changes, and ambient capabilities are
//! raised after that.

use super::identity;
use crate::error::{Error, Result};
use crate::launch::program::{Ready, limits, mask, run};
use crate::plan::{Groups, Ids, Plan, Process, Seccomp};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::convert::Infallible;

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::call(doing, errno)
}

/// As [`execute`], of a program whose calls as root are not answered by another process.
pub(in crate::engines) fn execute_alone(
    plan: &Plan,
    ready: &Ready,
    tied: bool,
) -> Result<Infallible> {
    make_ready(plan, tied)?;
    limits(&plan.process)?;
    Err(run(ready))
}

/// Turns the process into the program. The process is in the container already.
pub(super) fn execute(plan: &Plan, ready: &Ready, tied: bool, fresh: bool) -> Result<Infallible> {
    make_ready(plan, tied)?;
    Err(identity::execute(plan, ready, fresh))
}

/// Everything of the process that the program keeps.
fn make_ready(plan: &Plan, tied: bool) -> Result<()> {
    let process = &plan.process;
    enter_directory(process)?;
    if !process.no_new_privileges {
        filters(plan)?;
    }
    become_user(plan)?;
    if process.no_new_privileges {
        rustix::thread::set_no_new_privs(true).map_err(call("set no_new_privs"))?;
        filters(plan)?;
    }
    if tied {
        // The change of ids has cleared what was set before.
        let _ =
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    }
    crate::launch::caller::give_back_signals();
    Ok(())
}

fn enter_directory(process: &Process) -> Result<()> {
    let failed =
        |errno: Errno| Error::WorkingDirectory { path: process.cwd.clone(), errno: errno.into() };
    // A directory that is made here has the program's mode.
    mask(process);
    match rustix::process::chdir(&process.cwd) {
        Err(Errno::NOENT) if process.create_cwd => {
            super::tree::make_directories(&process.cwd).map_err(failed)?;
            rustix::process::chdir(&process.cwd).map_err(failed)?;
        }
        result => result.map_err(failed)?,
    }
    // The links of `/proc` lead to what a process has open, wherever that is. Of a directory that
    // is not below the root the kernel says "(unreachable)".
    let reached = rustix::process::getcwd(Vec::new()).map_err(failed)?;
    if reached.to_bytes().first() == Some(&b'/') {
        return Ok(());
    }
    Err(Error::Outside { path: process.cwd.clone() })
}

/// Takes from an init that is executed next all that its program does not have, except the right to
/// signal it.
pub(in crate::engines) fn restrain(plan: &Plan) -> Result<()> {
    let kill = 1 << CapabilitySet::KILL.bits().trailing_zeros();
    let bounded = plan.process.capabilities.map_or(Ok(()), |sets| bound(sets.bounding | kill));
    if plan.process.no_new_privileges {
        rustix::thread::set_no_new_privs(true).map_err(call("set no_new_privs"))?;
    }
    bounded.and_then(|()| filters(plan))
}

/// Programs that are executed from now on have at most these capabilities, whatever their user.
pub(in crate::engines) fn bound(capabilities: u64) -> Result<()> {
    for bit in (0..64).filter(|bit| capabilities >> bit & 1 == 0) {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The first number that the kernel does not know.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(call("shrink the capability bounding set")(errno)),
        }
    }
    Ok(())
}

fn become_user(plan: &Plan) -> Result<()> {
    let process = &plan.process;
    if let Some(capabilities) = process.capabilities {
        bound(capabilities.bounding)?;
    }
    if let Ids::Range { .. } = plan.ids {
        if let Groups::Set(groups) = &process.groups {
            let groups: Vec<Gid> = groups.iter().map(|&gid| Gid::from_raw(gid)).collect();
            rustix::thread::set_thread_groups(&groups).map_err(call("set the groups"))?;
        }
        let ambient = process.capabilities.map_or(0, |sets| sets.ambient);
        if ambient != 0 {
            rustix::thread::set_keep_capabilities(true).map_err(call("keep capabilities"))?;
        }
        let gid = Gid::from_raw(process.gid);
        rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(call("become the group"))?;
        let uid = Uid::from_raw(process.uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(call("become the user"))?;
    }
    if process.uid != 0 && !identity::is_wanted(plan) {
        drop_to(process.capabilities.map_or(0, |sets| sets.ambient))?;
    }
    Ok(())
}

/// Leaves a user other than root exactly these capabilities, across `execve`.
fn drop_to(ambient: u64) -> Result<()> {
    if ambient == 0 {
        // `execve` by a user other than root drops everything that is not ambient.
        return Ok(());
    }
    let set = CapabilitySet::from_bits_retain(ambient);
    let sets = CapabilitySets { effective: set, permitted: set, inheritable: set };
    rustix::thread::set_capabilities(None, sets).map_err(call("set the capabilities"))?;
    for bit in (0..64).filter(|bit| ambient >> bit & 1 == 1) {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        rustix::thread::configure_capability_in_ambient_set(one, true)
            .map_err(call("raise an ambient capability"))?;
    }
    Ok(())
}

/// The filter that was asked for, and the one that a boundary has whatever was asked for.
fn filters(plan: &Plan) -> Result<()> {
    if plan.isolate {
        sys::seccomp::install(&super::tty_filter::program())
            .map_err(call("install the filter for the caller's terminal"))?;
    }
    filter(&plan.process)
}

fn filter(process: &Process) -> Result<()> {
    let program = match &process.seccomp {
        Seccomp::None => return Ok(()),
        Seccomp::Docker => super::seccomp_profile::docker(process.capabilities),
        Seccomp::Profile(text) => super::seccomp_profile::custom(text, process.capabilities)?,
    };
    sys::seccomp::install(&program).map_err(call("install the system call filter"))
}
