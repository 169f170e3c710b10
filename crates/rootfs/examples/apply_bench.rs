//! Measures decoding and applying of several layers at once: `apply_bench STAGING LAYER...`. Prints
//! seconds.
//!
//! Compare with `for l in LAYER...; do (mkdir d$l; gzip -dc $l | tar x -C d$l) & done; wait`.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

fn main() -> std::process::ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let Some((staging, layers)) = arguments.split_first() else {
        eprintln!("usage: apply_bench STAGING LAYER...");
        return std::process::ExitCode::from(2);
    };
    let limits = rootfs::Limits::default();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (index, layer) in layers.iter().enumerate() {
            let directory = Path::new(staging).join(index.to_string());
            let limits = &limits;
            scope.spawn(move || {
                std::fs::create_dir_all(&directory).expect("staging directory");
                let staging = File::open(&directory).expect("staging directory");
                let blob = File::open(layer).expect("layer");
                let tar = rootfs::decode::open(blob, limits).expect("compression");
                match rootfs::apply(tar, &staging, limits, &|_| {}) {
                    Ok(applied) => eprintln!(
                        "{}: {} entries, {} bytes, {} records, {}",
                        layer.display(),
                        applied.meta.entries,
                        applied.meta.bytes,
                        applied.meta.records,
                        applied.diff_id
                    ),
                    Err(error) => panic!("{}: {error}", layer.display()),
                }
            });
        }
    });
    println!("{:.3}", start.elapsed().as_secs_f64());
    std::process::ExitCode::SUCCESS
}
