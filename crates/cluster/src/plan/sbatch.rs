//! What `sbatch` is given for a file.

use std::time::Duration;

use crate::spec::{Kind, Launch, Spec};

/// The words of `sbatch` that a file comes to, with the user's own options last.
pub(crate) fn words(spec: &Spec, more: &[String]) -> Vec<String> {
    let backend = &spec.backends[0];
    let mut words = vec![
        "sbatch".to_owned(),
        "--parsable".to_owned(),
        format!("--nodes={}", spec.nodes.max(1)),
        format!("--ntasks-per-node={}", tasks(spec)),
        format!("--job-name={}", spec.name),
    ];
    if let Kind::Slurm { partition, options } = &backend.kind {
        words.extend(partition.iter().map(|name| format!("--partition={name}")));
        words.extend(backend.time.map(|time| format!("--time={}", minutes(time))));
        words.extend(more.iter().cloned());
        words.extend(options.iter().cloned());
    }
    words
}

/// Tasks of a host: the ranks that `srun` is to start there, as far as the file says.
fn tasks(spec: &Spec) -> u32 {
    let ranks = spec.run.as_ref().filter(|run| run.launch == Launch::Ranks);
    ranks.and_then(|run| run.slots).unwrap_or(1)
}

/// Whole minutes, rounded up.
pub(crate) fn minutes(time: Duration) -> u64 {
    time.as_millis().div_ceil(60_000) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_minutes() {
        let of = |millis| minutes(Duration::from_millis(millis));
        assert_eq!([of(1), of(60_000), of(60_001), of(61_000), of(59_999)], [1, 1, 2, 2, 1]);
    }
}
