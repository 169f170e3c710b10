//! Reads which modules of a crate use which others, from paths that begin with `crate` or `super`.
//!
//! A module is named by its path from the crate's root: `["engines", "native"]`. Imports are
//! followed, so `crate::Store` where the root says `pub use store::Store` is a use of `store`. What
//! is compiled for tests alone is left out. Not seen are names that a macro makes, and names that
//! come from a glob import.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::lexer::{Kind, Token, lex};
use crate::shell::Outcome;

/// A path of names from the crate's root.
pub(super) type Name = Vec<String>;

/// One path in the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// The module that it stands in.
    pub(super) from: Name,
    /// What it names, from the crate's root: a module or an item in one.
    pub(super) to: Name,
    /// `FILE:LINE`.
    pub(super) place: String,
}

/// The modules of a crate and the paths between them.
#[derive(Debug, Default)]
pub(super) struct Modules {
    pub(super) names: BTreeSet<Name>,
    pub(super) uses: Vec<Use>,
    /// What imports call a thing, by module and name.
    imports: BTreeMap<(Name, String), Name>,
}

impl Modules {
    /// Reads the crate whose root is the file `root` (`lib.rs` or `main.rs`).
    pub(super) fn read(root: &Path) -> Outcome<Self> {
        let mut modules = Self::default();
        let dir = root.parent().unwrap_or(root);
        modules.file(root, dir, Vec::new())?;
        modules.resolve();
        Ok(modules)
    }

    /// Reads one file and those of its modules, which lie in `dir`.
    fn file(&mut self, file: &Path, dir: &Path, name: Name) -> Outcome {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let shown = file.strip_prefix(crate::shell::root()).unwrap_or(file).display().to_string();
        for child in self.source(&text, &shown, name) {
            // An inline module has a directory, too.
            let below = child.inside.iter().fold(dir.to_owned(), |dir, part| dir.join(part));
            let last = child.name.last().cloned().unwrap_or_default();
            let flat = below.join(format!("{last}.rs"));
            let nested = below.join(&last).join("mod.rs");
            let there = [flat, nested].into_iter().find(|path: &PathBuf| path.exists());
            if let Some(path) = there {
                self.file(&path, &below.join(&last), child.name)?;
            }
        }
        Ok(())
    }

    /// Reads the text of module `name`; gives the modules that it declares to be in other files.
    fn source(&mut self, text: &str, file: &str, name: Name) -> Vec<Child> {
        let lexed = lex(text);
        self.names.insert(name.clone());
        let mut reader = Reader {
            modules: self,
            tokens: &lexed.tokens,
            file,
            depth: 0,
            file_depth: name.len(),
            open: Vec::new(),
            name,
            children: Vec::new(),
        };
        reader.read();
        reader.children
    }

    /// Replaces what paths say by what they mean, as far as imports tell.
    fn resolve(&mut self) {
        let mut uses = std::mem::take(&mut self.uses);
        for found in &mut uses {
            found.to = self.meaning(&found.to);
        }
        self.uses = uses;
    }

    fn meaning(&self, path: &[String]) -> Name {
        let mut path = path.to_vec();
        // An import may name another; a circle of them does not compile, so the limit is never met.
        for _ in 0..8 {
            let module = self.module_of(&path);
            let Some(item) = path.get(module.len()) else { break };
            let Some(target) = self.imports.get(&(module.clone(), item.clone())) else { break };
            path = [target.as_slice(), &path[module.len() + 1..]].concat();
        }
        path
    }

    /// The module that a path leads into: its longest beginning that is one.
    pub(super) fn module_of(&self, path: &[String]) -> Name {
        let lengths = (0..=path.len()).rev();
        let is_module = |length: &usize| self.names.contains(&path[..*length]);
        path[..lengths.into_iter().find(is_module).unwrap_or_default()].to_vec()
    }
}

/// A module in another file.
struct Child {
    name: Name,
    /// The inline modules of the file around its declaration.
    inside: Name,
}

/// Goes through the tokens of one file.
struct Reader<'a> {
    modules: &'a mut Modules,
    tokens: &'a [Token<'a>],
    file: &'a str,
    /// The module that the current token stands in.
    name: Name,
    /// How many of its names are the file's.
    file_depth: usize,
    /// How many braces are open.
    depth: usize,
    /// At how many open braces each inline module around here began.
    open: Vec<usize>,
    children: Vec<Child>,
}

