//! Single system calls, many times. What a call needs is made ready before, so a run makes the
//! calls and nothing else.

use std::ffi::CString;
use std::fs::{self, File};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use xtask::shell::Outcome;

/// One call, so many times.
pub(super) struct Calls {
    name: String,
    count: u32,
    call: Box<dyn Fn() -> io::Result<()>>,
}

impl Calls {
    /// `CALL COUNT PATH...`; a `random` stat is made of each name in a file, COUNT times.
    pub(super) fn new(words: &[String]) -> Outcome<Self> {
        let [name, count, paths @ ..] = words else {
            return Err("a call and a count are needed".to_owned());
        };
        let count = count.parse().map_err(|_| "the count is not a number")?;
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let call = make(name, &paths).map_err(|error| format!("{name} {paths:?}: {error}"))?;
        Ok(Self { name: words.join(" "), count, call })
    }

    pub(super) fn run(&self) -> Outcome {
        for _ in 0..self.count {
            (self.call)().map_err(|error| format!("{}: {error}", self.name))?;
        }
        Ok(())
    }
}

fn make(name: &str, paths: &[&str]) -> io::Result<Box<dyn Fn() -> io::Result<()>>> {
    let text = |path: &str| CString::new(path).map_err(io::Error::other);
    let first = |default: &'static str| text(paths.first().copied().unwrap_or(default));
    Ok(match (name, paths) {
        ("stat", _) => {
            let path = first("/usr/share/doc/base-files")?;
            Box::new(move || rustix::fs::stat(&path).map(drop).map_err(Into::into))
        }
        ("missing", [path]) => {
            let path = text(path)?;
            Box::new(move || match rustix::fs::stat(&path) {
                Err(Errno::NOENT) => Ok(()),
                _ => Err(io::Error::other("the name is not missing")),
            })
        }
        ("random", [list]) => {
            let names =
                shuffled(fs::read_to_string(list)?.lines().map(text).collect::<Result<_, _>>()?);
            Box::new(move || {
                names
                    .iter()
                    .try_for_each(|path| rustix::fs::stat(path).map(drop))
                    .map_err(Into::into)
            })
        }
        ("access", [path]) => {
            let path = text(path)?;
            Box::new(move || rustix::fs::access(&path, Access::READ_OK).map_err(Into::into))
        }
        ("readlink", [path]) => {
            let path = text(path)?;
            Box::new(move || {
                let mut target = [0_u8; 256];
                rustix::fs::readlinkat_raw(CWD, &path, &mut target).map(drop).map_err(Into::into)
            })
        }
        ("statat", [dir, path]) => {
            let (dir, path) = (File::open(dir)?, text(path)?);
            Box::new(move || {
                rustix::fs::statat(&dir, &path, AtFlags::empty()).map(drop).map_err(Into::into)
            })
        }
        ("open", _) => {
            let path = first("/etc/passwd")?;
            Box::new(move || {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                rustix::fs::open(&path, flags, Mode::empty()).map(drop).map_err(Into::into)
            })
        }
        ("fstat", [path]) => {
            let file = File::open(path)?;
            Box::new(move || rustix::fs::fstat(&file).map(drop).map_err(Into::into))
        }
        ("getcwd", []) => Box::new(|| {
            rustix::process::getcwd(Vec::with_capacity(256)).map(drop).map_err(Into::into)
        }),
        ("getppid", []) => Box::new(|| {
            black_box(rustix::process::getppid());
            Ok(())
        }),
        ("read", []) => {
            let file = File::open("/etc/passwd")?;
            Box::new(move || file.read_exact_at(&mut [0], 0))
        }
        _ => return Err(io::Error::other("there is no such loop")),
    })
}

/// The names in an order that is random and always the same.
fn shuffled(mut names: Vec<CString>) -> Vec<CString> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for at in (1..names.len()).rev() {
        // xorshift64.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state >> 33).unwrap_or_default() % (at + 1);
        names.swap(at, other);
    }
    names
}
