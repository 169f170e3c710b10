//! Finds emulators on the host that run programs of other architectures: the static builds of
//! QEMU's user mode (package `qemu-user-static`).
//!
//! They run in the guest's world like any other program, so they find a foreign program's
//! interpreter and libraries in the guest's root. The host's `binfmt_misc` is not used: the loader
//! of this engine comes before it.

use std::path::Path;

use abi::elf::{Header, MACHINE_AARCH64};

/// `e_machine` (elf.h) and QEMU's name for it. Machines of the other byte order are not recognised
/// by their headers here.
const NAMES: &[(u16, &str)] = &[
    (MACHINE_AARCH64, "aarch64"),
    (40, "arm"),
    (243, "riscv64"),
    (21, "ppc64le"),
    (258, "loongarch64"),
];
const DIRECTORIES: &[&str] = &["/usr/bin", "/usr/local/bin"];

/// Emulators that are installed: the machine, and the program's host path.
pub fn find() -> Vec<(u16, Vec<u8>)> {
    let here = |machine: u16, name: &str| {
        let paths = DIRECTORIES
            .iter()
            .flat_map(|dir| ["-static", ""].map(|suffix| format!("{dir}/qemu-{name}{suffix}")));
        let path = paths.into_iter().find(|path| is_static(Path::new(path)))?;
        Some((machine, path.into_bytes()))
    };
    NAMES.iter().filter_map(|(machine, name)| here(*machine, name)).collect()
}

/// Whether a program needs no interpreter: the guest's root does not have the host's.
fn is_static(path: &Path) -> bool {
    use std::io::Read;
    let mut start = [0; 4096];
    let Ok(mut file) = std::fs::File::open(path) else { return false };
    let Ok(length) = file.read(&mut start) else { return false };
    let Some(header) = Header::read(&start[..length]) else { return false };
    let (Some(table), Ok(from)) = (header.table_length(), usize::try_from(header.table)) else {
        return false;
    };
    start.get(from..from.saturating_add(table)).is_some_and(|table| {
        abi::elf::segments(header.class, table).all(|segment| segment.kind != abi::elf::INTERPRETER)
    })
}
