//! Shortens a differing sequence: steps are left out, in halves, quarters and so on, as long as a
//! difference of the same kind remains.

use crate::sequences::record::{Difference, Play, describe};

/// Maximum number of plays; each is two starts.
const TRIES: usize = 40;

/// Kind of a difference: the name of the call.
fn kind(difference: &Difference) -> &str {
    difference.native.split(['(', ' ']).next().unwrap_or_default()
}

/// Returns the shortest sequence found, described.
pub(crate) fn shrink(
    play: &Play,
    difference: &Difference,
    differences: &dyn Fn(&Play) -> Vec<Difference>,
) -> String {
    let mut best = difference.clone();
    let mut tries = 0;
    let mut attempt = |steps: &[u32]| {
        tries += 1;
        let only = Play { only: Some(steps.to_vec()), ..play.one(difference.seed) };
        let found = differences(&only).into_iter().find(|found| kind(found) == kind(difference));
        (found, tries < TRIES)
    };
    let mut steps: Vec<u32> = (0..=difference.step.min(play.steps)).collect();
    let mut size = steps.len().div_ceil(2);
    'search: while size > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut less = steps.clone();
            less.drain(at..(at + size).min(steps.len()));
            let (found, more) = attempt(&less);
            match found {
                Some(found) => {
                    best = found;
                    steps = less;
                }
                None => at += size,
            }
            if !more {
                break 'search;
            }
        }
        if size == 1 {
            break;
        }
        size = size.div_ceil(2);
    }
    let small = Play { only: Some(steps.clone()), ..play.clone() };
    format!("steps {steps:?}: {}\n", describe(&small, &[best]))
}
