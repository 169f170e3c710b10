//! Names of containers and of this host, as they stand in files.

/// Whether a text can stand in a hosts file as a name: not empty, and letters, digits, `-`, `_` and
/// `.` only. Others would end the line, begin a comment, or be two names.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

/// This host's name, as a part of a file's: letters, digits, `-` and `.`.
pub(crate) fn host() -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' };
    sys::machine::Machine::here().name.chars().map(plain).collect()
}
