//! What a worker is about to do and has done, one line each in a file of its own.
//!
//! | line | means |
//! |---|---|
//! | `I item of_image lines path` | the file is about to get this state (`-`: no name) |
//! | `D item`, `U item` | it has got it; it has kept the old one |
//! | `O path`, `T path`, `N path` | a file is about to be removed; was removed; was not there |
//! | `P text` | something is wrong |

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;

use super::{LOGS, SHARED, TREE};
use crate::name_of;

/// Where one of a worker's files is, and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) path: Option<String>,
    /// It begins with what it has in the image.
    pub(super) of_image: bool,
    /// Lines that were added.
    pub(super) lines: u64,
}

/// One of a worker's files.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) state: State,
    /// Another state that it may be in.
    pub(super) doubt: Option<State>,
}

pub(super) struct Journal(File);

impl Item {
    /// The state that it really is in, of the one or two that are possible.
    pub(super) fn actual(&self) -> Option<&State> {
        let states = [Some(&self.state), self.doubt.as_ref()].into_iter().flatten();
        // That it has no name fits everything, so the other state is tried first.
        let (named, nameless): (Vec<_>, Vec<_>) = states.partition(|state| state.path.is_some());
        named.into_iter().chain(nameless).find(|state| state.holds())
    }

    pub(super) fn set(&mut self, state: State) {
        self.state = state;
        self.doubt = None;
    }
}

impl State {
    /// Returns true if the file is as described.
    pub(super) fn holds(&self) -> bool {
        let Some(path) = &self.path else { return true };
        let Ok(text) = fs::read_to_string(path) else { return false };
        let added = "+\n".repeat(self.lines as usize);
        match text.strip_suffix(&added) {
            Some(begin) if self.of_image => {
                begin.starts_with("of the image ") && !begin.contains('+')
            }
            Some(begin) => begin.is_empty(),
            None => false,
        }
    }
}

impl Journal {
    /// Opens a worker's journal, and says what an earlier worker of this number has left.
    pub(super) fn open(number: u64) -> Result<(Self, Vec<Item>), String> {
        let items = replay(number, &text(number));
        let file = OpenOptions::new().append(true).create(true).open(path(number));
        Ok((Self(file.map_err(|error| name_of(&error))?), items))
    }

    pub(super) fn line(&mut self, line: &str) -> Result<(), String> {
        self.0.write_all(format!("{line}\n").as_bytes()).map_err(|error| name_of(&error))
    }

    pub(super) fn will(&mut self, item: usize, state: &State) -> Result<(), String> {
        let path = state.path.as_deref().unwrap_or("-");
        self.line(&format!("I {item} {} {} {path}", state.of_image, state.lines))
    }

    pub(super) fn done(&mut self, item: usize) -> Result<(), String> {
        self.line(&format!("D {item}"))
    }

    pub(super) fn undone(&mut self, item: usize) -> Result<(), String> {
        self.line(&format!("U {item}"))
    }

    pub(super) fn problem(&mut self, text: &str) -> Result<(), String> {
        self.line(&format!("P {text}"))
    }
}

fn path(number: u64) -> String {
    format!("{LOGS}/{number}")
}

/// All lines of a worker.
pub(super) fn text(number: u64) -> String {
    fs::read_to_string(path(number)).unwrap_or_default()
}

/// The states that the journal leaves.
pub(super) fn replay(number: u64, text: &str) -> Vec<Item> {
    let first = |shared: u64| {
        let path = format!("{TREE}/a{shared}/f{number}");
        Item { state: State { path: Some(path), of_image: true, lines: 0 }, doubt: None }
    };
    let mut items: Vec<Item> = (0..SHARED).map(first).collect();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let item = words.get(1).and_then(|word| word.parse::<usize>().ok());
        let Some(item) = item.and_then(|at| items.get_mut(at)) else { continue };
        match words[..] {
            ["I", _, of_image, lines, path] => {
                item.doubt = Some(State {
                    path: (path != "-").then(|| path.to_owned()),
                    of_image: of_image == "true",
                    lines: lines.parse().unwrap_or(0),
                });
            }
            ["D", _] => {
                if let Some(state) = item.doubt.take() {
                    item.set(state);
                }
            }
            ["U", _] => item.doubt = None,
            _ => {}
        }
    }
    items
}
