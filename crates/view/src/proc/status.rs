//! Rewrites `status`: ids, capabilities, seccomp and tracer as the guest is to see them. Every
//! other line is the kernel's.

use super::lines::{Lines, Output};
use super::name::{Entry, number};
use crate::CallContext;
use crate::errno::Result;
use crate::guest::{Backend, HostFd};
use crate::identity::{Credentials, Ids};
use crate::task::{Filters, Task};

/// The state of a thread of the container that is shown.
struct Facts {
    creds: Credentials,
    filters: Filters,
}

impl Facts {
    fn of(task: &Task) -> Self {
        Self { creds: task.creds.clone(), filters: task.filters }
    }
}

/// Copies `source` to `into`.
pub(super) fn rewrite<N: Backend>(
    context: &mut CallContext<'_, N>,
    source: HostFd,
    into: HostFd,
    entry: &Entry<'_>,
) -> Result<()> {
    let tid = entry.task();
    let mut facts = None;
    if tid == context.backend.tid() || tid == context.backend.pid() {
        facts = Some(Facts::of(context.task));
    } else {
        context.backend.with_task(tid, &mut |task| facts = Some(Facts::of(task)));
    }
    let mut lines = Lines::new(source);
    let mut output = Output::new(into);
    let buffers = &mut *context.buffers;
    while let Some(line) = lines.next(context.backend, &mut buffers.input)? {
        let line = &buffers.input[line];
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        let (key, value) = line.split_at(colon);
        let mut put =
            Put { backend: context.backend, buffer: &mut buffers.output, output: &mut output };
        let identity = context.world.identity.as_ref();
        // Without a filter of the engine's, and with nobody tracing for it, the kernel tells this.
        let by_kernel = context.world.namespaces;
        let done = match (&facts, identity) {
            (Some(facts), Some(_)) => {
                put.identity(key, &facts.creds)? || !by_kernel && put.protection(key, facts)?
            }
            (Some(facts), None) => put.protection(key, facts)?,
            (None, Some(ids)) => match key {
                b"Uid" => put.mapped(key, value, ids.host_uid, ids.uid)?,
                b"Gid" => put.mapped(key, value, ids.host_gid, ids.gid)?,
                _ => false,
            },
            (None, None) => false,
        };
        if !done {
            put.bytes(line)?;
        }
    }
    output.flush(context.backend, &buffers.output)
}

/// The output, with what is needed to write to it.
struct Put<'p, N: Backend> {
    backend: &'p mut N,
    buffer: &'p mut [u8; 4096],
    output: &'p mut Output,
}

impl<N: Backend> Put<'_, N> {
    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.output.push(self.backend, self.buffer, bytes)
    }

    fn number(&mut self, number: u32) -> Result<()> {
        self.output.push_number(self.backend, self.buffer, number)
    }

    /// `Key:\tN\n`.
    fn one(&mut self, key: &[u8], value: u32) -> Result<bool> {
        self.bytes(key)?;
        self.bytes(b":\t")?;
        self.number(value)?;
        self.bytes(b"\n")?;
        Ok(true)
    }

    fn four(&mut self, key: &[u8], ids: &Ids) -> Result<bool> {
        self.bytes(key)?;
        self.bytes(b":")?;
        for id in [ids.real, ids.effective, ids.saved, ids.files] {
            self.bytes(b"\t")?;
            self.number(id)?;
        }
        self.bytes(b"\n")?;
        Ok(true)
    }

    fn set(&mut self, key: &[u8], set: u64) -> Result<bool> {
        self.bytes(key)?;
        self.bytes(b":\t")?;
        for digit in (0..16).rev() {
            let digit = (set >> (4 * digit) & 0xf) as usize;
            self.bytes(&b"0123456789abcdef"[digit..=digit])?;
        }
        self.bytes(b"\n")?;
        Ok(true)
    }

    /// Writes a line about ids or capabilities; false if the key is another one.
    fn identity(&mut self, key: &[u8], creds: &Credentials) -> Result<bool> {
        let sets = &creds.capabilities;
        match key {
            b"Uid" => self.four(key, &creds.uid),
            b"Gid" => self.four(key, &creds.gid),
            b"Groups" => {
                self.bytes(b"Groups:\t")?;
                for group in creds.groups.as_slice() {
                    self.number(*group)?;
                    self.bytes(b" ")?;
                }
                // The kernel always writes the blank.
                self.bytes(if creds.groups.as_slice().is_empty() { b" \n" } else { b"\n" })?;
                Ok(true)
            }
            b"CapInh" => self.set(key, sets.inheritable),
            b"CapPrm" => self.set(key, sets.permitted),
            b"CapEff" => self.set(key, sets.effective),
            b"CapBnd" => self.set(key, sets.bounding),
            b"CapAmb" => self.set(key, sets.ambient),
            _ => Ok(false),
        }
    }

    /// Writes a line about protections or the tracer of a thread; false if the key is another one.
    fn protection(&mut self, key: &[u8], facts: &Facts) -> Result<bool> {
        match key {
            b"TracerPid" => self.one(key, 0),
            b"NoNewPrivs" => self.one(key, u32::from(facts.creds.no_new_privileges)),
            b"Seccomp" => self.one(key, u32::from(facts.filters.mode)),
            b"Seccomp_filters" => self.one(key, facts.filters.count),
            _ => Ok(false),
        }
    }

    /// Writes the ids of a process that is not of this container: the caller's id on the host
    /// appears as the container's user.
    fn mapped(&mut self, key: &[u8], value: &[u8], host: u32, guest: u32) -> Result<bool> {
        self.bytes(key)?;
        self.bytes(b":")?;
        for word in value.trim_ascii().split(|byte| *byte == b'\t').filter(|word| *word != b":") {
            let word = word.strip_prefix(b":").unwrap_or(word);
            if word.is_empty() {
                continue;
            }
            self.bytes(b"\t")?;
            if number(word) == Some(host) { self.number(guest)? } else { self.bytes(word)? }
        }
        self.bytes(b"\n")?;
        Ok(true)
    }
}
