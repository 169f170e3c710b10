//! Which cases run of those that no kind of host chooses by itself.
//!
//! `CORACLE_TEST_SHARE=2/3` is the second third of them: a case belongs to one of three by a hash
//! of its name, so that three runs have them all. Without the variable, or with `1/1`, all run,
//! and those that only repeat what another user or mode shows, too.

use std::fmt;
use std::str::FromStr;

/// The environment variable.
pub const VARIABLE: &str = "CORACLE_TEST_SHARE";

/// In which shares a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rarity {
    /// In each.
    Always,
    /// In the one that a hash of its name chooses.
    ByName,
    /// In that of this number in a list, from 0: cases one after the other are spread evenly.
    ByPlace(u64),
}

/// A part of all cases: `part` of `of`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    part: u64,
    of: u64,
}

impl Share {
    /// All cases.
    pub const WHOLE: Self = Self { part: 1, of: 1 };

    /// The share of `of` that a number, such as a commit's hash, chooses.
    pub fn chosen(number: u64, of: u64) -> Self {
        Self { part: number % of + 1, of }
    }

    /// What the variable says.
    ///
    /// # Errors
    /// If the value is not a share.
    pub fn wanted() -> Result<Self, String> {
        match std::env::var(VARIABLE) {
            Ok(text) => text.parse().map_err(|why| format!("{VARIABLE}={text}: {why}")),
            Err(_) => Ok(Self::WHOLE),
        }
    }

    /// Whether a case runs in it.
    pub fn runs(self, name: &str, rarity: Rarity) -> bool {
        match rarity {
            Rarity::Always => true,
            Rarity::ByName => self.takes(name),
            Rarity::ByPlace(place) => place % self.of == self.part - 1,
        }
    }

    /// Whether a case of this name belongs to it, where its name decides.
    pub fn takes(self, name: &str) -> bool {
        // FNV-1a: the same on every machine and with every compiler.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // The lowest bits mix least.
        (hash >> 16) % self.of == self.part - 1
    }

    /// Whether it is all cases.
    pub fn is_whole(self) -> bool {
        self == Self::WHOLE
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text
            .split_once('/')
            .and_then(|(part, of)| Some(Self { part: part.parse().ok()?, of: of.parse().ok()? }));
        numbers
            .filter(|share| (1..=share.of).contains(&share.part))
            .ok_or_else(|| "a share is written as 2/3, the second of three".to_owned())
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

/// Whether cases run too that only repeat what others show.
pub fn is_whole() -> bool {
    Share::wanted().is_ok_and(Share::is_whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_belongs_to_one_share() {
        let shares: Vec<Share> = (0..3).map(|number| Share::chosen(number, 3)).collect();
        let mut counts = [0; 3];
        for number in 0..300 {
            let name = format!("contract::P1::plain::group::case_{number}");
            let takers: Vec<usize> = (0..3).filter(|at| shares[*at].takes(&name)).collect();
            assert_eq!(takers.len(), 1, "{name}");
            counts[takers[0]] += 1;
            assert!(Share::WHOLE.takes(&name));
        }
        assert!(counts.iter().all(|count| (60..=140).contains(count)), "{counts:?}");
    }

    #[test]
    fn cases_of_a_list_take_turns() {
        let takers = |place: u64| {
            let runs = |part: &u64| Share::chosen(*part, 3).runs("a", Rarity::ByPlace(place));
            (0..3).filter(runs).collect::<Vec<u64>>()
        };
        assert_eq!([0, 1, 2, 3].map(takers), [[0], [1], [2], [0]]);
        assert!(Share::WHOLE.runs("a", Rarity::ByPlace(7)));
        assert!(Share::chosen(1, 3).runs("a", Rarity::Always));
    }

    #[test]
    fn shares_are_read() {
        assert_eq!("2/3".parse(), Ok(Share { part: 2, of: 3 }));
        assert!("1/1".parse::<Share>().is_ok_and(Share::is_whole));
        for bad in ["", "3", "0/3", "4/3", "1/0", "a/b", "1/3/3", "-1/3"] {
            assert!(bad.parse::<Share>().is_err(), "{bad}");
        }
        assert_eq!(Share::chosen(4, 3).to_string(), "2/3");
    }
}
