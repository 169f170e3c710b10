//! The file of an index: its size, and the time to make and to check it.
//!
//! Each time is the difference to a command that finds an index that was checked before.

use crate::names::TRUE;
use crate::{Bench, Line, milliseconds};
use xtask::shell::Outcome;

const ROUNDS: usize = 20;

pub(super) fn measure(bench: &Bench, image: &str) -> Outcome<Vec<Line>> {
    bench.coracle(&[&["run", "--rm", "--execmode=I1", image], &TRUE[..]].concat())?;
    let look = |format: &str| -> Outcome<String> {
        let words = ["image", "inspect", "--index", "--format", format, image];
        Ok(bench.coracle(&words)?.trim().to_owned())
    };
    let number = |format: &str| -> Outcome<f64> {
        let text = look(format)?;
        text.parse().map_err(|_| format!("{format}: {text:?}"))
    };
    let (names, per_name) = (number("{{.Names}}")?, number("{{.BytesPerName}}")?);
    let path = look("{{.Path}}")?;
    let stamp = format!("{path}.checked");
    // The same shell removes something each time.
    let script = "rm -f $1 $2; exec $0 image inspect --index --format {{.Names}} $3";
    let coracle = bench.coracle.display().to_string();
    let without = |one: &str, other: &str| -> Vec<String> {
        ["/bin/sh", "-c", script, &coracle, one, other, image].map(str::to_owned).into()
    };
    let commands = [without(&path, &stamp), without(&stamp, "/none"), without("/none", "/none")];
    let times = bench.medians(ROUNDS, &commands)?;
    let [made, checked, found] = times[..] else { return Err("a time is missing".to_owned()) };
    let time = |what: &str, taken: f64, aim: f64| Line {
        what: format!("{what} the index of {names} names"),
        against: "the same with one that was checked".to_owned(),
        ours: milliseconds(taken + found),
        theirs: milliseconds(found),
        value: taken * 1000.0,
        aim,
        unit: "ms",
    };
    Ok(vec![
        Line {
            what: format!("the index of {names} names, each"),
            against: String::new(),
            ours: format!("{per_name} bytes"),
            theirs: String::new(),
            value: per_name,
            aim: 170.0,
            unit: "bytes",
        },
        time("making and checking", made - found, 300.0),
        time("checking", checked - found, 100.0),
    ])
}
