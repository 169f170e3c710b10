//! The notifier's loop: one call in, one answer out.

use super::files::Files;
use super::identity::Identity;
use abi::syscalls;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use sys::peer;
use sys::seccomp::{Answer, Listener, Waiting};

/// `RLIMIT_RTTIME`, whose soft value carries the number of an identity.
const TAG: u32 = 15;
/// Above any time that means something (150,000 years in microseconds).
const TAG_BASE: u64 = 1 << 62;
/// Most supplementary groups (`NGROUPS_MAX`).
const MAX_GROUPS: u64 = 65_536;

type Handler = fn(&mut Server, &Waiting) -> Result<Answer, Errno>;

/// What the notifier knows.
pub(super) struct Server {
    /// Identities that were ever set; the first is the plain one.
    identities: Vec<Identity>,
    pub(super) files: Files,
}

/// Answers until the last process under the filter has ended. `proc` is a `/proc` in which our own
/// pid namespace is shown.
///
/// `table` is the container's directory and the name of its ownership table there.
///
/// `groups` are shown as the program's supplementary groups; `None` for the kernel's.
pub(super) fn serve(
    listener: &Listener,
    proc: OwnedFd,
    table: Option<(OwnedFd, &'static str)>,
    groups: Option<Vec<u32>>,
) {
    // Fails on kernels before 6.6, where answers take longer.
    let _ = listener.wake_up_here();
    let handlers = handlers();
    let plain = Identity { groups, ..Identity::default() };
    let mut server = Server { identities: vec![plain], files: Files::new(proc, table) };
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        let events = fds[0].revents();
        if !events.contains(PollFlags::IN) {
            if events.intersects(PollFlags::HUP | PollFlags::ERR) {
                return;
            }
            continue;
        }
        let Ok(waiting) = listener.receive() else { continue };
        let answer = match handlers.get(&(waiting.number as u32)) {
            Some(handler) => handler(&mut server, &waiting).unwrap_or_else(Answer::Error),
            None => Answer::Continue,
        };
        // Whoever does not wait any more needs no answer.
        let _ = listener.answer(waiting.id, answer);
    }
}

fn handlers() -> HashMap<u32, Handler> {
    let all: [(&str, Handler); 30] = [
        ("getuid", |server, call| Ok(server.read_id(call, |who| who.user[0]))),
        ("geteuid", |server, call| Ok(server.read_id(call, |who| who.user[1]))),
        ("getgid", |server, call| Ok(server.read_id(call, |who| who.group[0]))),
        ("getegid", |server, call| Ok(server.read_id(call, |who| who.group[1]))),
        ("getresuid", |server, call| server.read_three(call, |who| who.user)),
        ("getresgid", |server, call| server.read_three(call, |who| who.group)),
        ("getgroups", Server::read_groups),
        ("setuid", |server, call| server.change(call, |who, [id, ..]| who.set(true, id))),
        ("setgid", |server, call| server.change(call, |who, [id, ..]| who.set(false, id))),
        ("setreuid", |server, call| {
            server.change(call, |who, [real, effective, _]| who.set_two(true, real, effective))
        }),
        ("setregid", |server, call| {
            server.change(call, |who, [real, effective, _]| who.set_two(false, real, effective))
        }),
        ("setresuid", |server, call| server.change(call, |who, ids| who.set_three(true, ids))),
        ("setresgid", |server, call| server.change(call, |who, ids| who.set_three(false, ids))),
        ("setfsuid", |server, call| server.change_files(call, true)),
        ("setfsgid", |server, call| server.change_files(call, false)),
        ("setgroups", Server::set_groups),
        ("prctl", Server::keep_capabilities),
        ("chown", |server, call| server.chown_path(call, true)),
        ("lchown", |server, call| server.chown_path(call, false)),
        ("fchown", Server::chown_descriptor),
        ("fchownat", Server::chown_at),
        ("mknod", Server::mknod),
        ("mknodat", Server::mknod_at),
        ("setxattr", |server, call| server.set_attribute_path(call, true)),
        ("lsetxattr", |server, call| server.set_attribute_path(call, false)),
        ("fsetxattr", Server::set_attribute_descriptor),
        ("chmod", Server::chmod),
        ("fchmod", |server, call| Ok(server.chmod_descriptor(call))),
        ("fchmodat", Server::chmod_at),
        ("fchmodat2", Server::chmod_at_with_flags),
    ];
    all.into_iter().filter_map(|(name, handler)| Some((syscalls::x86_64(name)?, handler))).collect()
}

