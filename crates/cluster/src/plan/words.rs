//! The words of a command of Coracle, of which some are for its user's eyes alone.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::Deref;

use sys::arguments;

/// Words without the program's own name. The values of variables among them stand on no command
/// line: who starts the command uses [`Words::of_program`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    all: Vec<String>,
    /// The places of variables, `NAME=VALUE`.
    variables: BTreeSet<usize>,
}

impl Words {
    /// Adds a word.
    pub(crate) fn push(&mut self, word: impl Into<String>) {
        self.all.push(word.into());
    }

    /// Adds words of which nothing is hidden.
    pub(crate) fn extend<S: Into<String>>(&mut self, words: impl IntoIterator<Item = S>) {
        self.all.extend(words.into_iter().map(Into::into));
    }

    /// Adds a variable, `NAME=VALUE` or a name alone, as the option that it is.
    pub(crate) fn variable(&mut self, variable: String) {
        self.push("-e");
        self.variables.insert(self.all.len());
        self.push(variable);
    }

    /// Adds variables.
    pub(crate) fn variables(&mut self, env: &[(String, String)]) {
        for (name, value) in env {
            self.variable(format!("{name}={value}"));
        }
    }

    /// Adds other words as they are.
    pub(crate) fn append(&mut self, others: Self) {
        let first = self.all.len();
        self.variables.extend(others.variables.into_iter().map(|at| first + at));
        self.all.extend(others.all);
    }

    /// The same without so many first ones.
    #[must_use]
    pub(crate) fn without_first(&self, count: usize) -> Self {
        let variables = self.variables.iter().filter_map(|at| at.checked_sub(count));
        Self { all: self.all[count..].to_vec(), variables: variables.collect() }
    }

    /// Those options with a value that are named here, with it.
    #[must_use]
    pub(crate) fn options(&self, names: &[&str]) -> Self {
        let mut found = Self::default();
        for (at, pair) in self.all.windows(2).enumerate() {
            if self.variables.contains(&(at + 1)) && names.contains(&&*pair[0]) {
                found.variable(pair[1].clone());
            } else if names.contains(&&*pair[0]) {
                found.extend(pair.iter().cloned());
            }
        }
        found
    }

    /// The words of a process, behind those of its program.
    pub(crate) fn of_program(
        &self,
        program: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> arguments::Words {
        let mut all: Vec<OsString> = program.into_iter().map(Into::into).collect();
        let first = all.len();
        all.extend(self.all.iter().map(OsString::from));
        let mut words = arguments::Words::new(all);
        for at in &self.variables {
            words.hide(first + at, shown(&self.all[*at]).len());
        }
        words
    }

    /// All of them, without what is hidden: for messages, which may be kept in a file.
    pub(crate) fn shown(&self) -> Vec<String> {
        let part = |(at, word): (usize, &String)| {
            if self.variables.contains(&at) { shown(word).to_owned() } else { word.clone() }
        };
        self.all.iter().enumerate().map(part).collect()
    }
}

/// `NAME=` of a variable.
fn shown(variable: &str) -> &str {
    variable.find('=').map_or(variable, |at| &variable[..=at])
}

impl Deref for Words {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.all
    }
}

impl From<Vec<String>> for Words {
    fn from(all: Vec<String>) -> Self {
        Self { all, variables: BTreeSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn values_of_variables_are_on_no_command_line() {
        let mut words = Words::from(vec!["exec".to_owned()]);
        words.extend(["-e", "A=shown", "--workdir", "/w"]);
        words.variables(&[("B".to_owned(), "x=y".to_owned())]);
        words.variable("HOME".to_owned());
        let mut more = Words::default();
        more.append(words.without_first(1));
        more.extend(["node", "sh", "-e", "C=d"]);
        let shown = "-e A=shown --workdir /w -e B= -e HOME node sh -e C=d";
        assert_eq!(more.shown().join(" "), shown);
        assert_eq!(more.options(&["-e"]).shown()[..6].join(" "), "-e A=shown -e B= -e HOME");
        let process = more.of_program(["coracle", "--store", "/s"]);
        let all = format!("coracle --store /s {shown}");
        assert_eq!(process.shown().join(OsStr::new(" ")), *all);
        let hidden: Vec<_> = process.variables().map(|(_, word)| word).collect();
        assert_eq!(hidden, ["B=x=y"]);
        assert_eq!(more.join(" "), shown.replace("B=", "B=x=y"));
    }
}
