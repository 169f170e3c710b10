//! Writes `mounts`, `mountinfo`, `mountstats` for the guest: the bindings of the container, and the
//! host's mounts below them.
//!
//! A binding looks like a bind mount of the file system that it lies in: device, type and options
//! are those of the host's mount around it. Its number is made up, above those of the kernel; the
//! number of its parent is that of the binding around it. After `chroot` only mounts below the new
//! root are listed, as the kernel does it.
//!
//! See [proc_pid_mountinfo(5)](https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html).

use super::lines::{Lines, Output, unescape};
use crate::CallContext;
use crate::errno::Result;
use crate::guest::{Backend, Dir, HostFd};
use crate::paths::{Origin, behind, is_mount_point, reverse, seen_from};
use crate::text::{PATH_MAX, Text};
use crate::world::{Kind, World};

/// The file that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `mounts`, as in fstab(5).
    Mounts,
    /// `mountinfo`, with numbers and roots.
    Info,
    /// `mountstats`, without the counters of NFS.
    Stats,
}

/// Bytes that are escaped in paths; the `#` in sources is the kernel's own affair.
const SPECIAL: &[u8] = b" \t\n\\";
/// The first number of a binding; the kernel uses the lowest free numbers.
const FIRST: u32 = 1_000_000;

/// A line of the kernel's `mountinfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mount<'l> {
    number: &'l [u8],
    device: &'l [u8],
    root: &'l [u8],
    point: &'l [u8],
    options: &'l [u8],
    kind: &'l [u8],
    source: &'l [u8],
    file_system: &'l [u8],
}

impl<'l> Mount<'l> {
    fn read(line: &'l [u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let mut words = line.split(|byte| *byte == b' ');
        let number = words.next()?;
        words.next()?;
        let [device, root, point, options] =
            [words.next()?, words.next()?, words.next()?, words.next()?];
        words.find(|word| *word == b"-")?;
        let [kind, source, file_system] = [words.next()?, words.next()?, words.next()?];
        Some(Self { number, device, root, point, options, kind, source, file_system })
    }
}

/// A line to write: the mount for the guest.
struct Line<'l> {
    number: Number<'l>,
    parent: u32,
    mount: Mount<'l>,
    /// The visible part of the file system: this path, below the mount's root.
    below: &'l [u8],
    /// The root of the file system is shown, whatever part of it the host has mounted.
    whole: bool,
    read_only: bool,
}

enum Number<'l> {
    Made(u32),
    Kernel(&'l [u8]),
}

/// Writes the text for the guest to `into`. `source` is the file that was asked for; the kernel's
/// `mountinfo` is always read.
pub(super) fn write<N: Backend>(
    context: &mut CallContext<'_, N>,
    source: HostFd,
    into: HostFd,
    form: Form,
) -> Result<()> {
    // It was opened only so that the kernel checks the permission.
    let _ = source;
    let mut output = Output::new(into);
    let table = context.backend.open(Dir::Root, c"/proc/self/mountinfo", 0, 0, 0)?;
    let written = bindings(context, table, &mut output, form)
        .and_then(|()| beneath(context, table, &mut output, form));
    context.backend.close(table);
    written?;
    output.flush(context.backend, &context.buffers.output)
}

/// Writes a line for every binding.
fn bindings<N: Backend>(
    context: &mut CallContext<'_, N>,
    table: HostFd,
    output: &mut Output,
    form: Form,
) -> Result<()> {
    let world = context.world;
    for (index, binding) in world.bindings.iter().enumerate() {
        if binding.kind == Kind::Mask || !around(context, table, binding.host)? {
            continue;
        }
        let around = context.buffers.spare[0];
        let Some(mount) = Mount::read(around.as_bytes()) else { continue };
        let mut point = [0; PATH_MAX];
        let Some(point) = unescape(mount.point, SPECIAL, &mut point) else { continue };
        let line = Line {
            number: Number::Made(FIRST + index as u32),
            parent: parent(world, index),
            mount,
            below: behind(binding.host, point).unwrap_or(b""),
            whole: binding.kind == Kind::Tree,
            read_only: binding.read_only,
        };
        context.buffers.spare[1].set(binding.guest)?;
        write_line(context, output, form, &line)?;
    }
    Ok(())
}

/// Number of the binding around a binding.
fn parent(world: &World<'_>, index: usize) -> u32 {
    let path = world.bindings[index].guest;
    let around = world.bindings.iter().enumerate().filter(|(other, binding)| {
        *other != index && behind(path, binding.guest).is_some_and(|rest| !rest.is_empty())
    });
    let longest = around.max_by_key(|(_, binding)| binding.guest.len());
    longest.map_or(FIRST - 1, |(other, _)| FIRST + other as u32)
}

