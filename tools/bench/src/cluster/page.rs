//! The first page of a file with six services, whose image is in the store: a database, an
//! administrator's page that asks it, and four tools. All are Debian's packages, in one image.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::gateway::{self, Ports};
use testkit::trees;

use super::{NETWORKS, alone, fact, free_port, get, import_made};
use crate::places::as_measured;
use crate::{Bench, Line, median};
use xtask::shell::{Outcome, read};

const IMAGE: &str = "localhost/bench/six:1";
/// Seconds until the page.
const AIM: f64 = 3.0;
/// It has failed after so long.
const LIMIT: Duration = Duration::from_mins(2);

pub(super) fn measure(bench: &Bench) -> Outcome<Vec<Line>> {
    if !import_made(bench, "page", trees::servers(), IMAGE)? {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    for (network, words) in NETWORKS {
        lines.extend(pages(bench, network, words)?);
    }
    Ok(lines)
}

fn pages(bench: &Bench, network: &str, words: &str) -> Outcome<Vec<Line>> {
    let ports = Ports { admin: free_port()?, files: free_port()?, web: free_port()? };
    let file = gateway::file(IMAGE, words, &ports);
    let place = bench.scratch.path();
    for (name, text) in [("gateway.toml", &*file)].into_iter().chain(gateway::FILES) {
        let path = place.join(name);
        fs::create_dir_all(path.parent().unwrap_or(place))
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| error.to_string())?;
    }
    let file = place.join("gateway.toml").display().to_string();
    let (mut first, mut pages, mut all) = (f64::NAN, Vec::new(), Vec::new());
    for round in 0..=bench.rounds {
        let (page, ready) = once(bench, &file, ports.admin)?;
        if round == 0 {
            first = page;
        } else {
            pages.push(page);
            all.push(ready);
        }
    }
    let page = median(pages);
    let seconds = |seconds: f64| format!("{seconds:.2} s");
    let what = format!("first page of six services from a stored image, {network}");
    Ok(vec![
        alone(&what, seconds(page), page, AIM, "s"),
        fact("until all six are ready", seconds(median(all))),
        fact("the first page of the first start, which prepares the image", seconds(first)),
    ])
}

/// Seconds until the page, and until all is ready.
fn once(bench: &Bench, file: &str, port: u16) -> Outcome<(f64, f64)> {
    let mut words = as_measured(bench);
    words.extend(
        [&bench.coracle.display().to_string(), "cluster", "up", "-d", "-f", file]
            .map(str::to_owned),
    );
    let began = Instant::now();
    let (page, up) = std::thread::scope(|scope| {
        let up = scope.spawn(|| {
            let done = read(Command::new(&words[0]).args(&words[1..]));
            done.map(|_| began.elapsed().as_secs_f64())
        });
        let mut page = None;
        while page.is_none() && began.elapsed() < LIMIT {
            if up.is_finished() && began.elapsed() > LIMIT / 4 {
                break;
            }
            // With the database's answer in it.
            let came = get(port).is_some_and(|text| text.contains("PostgreSQL"));
            page = came.then(|| began.elapsed().as_secs_f64());
            std::thread::sleep(Duration::from_millis(5));
        }
        (page, up.join())
    });
    let up = up.map_err(|_| "a thread has ended".to_owned())?;
    bench.coracle(&["cluster", "down", "gateway"])?;
    Ok((page.ok_or_else(|| format!("no page came: {up:?}"))?, up?))
}
