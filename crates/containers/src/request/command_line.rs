//! Which program a container runs: the image's entrypoint and command, merged with the user's as Docker does.

/// Merges. `entrypoint` is the user's flag, where `""` clears the image's; giving it drops the image's command too.
pub(crate) fn merge(
    image_entrypoint: &[String],
    image_command: &[String],
    entrypoint: Option<&str>,
    command: &[String],
) -> Vec<String> {
    let mut argv = match entrypoint {
        None => image_entrypoint.to_vec(),
        Some("") => Vec::new(),
        // Podman's form of an entrypoint with arguments; no program's name begins with '["'.
        Some(text) => serde_json::from_str(text).unwrap_or_else(|_| vec![text.to_owned()]),
    };
    if command.is_empty() && entrypoint.is_none() {
        argv.extend_from_slice(image_command);
    } else {
        argv.extend_from_slice(command);
    }
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_docker_merges() {
        let words = |text: &str| {
            text.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect::<Vec<_>>()
        };
        for (image_entrypoint, image_command, entrypoint, command, wanted) in [
            ("", "sh", None, "", "sh"),
            ("", "sh", None, "ls -l", "ls -l"),
            ("e", "sh", None, "", "e sh"),
            ("e", "sh", None, "ls", "e ls"),
            ("e", "sh", Some("x"), "", "x"),
            ("e", "sh", Some("x"), "a b", "x a b"),
            ("e", "sh", Some(""), "a", "a"),
            ("e", "sh", Some(""), "", ""),
            ("e", "sh", Some("[\"x\",\"-c\"]"), "a", "x -c a"),
        ] {
            assert_eq!(
                merge(&words(image_entrypoint), &words(image_command), entrypoint, &words(command)),
                words(wanted)
            );
        }
    }
}
