//! Checks the release binary: it must be static, small, run in modes F, and open no library of the
//! host.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use abi::code::census::{Census, Verdict};
use testkit::nss;
use testkit::scratch::Scratch;
use testkit::users;

use crate::map;
use crate::shell::{Outcome, built, cargo, check, read};

/// The largest size of the stripped binary, in bytes.
///
/// | bytes | what it grew by |
/// |---|---|
/// | 9,332,056 | when containers became safe to share between hosts |
/// | 9,521,752 | `containers` 50 kB, typed mounts and records 65 kB, `hostfs` 33 kB, `std` 20 kB |
/// | 9,875,864 | Docker's objects and options, state and log of every run; not looked into |
/// | 9,903,256 | the effect of access lists 12 kB, users kept apart 10 kB |
/// | 9,971,928 | `events`: 14 kB of its own, the rest what was inlined otherwise |
/// | 10,053,336 | the index of an image, made, checked and shown: 55 kB of code and its tables |
/// | 10,448,888 | two layers: `rootfs` 65 kB, stage 70, `hostfs` 47, `containers` 40, `engine` 23 |
/// | 10,796,920 | networks with names: objects and commands 170 kB, addresses in the view, which is
/// there twice, 180 |
/// | 10,921,144 | an agent that answers DNS (`simple-dns`) 90 kB, private networks by addresses 30 |
/// | 11,010,936 | networks of packets: a switch, devices, and who keeps them |
/// | 11,063,752 | interfaces of networks with names, in the view twice, their variables and
/// explanation, trials for `doctor` |
/// | 11,375,736 | networks of several hosts: links by TLS (the server's half of `rustls`), lists,
/// keys, commands, answers to other hosts |
/// | 11,475,192 | the way out of networks of packets by the switch (`smoltcp`) |
/// | 10,861,624 | less: functions with the same code 190 kB, `ring` and `rootfs` as small as the
/// rest 230, crates that are seldom used at "z" 100, empty buffers of the view 73, a second reader
/// of errors 36 |
/// | 10,933,688 | IPv6 in networks of packets 37 kB, a host name that root sets, names of members
/// that change |
/// | 11,785,912 | clusters: file, plan, driver, agent, ssh and Slurm, batch systems, `rsh` between
/// nodes, logs and copies; errors with their place (`annotate-snippets`) |
/// | 11,944,344 | ranks, images from host to host, host facts, input and output, failures 310 kB;
/// less: names of frames 190 kB |
/// | 11,968,152 | images by `sbcast`, stores with room for images, hosts that are slow |
/// | 12,114,712 | services that grow and shrink: balancers, `scale`, `replace`, rules |
/// | 12,205,272 | a Slurm whose nodes are containers |
/// | 12,263,992 | addresses that move between members and hosts, `keepalived` beside balancers |
/// | 12,325,112 | volumes by drivers, services and nodes without lost hosts, users of directories |
/// | 12,441,912 | a Grid Engine whose nodes are containers: 50 kB of its own, `roxmltree` 22 |
/// | 12,475,704 | `remote` apart from `cluster` 8 kB, its own copies of generic functions 15 |
/// | 12,511,736 | directories that are moved while others look for them, in the view twice; what a
/// driver that was killed has left of a service |
/// | 12,639,992 | what the caller could do to the host's files, hidden words, shared networks,
/// ports that hosts choose, the table of options |
const LARGEST: u64 = 12_650_000;

/// The words for cargo.
pub const BUILD: [&str; 6] = ["build", "--release", "--locked", "--package", "cli", "--quiet"];

/// Where the binary is, once it is built.
pub fn binary() -> PathBuf {
    built("release", "coracle")
}

/// Builds the binary.
pub fn build() -> Outcome<PathBuf> {
    check(&mut cargo(&BUILD))?;
    Ok(binary())
}

/// Builds and checks it.
pub fn build_and_check() -> Outcome {
    check_shape(&build()?)
}

