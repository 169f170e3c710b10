//! Parses the first line of a script exactly as the kernel does (`fs/binfmt_script.c`; execve(2),
//! "Interpreter scripts").

use crate::errno::{Errno, Result};

/// `BINPRM_BUF_SIZE`: how many bytes of a file the kernel looks at.
pub(super) const LINE_MAX: usize = 256;

/// The contents of a script's first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The interpreter, as written.
    pub(super) interpreter: &'a [u8],
    /// The rest of the line, as one argument.
    pub(super) argument: Option<&'a [u8]>,
}

/// Parses the start of a file; `None` if it is not a script, `ENOEXEC` if the interpreter is
/// missing or cut off.
///
/// `start` is the beginning of the file, at most [`LINE_MAX`] bytes.
pub(super) fn parse(start: &[u8]) -> Result<Option<Line<'_>>> {
    if !start.starts_with(b"#!") {
        return Ok(None);
    }
    // The kernel's buffer always has this length, with zeros behind the file's end. It looks for
    // words in all of it except the last byte.
    let mut buffer = [0; LINE_MAX];
    let length = start.len().min(LINE_MAX);
    buffer[..length].copy_from_slice(&start[..length]);
    let last = LINE_MAX - 1;
    let newline = buffer.iter().position(|byte| matches!(byte, b'\n' | 0));
    let mut end = if let Some(at) = newline.filter(|at| buffer[*at] == b'\n') {
        at
    } else {
        let word = word_from(&buffer, 2, last).ok_or(Errno::ENOEXEC)?;
        if gap_from(&buffer, word, last).is_none() {
            return Err(Errno::ENOEXEC);
        }
        last
    };
    while is_blank(buffer[end - 1]) {
        end -= 1;
    }
    let name = word_from(&buffer, 2, end).filter(|at| *at != end).ok_or(Errno::ENOEXEC)?;
    let gap = gap_from(&buffer, name, end);
    let argument = gap.filter(|at| buffer[*at] != 0).and_then(|at| word_from(&buffer, at, end));
    let name_end = match (argument, gap) {
        (Some(_), Some(gap)) => gap,
        _ => end,
    };
    // Offsets are into the caller's bytes. The buffer behind them is zero, so words do not reach
    // there.
    let text = |from: usize, to: usize| {
        let text = start.get(from..to.min(length)).unwrap_or_default();
        &text[..text.iter().position(|byte| *byte == 0).unwrap_or(text.len())]
    };
    let interpreter = text(name, name_end);
    Ok(Some(Line { interpreter, argument: argument.map(|from| text(from, end)) }))
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// `next_non_spacetab`: includes both ends.
fn word_from(buffer: &[u8; LINE_MAX], first: usize, last: usize) -> Option<usize> {
    (first..=last).find(|at| !is_blank(buffer[*at]))
}

/// `next_terminator`.
fn gap_from(buffer: &[u8; LINE_MAX], first: usize, last: usize) -> Option<usize> {
    (first..=last).find(|at| is_blank(buffer[*at]) || buffer[*at] == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn line(start: &[u8]) -> Result<Option<(&str, Option<&str>)>> {
        let text = |bytes| core::str::from_utf8(bytes).expect("text");
        Ok(parse(start)?.map(|line| (text(line.interpreter), line.argument.map(text))))
    }

    #[test]
    fn lines() {
        assert_eq!(line(b""), Ok(None));
        assert_eq!(line(b"#"), Ok(None));
        assert_eq!(line(b" #!/bin/sh\n"), Ok(None));
        assert_eq!(line(b"#!/bin/sh"), Ok(Some(("/bin/sh", None))));
        assert_eq!(line(b"#!/bin/sh\necho"), Ok(Some(("/bin/sh", None))));
        assert_eq!(line(b"#! \t/bin/sh \t\n"), Ok(Some(("/bin/sh", None))));
        assert_eq!(
            line(b"#!/usr/bin/env -S a  b \t\nx"),
            Ok(Some(("/usr/bin/env", Some("-S a  b"))))
        );
        assert_eq!(line(b"#!sh\tx"), Ok(Some(("sh", Some("x")))));
        assert_eq!(line(b"#!/bin/sh\r\n"), Ok(Some(("/bin/sh\r", None))));
    }

    #[test]
    fn lines_without_an_interpreter() {
        assert_eq!(line(b"#!\n"), Err(Errno::ENOEXEC));
        assert_eq!(line(b"#! \t \n/bin/sh"), Err(Errno::ENOEXEC));
        let mut blank = b"#!".to_vec();
        blank.resize(300, b' ');
        assert_eq!(line(&blank[..LINE_MAX]), Err(Errno::ENOEXEC));
    }

    #[test]
    fn long_lines_are_cut_where_the_kernel_cuts_them() {
        let path = |length: usize| -> Vec<u8> {
            let mut all = b"#!/".to_vec();
            all.resize(length, b'x');
            all
        };
        // 255 bytes and a newline fit.
        let mut whole = path(255);
        whole.push(b'\n');
        assert_eq!(line(&whole).unwrap().unwrap().0.len(), 253);
        // Without a newline the name may have been cut off.
        assert_eq!(line(&path(256)), Err(Errno::ENOEXEC));
        assert_eq!(line(&path(255)).unwrap().unwrap().0.len(), 253);
        // An argument may be cut off.
        let mut cut = b"#!/bin/sh ".to_vec();
        cut.resize(256, b'y');
        assert_eq!(line(&cut).unwrap().unwrap().1.unwrap().len(), 245);
    }

    #[test]
    fn a_nul_ends_a_word() {
        assert_eq!(line(b"#!/bin/sh\0\nx"), Ok(Some(("/bin/sh", None))));
        assert_eq!(line(b"#!/bin/sh x\0y\n"), Ok(Some(("/bin/sh", Some("x")))));
    }
}
