//! Parses `WWW-Authenticate` (RFC 9110, section 11.6.1) leniently.
//!
//! Registries send one or several challenges, in one header or several, quoted or not, with commas
//! inside quoted scopes. The parser reads words: one followed by `=` is a parameter of the
//! challenge before it, any other begins a new challenge.

/// One way to authenticate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Challenge {
    /// Lower case: `bearer`, `basic`.
    pub(crate) scheme: String,
    parameters: Vec<(String, String)>,
}

impl Challenge {
    /// A parameter's value.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Reads one header's value.
pub(crate) fn parse(header: &str) -> Vec<Challenge> {
    let mut challenges: Vec<Challenge> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',', ';']);
        if rest.is_empty() {
            return challenges;
        }
        let end = rest.find([' ', '\t', ',', ';', '=']).unwrap_or(rest.len());
        let word = rest[..end].to_ascii_lowercase();
        let after = rest[end..].trim_start_matches([' ', '\t']);
        let value = after.strip_prefix('=');
        match (value, challenges.last_mut()) {
            (Some(value), Some(challenge)) => {
                let (value, tail) = read_value(value.trim_start_matches([' ', '\t']));
                challenge.parameters.push((word, value));
                rest = tail;
            }
            // A parameter before any challenge is ignored.
            (Some(value), None) => rest = read_value(value).1,
            (None, _) => {
                challenges.push(Challenge { scheme: word, parameters: Vec::new() });
                rest = after;
            }
        }
    }
}

fn read_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',', ';']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn docker_hub() {
        let found = parse(
            r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push",error="x \"y\"""#,
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].scheme, "bearer");
        assert_eq!(found[0].get("realm"), Some("https://auth.docker.io/token"));
        assert_eq!(found[0].get("scope"), Some("repository:a/b:pull,push"));
        assert_eq!(found[0].get("error"), Some("x \"y\""));
    }

    #[test]
    fn several_and_malformed() {
        let found =
            parse(r#"Negotiate abc==, BASIC Realm = "r, s" , Bearer realm=http://t/x;service=s"#);
        let schemes: Vec<&str> = found.iter().map(|c| c.scheme.as_str()).collect();
        assert!(schemes.contains(&"basic") && schemes.contains(&"bearer"), "{found:?}");
        let basic = found.iter().find(|c| c.scheme == "basic").unwrap();
        assert_eq!(basic.get("realm"), Some("r, s"));
        let bearer = found.iter().find(|c| c.scheme == "bearer").unwrap();
        assert_eq!(bearer.get("realm"), Some("http://t/x"));
        assert_eq!(bearer.get("service"), Some("s"));
        assert!(parse("").is_empty());
        assert_eq!(parse("Basic")[0].scheme, "basic");
        assert_eq!(parse("Bearer realm=\"open")[0].get("realm"), Some("open"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,200}") {
            let _ = parse(&text);
        }
    }
}
