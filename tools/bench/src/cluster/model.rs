//! What starts of few hosts say about a start of many: a *model*.
//!
//! Each phase of `up` takes a time with a law in the number of nodes: a part that does not depend
//! on it, and one for each node. Nodes that look for each other ([`MEET`]) also have a part for
//! each pair. The laws are fitted to some sizes and checked at one to which they were not.
//!
//! Simulated hosts share the processors. Hosts with processors of their own do their part at once:
//! then what grows is the driver's own time for each host, and what a node does for each other one.

use std::collections::BTreeMap;

use super::lab::{Home, Lab, Up};
use super::{alone, fact, up};
use crate::{Bench, Line, median};
use xtask::shell::Outcome;

const FITTED: [u32; 4] = [1, 2, 4, 8];
const CHECKED: u32 = 12;
const MANY: u32 = 1000;
/// The phase in which each node calls each other one.
const MEET: &str = "meet";
/// The greatest error at the size that is checked, in percent.
const AIM: f64 = 20.0;

/// Seconds of a phase: a constant, for each node, for each pair.
type Law = [f64; 3];

/// Starts by the number of nodes.
type Found = BTreeMap<u32, Vec<Up>>;

pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    let found = starts(bench)?;
    let laws = laws(&found);
    let processors = std::thread::available_parallelism().map_or(1, Into::<usize>::into);
    let cores = f64::from(u32::try_from(processors).unwrap_or(1));
    let driver = fit(&points(&found, &|up| up.processors), 2)[1];
    let all = |size: u32| laws.iter().map(|(_, law)| at(law, size)).sum::<f64>();
    let measured = middle(&found, CHECKED, &|up| up.seconds);
    let error = (all(CHECKED) / measured - 1.0).abs() * 100.0;
    let pairs = laws.iter().map(|(_, law)| law[2]).sum::<f64>();
    let one = middle(&found, 1, &|up| up.seconds);
    let apart = one + f64::from(MANY) * (driver / cores + pairs * cores);
    let seconds = |seconds: f64| format!("{seconds:.2} s");
    let fitted = FITTED.map(|size| size.to_string()).join(", ");
    let what = format!("*model* fitted at {fitted}: its error at {CHECKED} nodes");
    Ok(vec![
        fact("*model* of `up` of n nodes by ssh, in ms", text(&laws)),
        Line {
            against: format!("measured at {CHECKED}"),
            theirs: seconds(measured),
            ..alone(&what, seconds(all(CHECKED)), error, AIM, "%")
        },
        fact(
            &format!("*model*: `up` of {MANY} nodes that share {processors} processors"),
            seconds(all(MANY)),
        ),
        fact(
            &format!("*model*: `up` of {MANY} nodes with processors of their own"),
            format!("{}, of it {:.1} ms of the driver for each", seconds(apart), driver * 1000.0),
        ),
    ])
}

fn starts(bench: &Bench) -> Outcome<Found> {
    let lab = Lab::start(bench, CHECKED as usize, Home::Own)?;
    let mut found = Found::new();
    for round in 0..=bench.rounds {
        for size in FITTED.into_iter().chain([CHECKED]) {
            // The first start brings program and image to all hosts.
            if round == 0 && size != CHECKED {
                continue;
            }
            let (cluster, nodes) = (format!("model{size}"), size as usize);
            let taken = lab.up(&up::file(&lab, &cluster, Some(nodes), nodes)?)?;
            lab.down(&cluster)?;
            if round > 0 {
                found.entry(size).or_default().push(taken);
            }
        }
    }
    Ok(found)
}

/// The law of each phase, and of what comes before the first.
fn laws(found: &Found) -> Vec<(String, Law)> {
    let of_phase = |name: &str, up: &Up| {
        let all = up.phases.iter().filter(|(other, _)| other == name);
        all.map(|(_, time)| time).sum::<f64>()
    };
    let before = |up: &Up| up.seconds - up.phases.iter().map(|(_, time)| time).sum::<f64>();
    let longest = found.get(&CHECKED).and_then(|all| all.first());
    let names = longest.into_iter().flat_map(|up| up.phases.iter().map(|(name, _)| name));
    let law = |name: &String| {
        let parts = if name == MEET { 3 } else { 2 };
        (name.clone(), fit(&points(found, &|up| of_phase(name, up)), parts))
    };
    let mut laws: Vec<(String, Law)> = names.map(law).collect();
    laws.insert(0, ("begin".to_owned(), fit(&points(found, &before), 2)));
    laws
}

fn text(laws: &[(String, Law)]) -> String {
    let each = laws.iter().map(|(name, law)| {
        let [constant, node, pair] = law.map(|part| part * 1000.0);
        let pair = if name == MEET { format!(" + {pair:.2} n²") } else { String::new() };
        format!("{name} {constant:.0} + {node:.1} n{pair}")
    });
    each.collect::<Vec<_>>().join(", ")
}

fn middle(found: &Found, size: u32, part: &dyn Fn(&Up) -> f64) -> f64 {
    median(found.get(&size).into_iter().flatten().map(part).collect())
}

/// A part of the starts to which laws are fitted.
fn points(found: &Found, part: &dyn Fn(&Up) -> f64) -> Vec<(f64, f64)> {
    FITTED.iter().map(|&size| (f64::from(size), middle(found, size, part))).collect()
}

fn at(law: &Law, size: u32) -> f64 {
    let size = f64::from(size);
    law[0] + law[1] * size + law[2] * size * size
}

/// The law with so many parts, 2 or 3, that has the least squares of errors; none of the parts that
/// grow is negative.
fn fit(points: &[(f64, f64)], parts: usize) -> Law {
    let mut rows = [[0.0; 4]; 3];
    for (size, time) in points {
        let powers = [1.0, *size, size * size];
        for (row, one) in rows.iter_mut().zip(powers) {
            for (cell, other) in row.iter_mut().zip(powers.into_iter().chain([*time])) {
                *cell += one * other;
            }
        }
    }
    let [count, .., times] = rows[0];
    for first in 0..parts {
        for next in first + 1..parts {
            let factor = rows[next][first] / rows[first][first];
            let above = rows[first];
            for (cell, value) in rows[next].iter_mut().zip(above) {
                *cell -= factor * value;
            }
        }
    }
    let mut law = [0.0; 3];
    for row in (0..parts).rev() {
        let known: f64 = (row + 1..parts).map(|column| rows[row][column] * law[column]).sum();
        law[row] = (rows[row][3] - known) / rows[row][row];
    }
    if law[1..parts].iter().any(|part| *part < 0.0) {
        if parts == 3 {
            return fit(points, 2);
        }
        // The sums of the times and of ones.
        return [times / count, 0.0, 0.0];
    }
    law
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(law: Law, wanted: Law) -> bool {
        law.iter().zip(wanted).all(|(one, other)| (one - other).abs() < 1e-6)
    }

    #[test]
    fn finds_the_laws_again() {
        let points = |law: Law| FITTED.map(|size| (f64::from(size), at(&law, size)));
        assert!(is_near(fit(&points([2.0, 0.5, 0.0]), 2), [2.0, 0.5, 0.0]));
        assert!(is_near(fit(&points([2.0, 0.5, 0.25]), 3), [2.0, 0.5, 0.25]));
        // What gets shorter with more nodes is noise.
        assert!(is_near(fit(&[(1.0, 3.0), (2.0, 1.0)], 2), [2.0, 0.0, 0.0]));
    }
}
