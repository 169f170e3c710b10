//! Platforms: the system that an image was built for, and which images fit a requested platform.
//!
//! Spellings are normalised as containerd's `platforms` package does (`x86_64` is `amd64`,
//! `aarch64` and `arm64/v8` are `arm64`, `armhf` is `arm/v7`). [`Platform::score`] ranks the
//! entries of an index: the exact variant first, then older ones that the processor still runs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::digest::clip;

/// Operating system, processor architecture and its variant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Platform {
    /// Processor architecture by its Go name (`amd64`, `arm64`).
    #[serde(default)]
    pub architecture: String,
    /// Operating system by its Go name (`linux`).
    #[serde(default)]
    pub os: String,
    /// Version of the operating system (Windows only).
    #[serde(rename = "os.version", default, skip_serializing_if = "Option::is_none")]
    pub os_version: Option<String>,
    /// Features that the operating system must have (Windows only).
    #[serde(rename = "os.features", default, skip_serializing_if = "Option::is_none")]
    pub os_features: Option<Vec<String>>,
    /// Variant of the architecture (`v7`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// Makes a platform in normalised spelling.
    pub fn new(os: &str, architecture: &str, variant: Option<&str>) -> Self {
        let (architecture, variant) = normalise(architecture, variant.unwrap_or_default());
        Platform {
            architecture,
            os: normalise_os(os),
            os_version: None,
            os_features: None,
            variant: (!variant.is_empty()).then_some(variant),
        }
    }

    /// The platform that this program was built for. `amd64` has no variant here, because a store
    /// is often shared by nodes with different processors.
    pub fn host() -> Self {
        Self::new("linux", std::env::consts::ARCH, None)
    }

    /// The same platform in normalised spelling.
    #[must_use]
    pub fn normalised(&self) -> Self {
        let plain = Self::new(&self.os, &self.architecture, self.variant.as_deref());
        Platform {
            os_version: self.os_version.clone(),
            os_features: self.os_features.clone(),
            ..plain
        }
    }

    /// How well an image for `offered` fits this requested platform: 0 is exact, more is worse,
    /// `None` not at all.
    pub fn score(&self, offered: &Platform) -> Option<u32> {
        let (want, have) = (self.normalised(), offered.normalised());
        if want.os != have.os {
            return None;
        }
        let variant = have.variant.as_deref().unwrap_or_default();
        let level = variant.strip_prefix('v').and_then(|v| v.parse::<u32>().ok());
        let wanted = want.variant.as_deref().unwrap_or_default();
        let wanted_level = wanted.strip_prefix('v').and_then(|v| v.parse::<u32>().ok());
        if want.architecture == have.architecture {
            return same_architecture(&want.architecture, wanted, wanted_level, variant, level);
        }
        match (want.architecture.as_str(), have.architecture.as_str()) {
            // A 64-bit processor nearly always runs its family's 32-bit programs.
            ("arm64", "arm") => Some(1000 + 10u32.saturating_sub(level.unwrap_or(7))),
            ("amd64", "386") => Some(1000),
            _ => None,
        }
    }

    /// Returns true if an image for `offered` runs on this requested platform.
    pub fn accepts(&self, offered: &Platform) -> bool {
        self.score(offered).is_some()
    }
}

fn same_architecture(
    architecture: &str,
    wanted: &str,
    wanted_level: Option<u32>,
    variant: &str,
    level: Option<u32>,
) -> Option<u32> {
    if wanted == variant {
        return Some(0);
    }
    let base = match architecture {
        "amd64" => 1,
        "arm64" => 8,
        "arm" => 5,
        _ => return None,
    };
    let want = wanted_level.or_else(|| wanted.is_empty().then_some(base));
    let have = level.or_else(|| variant.is_empty().then_some(base));
    match (want, have) {
        // Older variants run on newer processors; the newest of them is the best.
        (Some(want), Some(have)) if have <= want => Some(want - have),
        // No variant requested and only newer builds offered: the lowest may run.
        (Some(_), Some(have)) if wanted.is_empty() => Some(100 + have),
        _ => None,
    }
}

fn normalise_os(os: &str) -> String {
    match os.to_ascii_lowercase().as_str() {
        "macos" => "darwin".to_owned(),
        other => other.to_owned(),
    }
}

