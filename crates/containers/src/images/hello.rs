//! The image that is embedded in the program: `coracle run --rm hello` needs no network and no
//! other image.
//!
//! Its only program is made here, byte by byte: an ELF file of one segment that writes a text and
//! exits. It is put into the store like any other image when it is first run.

use oci::{ConfigEditor, Descriptor, Manifest, Platform, Reference, media};
use store::{Image, Store};

use super::pull::{self, Road};
use crate::error::{Error, Result};
use crate::events::{Progress, Silent};
use crate::session::Session;

/// The image's name in the store.
const NAME: &str = "coracle/hello:latest";
/// A fixed time, so that the image has the same digest everywhere.
const CREATED: &str = "1970-01-01T00:00:00Z";

const TEXT: &str = "\
Hello from a container.

Coracle made it of an image that came with the program, put it into your store, unpacked it,
and started this program as the container's root, without any privilege on the host.

Try a larger one:
  coracle run --rm -it debian:stable bash
";

/// Whether a name means the embedded image.
pub fn is_name(name: &str) -> bool {
    matches!(name, "hello" | "hello:latest" | "coracle/hello" | NAME)
}

/// The embedded image, which is put into the store if it is not there.
pub fn image(session: &Session) -> Result<Image> {
    if Platform::host().architecture != "amd64" {
        return Err(Error::failed("the embedded image is for linux/amd64 only"));
    }
    let store = session.store()?;
    let reference = Reference::parse(NAME)?;
    let manifest = put(store)?;
    let known = store.images().get(&reference)?;
    if known.is_none_or(|image| image.digest() != &manifest.digest) {
        store.images().tag(&reference, &manifest)?;
    }
    let image = store
        .images()
        .get(&reference)?
        .ok_or_else(|| Error::failed("the embedded image vanished"))?;
    let progress = Progress::new(&Silent, 0);
    pull::unpack(&Road::new(session, &progress)?, &image)?;
    Ok(image)
}

/// Stores layer, configuration and manifest.
fn put(store: &Store) -> Result<Descriptor> {
    let _lease = store.lease()?;
    let layer = archive(&program());
    let layer_descriptor = Descriptor::of(media::OCI_LAYER, &layer);
    let mut editor = ConfigEditor::new(&Platform::new("linux", "amd64", None));
    editor.created(CREATED).cmd(&["/hello".to_owned()]).layer(&layer_descriptor.digest).history(
        CREATED,
        "coracle",
        "embedded in the program",
        false,
    );
    let config = editor.finish()?;
    let config_descriptor = Descriptor::of(media::OCI_CONFIG, config.raw());
    let manifest = Manifest::build(
        media::OCI_MANIFEST,
        config_descriptor.clone(),
        vec![layer_descriptor.clone()],
    );
    let descriptor = manifest.descriptor();
    for (descriptor, bytes) in [
        (&layer_descriptor, &layer[..]),
        (&config_descriptor, config.raw()),
        (&descriptor, manifest.raw()),
    ] {
        if !store.blobs().contains(&descriptor.digest, Some(descriptor.size))? {
            pull::put(store, descriptor, bytes)?;
        }
    }
    Ok(descriptor.clone())
}

/// A tar archive (POSIX ustar) with the program as its only file.
fn archive(program: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 512;
    let mut header = [0_u8; BLOCK];
    let mut field =
        |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    field(0, "hello");
    field(100, "0000755\0");
    field(108, "0000000\0");
    field(116, "0000000\0");
    field(124, &format!("{:011o}\0", program.len()));
    field(136, "00000000000\0");
    field(148, "        ");
    field(156, "0");
    field(257, "ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = header.to_vec();
    archive.extend_from_slice(program);
    archive.resize(archive.len().next_multiple_of(BLOCK) + 2 * BLOCK, 0);
    archive
}

/// The program: ELF header, one program header, 32 bytes of code, the text.
fn program() -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let length = (TEXT.len() as u32).to_le_bytes();
    let mut code = vec![
        0xb8, 1, 0, 0, 0, // mov eax, 1 (write)
        0xbf, 1, 0, 0, 0, // mov edi, 1
        0x48, 0x8d, 0x35, 16, 0, 0,
        0, // lea rsi, [rip + 16]: the text begins 16 bytes after the next instruction
        0xba, length[0], length[1], length[2], length[3], // mov edx, length
        0x0f, 0x05, // syscall
        0x31, 0xff, // xor edi, edi
        0xb8, 60, 0, 0, 0, // mov eax, 60 (exit)
        0x0f, 0x05, // syscall
    ];
    code.extend_from_slice(TEXT.as_bytes());
    let size = HEADERS + code.len() as u64;
    let mut file = Vec::with_capacity(size as usize);
    // ELF64, little-endian, version 1, System V.
    file.extend_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend_from_slice(&2_u16.to_le_bytes()); // ET_EXEC
    file.extend_from_slice(&62_u16.to_le_bytes()); // EM_X86_64
    file.extend_from_slice(&1_u32.to_le_bytes());
    for word in [BASE + HEADERS, 64, 0] {
        file.extend_from_slice(&word.to_le_bytes()); // entry, program headers, no section headers
    }
    file.extend_from_slice(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&1_u32.to_le_bytes()); // PT_LOAD
    file.extend_from_slice(&5_u32.to_le_bytes()); // read, execute
    for word in [0, BASE, BASE, size, size, 0x1000] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&code);
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_program_runs_here_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hello");
        std::fs::write(&path, program()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let output = testkit::command::output(&mut std::process::Command::new(&path)).unwrap();
        assert!(output.status.success(), "{:?}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stdout), TEXT);
    }

    #[test]
    fn the_archive_is_tar() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("layer.tar");
        std::fs::write(&path, archive(&program())).unwrap();
        let output = std::process::Command::new("tar").arg("tvf").arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && text.contains("-rwxr-xr-x 0/0") && text.contains(" hello"),
            "{text}"
        );
    }
}
