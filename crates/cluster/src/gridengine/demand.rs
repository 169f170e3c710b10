//! How many nodes waiting jobs would fill.
//!
//! Grid Engine decides what runs where. Here is only counted: jobs are put on free slots in their
//! order, first on nodes that are there, then on nodes that could be. What they are put on is
//! wanted. A job that does not fit on all nodes together, as many are busy, wants none.

use std::collections::BTreeSet;

use containers::filter::glob;

use super::answers::Job;

/// A node that is there, or could be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Its queue.
    pub(crate) queue: String,
    /// Its host's name.
    pub(crate) host: String,
    /// Slots that no job has.
    pub(crate) free: u32,
    /// Jobs can be put on it now.
    pub(crate) is_ready: bool,
}

/// What jobs want.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The nodes, by their index.
    pub(crate) places: BTreeSet<usize>,
    /// Numbers of jobs all of which could run now.
    pub(crate) could_run: Vec<u32>,
}

/// The demand of these jobs on these nodes, of which the first are taken first.
pub(crate) fn demand(jobs: &[Job], places: &[Place]) -> Demand {
    let mut free: Vec<u32> = places.iter().map(|place| place.free).collect();
    let mut found = Demand::default();
    for job in jobs {
        let fit: Vec<usize> = (0..places.len()).filter(|at| may_run(job, &places[*at])).collect();
        let mut own: BTreeSet<usize> = BTreeSet::new();
        let tasks = (0..job.tasks).take_while(|_| {
            let taken = take(job, &fit, &mut free);
            own.extend(&taken);
            !taken.is_empty()
        });
        let are_all = tasks.count() == job.tasks as usize;
        if are_all && own.iter().all(|at| places[*at].is_ready) {
            found.could_run.push(job.number);
        }
        found.places.extend(own);
    }
    found
}

/// Takes the slots of one task from nodes; from none if there are not enough.
fn take(job: &Job, fit: &[usize], free: &mut [u32]) -> Vec<usize> {
    if job.is_on_one || job.slots <= 1 {
        let slots = job.slots.max(1);
        let found = fit.iter().copied().find(|at| free[*at] >= slots);
        if let Some(at) = found {
            free[at] -= slots;
        }
        return found.into_iter().collect();
    }
    let all = fit.iter().fold(0_u32, |sum, at| sum.saturating_add(free[*at]));
    let (mut left, mut taken) = (job.slots, Vec::new());
    if all < left {
        return taken;
    }
    for at in fit {
        let some = free[*at].min(left);
        if some > 0 {
            (free[*at], left) = (free[*at] - some, left - some);
            taken.push(*at);
        }
    }
    taken
}

/// Whether a job asks for nothing that a node is not.
fn may_run(job: &Job, place: &Place) -> bool {
    let is_queue = |pattern: &String| {
        let (queue, host) = pattern.split_once('@').unwrap_or((pattern, "*"));
        // A group of hosts: those of a queue are all alike.
        (queue.is_empty() || glob(queue, &place.queue))
            && (host.starts_with('@') || glob(host, &place.host))
    };
    (job.queues.is_empty() || job.queues.iter().any(is_queue))
        && (job.hosts.is_empty() || job.hosts.iter().any(|pattern| glob(pattern, &place.host)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job(number: u32, tasks: u32, slots: u32) -> Job {
        Job { number, tasks, slots, is_on_one: false, queues: Vec::new(), hosts: Vec::new() }
    }

    fn place(queue: &str, number: u32, free: u32, is_ready: bool) -> Place {
        Place { queue: queue.to_owned(), host: format!("farm-{queue}-{number}"), free, is_ready }
    }

    /// Two nodes that are there, with a slot each; two more of two, and one of another kind.
    fn places() -> Vec<Place> {
        vec![
            place("compute", 1, 1, true),
            place("compute", 2, 1, true),
            place("compute", 3, 2, false),
            place("compute", 4, 2, false),
            place("large", 1, 8, false),
        ]
    }

    fn wanted(jobs: &[Job]) -> (Vec<usize>, Vec<u32>) {
        let found = demand(jobs, &places());
        (found.places.into_iter().collect(), found.could_run)
    }

    #[test]
    fn nodes_that_are_there_come_first() {
        assert_eq!(wanted(&[]), (vec![], vec![]));
        assert_eq!(wanted(&[job(1, 1, 1)]), (vec![0], vec![1]));
        assert_eq!(wanted(&[job(1, 2, 1)]), (vec![0, 1], vec![1]));
        assert_eq!(wanted(&[job(1, 1, 1), job(2, 3, 1)]), (vec![0, 1, 2], vec![1]));
        assert_eq!(wanted(&[job(1, 1, 4)]), (vec![0, 1, 2], vec![]));
        // An array takes all that there is, and no more.
        assert_eq!(wanted(&[job(1, 75_000, 1)]).0, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_job_that_does_not_fit_wants_nothing() {
        assert_eq!(wanted(&[job(1, 1, 15), job(2, 1, 1)]), (vec![0], vec![2]));
        let on_one = |slots| Job { is_on_one: true, ..job(1, 1, slots) };
        assert_eq!(wanted(&[on_one(2)]), (vec![2], vec![]));
        assert_eq!(wanted(&[on_one(8)]), (vec![4], vec![]));
        assert_eq!(wanted(&[on_one(9)]), (vec![], vec![]));
    }

    #[test]
    fn queues_and_hosts_are_asked_for() {
        let of = |pattern: &str| Job { queues: vec![pattern.to_owned()], ..job(1, 1, 1) };
        for (pattern, place) in [
            ("large", Some(4)),
            ("lar*", Some(4)),
            ("*", Some(0)),
            ("compute@farm-compute-4", Some(3)),
            ("@farm-compute-4", Some(3)),
            ("large@@large", Some(4)),
            ("none", None),
        ] {
            assert_eq!(wanted(&[of(pattern)]).0, Vec::from_iter(place), "{pattern}");
        }
        let hosts = Job { hosts: vec!["*-2".to_owned()], ..job(1, 1, 1) };
        assert_eq!(wanted(&[hosts]).0, [1]);
    }

    proptest! {
        #[test]
        fn what_is_wanted_is_enough_and_no_more(
            jobs in prop::collection::vec((1_u32..4, 1_u32..6, any::<bool>()), 0..8),
            frees in prop::collection::vec(0_u32..5, 0..8),
            there in 0_usize..8,
        ) {
            let jobs: Vec<Job> = (1..).zip(jobs).map(|(number, (tasks, slots, is_on_one))| {
                Job { is_on_one, ..job(number, tasks, slots) }
            }).collect();
            let places: Vec<Place> = frees.iter().enumerate().map(|(at, free)| {
                place("compute", at as u32, *free, at < there)
            }).collect();
            let found = demand(&jobs, &places);
            // Nodes without a free slot are not wanted, and each job fewer wants no more.
            prop_assert!(found.places.iter().all(|at| places[*at].free > 0));
            let slots: u64 = jobs.iter().map(|job| u64::from(job.tasks * job.slots)).sum();
            prop_assert!(found.places.len() as u64 <= slots);
            // On the wanted ones alone the same jobs find their places.
            let kept: Vec<Place> = found.places.iter().map(|at| places[*at].clone()).collect();
            let again = demand(&jobs, &kept);
            prop_assert_eq!(again.places.len(), kept.len());
            prop_assert_eq!(again.could_run, found.could_run);
        }
    }
}