fn normalise(architecture: &str, variant: &str) -> (String, String) {
    let architecture = architecture.to_ascii_lowercase();
    let variant = variant.to_ascii_lowercase();
    let (name, variant) = match (architecture.as_str(), variant.as_str()) {
        ("i386" | "i486" | "i586" | "i686" | "x86" | "386", _) => ("386", ""),
        ("x86_64" | "x86-64" | "amd64", "v1") => ("amd64", ""),
        ("x86_64" | "x86-64" | "amd64", other) => ("amd64", other),
        ("aarch64" | "arm64", "8" | "v8") => ("arm64", ""),
        ("aarch64" | "arm64", other) => ("arm64", other),
        ("armhf", _) | ("arm", "" | "7") => ("arm", "v7"),
        ("armel", _) | ("arm", "6") => ("arm", "v6"),
        ("arm", "5") => ("arm", "v5"),
        ("arm", "8") => ("arm", "v8"),
        ("powerpc64le", other) => ("ppc64le", other),
        (name, other) => (name, other),
    };
    (name.to_owned(), variant.to_owned())
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Platform {
    type Err = Error;

    /// Parses `os/architecture[/variant]`; a lone word is an operating system or an architecture.
    fn from_str(input: &str) -> Result<Self, Error> {
        let refuse = |reason| Error::Platform { input: clip(input), reason };
        let good = |part: &str| {
            !part.is_empty()
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        };
        let parts: Vec<&str> = input.trim().split('/').collect();
        if !parts.iter().all(|part| good(part)) {
            return Err(refuse("a part is empty or has characters other than letters and digits"));
        }
        match *parts.as_slice() {
            [one] if is_os(one) => {
                let host = Platform::host();
                Ok(Self::new(one, &host.architecture, None))
            }
            [one] if is_architecture(one) => Ok(Self::new("linux", one, None)),
            [_] => Err(refuse("it is neither an operating system nor an architecture")),
            [os, architecture] => Ok(Self::new(os, architecture, None)),
            [os, architecture, variant] => Ok(Self::new(os, architecture, Some(variant))),
            _ => Err(refuse("it has more than three parts")),
        }
    }
}

fn is_os(word: &str) -> bool {
    matches!(
        word.to_ascii_lowercase().as_str(),
        "linux" | "windows" | "darwin" | "macos" | "freebsd" | "netbsd" | "openbsd" | "android"
    )
}

fn is_architecture(word: &str) -> bool {
    let (name, _) = normalise(word, "");
    matches!(
        name.as_str(),
        "386"
            | "amd64"
            | "arm"
            | "arm64"
            | "loong64"
            | "mips"
            | "mips64"
            | "mips64le"
            | "mipsle"
            | "ppc64"
            | "ppc64le"
            | "riscv64"
            | "s390x"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn platform(text: &str) -> Platform {
        text.parse().unwrap()
    }

    #[test]
    fn spellings() {
        for (input, expected) in [
            ("linux/amd64", "linux/amd64"),
            ("linux/x86_64", "linux/amd64"),
            ("x86_64", "linux/amd64"),
            ("linux/amd64/v1", "linux/amd64"),
            ("linux/amd64/v3", "linux/amd64/v3"),
            ("linux/aarch64", "linux/arm64"),
            ("linux/arm64/v8", "linux/arm64"),
            ("linux/arm", "linux/arm/v7"),
            ("linux/arm/6", "linux/arm/v6"),
            ("armhf", "linux/arm/v7"),
            ("armel", "linux/arm/v6"),
            ("Linux/AMD64", "linux/amd64"),
            ("i686", "linux/386"),
        ] {
            assert_eq!(platform(input).to_string(), expected, "{input}");
        }
        for bad in ["", "/", "linux/", "a/b/c/d", "nonsense", "linux/a b"] {
            assert!(bad.parse::<Platform>().is_err(), "{bad}");
        }
        assert_eq!(platform("linux").architecture, Platform::host().architecture);
    }

    #[test]
    fn ranks() {
        let score = |want: &str, have: &str| platform(want).score(&platform(have));
        assert_eq!(score("linux/arm/v7", "linux/arm/v7"), Some(0));
        assert_eq!(score("linux/arm/v7", "linux/arm/v6"), Some(1));
        assert_eq!(score("linux/arm/v7", "linux/arm/v5"), Some(2));
        assert_eq!(score("linux/arm/v6", "linux/arm/v7"), None);
        assert_eq!(score("linux/amd64/v3", "linux/amd64/v2"), Some(1));
        assert_eq!(score("linux/amd64/v3", "linux/amd64"), Some(2));
        assert_eq!(score("linux/amd64/v2", "linux/amd64/v3"), None);
        assert_eq!(score("linux/amd64", "linux/amd64/v2"), Some(102));
        assert!(score("linux/arm64", "linux/arm/v7") > score("linux/arm64", "linux/arm64"));
        assert!(score("linux/arm64", "linux/arm/v7") < score("linux/arm64", "linux/arm/v6"));
        assert_eq!(score("linux/amd64", "linux/arm64"), None);
        assert_eq!(score("linux/amd64", "windows/amd64"), None);
        assert_eq!(score("linux/riscv64", "linux/riscv64"), Some(0));
    }

    #[test]
    fn attestations_never_match() {
        let unknown: Platform =
            serde_json::from_str(r#"{"architecture":"unknown","os":"unknown"}"#).unwrap();
        assert!(!Platform::host().accepts(&unknown));
    }
}
