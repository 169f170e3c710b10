//! Names of containers, volumes and networks: checks them by Docker's rule and makes random ones.

use crate::error::{Error, Result, Step};

/// Length limit of a name, which is a file name: leaves room for prefixes and suffixes.
const LONGEST: usize = 200;

/// Checks the name of a container, volume or network: `[a-zA-Z0-9][a-zA-Z0-9_.-]*`, Docker's rule,
/// except that one character is enough.
///
/// 64 hexadecimal digits are refused, because a container's own directory has such a name.
pub fn check(name: &str) -> Result<()> {
    let bad = |why| Err(Error::BadName { name: name.to_owned(), why });
    let mut bytes = name.bytes();
    match bytes.next() {
        None => return bad("it is empty"),
        Some(first) if first.is_ascii_alphanumeric() => {}
        Some(_) => return bad("it must begin with a letter or digit"),
    }
    if name.len() > LONGEST {
        return bad("it has more than 200 characters");
    }
    if !bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)) {
        return bad("only letters, digits, '_', '.' and '-' can be in it");
    }
    if is_id(name) {
        return bad("it looks like the id of a container");
    }
    Ok(())
}

/// Returns true for a whole container id: 64 lower-case hexadecimal digits.
pub(crate) fn is_id(name: &str) -> bool {
    name.len() == 64 && is_hex(name)
}

/// The digits of a text in the form of a UUID (8-4-4-4-12 hexadecimal digits), in lower case.
pub(crate) fn without_dashes(text: &str) -> Option<String> {
    let dashes = text.bytes().enumerate().filter(|(_, byte)| *byte == b'-').map(|(at, _)| at);
    let is_uuid = text.len() == 36 && dashes.eq([8, 13, 18, 23]);
    let digits = is_uuid.then(|| text.replace('-', "").to_ascii_lowercase())?;
    is_hex(&digits).then_some(digits)
}

/// Returns true if all characters are lower-case hexadecimal digits.
pub(crate) fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Makes a random name such as `brisk_heron`.
pub fn random() -> Result<String> {
    let mut bytes = [0_u8; 4];
    sys::random::fill(&mut bytes).map_err(|error| Error::io(Step::Random, "a name", error))?;
    let number = u32::from_le_bytes(bytes) as usize;
    let adjective = ADJECTIVES[number % ADJECTIVES.len()];
    let noun = NOUNS[number / ADJECTIVES.len() % NOUNS.len()];
    Ok(format!("{adjective}_{noun}"))
}

const ADJECTIVES: [&str; 64] = [
    "able", "airy", "amber", "apt", "bold", "brave", "bright", "brisk", "calm", "clear", "clever",
    "cosy", "crisp", "daring", "deft", "eager", "early", "easy", "fair", "fleet", "fond", "frank",
    "fresh", "gentle", "glad", "golden", "grand", "handy", "happy", "hardy", "honest", "jolly",
    "keen", "kind", "light", "lively", "lucid", "lucky", "merry", "mild", "neat", "nimble",
    "noble", "patient", "plain", "polite", "proud", "quick", "quiet", "ready", "sharp", "silent",
    "sleek", "smart", "snug", "solid", "spry", "steady", "sunny", "swift", "tidy", "warm", "wise",
    "witty",
];

/// Animals and things on, in or above the water.
const NOUNS: [&str; 64] = [
    "anchor",
    "auk",
    "barge",
    "beaver",
    "buoy",
    "canoe",
    "char",
    "cod",
    "coot",
    "cormorant",
    "crane",
    "curlew",
    "dinghy",
    "dipper",
    "dory",
    "duck",
    "eider",
    "estuary",
    "ferry",
    "fjord",
    "frigate",
    "gannet",
    "grebe",
    "gull",
    "harbour",
    "heron",
    "herring",
    "ibis",
    "inlet",
    "island",
    "kayak",
    "kelp",
    "kingfisher",
    "lagoon",
    "loon",
    "mallard",
    "minnow",
    "mooring",
    "osprey",
    "otter",
    "paddle",
    "pelican",
    "perch",
    "petrel",
    "pike",
    "plover",
    "puffin",
    "quay",
    "raft",
    "reef",
    "rudder",
    "sailor",
    "salmon",
    "sandpiper",
    "seal",
    "skiff",
    "sprat",
    "stork",
    "swan",
    "teal",
    "tern",
    "trout",
    "walrus",
    "wherry",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn docker_s_rule() {
        for good in ["a", "ab", "0a", "web-1", "a.b_c-d", &"x".repeat(200)] {
            check(good).unwrap();
        }
        let id = "0123456789abcdef".repeat(4);
        for bad in ["", "-a", ".a", "_a", "a/b", "a b", "ü1", "a\n", "..", &id, &"x".repeat(201)] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_checked_name_is_one_path_component(name in ".{0,80}") {
            if check(&name).is_ok() {
                prop_assert!(!name.contains('/') && !name.starts_with('.') && !name.contains('\0'));
            }
        }

        #[test]
        fn random_names_are_names(_n in 0..50) {
            prop_assert!(check(&random().unwrap()).is_ok());
        }
    }
}
