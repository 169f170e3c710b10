//! Values that files have as texts.

/// Has a type stand in files as its text: what its `FromStr` reads and its `Display` writes. For
/// `#[serde(try_from = "String", into = "String")]`.
macro_rules! by_text {
    ($value:ty, $wrong:ty) => {
        impl TryFrom<String> for $value {
            type Error = $wrong;

            fn try_from(text: String) -> Result<Self, $wrong> {
                text.parse()
            }
        }

        impl From<$value> for String {
            fn from(value: $value) -> Self {
                value.to_string()
            }
        }
    };
}
pub(crate) use by_text;

/// The number behind the slash of `ADDRESS/BITS`. `None` for another text, also for one with a
/// sign, which `parse` takes.
pub(crate) fn bits(text: &str) -> Option<u8> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}