/// Finds the host's mount that contains a path; its line is put into `buffers.spare[0]`. Of several
/// mounts at one place the last is the visible one.
fn around<N: Backend>(
    context: &mut CallContext<'_, N>,
    table: HostFd,
    host: &[u8],
) -> Result<bool> {
    let buffers = &mut *context.buffers;
    let mut lines = Lines::new(table);
    let mut best = None;
    while let Some(line) = lines.next(context.backend, &mut buffers.input)? {
        let line = &buffers.input[line];
        let Some(mount) = Mount::read(line) else { continue };
        let mut point = [0; PATH_MAX];
        let Some(point) = unescape(mount.point, SPECIAL, &mut point) else { continue };
        if behind(host, point).is_some()
            && best.is_none_or(|length| point.len() >= length)
            && buffers.spare[0].set(line).is_ok()
        {
            best = Some(point.len());
        }
    }
    Ok(best.is_some())
}

/// Writes a line for every mount of the host below a binding.
fn beneath<N: Backend>(
    context: &mut CallContext<'_, N>,
    table: HostFd,
    output: &mut Output,
    form: Form,
) -> Result<()> {
    let world = context.world;
    let mut lines = Lines::new(table);
    while let Some(line) = lines.next(context.backend, &mut context.buffers.input)? {
        if context.buffers.spare[0].set(&context.buffers.input[line]).is_err() {
            continue;
        }
        let text = context.buffers.spare[0];
        let Some(mount) = Mount::read(text.as_bytes()) else { continue };
        let mut point = [0; PATH_MAX];
        let Some(point) = unescape(mount.point, SPECIAL, &mut point) else { continue };
        let guest = &mut context.buffers.spare[1];
        let Ok(Origin::Inside(index)) = reverse(world, point, guest) else { continue };
        let binding = &world.bindings[index];
        if binding.host == point || is_mount_point(world, guest.as_bytes()) {
            continue;
        }
        let line = Line {
            number: Number::Kernel(mount.number),
            parent: FIRST + index as u32,
            mount,
            below: b"",
            whole: false,
            read_only: binding.read_only,
        };
        write_line(context, output, form, &line)?;
    }
    Ok(())
}

/// Writes a line for the mount at `buffers.spare[1]`, a path of the container, unless it is outside
/// of the task's root.
fn write_line<N: Backend>(
    context: &mut CallContext<'_, N>,
    output: &mut Output,
    form: Form,
    line: &Line<'_>,
) -> Result<()> {
    let point = &mut context.buffers.spare[1];
    if !seen_from(&context.task.root, point)? {
        return Ok(());
    }
    let point: &Text = point;
    let mount = &line.mount;
    let (backend, buffer) = (&mut *context.backend, &mut context.buffers.output);
    let read_only = line.read_only || mount.options.starts_with(b"ro");
    let flags = mount.options.get(2..).filter(|_| has_access(mount.options)).unwrap_or(b"");
    let access: &[u8] = if read_only { b"ro" } else { b"rw" };
    match form {
        Form::Info => {
            match line.number {
                Number::Made(number) => output.push_number(backend, buffer, number)?,
                Number::Kernel(number) => output.push(backend, buffer, number)?,
            }
            output.push(backend, buffer, b" ")?;
            output.push_number(backend, buffer, line.parent)?;
            output.push(backend, buffer, b" ")?;
            output.push(backend, buffer, mount.device)?;
            output.push(backend, buffer, b" ")?;
            root(line, |bytes, special| output.push_escaped(backend, buffer, bytes, special))?;
            output.push(backend, buffer, b" ")?;
            output.push_escaped(backend, buffer, point.as_bytes(), SPECIAL)?;
            for part in [b" ", access, flags, b" - ", mount.kind, b" ", mount.source, b" "] {
                output.push(backend, buffer, part)?;
            }
            output.push(backend, buffer, mount.file_system)?;
        }
        Form::Mounts => {
            output.push(backend, buffer, mount.source)?;
            output.push(backend, buffer, b" ")?;
            output.push_escaped(backend, buffer, point.as_bytes(), SPECIAL)?;
            let own = mount.file_system.get(2..).filter(|_| has_access(mount.file_system));
            let access: &[u8] = if mount.file_system.starts_with(b"ro") { b"ro" } else { access };
            for part in [b" ", mount.kind, b" ", access, flags, own.unwrap_or(b""), b" 0 0"] {
                output.push(backend, buffer, part)?;
            }
        }
        Form::Stats => {
            for part in [b"device ", mount.source, b" mounted on "] {
                output.push(backend, buffer, part)?;
            }
            output.push_escaped(backend, buffer, point.as_bytes(), SPECIAL)?;
            output.push(backend, buffer, b" with fstype ")?;
            output.push(backend, buffer, mount.kind)?;
        }
    }
    output.push(backend, buffer, b"\n")
}

/// Returns true if options begin with the word `rw` or `ro`.
fn has_access(options: &[u8]) -> bool {
    let word = options.split(|byte| *byte == b',').next().unwrap_or(b"");
    word == b"rw" || word == b"ro"
}

/// Writes the part of the file system that is mounted. The container's own tree counts as a whole
/// file system.
fn root(line: &Line<'_>, mut put: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    match (line.whole, line.mount.root, line.below) {
        (true, ..) | (_, b"/", b"") => put(b"/", b""),
        (_, b"/", below) => put(below, SPECIAL),
        (_, root, below) => {
            put(root, b"")?;
            put(below, SPECIAL)
        }
    }
}
