//! Compares the call sites found in real files with another decoder's linear sweep.

use abi::code::census::{Census, Verdict};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use std::collections::BTreeSet;

/// The call sites that a linear sweep finds. (In data among code it finds false ones.)
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
        // In libcrypto's constants a sweep finds false sites.
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
fn undecided_bytes_are_reported() {
    // No sections, no functions; the code around does not belong to a call, and the bytes may be
    // the end of another instruction.
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
    // The number is set before it.
    file[0x7fb..0x800].copy_from_slice(&[0xb8, 1, 0, 0, 0]);
    assert_eq!(Census::new(&file).unwrap().verdict(0x800), Verdict::Call);
    // The distance of a call.
    file[0x7fb..0x804].copy_from_slice(&[0x90, 0x90, 0x90, 0xe8, 0x10, 0x0f, 0x05, 0, 0]);
    assert_eq!(Census::new(&file).unwrap().verdict(0x800), Verdict::Other);
    assert!(Census::new(b"#!/bin/sh").is_none());
}

/// A file with this code at 0x1000, without functions and sections.
fn file_of(code: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 0x1000];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[32] = 64;
    file[56] = 1;
    // A segment of type 1, from 0x1000 on.
    file[64] = 1;
    file[64 + 9] = 0x10;
    file[64 + 32..64 + 40].copy_from_slice(&(code.len() as u64).to_le_bytes());
    file.extend_from_slice(code);
    file
}

/// The verdict on the only bytes in some code that look like a call.
fn verdict_in(code: &[u8]) -> Verdict {
    let file = file_of(code);
    let at = code.windows(2).position(|pair| pair == [0x0f, 0x05]).unwrap();
    Census::new(&file).unwrap().verdict(0x1000 + at)
}

/// A program that starts with these bytes, right behind its headers, as an assembler makes it:
/// nothing separates code and data.
fn program_of(code: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    file[..6].copy_from_slice(b"\x7fELF\x02\x01");
    file[16] = 2;
    file[24..32].copy_from_slice(&0x40_0078_u64.to_le_bytes());
    file[32] = 64;
    file[56] = 1;
    file[64] = 1;
    file[64 + 16..64 + 24].copy_from_slice(&0x40_0000_u64.to_le_bytes());
    file[64 + 32..64 + 40].copy_from_slice(&(120 + code.len() as u64).to_le_bytes());
    file.extend_from_slice(code);
    file
}

#[test]
fn programs_start_with_code() {
    let write = [0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0, 0x0f, 0x05];
    let exit = [0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
    let data = *b"a text \x0f\x05, and more";
    let file = program_of(&[&write[..], &exit, &data].concat());
    let census = Census::new(&file).unwrap();
    assert_eq!([130, 139].map(|at| census.verdict(at)), [Verdict::Call; 2]);
    assert_ne!(census.verdict(148), Verdict::Call, "behind the program's end");
    // A part of a number; and code that a jump skips.
    let file = program_of(&[&[0xbf, 0x0f, 0x05, 0, 0][..], &write].concat());
    let census = Census::new(&file).unwrap();
    assert_eq!([121, 135].map(|at| census.verdict(at)), [Verdict::Other, Verdict::Call]);
    let file = program_of(&[&[0xeb, 2][..], &[0x0f, 0x05], &exit].concat());
    assert_ne!(Census::new(&file).unwrap().verdict(122), Verdict::Call);
}

#[test]
fn tables_among_code_are_no_calls() {
    let code = [0x48, 0x89, 0xd8, 0x48, 0x83, 0xc0, 0x08, 0x90].repeat(16);
    let jump = [0x41, 0xff, 0x65, 0xf0, 0x0f, 0x1f, 0x40, 0x00];
    let entry = [0x48, 0x8d, 0x45, 0xf0, 0x4c, 0x39, 0xf8, 0x72, 0x3f, 0x90, 0x90, 0x90];
    // Before a function of GHC: a type and a distance, which is 0x03050fe8; and one whose first
    // half decodes to `pop %rax`.
    for table in [
        [0, 0, 0, 0, 0, 0, 0, 0, 0x15, 0, 0, 0, 0xe8, 0x0f, 0x05, 0x03],
        [1, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x58, 0x0f, 0x05, 0x00],
        [0x0f, 0x05, 0, 0, 0, 0, 0, 0, 0x1e, 0, 0, 0, 0xb8, 0xc6, 0x74, 0x01],
    ] {
        let code = [&code[..], &jump, &table, &entry, &code].concat();
        assert_eq!(verdict_in(&code), Verdict::Other, "{table:x?}");
    }
    // The same bytes with a number before them.
    let call = [0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3];
    assert_eq!(verdict_in(&[&code[..], &jump, &call, &code].concat()), Verdict::Call);
    // At the start, behind padding, where a jump leads: the result is passed on.
    let call = [0x0f, 0x05, 0x48, 0x89, 0xc7, 0xe8, 0, 0, 0, 0];
    assert_eq!(verdict_in(&[&code[..], &jump, &call, &code].concat()), Verdict::Call);
}
