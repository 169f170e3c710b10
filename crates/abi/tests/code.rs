//! Compares the decoder with another one, and checks what must hold for a rewritten page, on
//! generated and on real code.

use abi::code::form::{Form, Plan, Text};
use abi::code::length::{Decoded, Instruction, Kind, decode};
use abi::code::page::{Request, is_possible, rewrite};
use abi::code::stub::{PAGE, Stubs};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Formatter as _, GasFormatter};
use proptest::prelude::*;
use std::fmt::Write as _;

fn iced(bytes: &[u8], at: u64) -> iced_x86::Instruction {
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode()
}

/// Checks the result of decoding some bytes (15 or more, so that nothing is cut off).
fn agrees(bytes: &[u8]) -> Result<(), String> {
    let theirs = iced(bytes, 0x1000);
    let valid = theirs.code() != Code::INVALID;
    let fail = |ours: &dyn std::fmt::Debug| {
        Err(format!("{bytes:02x?}: {ours:?}, but {:?} of {}", theirs.code(), theirs.len()))
    };
    let next = theirs.flow_control() == FlowControl::Next;
    match decode(bytes) {
        Decoded::Invalid if valid => fail(&"invalid"),
        Decoded::Unknown | Decoded::Invalid => Ok(()),
        // Some bytes are refused for reasons that do not concern the length.
        Decoded::Instruction(_) if !valid => Ok(()),
        Decoded::Instruction(ours) => {
            let kind_is_right = match ours.kind {
                Kind::Plain => next && !theirs.is_ip_rel_memory_operand(),
                Kind::Relative => next && theirs.is_ip_rel_memory_operand(),
                Kind::Nop => {
                    let single = matches!(theirs.code(), Code::Nopw | Code::Nopd | Code::Nopq);
                    single
                        || matches!(theirs.code(), Code::Nop_rm16 | Code::Nop_rm32 | Code::Nop_rm64)
                }
                Kind::Trap => theirs.code() == Code::Int3,
                Kind::Syscall => theirs.code() == Code::Syscall && theirs.len() == 2,
                Kind::Branch | Kind::End => true,
            };
            if ours.length == theirs.len() && kind_is_right { Ok(()) } else { fail(&ours) }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn any_bytes_are_decoded_as_by_iced(bytes in prop::array::uniform16(any::<u8>())) {
        agrees(&bytes).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn every_opcode_is_decoded_as_by_iced() {
    let prefixes: &[&[u8]] = &[
        &[],
        &[0x66],
        &[0xf2],
        &[0xf3],
        &[0x48],
        &[0x41],
        &[0x67],
        &[0x66, 0x48],
        &[0x48, 0x66],
        &[0x64, 0x66],
        &[0xf3, 0x4f],
        &[0xf0],
    ];
    let escapes: &[&[u8]] = &[
        &[],
        &[0x0f],
        &[0x0f, 0x38],
        &[0x0f, 0x3a],
        // VEX and EVEX, of all maps.
        &[0xc5, 0xf8],
        &[0xc5, 0xfd],
        &[0xc4, 0xe1, 0x7d],
        &[0xc4, 0xe2, 0x7d],
        &[0xc4, 0xe3, 0x7d],
        &[0xc4, 0xe2, 0xfb],
        &[0x62, 0xf1, 0x7c, 0x48],
        &[0x62, 0xf2, 0x7d, 0x48],
        &[0x62, 0xf3, 0x7d, 0x48],
        &[0x62, 0xf5, 0x7c, 0x48],
        &[0x62, 0xf6, 0x7d, 0x48],
    ];
    let mut known = 0_u32;
    for prefix in prefixes {
        for escape in escapes {
            for opcode in 0..=255 {
                for modrm in 0..=255 {
                    let mut bytes = [0x11; 24];
                    let head = [prefix, *escape, &[opcode, modrm]].concat();
                    bytes[..head.len()].copy_from_slice(&head);
                    agrees(&bytes).unwrap();
                    known += u32::from(matches!(decode(&bytes), Decoded::Instruction(_)));
                }
            }
        }
    }
    // Few results are undecided: vector instructions with prefixes are invalid.
    assert!(known > 12 * 4 * 256 * 256 * 3 / 4, "{known}");
}

#[test]
fn cut_off_instructions_are_unknown() {
    for bytes in [&[0x0f][..], &[0xb8, 1, 2, 3], &[0x48], &[], &[0x48, 0x8b, 0x04]] {
        assert_eq!(decode(bytes), Decoded::Unknown, "{bytes:02x?}");
    }
    assert_eq!(decode(&[0x66; 15]), Decoded::Invalid);
    let nop = Instruction { length: 1, kind: Kind::Nop };
    assert_eq!(decode(&[0x90]), Decoded::Instruction(nop));
}

const AT: u64 = 0x7f12_3456_7000;
const STUBS: u64 = AT - 0x30_0000;
const ENTRY: u64 = 0x5501_0000_1240;
/// Position of the page in the code of the tests.
const START: usize = 256;

struct Rewritten {
    page: Box<[u8; PAGE]>,
    stubs: Box<[u8; PAGE]>,
    plans: Vec<Plan>,
}

fn rewritten(bytes: &[u8], site: usize, wanted: &[u32]) -> Rewritten {
    let text = Text { bytes, page: (START, START + PAGE) };
    let request = Request { text, address: AT - START as u64, site: Some(site), number: 600 };
    let (mut page, mut stubs) = (Box::new([0; PAGE]), Box::new([0; PAGE]));
    let mut plans = Vec::new();
    let mut made = Stubs::new(&mut stubs, STUBS, ENTRY);
    let count = rewrite(
        &request,
        &mut page,
        &mut made,
        |number| wanted.contains(&number),
        |plan| {
            plans.push(*plan);
        },
    );
    assert_eq!(count, plans.len());
    assert_eq!(is_possible(&request), plans.iter().any(|plan| plan.site == site));
    Rewritten { page, stubs, plans }
}

/// A page of code: some instructions before, the code itself at an offset, some behind.
fn around(code: &[u8]) -> (Vec<u8>, usize) {
    // mov %rsp,%rbp; add $1,%eax; nop
    let filler = [0x48, 0x89, 0xe5, 0x83, 0xc0, 0x01, 0x90];
    let mut bytes: Vec<u8> = filler.iter().copied().cycle().take(START + 696).collect();
    let at = bytes.len();
    bytes.extend(code);
    let rest = START + PAGE + 64 - bytes.len();
    bytes.extend(filler.iter().copied().cycle().take(rest));
    (bytes, at)
}

fn shown(bytes: &[u8], at: u64) -> String {
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    for instruction in Decoder::with_ip(64, bytes, at, DecoderOptions::NONE) {
        let mut line = String::new();
        formatter.format(&instruction, &mut line);
        writeln!(text, "{:#x}  {line}", instruction.ip()).unwrap();
    }
    text
}

/// The site and its stub, after rewriting.
fn picture(code: &[u8], site: usize, wanted: &[u32], stub_bytes: usize) -> String {
    let (bytes, at) = around(code);
    let made = rewritten(&bytes, at + site, wanted);
    assert_eq!(made.plans.len(), 1, "{:?}", made.plans);
    check_rewritten(&bytes, &made);
    let from = at - START;
    format!(
        "{}stub:\n{}",
        shown(&made.page[from..from + code.len()], AT + from as u64),
        shown(&made.stubs[1344..1344 + stub_bytes], STUBS + 1344)
    )
}

#[test]
fn the_long_form() {
    // mov $257,%eax; syscall; cmp $-4096,%rax; ret
    let code = [0xb8, 1, 1, 0, 0, 0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0xc3];
    insta::assert_snapshot!(picture(&code, 5, &[257], 18));
}

#[test]
fn the_long_form_where_the_number_is_not_known() {
    // mov 8(%rsp),%r9; syscall; ret
    let code = [0x4c, 0x8b, 0x4c, 0x24, 8, 0x0f, 5, 0xc3];
    insta::assert_snapshot!(picture(&code, 5, &[2, 257], 54));
}

#[test]
fn the_short_form() {
    // mov %rdi,%rax; syscall; ret; nopw (nine bytes); ret
    let nop = [0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
    let code = [&[0x48, 0x89, 0xf8, 0x0f, 5, 0xc3], &nop[..], &[0xc3]].concat();
    insta::assert_snapshot!(picture(&code, 3, &[2], 52));
}

#[test]
fn the_form_that_replaces_the_call() {
    // jne over; syscall; over: ret; traps
    let code = [0x75, 2, 0x0f, 5, 0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];
    insta::assert_snapshot!(picture(&code, 2, &[2], 51));
}

#[test]
fn unproven_sites_are_left_alone() {
    // A jump before the call, and no padding near by.
    let (bytes, at) = around(&[0x75, 2, 0x0f, 5, 0xc3]);
    assert!(rewritten(&bytes, at + 2, &[2]).plans.is_empty());
    // Padding of several instructions may be entered between them.
    let (bytes, at) = around(&[0x75, 2, 0x0f, 5, 0xc3, 0x0f, 0x1f, 0, 0x0f, 0x1f, 0, 0x90, 0x90]);
    assert!(rewritten(&bytes, at + 2, &[2]).plans.is_empty());
    // From a stub, relative addressing would reach other memory.
    let (bytes, at) = around(&[0x8b, 0x05, 1, 0, 0, 0, 0x0f, 5, 0xc3]);
    assert!(rewritten(&bytes, at + 6, &[2]).plans.is_empty());
    // Bytes that look like `mov $257,%eax` are the end of `mov $257,%r8d`, which is moved as a
    // whole.
    let (bytes, at) = around(&[0x41, 0xb8, 1, 1, 0, 0, 0x0f, 5, 0xc3]);
    let made = rewritten(&bytes, at + 6, &[257]);
    assert_eq!((made.plans[0].moved, made.plans[0].number), (6, None));
    // There is no call.
    let (bytes, at) = around(&[0x90, 0x90]);
    assert!(rewritten(&bytes, at, &[2]).plans.is_empty());
}

#[test]
fn sites_of_other_numbers_are_left_alone() {
    let open = [0xb8, 1, 1, 0, 0, 0x0f, 5, 0xc3];
    let read = [0xb8, 0, 0, 0, 0, 0x0f, 5, 0xc3];
    let stat = [0xb8, 6, 1, 0, 0, 0x0f, 5, 0xc3];
    let (bytes, at) = around(&[open, read, stat].concat());
    let sites = |site: usize| -> Vec<usize> {
        let made = rewritten(&bytes, at + site, &[257, 262]);
        made.plans.iter().map(|plan| plan.site - at).collect()
    };
    assert_eq!(sites(5), [5, 21]);
    // The site that is asked for is rewritten whatever its number.
    assert_eq!(sites(13), [13, 5, 21]);
}

/// Checks a rewritten page: at every address where an instruction began, the same one begins, or a
/// jump to a stub with the same effect.
fn check_rewritten(bytes: &[u8], made: &Rewritten) {
    let mut expected: Vec<u8> = bytes[START..START + PAGE].to_vec();
    for plan in &made.plans {
        let from = plan.site - plan.moved;
        let last = plan.padding.map_or(from, abi::code::form::Padding::step);
        let page = |at: usize, length: usize| &made.page[at - START..at - START + length];
        if let Some(padding) = plan.padding {
            let hop = iced(page(from, 2), from as u64);
            assert_eq!((hop.code(), hop.near_branch64()), (Code::Jmp_rel8_64, last as u64));
            if padding.over > 0 {
                let over = iced(page(padding.at, 2), padding.at as u64);
                let end = (padding.at + padding.over) as u64;
                assert_eq!((over.code(), over.near_branch64()), (Code::Jmp_rel8_64, end));
                let before = iced(&bytes[padding.at..], 0);
                let kinds = [Code::Nop_rm16, Code::Nop_rm32, Code::Nop_rm64];
                assert!(kinds.contains(&before.code()) && before.len() == padding.over);
                expected[padding.at - START..][..2].copy_from_slice(page(padding.at, 2));
            }
            expected[from - START..][..2].copy_from_slice(page(from, 2));
        }
        expected[last - START..][..5].copy_from_slice(page(last, 5));
        let jump = iced(page(last, 5), AT + (last - START) as u64);
        assert_eq!(jump.code(), Code::Jmp_rel32_64);
        // The stub: the moved instruction, then the jump to the stage with the right return
        // address.
        let stub = (jump.near_branch64() - STUBS) as usize;
        assert_eq!(made.stubs[stub..stub + plan.moved], bytes[from..plan.site]);
        let behind = stub + plan.moved;
        let rest = Decoder::with_ip(
            64,
            &made.stubs[behind..],
            STUBS + behind as u64,
            DecoderOptions::NONE,
        );
        let looked_up = if plan.number.is_some() { 0 } else { 7 };
        let mut rest = rest.into_iter().skip(looked_up);
        let (lea, jump) = (rest.next().unwrap(), rest.next().unwrap());
        let back = AT + (plan.site - START) as u64 + 2;
        assert_eq!((lea.code(), lea.memory_displacement64()), (Code::Lea_r64_m, back));
        assert_eq!((jump.code(), jump.memory_displacement64()), (Code::Jmp_rm64, STUBS));
        assert!(plan.form == Form::Call || page(plan.site, 2) == [0x0f, 5]);
    }
    assert!(expected == made.page[..], "something else was changed");
    assert_eq!(made.stubs[..8], ENTRY.to_le_bytes());
}

#[test]
fn real_pages_are_rewritten_correctly() {
    let libraries = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"];
    let Some(bytes) = libraries.iter().find_map(|path| std::fs::read(path).ok()) else {
        println!("skipped: no C library at {libraries:?}");
        return;
    };
    let mut pages = 0;
    // Offsets and addresses are the same within a page, so pages of the file are pages of the code.
    for start in (PAGE..bytes.len().saturating_sub(2 * PAGE)).step_by(PAGE) {
        let text = &bytes[start - START..start + PAGE + 64];
        let is_site = |code: &[u8]| code[0] == 0xb8 && code[1] != 0 && code[3..] == [0, 0, 0x0f, 5];
        let Some(at) = text[START..].windows(7).position(is_site) else { continue };
        let site = START + at + 5;
        if site + 2 > START + PAGE {
            continue;
        }
        let all: Vec<u32> = (0..450).collect();
        check_rewritten(text, &rewritten(text, site, &all));
        pages += 1;
    }
    assert!(pages > 20, "{pages}");
}

fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let kinds = vec![
        vec![0xb8, 1, 1, 0, 0, 0x0f, 5],
        vec![0x48, 0x89, 0xf8, 0x0f, 5],
        vec![0x0f, 5],
        vec![0xc3],
        vec![0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        vec![0xcc; 6],
        vec![0x75, 3],
        vec![0x41, 0x90],
        vec![0x4c, 0x8b, 0x4c, 0x24, 8],
        vec![0x0f, 0x1f, 0x80, 0, 0, 0, 0],
        vec![0x31, 0xd2],
        vec![0x90],
    ];
    prop::collection::vec(prop::sample::select(kinds), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_page_is_rewritten_correctly(pieces in pieces(), which in any::<prop::sample::Index>()) {
        let (bytes, at) = around(&pieces.concat());
        let mut sites = Vec::new();
        let mut place = at;
        for piece in &pieces {
            place += piece.len();
            if piece.ends_with(&[0x0f, 5]) {
                sites.push(place - 2);
            }
        }
        prop_assume!(!sites.is_empty() && place < START + PAGE);
        let made = rewritten(&bytes, *which.get(&sites), &[257]);
        check_rewritten(&bytes, &made);
        for plan in &made.plans {
            prop_assert!(sites.contains(&plan.site));
        }
    }
}