impl Server {
    /// What a process believes to be.
    pub(super) fn identity(&self, thread: u32) -> &Identity {
        let plain = &self.identities[0];
        if self.identities.len() == 1 {
            return plain;
        }
        match sys::process::limit(thread, TAG) {
            Ok((soft, _)) if soft != u64::MAX && soft >= TAG_BASE => {
                self.identities.get((soft - TAG_BASE) as usize).unwrap_or(plain)
            }
            _ => plain,
        }
    }

    fn set_identity(&mut self, thread: u32, identity: Identity) -> Result<(), Errno> {
        let known = self.identities.iter().position(|one| *one == identity);
        let number = known.unwrap_or_else(|| {
            self.identities.push(identity);
            self.identities.len() - 1
        });
        let (soft, hard) = sys::process::limit(thread, TAG)?;
        let tag = TAG_BASE + number as u64;
        if soft == tag || (number == 0 && (soft < TAG_BASE || soft == u64::MAX)) {
            return Ok(());
        }
        sys::process::set_limit(thread, TAG, tag, hard)
    }

    fn read_id(&self, call: &Waiting, field: fn(&Identity) -> u32) -> Answer {
        let identity = self.identity(call.thread);
        // The kernel knows best what a process is that never changed: it may have made a namespace
        // of its own.
        if identity.is_plain() {
            return Answer::Continue;
        }
        Answer::Value(i64::from(field(identity)))
    }

    fn read_three(&self, call: &Waiting, ids: fn(&Identity) -> [u32; 4]) -> Result<Answer, Errno> {
        let identity = self.identity(call.thread);
        if identity.is_plain() {
            return Ok(Answer::Continue);
        }
        for (id, address) in ids(identity).into_iter().zip(&call.arguments[..3]) {
            peer::write(call.thread, *address, &id.to_ne_bytes())?;
        }
        Ok(Answer::Value(0))
    }

    fn read_groups(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        let Some(groups) = &self.identity(call.thread).groups else { return Ok(Answer::Continue) };
        let size = call.arguments[0] as i32;
        if size != 0 {
            if (size as u32 as usize) < groups.len() || size < 0 {
                return Err(Errno::INVAL);
            }
            let bytes: Vec<u8> = groups.iter().flat_map(|group| group.to_ne_bytes()).collect();
            if !bytes.is_empty() {
                peer::write(call.thread, call.arguments[1], &bytes)?;
            }
        }
        Ok(Answer::Value(groups.len() as i64))
    }

    fn change(
        &mut self,
        call: &Waiting,
        rule: impl Fn(&mut Identity, [u32; 3]) -> Result<(), Errno>,
    ) -> Result<Answer, Errno> {
        let mut identity = self.identity(call.thread).clone();
        let [first, second, third, ..] = call.arguments.map(|argument| argument as u32);
        rule(&mut identity, [first, second, third])?;
        self.set_identity(call.thread, identity)?;
        Ok(Answer::Value(0))
    }

    fn change_files(&mut self, call: &Waiting, user: bool) -> Result<Answer, Errno> {
        let mut identity = self.identity(call.thread).clone();
        let old = identity.set_files(user, call.arguments[0] as u32);
        self.set_identity(call.thread, identity)?;
        Ok(Answer::Value(i64::from(old)))
    }

    /// The kernel keeps them in any case; what they allow is decided here.
    fn keep_capabilities(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        let mut identity = self.identity(call.thread).clone();
        identity.keeps = [call.arguments[1] == 1 && identity.is_root(); 2];
        self.set_identity(call.thread, identity)?;
        Ok(Answer::Continue)
    }

    fn set_groups(&mut self, call: &Waiting) -> Result<Answer, Errno> {
        let count = call.arguments[0] & 0xffff_ffff;
        if count > MAX_GROUPS {
            return Err(Errno::INVAL);
        }
        let mut bytes = vec![0; count as usize * 4];
        if !bytes.is_empty() {
            peer::read_exact(call.thread, call.arguments[1], &mut bytes)?;
        }
        let (groups, _) = bytes.as_chunks::<4>();
        let groups = groups.iter().map(|group| u32::from_ne_bytes(*group)).collect();
        let mut identity = self.identity(call.thread).clone();
        identity.set_groups(groups)?;
        self.set_identity(call.thread, identity)?;
        Ok(Answer::Value(0))
    }
}
