//! Lines of two runs, and what they differ in.

use std::fmt::Write as _;

use testkit::command::Finished;

use crate::network::known::{Fate, Known};
use crate::network::programs::Program;

/// What begins the part of one role in the output of a pair.
pub(crate) const PART: &str = "== ";
/// What begins a section.
const SECTION: &str = "-- ";

/// The lines of a program, each behind its role and section, so that equal lines of different
/// sections differ. A program that failed says so in one more, after those that it got to.
pub(crate) fn lines(done: &Finished) -> Vec<String> {
    let (mut part, mut section) = (String::new(), String::new());
    let mut lines = Vec::new();
    for line in done.out().lines() {
        if let Some(name) = line.strip_prefix(PART) {
            part = format!("{name}: ");
        } else if let Some(name) = line.strip_prefix(SECTION) {
            name.clone_into(&mut section);
        } else {
            lines.push(format!("{part}{section} | {line}"));
        }
    }
    if done.code() != 0 {
        lines.push(format!("ended with {}: {}", done.code(), done.err().trim_end()));
    }
    lines
}

/// Lines that only one of both has: the shortest edit from one to the other.
pub(crate) fn differences(left: &[String], right: &[String]) -> Vec<String> {
    // Two long lists are equal but for a few lines, so equal ends need no table.
    let head = left.iter().zip(right).take_while(|(one, other)| one == other).count();
    let (left, right) = (&left[head..], &right[head..]);
    let ends = left.iter().rev().zip(right.iter().rev());
    let tail = ends.take_while(|(one, other)| one == other).count();
    let (left, right) = (&left[..left.len() - tail], &right[..right.len() - tail]);
    let (rows, columns) = (left.len(), right.len());
    let mut common = vec![vec![0_u32; columns + 1]; rows + 1];
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            common[row][column] = if left[row] == right[column] {
                common[row + 1][column + 1] + 1
            } else {
                common[row + 1][column].max(common[row][column + 1])
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut edits = Vec::new();
    while row < rows || column < columns {
        if row < rows && column < columns && left[row] == right[column] {
            row += 1;
            column += 1;
        } else if column == columns
            || row < rows && common[row + 1][column] >= common[row][column + 1]
        {
            edits.push(format!("- {}", left[row]));
            row += 1;
        } else {
            edits.push(format!("+ {}", right[column]));
            column += 1;
        }
    }
    edits
}

/// Compares the oracle's lines with a container's, apart from known differences.
///
/// # Panics
/// If they differ otherwise, or if a line that is listed as different is not.
pub(crate) fn expect_same(
    program: &Program,
    known: &mut dyn Iterator<Item = &'static Known>,
    (right, here): (&[String], &[String]),
) {
    assert!(right.len() >= program.least, "the oracle said only {} lines", right.len());
    let mut stale = Vec::new();
    let (mut wanted, mut got) = (right.to_vec(), here.to_vec());
    for known in known {
        match known.settle(&mut wanted, &mut got) {
            Fate::Settled => {}
            Fate::Stale => stale.push(known.line),
            Fate::Missing => panic!("{} is listed as different, but nobody says it", known.line),
        }
    }
    assert!(stale.is_empty(), "listed as different, but equal: take them off the list: {stale:?}");
    let differing = differences(&wanted, &got);
    if differing.is_empty() {
        return;
    }
    let mut text = format!("{} lines differ (- oracle, + here):", differing.len());
    for line in differing.iter().take(60) {
        let _ = write!(text, "\n  {line}");
    }
    panic!("{text}");
}