/// Checks size, linking, system calls, and that it opens no library of the host.
pub fn check_shape(binary: &Path) -> Outcome {
    let bytes = fs::read(binary).map_err(|error| format!("{}: {error}", binary.display()))?;
    let size = bytes.len() as u64;
    println!("{}: {} kB", binary.display(), size >> 10);
    if size > LARGEST {
        return Err(format!("the binary has {size} bytes, more than {LARGEST}"));
    }
    shape(&bytes)?;
    calls_are_known(&bytes)?;
    let version = read(Command::new(binary).arg("--version"))?;
    println!("{}", version.trim());
    map::check_age(binary)?;
    no_host_library(binary)
}

/// Checks that the file is static: no interpreter, no needed library.
fn shape(elf: &[u8]) -> Outcome {
    let number = |at: usize, size: usize| {
        elf.get(at..at + size)
            .map(|bytes| bytes.iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)))
            .ok_or("the binary is cut short")
    };
    if elf.get(..5) != Some(b"\x7fELF\x02") {
        return Err("not a 64-bit ELF file".to_owned());
    }
    let (table, entry, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for n in 0..count {
        let header = (table + n * entry) as usize;
        match number(header, 4)? {
            // PT_INTERP
            3 => return Err("the binary asks for a dynamic loader".to_owned()),
            // PT_DYNAMIC: a static-pie would have one, but nothing in it may be DT_NEEDED.
            2 => {
                let (offset, size) =
                    (number(header + 8, 8)? as usize, number(header + 32, 8)? as usize);
                for at in (offset..offset + size).step_by(16) {
                    match number(at, 8)? {
                        0 => break,
                        1 => return Err("the binary needs a shared library".to_owned()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    println!("static: no loader, no library");
    Ok(())
}

/// Checks that modes F can run the binary: of all bytes that may be a `syscall` is proved whether
/// they are one.
fn calls_are_known(elf: &[u8]) -> Outcome {
    let census = Census::new(elf).ok_or("modes F cannot read the binary")?;
    let places = elf.windows(2).enumerate().filter(|(_, pair)| *pair == [0x0f, 0x05]);
    let places: Vec<usize> = places.map(|(at, _)| at).collect();
    let undecided = places.iter().filter(|at| census.verdict(**at) == Verdict::Unknown);
    let undecided: Vec<String> = undecided.map(|at| format!("{at:#x}")).collect();
    if !undecided.is_empty() {
        return Err(format!("is it a system call? {}", undecided.join(", ")));
    }
    println!("{} places that may be system calls are decided", places.len());
    Ok(())
}

/// Watches with strace that no library of the host is opened to resolve a host name or user name.
fn no_host_library(binary: &Path) -> Outcome {
    let scratch = Scratch::new("release").map_err(|error| error.to_string())?;
    let copy = scratch.path().join("coracle");
    fs::copy(binary, &copy).map_err(|error| error.to_string())?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
    for user in users::all() {
        let owner = Some((user.uid, user.gid));
        let home = scratch.dir(&user.name, owner, 0o755).map_err(|error| error.to_string())?;
        let pull = ["pull", "registry.invalid/some/image:1"].as_slice();
        let hello = ["run", "--rm", "-u", "root", "--pull=never", "hello"].as_slice();
        for words in [pull, hello, &["login", "--get-login"]] {
            match nss::libraries(&user, &home, &copy, words) {
                Err(skip) => println!("SKIP release::no_host_library: {skip}"),
                Ok(found) if found.is_empty() => {
                    println!(
                        "no host library is opened by `coracle {}` as {}",
                        words.join(" "),
                        user.name
                    );
                }
                Ok(found) => {
                    return Err(format!(
                        "`coracle {}` opens {}",
                        words.join(" "),
                        found.join(", ")
                    ));
                }
            }
        }
    }
    Ok(())
}
