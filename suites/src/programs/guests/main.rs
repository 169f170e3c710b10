//! A guest program of threads, files, other programs and sockets through Rust's library, with each
//! C library.
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs, io, thread};

fn walk(place: &Path, counts: &mut BTreeMap<&'static str, usize>) -> io::Result<()> {
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let what = if kind.is_dir() { "directories" } else if kind.is_symlink() { "links" } else { "files" };
        *counts.entry(what).or_default() += 1;
        assert_eq!(entry.metadata()?.ino(), fs::symlink_metadata(entry.path())?.ino());
        if kind.is_dir() {
            walk(&entry.path(), counts)?;
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    if let Some(word) = env::args().nth(1) {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        println!("{word} {text} {}", env::current_dir()?.display());
        std::process::exit(3);
    }
    let top = Path::new("/srv/rust");
    fs::create_dir_all(top)?;
    env::set_current_dir(top)?;
    println!("{} {}", env::current_exe()?.display(), env::current_dir()?.display());
    let threads: Vec<_> = (0..40)
        .map(|index| {
            thread::spawn(move || -> io::Result<u64> {
                let name = format!("f{index}");
                for round in 0..20 {
                    fs::write(&name, vec![b'x'; round])?;
                    fs::set_permissions(&name, fs::Permissions::from_mode(0o640))?;
                    std::os::unix::fs::chown(&name, Some(5), Some(6))?;
                }
                let facts = fs::metadata(&name)?;
                fs::rename(&name, format!("g{index}"))?;
                Ok(facts.len() + u64::from(facts.uid()) + u64::from(facts.mode() & 0o777 == 0o640))
            })
        })
        .collect();
    let sum: u64 = threads.into_iter().map(|one| one.join().expect("no panic").expect("no error")).sum();
    println!("threads {sum}");
    let mut counts = BTreeMap::new();
    walk(top, &mut counts)?;
    walk(Path::new("/etc"), &mut BTreeMap::new())?;
    println!("{counts:?}");
    let ends: Vec<_> = (0..30)
        .map(|_| {
            thread::spawn(|| {
                let mut child = Command::new(env::current_exe()?).arg("again").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
                child.stdin.take().expect("a pipe").write_all(b"and")?;
                let done = child.wait_with_output()?;
                Ok::<_, io::Error>((done.status.code(), String::from_utf8_lossy(&done.stdout).trim().to_owned()))
            })
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|one| one.join().expect("no panic").expect("no error"))
        .collect();
    println!("{} {:?}", ends.iter().filter(|end| **end == ends[0]).count(), ends[0]);
    println!("{}", Command::new("/nowhere").spawn().expect_err("nothing is there"));
    println!("{:?}", Command::new("/bin/sh").args(["-c", "kill -9 $$"]).status()?);
    let listener = UnixListener::bind("socket")?;
    let client = thread::spawn(|| UnixStream::connect("/srv/rust/socket")?.write_all(b"hello"));
    let mut said = String::new();
    let (mut one, _) = listener.accept()?;
    one.read_to_string(&mut said)?;
    client.join().expect("no panic")?;
    println!("{said} {:?}", listener.local_addr()?.as_pathname());
    println!("{:?}", fs::canonicalize("/proc/self/cwd")?);
    let broken = thread::Builder::new().name("broken".to_owned()).spawn(|| panic!("on purpose"))?.join();
    println!("{}", broken.is_err());
    fs::remove_dir_all(top)
}
