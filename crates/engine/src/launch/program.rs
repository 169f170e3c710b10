//! Prepares and executes a plan's program: its strings, its limits, and the search for it in
//! `PATH`.

use crate::error::{Error, Result};
use crate::facts::RESOURCES;
use crate::plan::Process;
use rustix::io::Errno;
use std::ffi::CString;
use std::path::Path;
use sys::process::Strings;

/// Everything that allocates or can be refused, made before the first irreversible step.
#[derive(Debug)]
pub(crate) struct Ready {
    argv: Strings,
    env: Strings,
    candidates: Vec<CString>,
    name: String,
    searched: String,
}

/// Prepares the strings of a program.
pub(crate) fn ready(process: &Process) -> Result<Ready> {
    let zero = |what: &str| Error::Invalid {
        what: what.into(),
        value: String::new(),
        why: "it holds a zero byte".into(),
    };
    let name = process.argv.first().cloned().unwrap_or_default();
    let path = process.env.iter().find_map(|text| text.strip_prefix("PATH=")).unwrap_or_default();
    let mut searched = String::new();
    let candidates: Vec<String> = if name.contains('/') {
        vec![name.clone()]
    } else {
        searched = format!(" (PATH={path})");
        path.split(':')
            .map(|directory| match directory {
                "" => format!("./{name}"),
                directory => format!("{}/{name}", directory.trim_end_matches('/')),
            })
            .collect()
    };
    Ok(Ready {
        argv: Strings::new(&process.argv).ok_or_else(|| zero("command"))?,
        env: Strings::new(&process.env).ok_or_else(|| zero("environment"))?,
        candidates: candidates
            .into_iter()
            .map(CString::new)
            .collect::<Result<_, _>>()
            .map_err(|_| zero("command"))?,
        name,
        searched,
    })
}

fn call(doing: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Call { doing: doing.into(), errno: errno.into() }
}

/// Sets the mask of permissions of new files.
pub(crate) fn mask(process: &Process) {
    if let Some(umask) = process.umask {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    }
}

/// Sets limits, processors, and the mask of permissions.
pub(crate) fn limits(process: &Process) -> Result<()> {
    mask(process);
    let finite = |value: u64| (value != u64::MAX).then_some(value);
    super::file_limit::give_back();
    for limit in &process.rlimits {
        let Some(&resource) = RESOURCES.get(limit.resource as usize) else { continue };
        let (current, maximum) = (finite(limit.soft), finite(limit.hard));
        rustix::process::setrlimit(resource, rustix::process::Rlimit { current, maximum })
            .map_err(|errno| Error::Call {
                doing: format!("set the limit {resource:?} (the hard limit can only be lowered)"),
                errno: errno.into(),
            })?;
    }
    if let Some(score) = process.oom_score_adj {
        let path = Path::new("/proc/self/oom_score_adj");
        std::fs::write(path, score.to_string()).map_err(|error| Error::File {
            doing: "write".into(),
            path: path.into(),
            errno: error.into(),
        })?;
    }
    if !process.affinity.is_empty() {
        let mut set = rustix::thread::CpuSet::new();
        process.affinity.iter().for_each(|&processor| set.set(processor));
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(call("restrict the program to the processors of --cpuset-cpus"))?;
    }
    Ok(())
}

/// Executes it; returns why that was not possible.
pub(crate) fn run(ready: &Ready) -> Error {
    let exists = |path: &CString| path.to_str().is_ok_and(|path| Path::new(path).exists());
    let execute = |path: &CString, (): &mut ()| {
        Try::Refused(sys::process::exec(path, &ready.argv, &ready.env))
    };
    search(ready, &mut (), execute, |path, ()| exists(path))
}

/// What came of one candidate.
pub(crate) enum Try {
    /// It is not this one, or it cannot be executed.
    Refused(Errno),
    /// Another failure; the search ends.
    Failed(Error),
}

/// Executes the first of the candidates that can be; returns why none could. `with` is what the two
/// ways work with: to execute, and to ask whether a file is there.
pub(crate) fn search<T>(
    ready: &Ready,
    with: &mut T,
    mut execute: impl FnMut(&CString, &mut T) -> Try,
    mut exists: impl FnMut(&CString, &mut T) -> bool,
) -> Error {
    let mut denied = None;
    for path in &ready.candidates {
        let errno = match execute(path, with) {
            Try::Refused(errno) => errno,
            Try::Failed(error) => return error,
        };
        match errno {
            Errno::NOENT | Errno::NOTDIR => {
                if exists(path, with) {
                    // The interpreter of a script or the loader of a program is missing.
                    return Error::NotExecutable {
                        program: ready.name.clone(),
                        errno: errno.into(),
                    };
                }
            }
            Errno::ACCESS => {
                let inside = CString::new([path.as_bytes(), b"/."].concat()).unwrap_or_default();
                denied = Some(if exists(&inside, with) { Errno::ISDIR } else { errno });
            }
            errno => {
                return Error::NotExecutable { program: ready.name.clone(), errno: errno.into() };
            }
        }
    }
    match denied {
        Some(errno) => Error::NotExecutable { program: ready.name.clone(), errno: errno.into() },
        None => Error::NotFound { program: ready.name.clone(), searched: ready.searched.clone() },
    }
}
