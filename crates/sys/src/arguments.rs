//! The words that a program of Coracle is started with, and those parts of them that every user of
//! the machine could read in `/proc/PID/cmdline`, but only one may.
//!
//! The environment of a process can be read by its own user alone
//! ([proc(5)](https://man7.org/linux/man-pages/man5/proc.5.html)). So a hidden word goes there
//! whole, in a variable of its own; in its place stands the part of it that may be shown. The
//! program puts both together before it reads its words ([`Words::received`]).
//!
//! A launcher that takes words to another machine carries no variables. For it a file that only
//! its user can read has the same, and one variable names the file.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::{fmt, io};

/// The variable that names a file with hidden words; with `_` and the place of a word, counted from
/// the program's name as 0, it has that word.
pub const VARIABLE: &str = "_CORACLE_HIDDEN";

/// The words of a program, its name first.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Words {
    all: Vec<OsString>,
    /// The places of hidden words, with the number of their first bytes that may be shown.
    hidden: BTreeMap<usize, usize>,
}

/// What is hidden is not for messages either.
impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.shown()).finish()
    }
}

impl Words {
    /// Words of which nothing is hidden.
    pub fn new<S: Into<OsString>>(all: impl IntoIterator<Item = S>) -> Self {
        Self { all: all.into_iter().map(Into::into).collect(), hidden: BTreeMap::new() }
    }

    /// The words of this process, whole, by its variables. Its environment has those no more
    /// afterwards; a file that had what is hidden is removed. To be called while there is one
    /// thread.
    ///
    /// # Errors
    /// If what is hidden does not belong to these words, or its file cannot be read.
    pub fn received(
        all: impl IntoIterator<Item = OsString>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> io::Result<Self> {
        let mut words = Self::new(all);
        let is_own = |name: &OsStr| name.as_bytes().starts_with(VARIABLE.as_bytes());
        for (name, value) in environment.into_iter().filter(|(name, _)| is_own(name)) {
            // SAFETY: there is one thread, as the caller promises.
            unsafe { std::env::remove_var(&name) };
            if name == VARIABLE {
                let path = Path::new(&value);
                words.unpack(&std::fs::read(path)?, 0)?;
                let _ = std::fs::remove_file(path);
            } else if let Some(at) = place(&name.as_bytes()[VARIABLE.len()..]) {
                words.restore(at, value)?;
            }
        }
        Ok(words)
    }

    /// All of them, with what is hidden.
    pub fn all(&self) -> &[OsString] {
        &self.all
    }

    /// Hides a word but for its first bytes.
    pub fn hide(&mut self, at: usize, shown: usize) {
        if self.all.get(at).is_some_and(|word| shown < word.len()) {
            let known = self.hidden.entry(at).or_insert(shown);
            *known = shown.min(*known);
        }
    }

    /// Hides an option's value but for its first bytes, whichever words of the program end with it.
    /// One too many does no harm: hidden words are whole again in the program.
    pub fn hide_value(&mut self, value: &OsStr, shown: usize) {
        if shown >= value.len() {
            return;
        }
        for at in 1..self.all.len() {
            let word = self.all[at].as_bytes();
            if word.ends_with(value.as_bytes()) {
                self.hide(at, word.len() - value.len() + shown);
            }
        }
    }

    /// The words by which the program can be started.
    pub fn shown(&self) -> Vec<OsString> {
        let part = |(at, word): (usize, &OsString)| match self.hidden.get(&at) {
            Some(shown) => OsStr::from_bytes(&word.as_bytes()[..*shown]).to_owned(),
            None => word.clone(),
        };
        self.all.iter().enumerate().map(part).collect()
    }

    /// The variables that it has to get then.
    pub fn variables(&self) -> impl Iterator<Item = (String, OsString)> + '_ {
        self.hidden.keys().map(|at| (format!("{VARIABLE}_{at}"), self.all[*at].clone()))
    }

    /// Whether something is hidden.
    pub fn has_hidden(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// What is hidden, as the content of a file.
    pub fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::new();
        for at in self.hidden.keys() {
            packed.extend(format!("_{at}=").as_bytes());
            packed.extend(self.all[*at].as_bytes());
            packed.push(0);
        }
        packed
    }

    /// Makes words whole by the content of a file, which counts from the word at `first`.
    ///
    /// # Errors
    /// If it does not belong to these words.
    pub fn unpack(&mut self, packed: &[u8], first: usize) -> io::Result<()> {
        for entry in packed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let end = entry.iter().position(|byte| *byte == b'=').ok_or_else(foreign)?;
            let at = place(&entry[..end]).ok_or_else(foreign)?;
            self.restore(first + at, OsString::from_vec(entry[end + 1..].to_vec()))?;
        }
        Ok(())
    }

    fn restore(&mut self, at: usize, whole: OsString) -> io::Result<()> {
        let word = self.all.get_mut(at).ok_or_else(foreign)?;
        let shown = word.len();
        if at == 0 || !whole.as_bytes().starts_with(word.as_bytes()) {
            return Err(foreign());
        }
        *word = whole;
        self.hide(at, shown);
        Ok(())
    }

    /// Overwrites what is hidden of these words, which are those of this process, in the memory
    /// where the kernel has put them and others read them. `std::env::args` has them no more
    /// afterwards. Best effort: without `/proc` they stay.
    pub fn wipe(&self) {
        if self.has_hidden() {
            crate::event::overwrite_arguments(&self.hidden);
        }
    }
}

/// `_7` is the place 7.
fn place(name: &[u8]) -> Option<usize> {
    std::str::from_utf8(name).ok()?.strip_prefix('_')?.parse().ok()
}

fn foreign() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("a variable or file of {VARIABLE} has words of another command"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[OsString]) -> Vec<&str> {
        words.iter().map(|word| word.to_str().unwrap()).collect()
    }

    #[test]
    fn a_value_is_hidden_wherever_it_stands() {
        let all = ["x", "run", "-itde", "A=b", "-eA=b", "--env=A=b", "a", "A=b", "A=bc"];
        let mut words = Words::new(all);
        assert!(!words.has_hidden());
        words.hide_value(OsStr::new("A=b"), 2);
        words.hide_value(OsStr::new("A"), 1);
        let shown = ["x", "run", "-itde", "A=", "-eA=", "--env=A=", "a", "A=", "A=bc"];
        assert_eq!(texts(&words.shown()), shown);
        assert_eq!(texts(words.all()), all);
        let told: Vec<String> = words.variables().map(|(name, _)| name).collect();
        assert_eq!(told, [3, 4, 5, 7].map(|at| format!("_CORACLE_HIDDEN_{at}")));
        assert!(!format!("{words:?}").contains("A=b\""), "{words:?}");
    }

    #[test]
    fn words_are_whole_again_by_a_file() {
        let mut words = Words::new(["run", "-e", "A=1\n2", "--password", "", "p"]);
        words.hide(2, 1);
        words.hide(5, 0);
        let mut others = Words::new([vec!["x".into()], words.shown()].concat());
        others.unpack(&words.pack(), 1).unwrap();
        assert_eq!(others.all()[1..], *words.all());
        assert_eq!(others.shown()[1..], words.shown());
        for wrong in [&b"_9=A\0"[..], b"_2=B=1\0", b"_0=x\0", b"A=1\0", b"A\0"] {
            assert!(Words::new(["run", "-e", "A"]).unpack(wrong, 0).is_err(), "{wrong:?}");
        }
    }
}
