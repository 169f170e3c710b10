//! The nearest of some names to one that was misspelt.

/// The known name with the fewest edits from `name`, if it takes at most `limit` and at most half
/// of the name. Of several, one with the same letters, then one with more or fewer: letters are
/// swapped, left out or doubled more often than replaced.
pub fn nearest<'name>(
    name: &str,
    known: impl Iterator<Item = &'name str>,
    limit: usize,
) -> Option<&'name str> {
    let own = letters(name);
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= limit && edits * 2 <= name.len())
        .min_by_key(|(edits, candidate)| {
            let differs = letters(candidate) != own;
            (*edits, differs && candidate.len() == name.len(), differs)
        })
        .map(|(_, candidate)| candidate)
}

/// The letters of a word, sorted.
fn letters(word: &str) -> Vec<char> {
    let mut letters: Vec<char> = word.chars().collect();
    letters.sort_unstable();
    letters
}

/// Edits between two words: insertions, deletions, substitutions and swaps of neighbours (optimal
/// string alignment).
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().collect();
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for row in 1..=left.len() {
        let mut current = vec![row];
        for column in 1..=right.len() {
            let differs = usize::from(left[row - 1] != right[column - 1]);
            let mut best =
                (above[column] + 1).min(current[column - 1] + 1).min(above[column - 1] + differs);
            let swapped = row > 1
                && column > 1
                && left[row - 1] == right[column - 2]
                && left[row - 2] == right[column - 1];
            if swapped {
                best = best.min(before[column - 2] + 1);
            }
            current.push(best);
        }
        before = std::mem::replace(&mut above, current);
    }
    above[right.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn edits() {
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("mirrors", "mirors"), 1);
        assert_eq!(distance("tls-verfiy", "tls-verify"), 1, "a swap is one edit");
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn far_names_are_not_suggested() {
        let known = ["store.dir", "log.max-size"];
        assert_eq!(nearest("store.dri", known.into_iter(), 3), Some("store.dir"));
        assert_eq!(nearest("x", known.into_iter(), 3), None);
        assert_eq!(nearest("network", known.into_iter(), 3), None);
    }

    #[test]
    fn a_letter_is_left_out_sooner_than_replaced() {
        let known = ["image", "images", "rm", "rmi", "run", "ps"];
        assert_eq!(nearest("rn", known.into_iter(), 3), Some("run"));
        assert_eq!(nearest("rmm", known.into_iter(), 3), Some("rm"));
        assert_eq!(nearest("rmo", known.into_iter(), 3), Some("rm"));
        assert_eq!(nearest("imagse", known.into_iter(), 3), Some("images"));
        assert_eq!(nearest("q", known.into_iter(), 3), None);
    }
}