impl Reader<'_> {
    fn read(&mut self) {
        let mut at = 0;
        while at < self.tokens.len() {
            at = self.token(at);
        }
    }

    /// Takes the token at `at`; gives the next one to look at.
    fn token(&mut self, at: usize) -> usize {
        match self.tokens[at].kind {
            Kind::Sign('{') => self.depth += 1,
            Kind::Sign('}') => {
                self.depth = self.depth.saturating_sub(1);
                if self.open.last() == Some(&self.depth) {
                    self.open.pop();
                    self.name.pop();
                }
            }
            Kind::Sign('#') => {
                if let Some(end) = self.attribute(at)
                    && is_for_tests(&self.tokens[at..end])
                {
                    return self.end_of_item(end);
                }
            }
            Kind::Word("mod") => return self.module(at),
            Kind::Word("use") if !self.is_sign(at + 1, '<') => self.import(at + 1),
            Kind::Word("crate" | "super") if self.begins_path(at) => self.path(at),
            _ => {}
        }
        at + 1
    }

    /// Whether `crate` or `super` at `at` begins a path: not in `super::super`, and not in
    /// `pub(in crate::a)`, which says who may see and not what is used.
    fn begins_path(&self, at: usize) -> bool {
        let is_before = |steps: usize, sign| at >= steps && self.is_sign(at - steps, sign);
        let continues = is_before(1, ':') && is_before(2, ':');
        !continues && (at == 0 || !self.tokens[at - 1].is_word("in"))
    }

    fn is_sign(&self, at: usize, sign: char) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is_sign(sign))
    }

    fn word(&self, at: usize) -> Option<&str> {
        match self.tokens.get(at)?.kind {
            Kind::Word(word) => Some(word),
            _ => None,
        }
    }

    /// The end of the attribute at `at`, if that is one.
    fn attribute(&self, at: usize) -> Option<usize> {
        let first = at + 1 + usize::from(self.is_sign(at + 1, '!'));
        self.is_sign(first, '[').then(|| self.closed(first, '[', ']'))
    }

    /// Behind the sign that closes the one at `at`.
    fn closed(&self, at: usize, open: char, close: char) -> usize {
        let mut depth = 0;
        for (n, token) in self.tokens.iter().enumerate().skip(at) {
            if token.is_sign(open) {
                depth += 1;
            } else if token.is_sign(close) {
                depth -= 1;
                if depth == 0 {
                    return n + 1;
                }
            }
        }
        self.tokens.len()
    }

    /// Behind the item that begins at `at`, further attributes of it included.
    fn end_of_item(&self, mut at: usize) -> usize {
        while let Some(token) = self.tokens.get(at) {
            match token.kind {
                Kind::Sign(';') => return at + 1,
                Kind::Sign('{') => return self.closed(at, '{', '}'),
                Kind::Sign('[') => at = self.closed(at, '[', ']'),
                Kind::Sign('(') => at = self.closed(at, '(', ')'),
                _ => at += 1,
            }
        }
        at
    }

    /// `mod name;` or `mod name {`.
    fn module(&mut self, at: usize) -> usize {
        let Some(word) = self.word(at + 1) else { return at + 1 };
        let name = [self.name.as_slice(), &[word.to_owned()]].concat();
        if self.is_sign(at + 2, ';') {
            let inside = self.name[self.file_depth..].to_vec();
            self.children.push(Child { name, inside });
        } else if self.is_sign(at + 2, '{') {
            self.modules.names.insert(name.clone());
            self.name = name;
            self.open.push(self.depth);
            self.depth += 1;
            return at + 3;
        }
        at + 1
    }

    /// Keeps what a `use` declaration makes known here.
    fn import(&mut self, at: usize) {
        for (path, known_as) in self.tree(at) {
            let Some(last) = known_as.or_else(|| path.last().cloned()) else { continue };
            let target = match path.first().map(String::as_str) {
                Some("crate" | "super") => self.absolute(&path),
                Some("self") => [self.name.as_slice(), &path[1..]].concat(),
                // A child module or another crate; another crate's names lead nowhere.
                Some(_) => [self.name.as_slice(), &path].concat(),
                None => continue,
            };
            let key = (self.name.clone(), last);
            if target != [key.0.as_slice(), std::slice::from_ref(&key.1)].concat() {
                self.modules.imports.insert(key, target);
            }
        }
    }

    /// Keeps what the path at `at` names.
    fn path(&mut self, at: usize) {
        let line = self.tokens[at].line;
        for (path, _) in self.tree(at) {
            let place = format!("{}:{line}", self.file);
            let to = self.absolute(&path);
            self.modules.uses.push(Use { from: self.name.clone(), to, place });
        }
    }

    /// A path with `crate` or `super` at its start, from the crate's root.
    fn absolute(&self, path: &[String]) -> Name {
        let up = path.iter().take_while(|word| *word == "super").count();
        let is_root = path.first().is_some_and(|word| word == "crate");
        let base = if is_root { 0 } else { self.name.len().saturating_sub(up) };
        [&self.name[..base], &path[up + usize::from(is_root)..]].concat()
    }

    /// All paths of the tree at `at`: `a::{b, c::d as e}` is `a::b` and `a::c::d`, known as `e`.
    fn tree(&self, at: usize) -> Vec<(Name, Option<String>)> {
        let mut paths = Vec::new();
        self.branch(at, &[], &mut paths);
        paths
    }

    /// Adds the paths of the branch at `at`, which continue `before`; gives its end.
    fn branch(
        &self,
        mut at: usize,
        before: &[String],
        paths: &mut Vec<(Name, Option<String>)>,
    ) -> usize {
        let mut path = before.to_vec();
        loop {
            if self.is_sign(at, '{') {
                at += 1;
                while at < self.tokens.len() && !self.is_sign(at, '}') {
                    let end = self.branch(at, &path, paths);
                    // A step at least, whatever the source says.
                    at = end.max(at + usize::from(end == at));
                    at += usize::from(self.is_sign(at, ','));
                }
                return at + 1;
            }
            let Some(word) = self.word(at) else { break };
            // `a::{self}` is `a`.
            if word != "self" || path.is_empty() {
                path.push(word.to_owned());
            }
            at += 1;
            if !(self.is_sign(at, ':') && self.is_sign(at + 1, ':')) {
                break;
            }
            at += 2;
        }
        let mut known_as = None;
        if self.word(at) == Some("as") {
            known_as = self.word(at + 1).map(str::to_owned);
            at += 2;
        } else if self.is_sign(at, '*') {
            at += 1;
        }
        paths.push((path, known_as));
        at
    }
}

