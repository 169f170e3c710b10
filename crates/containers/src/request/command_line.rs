//! Merges an image's entrypoint and command with the request's, as Docker does.

/// Reads `--entrypoint`: a program, a list in JSON form, or `""` for none.
pub fn entrypoint(text: &str) -> Vec<String> {
    match text {
        "" => Vec::new(),
        // Podman's form of an entrypoint with arguments; no program's name begins with '["'.
        text => serde_json::from_str(text).unwrap_or_else(|_| vec![text.to_owned()]),
    }
}

/// Merges. `entrypoint` is the request's and replaces the image's; giving it drops the image's
/// command too.
pub fn merge(
    image_entrypoint: &[String],
    image_command: &[String],
    entrypoint: Option<&[String]>,
    command: &[String],
) -> Vec<String> {
    let mut argv = entrypoint.unwrap_or(image_entrypoint).to_vec();
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
            let entrypoint = entrypoint.map(super::entrypoint);
            let (image_entrypoint, image_command) = (words(image_entrypoint), words(image_command));
            assert_eq!(
                merge(&image_entrypoint, &image_command, entrypoint.as_deref(), &words(command)),
                words(wanted)
            );
        }
    }
}
