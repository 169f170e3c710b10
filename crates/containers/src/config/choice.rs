//! Settings that are one of several words.

use serde_json::Value as Json;

use super::value::{Kind, SettingValue};

/// An enum whose variants are words.
macro_rules! choice {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$outer])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$inner])* $variant,)+
        }

        impl SettingValue for $name {
            const KIND: Kind = Kind::Choice(&[$($word),+]);

            fn from_text(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(format!("wanted {}", Self::KIND.describe())),
                }
            }

            fn json(&self) -> Json {
                Json::from(self.text())
            }

            fn text(&self) -> String {
                match self {
                    $($name::$variant => $word.into(),)+
                }
            }
        }
    };
}

choice! {
    /// When `run` and `create` fetch an image.
    PullPolicy {
        /// When it is not here.
        Missing = "missing",
        /// Every time.
        Always = "always",
        /// Never: a missing image is an error.
        Never = "never",
        /// When the registry has a newer one; a registry that cannot be reached is no error.
        Newer = "newer",
    }
}

choice! {
    /// How ids are mapped in user namespaces.
    IdMapping {
        /// A range where the user has subordinate ids, else one.
        Auto = "auto",
        /// One id, always.
        One = "one",
        /// A range, or an error.
        Range = "range",
    }
}

choice! {
    /// Who makes a private network.
    HelperChoice {
        /// The first that is installed.
        Auto = "auto",
        /// pasta.
        Pasta = "pasta",
        /// slirp4netns.
        Slirp4netns = "slirp4netns",
    }
}

impl HelperChoice {
    /// Hides the helpers that were not chosen.
    pub fn restrict(self, programs: &mut host::Programs) {
        match self {
            HelperChoice::Auto => {}
            HelperChoice::Pasta => programs.hide("slirp4netns"),
            HelperChoice::Slirp4netns => programs.hide("pasta"),
        }
    }
}

choice! {
    /// How progress is shown.
    Progress {
        /// Bars on a terminal, lines elsewhere.
        Auto = "auto",
        /// Bars.
        Bar = "bar",
        /// Lines.
        Plain = "plain",
        /// Not at all.
        None = "none",
    }
}

choice! {
    /// When output is coloured.
    Colour {
        /// On a terminal.
        Auto = "auto",
        /// Always.
        Always = "always",
        /// Never.
        Never = "never",
    }
}
