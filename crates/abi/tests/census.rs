//! Call sites of real files against another decoder's linear sweep.

use abi::code::census::{Census, Verdict};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use std::collections::BTreeSet;

/// Where a linear sweep finds them. (In data among code it finds what is none.)
fn swept(bytes: &[u8]) -> BTreeSet<usize> {
    let end = object::Endianness::Little;
    let header = object::elf::FileHeader64::<object::Endianness>::parse(bytes).unwrap();
    let sections = header.sections(end, bytes).unwrap();
    let mut found = BTreeSet::new();
    for section in sections.iter() {
        let executable = section.sh_flags(end).0 & object::elf::SHF_EXECINSTR.0 != 0;
        let Some((start, length)) = section.file_range(end).filter(|_| executable) else {
            continue;
        };
        let code = &bytes[start as usize..(start + length) as usize];
        let sweep = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let calls = sweep.into_iter().filter(|one| one.mnemonic() == Mnemonic::Syscall);
        found.extend(calls.map(|one| one.ip() as usize));
    }
    found
}

#[test]
fn every_call_of_real_files_is_found() {
    let files = [
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/lib/x86_64-linux-musl/libc.so",
        "/bin/busybox",
        "/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/local/go/bin/gofmt",
    ];
    let mut seen = 0;
    for file in files {
        let Ok(bytes) = std::fs::read(file) else { continue };
        let census = Census::new(&bytes).unwrap();
        let mut calls = BTreeSet::new();
        for at in 0..bytes.len() - 1 {
            if bytes[at..at + 2] == [0x0f, 0x05] {
                match census.verdict(at) {
                    Verdict::Call => drop(calls.insert(at)),
                    Verdict::Other => {}
                    Verdict::Unknown => panic!("{file}: {at:#x}"),
                }
            }
        }
        // What a sweep finds in constants of libcrypto's is none.
        if !file.contains("crypto") {
            assert_eq!(calls, swept(&bytes), "{file}");
        }
        seen += 1;
    }
    if seen == 0 {
        println!("skipped: none of {files:?}");
    }
}

#[test]
fn what_cannot_be_told_is_said() {
    // No sections, no functions; nothing before and behind belongs to a call, and the bytes may be the end of another instruction.
    let mut file = vec![0x90; 0x1000];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[16..64].fill(0);
    file[32] = 64;
    file[56] = 1;
    file[64..64 + 56].fill(0);
    file[64] = 1;
    file[64 + 33] = 0x10;
    file[0x800..0x802].copy_from_slice(&[0x0f, 0x05]);
    assert_eq!(Census::new(&file).unwrap().verdict(0x800), Verdict::Unknown);
    // A number before it.
    file[0x7fb..0x800].copy_from_slice(&[0xb8, 1, 0, 0, 0]);
    assert_eq!(Census::new(&file).unwrap().verdict(0x800), Verdict::Call);
    // The distance of a call.
    file[0x7fb..0x804].copy_from_slice(&[0x90, 0x90, 0x90, 0xe8, 0x10, 0x0f, 0x05, 0, 0]);
    assert_eq!(Census::new(&file).unwrap().verdict(0x800), Verdict::Other);
    assert!(Census::new(b"#!/bin/sh").is_none());
}