/// Whether the attribute has its item compiled for tests only.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let has = |word| attribute.iter().any(|token| token.is_word(word));
    has("cfg") && has("test") && !has("not") && !has("any")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    /// The uses in some modules, as text.
    fn uses(sources: &[(&str, &str)]) -> Vec<String> {
        let mut modules = Modules::default();
        for (module, text) in sources {
            modules.source(text, "f.rs", name(module));
        }
        modules.resolve();
        modules
            .uses
            .iter()
            .map(|found| format!("{} > {}", found.from.join("::"), found.to.join("::")))
            .collect()
    }

    #[test]
    fn finds_paths_in_imports_and_code() {
        let text = "use crate::b::{self, c::D, e as f};\nfn g() { super::b::h(); crate::i!(); }";
        assert_eq!(uses(&[("a", text)]), ["a > b", "a > b::c::D", "a > b::e", "a > b::h", "a > i"]);
    }

    #[test]
    fn leaves_out_tests_visibility_and_words_in_text() {
        let text = "pub(in crate::x) fn f() { \"crate::y\"; /* crate::z */ }\n\
            #[cfg(test)]\n#[path = \"x\"]\nmod tests { use crate::t; fn g() { crate::u(); } }\n\
            #[cfg(test)]\nuse crate::v::w;\n#[cfg(not(test))]\nuse crate::p;";
        assert_eq!(uses(&[("a", text)]), ["a > p"]);
    }

    #[test]
    fn counts_inline_modules() {
        let text = "mod b { use super::c; mod d { use super::super::super::e; } }\nuse super::f;";
        assert_eq!(uses(&[("a", text)]), ["a::b > a::c", "a::b::d > e", "a > f"]);
    }

    #[test]
    fn follows_imports() {
        let root = "mod a;\nmod b;\npub use b::Thing;\nuse b::inner as other;";
        let text = "fn f(x: crate::Thing) { crate::other::g(); super::b::h(); std::crate_x(); }";
        assert_eq!(
            uses(&[("", root), ("b", ""), ("a", text)]),
            ["a > b::Thing", "a > b::inner::g", "a > b::h"]
        );
    }

    #[test]
    fn ends_in_invalid_source() {
        for text in ["use crate::{", "use a::{{", "mod", "#[cfg(test)]", "crate::{;", "use {;}"] {
            uses(&[("a", text)]);
        }
    }
}
