//! Builds the stage (`crates/stage`), checks its shape against [`abi::boot`], and packs it.
//!
//! The stage cannot be a member of the workspace: it has its own link arguments and panic strategy,
//! and no standard library. So a second cargo builds it, in its own target directory (two builds in
//! one directory would wait for each other's lock), from packages that the first cargo has fetched
//! (`--offline --locked`: its dependencies are the workspace's too).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use abi::boot::{BOOT_AT, BOOT_ROOM, LOADER_START, SHARED};
use object::Endianness;
use object::elf::{
    EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, PF_R, PF_W, PF_X, PT_GNU_STACK, PT_LOAD,
    R_X86_64_RELATIVE,
};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What is carried in the binary; only the pages that are needed are read at an `execve`.
const LARGEST: u64 = 1024 * 1024;

fn main() {
    let crates = PathBuf::from(variable("CARGO_MANIFEST_DIR")).join("..");
    let stage = crates.join("stage");
    for source in [
        "stage/src",
        "stage/Cargo.toml",
        "stage/Cargo.lock",
        "stage/stage.ld",
        "abi/src",
        "hostfs/src",
        "view/src",
    ] {
        println!("cargo::rerun-if-changed={}", crates.join(source).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let target = PathBuf::from(variable("OUT_DIR")).join("stage");
    build(&stage, &target);
    let linked = target.join(TARGET).join("release/stage");
    let bytes = fs::read(&linked).unwrap_or_else(|error| panic!("{}: {error}", linked.display()));
    let (image, relocations) = finish(&bytes)
        .and_then(|(image, relocations)| check(&image).map(|()| (image, relocations)))
        .unwrap_or_else(|reason| {
            panic!("the stage was built in a shape that cannot work: {reason}")
        });
    let list: Vec<u8> = relocations.iter().flat_map(|offset| offset.to_le_bytes()).collect();
    let mut packed = u32::try_from(list.len()).expect("few relocations").to_le_bytes().to_vec();
    packed.extend(list);
    packed.extend(&image);
    println!("cargo::rustc-env=CORACLE_STAGE_UNPACKED={}", packed.len());
    let packed = zstd::encode_all(&packed[..], 19).expect("memory is enough");
    let file = PathBuf::from(variable("OUT_DIR")).join("stage.zst");
    fs::write(&file, packed).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    println!("cargo::rustc-env=CORACLE_STAGE={}", file.display());
    println!("cargo::rustc-env=CORACLE_STAGE_SIZE={}", image.len());
    println!("cargo::rustc-env=CORACLE_STAGE_MARK={:016x}", fingerprint(&image));
}

/// Tells one build from another.
fn fingerprint(image: &[u8]) -> u64 {
    // FNV-1a.
    image.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Turns the linker's position-independent image into one for a fixed address. Removes the data
/// for relocation and returns the offsets in the file of the words that hold addresses.
fn finish(linked: &[u8]) -> Result<(Vec<u8>, Vec<u32>), String> {
    let end = Endianness::Little;
    let text = |error: object::read::Error| error.to_string();
    let header = FileHeader64::<Endianness>::parse(linked).map_err(text)?;
    if header.e_type(end) != ET_DYN {
        return Err("it is not relocatable".to_owned());
    }
    let sections = header.sections(end, linked).map_err(text)?;
    let mut relocations = Vec::new();
    for section in sections.iter() {
        let Some((places, _)) = section.rela(end, linked).map_err(text)? else { continue };
        for place in places {
            if place.r_type(end, false) != R_X86_64_RELATIVE {
                return Err(format!("it has a relocation of type {}", place.r_type(end, false).0));
            }
            let offset = place.r_offset(end) - LOADER_START;
            relocations.push(u32::try_from(offset).map_err(|error| error.to_string())?);
        }
    }
    let code = sections.section_by_name(end, b".text").ok_or("it has no text")?.1;
    let length = usize::try_from(code.sh_addr(end) + code.sh_size(end) - LOADER_START)
        .map_err(|error| error.to_string())?;
    let mut image = linked[..length].to_vec();
    let whole = u64::try_from(length).map_err(|error| error.to_string())?.to_le_bytes();
    // e_type, e_shoff, e_shnum, e_shstrndx.
    image[16..18].copy_from_slice(&ET_EXEC.0.to_le_bytes());
    image[40..48].fill(0);
    image[60..64].fill(0);
    // The first program header's sizes; the second one's offset in the file, which must exist even
    // though the segment is empty there.
    let table = usize::try_from(header.e_phoff(end)).map_err(|error| error.to_string())?;
    image[table + 32..table + 40].copy_from_slice(&whole);
    image[table + 40..table + 48].copy_from_slice(&whole);
    image[table + 56 + 8..table + 56 + 16].fill(0);
    Ok((image, relocations))
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn build(stage: &Path, target: &Path) {
    // The toolchain's own linker, without a C compiler between: every build machine has the same.
    let script = format!("link-arg=-T{}", stage.join("stage.ld").display());
    let flags = [
        "linker=rust-lld",
        "linker-flavor=ld.lld",
        // Addresses relative to the instruction: the image lies beyond what 32 bits reach.
        "relocation-model=pic",
        "target-feature=-crt-static",
        "force-unwind-tables=no",
        "default-linker-libraries=no",
        &script,
        "link-arg=-static",
        "link-arg=-pie",
        "link-arg=--no-dynamic-linker",
        "link-arg=--apply-dynamic-relocs",
        "link-arg=-znotext",
        "link-arg=--build-id=none",
        "link-arg=--no-eh-frame-hdr",
        "link-arg=-znorelro",
        "link-arg=-zmax-page-size=4096",
    ];
    let flags: Vec<String> =
        flags.iter().flat_map(|flag| ["-C".to_owned(), (*flag).to_owned()]).collect();
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["build", "--release", "--locked", "--offline", "--quiet", "--target", TARGET]);
    cargo.arg("--manifest-path").arg(stage.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(target);
    // Settings of the outer cargo's build (wrappers such as clippy's, profiles, flags) must not
    // reach this one.
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let ours = [
            "RUSTFLAGS",
            "RUSTC_WRAPPER",
            "RUSTC_WORKSPACE_WRAPPER",
            "CLIPPY_ARGS",
            "RUSTDOCFLAGS",
        ];
        let prefixes =
            ["CARGO_PROFILE_", "CARGO_BUILD_", "CARGO_FEATURE_", "CARGO_CFG_", "CARGO_TARGET_"];
        if ours.contains(&text) || prefixes.iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    cargo.env("CARGO_PROFILE_RELEASE_DEBUG", "false").env("CARGO_INCREMENTAL", "0");
    let status = cargo.status().unwrap_or_else(|error| panic!("cargo for the loader: {error}"));
    assert!(status.success(), "building the loader (crates/stage) failed: {status}");
}

/// Everything that the protocol takes for granted about the file.
fn check(bytes: &[u8]) -> Result<(), String> {
    let end = Endianness::Little;
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(|error| error.to_string())?;
    let expect = |holds: bool, what: &str| if holds { Ok(()) } else { Err(what.to_owned()) };
    expect(header.e_type(end) == ET_EXEC, "it is not at a fixed address")?;
    expect(header.e_machine(end) == EM_X86_64, "it is for another machine")?;
    expect(bytes.len() as u64 <= LARGEST, "it is too large")?;
    let segments = header.program_headers(end, bytes).map_err(|error| error.to_string())?;
    let mut boot = false;
    for segment in segments {
        let (kind, flags) = (segment.p_type(end), segment.p_flags(end));
        let start = segment.p_vaddr(end);
        let last = start + segment.p_memsz(end);
        match kind {
            PT_LOAD if flags == PF_R | PF_X => {
                let entry = header.e_entry(end);
                expect(start == LOADER_START && last <= BOOT_AT, "its code lies elsewhere")?;
                expect((start..last).contains(&entry), "it starts outside its code")?;
            }
            PT_LOAD if flags == PF_R | PF_W => {
                expect(segment.p_filesz(end) == 0, "it has initialised variables")?;
                let room = start == BOOT_AT && last >= BOOT_AT + BOOT_ROOM as u64;
                expect(room && last <= LOADER_START + SHARED, "its memory lies elsewhere")?;
                boot = true;
            }
            PT_GNU_STACK => expect(flags & PF_X != PF_X, "it wants an executable stack")?,
            _ => return Err(format!("it has a segment of kind {kind:?} with flags {flags:?}")),
        }
    }
    expect(boot, "it has no place for the boot block")
}
