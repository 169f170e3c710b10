//! Counts how many call sites of some programs and libraries can be rewritten, and how:
//! `cargo run --release -p abi --example sites -- FILE...`

use abi::code::form::{Form, Text};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};

const PAGE: usize = 4096;

fn main() {
    println!("{:>6} {:>6} {:>6} {:>6} {:>6}  file", "sites", "long", "short", "call", "none");
    let verbose = std::env::var_os("VERBOSE").is_some();
    for file in std::env::args().skip(1) {
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) => {
                eprintln!("{file}: {error}");
                continue;
            }
        };
        let Some((segment, sections)) = code(&bytes) else {
            eprintln!("{file}: no 64-bit program");
            continue;
        };
        let mut counts = [0; 4];
        for (start, end) in sections {
            // A linear sweep by another decoder finds the calls.
            let decoder =
                Decoder::with_ip(64, &bytes[start..end], start as u64, DecoderOptions::NONE);
            for found in decoder.into_iter().filter(|found| found.mnemonic() == Mnemonic::Syscall) {
                let site = found.ip() as usize - segment.0;
                let page = (site & !(PAGE - 1), (site & !(PAGE - 1)) + PAGE);
                let text = Text { bytes: &bytes[segment.0..segment.1], page };
                let plan = text.plan(site, |_| true);
                counts[match plan.map(|plan| plan.form) {
                    Some(Form::Long) => 0,
                    Some(Form::Short) => 1,
                    Some(Form::Call) => 2,
                    None => 3,
                }] += 1;
                if verbose {
                    println!("{:#x} {plan:?}", site + segment.0);
                }
            }
        }
        let [long, short, call, none] = counts;
        let all: usize = counts.iter().sum();
        println!("{all:>6} {long:>6} {short:>6} {call:>6} {none:>6}  {file}");
    }
}

type Range = (usize, usize);

/// The executable segment of a file, and its code sections (or the whole segment if the file has no
/// sections), as offsets. Offsets and addresses are the same within a page.
fn code(bytes: &[u8]) -> Option<(Range, Vec<Range>)> {
    let end = object::Endianness::Little;
    let header = object::elf::FileHeader64::<object::Endianness>::parse(bytes).ok()?;
    let segment = header.program_headers(end, bytes).ok()?.iter().find(|segment| {
        segment.p_type(end) == object::elf::PT_LOAD
            && segment.p_flags(end) & object::elf::PF_X == object::elf::PF_X
    })?;
    let start = segment.p_offset(end) as usize;
    let range = (start, start + segment.p_filesz(end) as usize);
    let sections = header.sections(end, bytes).ok()?;
    let ranges: Vec<Range> = sections
        .iter()
        .filter(|section| section.sh_flags(end).0 & object::elf::SHF_EXECINSTR.0 != 0)
        .map(|section| {
            let at = section.sh_offset(end) as usize;
            (at, at + section.sh_size(end) as usize)
        })
        .collect();
    Some((range, if ranges.is_empty() { vec![range] } else { ranges }))
}
