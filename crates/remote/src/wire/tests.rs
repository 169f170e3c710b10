//! The stream cut into any pieces, and bytes that are no stream.

use std::collections::VecDeque;

use super::frames::{Decoder, Frame, append, room};
use super::messages::{Ended, Facts, Hello, Put, Refused, number, pack, unpack};
use super::preamble::{MOST, Preamble, SCRIPT, Said};
use super::*;
use proptest::prelude::*;

fn frame() -> impl Strategy<Value = Frame> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    (kind, any::<u32>(), prop::collection::vec(any::<u8>(), 0..300))
        .prop_map(|(kind, id, payload)| Frame { kind, id, payload })
}

fn bytes_of(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = VecDeque::new();
    for frame in frames {
        append(&mut bytes, frame.kind, frame.id, &frame.payload).unwrap();
    }
    bytes.into()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn frames_arrive_whole_whatever_the_pieces(
        frames in prop::collection::vec(frame(), 0..12), piece in 1_usize..70
    ) {
        let bytes = bytes_of(&frames);
        let mut decoder = Decoder::default();
        let mut got = Vec::new();
        for part in bytes.chunks(piece) {
            decoder.feed(part);
            while let Some(frame) = decoder.take().unwrap() {
                got.push(frame);
            }
        }
        prop_assert!(decoder.is_empty());
        prop_assert_eq!(got, frames);
    }

    #[test]
    fn garbage_is_an_error_or_waits(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        // At most one frame for nine bytes; it ends.
        let mut count = 0;
        while let Ok(Some(_)) = decoder.take() {
            count += 1;
        }
        prop_assert!(count <= bytes.len() / 9);
    }

    #[test]
    fn the_line_is_found_behind_anything(
        noise in "[ -~\n\r]{0,400}", piece in 1_usize..50, rest in prop::collection::vec(any::<u8>(), 0..40)
    ) {
        let mut bytes = noise.into_bytes();
        bytes.extend_from_slice(format!("{MAGIC}\n").as_bytes());
        let before = bytes.len();
        bytes.extend_from_slice(&rest);
        let mut preamble = Preamble::default();
        let mut at = 0;
        let said = loop {
            prop_assert!(at < bytes.len());
            let part = &bytes[at..(at + piece).min(bytes.len())];
            at += part.len();
            if let Some((said, _)) = preamble.feed(part) {
                break said;
            }
        };
        prop_assert_eq!(said, Said::Frames(bytes[before..at].to_vec()));
    }
}

#[test]
fn a_cut_frame_waits_and_is_not_empty() {
    let bytes = bytes_of(&[Frame { kind: Kind::Ping, id: 7, payload: b"abc".to_vec() }]);
    let mut decoder = Decoder::default();
    decoder.feed(&bytes[..bytes.len() - 1]);
    assert_eq!(decoder.take(), Ok(None));
    assert!(!decoder.is_empty());
}

#[test]
fn lengths_are_judged_before_they_arrive() {
    for length in [0, 4, LONGEST as u32 + 1, u32::MAX] {
        let mut decoder = Decoder::default();
        decoder.feed(&length.to_le_bytes());
        assert_eq!(decoder.take(), Err(Error::Length(length as usize)));
    }
    let mut out = VecDeque::new();
    let long = vec![0; room() + 1];
    assert_eq!(append(&mut out, Kind::Input, 1, &long), Err(Error::Length(LONGEST + 1)));
    assert!(out.is_empty());
    append(&mut out, Kind::Input, 1, &long[1..]).unwrap();
    let mut decoder = Decoder::default();
    decoder.feed(out.make_contiguous());
    assert_eq!(decoder.take().unwrap().unwrap().payload.len(), room());
}

#[test]
fn an_unknown_kind_is_an_error_at_its_byte() {
    let mut decoder = Decoder::default();
    decoder.feed(&[9, 0, 0, 0, 200]);
    assert_eq!(decoder.take(), Err(Error::Kind(200)));
}

#[test]
fn lines_of_the_script_are_read_in_between() {
    let mut preamble = Preamble::default();
    let text = format!("Welcome\r\nto {SCRIPT}ready\r\n{SCRIPT}binary\nx");
    let (said, rest) = preamble.feed(text.as_bytes()).unwrap();
    assert_eq!(said, Said::Script);
    let (said, rest) = preamble.feed(rest).unwrap();
    assert_eq!(said, Said::Binary);
    assert_eq!(preamble.feed(rest), None);
    assert_eq!(preamble.skipped(), "Welcome\nx");
    let failed = format!("{SCRIPT}no room anywhere\n");
    let said = Preamble::default().feed(failed.as_bytes()).unwrap().0;
    assert_eq!(said, Said::Failed("no room anywhere".into()));
}

#[test]
fn what_is_skipped_has_a_limit_and_its_end_is_quoted() {
    let mut preamble = Preamble::default();
    let mut said = None;
    for number in 0.. {
        let line = format!("line {number} \u{1b}[0m{}\n", "x".repeat(90));
        said = preamble.feed(line.as_bytes()).map(|(said, _)| said);
        if said.is_some() {
            break;
        }
        assert!(number < MOST / 90);
    }
    assert_eq!(said, Some(Said::TooMuch));
    let quoted = preamble.skipped();
    assert!(quoted.len() <= 600 && !quoted.contains('\u{1b}'), "{quoted}");
    // Without any end of a line, too.
    assert_eq!(Preamble::default().feed(&vec![b'x'; MOST + 1]).unwrap().0, Said::TooMuch);
}

#[test]
fn messages_of_later_versions_tell_their_version() {
    let hello: Hello = unpack(Kind::Hello, br#"{"version":9,"shape":"other"}"#).unwrap();
    assert_eq!(hello.version, 9);
    let facts: Facts = unpack(Kind::Facts, br#"{"version":2,"colour":1}"#).unwrap();
    assert_eq!(facts.version, 2);
    let text = Error::Version { agent: 2, driver: 9 }.to_string();
    assert!(text.contains('2') && text.contains('9'));
    assert!(unpack::<Refused>(Kind::Refused, b"{").is_err());
    assert_eq!(number(Kind::Credit, &5_u32.to_le_bytes()), Ok(5));
    assert!(number(Kind::Credit, b"12345").is_err());
    for ended in [Ended::Code(-1), Ended::Code(255), Ended::Signal(9)] {
        assert_eq!(Ended::unpack(&ended.pack()), Ok(ended));
    }
    assert!(Ended::unpack(b"").is_err() && Ended::unpack(&[2, 0, 0, 0, 0]).is_err());
    let put = Put { path: "/a b".into(), mode: 0o600 };
    assert_eq!(Put::unpack(&put.pack()), Ok(put));
    assert!(Put::unpack(b"abc").is_err());
    assert_eq!(
        pack(&Refused { why: "no".into(), version: None }),
        br#"{"why":"no","version":null}"#
    );
    assert_eq!((Ended::Signal(9).status(), Ended::Code(3).status()), (137, 3));
}

#[test]
fn kinds_have_their_own_numbers() {
    for kind in Kind::ALL {
        assert_eq!(Kind::of(kind as u8), Some(kind));
    }
}
