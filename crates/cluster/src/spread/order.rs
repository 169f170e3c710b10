//! Who asks whom.

/// The numbers of those that the host of a number asks, in this order. Hosts count from 1 in the
/// order of the chain; 0 is the source. The source is always the last of them, so that a host whose
/// others are lost goes on.
pub fn asks(host: usize) -> Vec<usize> {
    let mut all: Vec<usize> = [1, 2, 3].iter().filter_map(|&far| host.checked_sub(far)).collect();
    // One that hardly shares a fate with those.
    all.extend([host / 2, 0]);
    let mut seen = Vec::new();
    all.retain(|other| {
        let is_new = *other != host && !seen.contains(other);
        seen.push(*other);
        is_new
    });
    if let Some(at) = all.iter().position(|&other| other == 0) {
        all.remove(at);
        all.push(0);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_with_other_ways() {
        assert_eq!(asks(1), [0]);
        assert_eq!(asks(2), [1, 0]);
        assert_eq!(asks(3), [2, 1, 0]);
        assert_eq!(asks(4), [3, 2, 1, 0]);
        assert_eq!(asks(1000), [999, 998, 997, 500, 0]);
    }

    #[test]
    fn nobody_asks_in_a_circle_and_few_ask_one() {
        let mut asked = vec![0; 1001];
        for host in 1..=1000 {
            let all = asks(host);
            assert!(all.iter().all(|&other| other < host), "{host}: {all:?}");
            assert_eq!((all[0], all.last()), (host - 1, Some(&0)));
            for other in all {
                asked[other] += 1;
            }
        }
        assert_eq!(asked[0], 1000);
        assert!(asked[1..].iter().all(|&count| count <= 5), "{asked:?}");
    }
}
