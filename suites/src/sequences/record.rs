//! Sequences to play, and the comparison of the records of two runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Steps of a sequence.
pub(crate) const STEPS: u32 = 120;

/// Sequences that one run of the guest program plays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Play {
    /// `files` or `ids`.
    pub(crate) mode: &'static str,
    /// At most [`super::image::SLOTS`], each with a directory of its own: they differ modulo that
    /// number.
    pub(crate) seeds: Vec<u64>,
    pub(crate) steps: u32,
    /// Only these steps.
    pub(crate) only: Option<Vec<u32>>,
}

impl Play {
    pub(crate) fn new(mode: &'static str, seeds: impl IntoIterator<Item = u64>) -> Self {
        Self { mode, seeds: seeds.into_iter().collect(), steps: STEPS, only: None }
    }

    /// One of its sequences.
    pub(crate) fn one(&self, seed: u64) -> Self {
        Self { seeds: vec![seed], ..self.clone() }
    }

    /// Each of them.
    pub(crate) fn each(&self) -> impl Iterator<Item = Self> + '_ {
        self.seeds.iter().map(|seed| self.one(*seed))
    }

    pub(crate) fn has_many(&self) -> bool {
        self.seeds.len() > 1
    }

    /// True if no step is left out.
    pub(crate) fn is_whole(&self) -> bool {
        self.only.is_none()
    }

    /// The arguments of the guest program.
    pub(crate) fn words(&self, hidden: &str) -> Vec<String> {
        let only = self.only.as_ref().map_or_else(|| "-".to_owned(), |steps| listed(steps));
        let [seeds, steps] = [listed(&self.seeds), self.steps.to_string()];
        ["/bin/sequences", "run", &seeds, &steps, self.mode, hidden, &only]
            .map(str::to_owned)
            .to_vec()
    }
}

/// Formats numbers with a comma before and after each.
fn listed(numbers: &[impl ToString]) -> String {
    let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    format!(",{},", numbers.join(","))
}

/// The plays of a mode in the corpus: lines of mode and seeds, which are numbers or ranges.
pub(crate) fn corpus(text: &str, mode: &'static str) -> Vec<Play> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let number = |word: &str| word.parse::<u64>().expect("a number in the corpus");
    let seeds = |word: &str| match word.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(word)..number(word) + 1,
    };
    lines
        .filter_map(|line| line.strip_prefix(mode)?.strip_prefix(' '))
        .map(|words| Play::new(mode, words.split_whitespace().flat_map(seeds)))
        .collect()
}

/// The point at which the records of a sequence differ.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) seed: u64,
    pub(crate) step: u32,
    pub(crate) native: String,
    pub(crate) here: String,
    /// The records before it, the last calls only.
    pub(crate) before: Vec<String>,
}

impl Difference {
    /// True if one of both was ended by its alarm, possibly because of a busy machine.
    pub(crate) fn is_late(&self) -> bool {
        [&self.native, &self.here].into_iter().any(|line| line.contains("ended by signal 14"))
    }
}

type Records<'t> = BTreeMap<u64, Vec<(u32, &'t str)>>;

/// Lines begin with `SEED.STEP `.
fn records(text: &str) -> Records<'_> {
    let mut records = Records::new();
    for line in text.lines() {
        let Some((key, words)) = line.split_once(' ') else { continue };
        let Some((seed, step)) = key.split_once('.') else { continue };
        if let (Ok(seed), Ok(step)) = (seed.parse(), step.parse()) {
            records.entry(seed).or_default().push((step, words));
        }
    }
    records
}

/// The first unknown difference of every seed. Lines after a known one are still compared.
pub(crate) fn compare(
    native: &str,
    here: &str,
    known: &dyn Fn(&str, &str) -> Option<bool>,
) -> Vec<Difference> {
    let here = records(here);
    let mut found = Vec::new();
    for (seed, right) in records(native) {
        let empty = Vec::new();
        let ours = here.get(&seed).unwrap_or(&empty);
        for at in 0..right.len().max(ours.len()) {
            let end = (u32::MAX, "(nothing)");
            let (wanted, got) = (*right.get(at).unwrap_or(&end), *ours.get(at).unwrap_or(&end));
            if wanted == got {
                continue;
            }
            match known(wanted.1, got.1).filter(|_| wanted.0 == got.0) {
                Some(true) => continue,
                Some(false) => break,
                None => {}
            }
            found.push(Difference {
                seed,
                step: wanted.0.min(got.0),
                native: wanted.1.to_owned(),
                here: got.1.to_owned(),
                before: right[at.saturating_sub(12)..at.min(right.len())]
                    .iter()
                    .map(|(step, words)| format!("{step} {words}"))
                    .collect(),
            });
            break;
        }
    }
    found
}

/// Describes the differences for a reader.
pub(crate) fn describe(play: &Play, found: &[Difference]) -> String {
    let mut text = format!("{} sequences of {} differ", found.len(), play.mode);
    for difference in found.iter().take(6) {
        let Difference { seed, step, native, here, before } = difference;
        let _ = write!(text, "\n seed {seed}, step {step}:");
        for line in before {
            let _ = write!(text, "\n     {line}");
        }
        let _ = write!(text, "\n   - {native}\n   + {here}");
    }
    text
}

/// A unit test of the comparison, since this binary has no other place for it.
pub(crate) fn finds_differences() {
    let native = "1.0 a\n1.1 b\n1.2 c\n2.0 same\n";
    let found = compare(native, "1.0 a\n1.1 x\n1.2 y\n2.0 same\n", &|_, here| {
        (here == "x").then_some(true)
    });
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].step, found[0].here.as_str()), (2, "y"));
    assert_eq!(compare(native, "1.0 a\n", &|_, _| None).len(), 2);
    assert!(compare(native, native, &|_, _| None).is_empty());
}
