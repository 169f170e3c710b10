//! Parses numbers in headers: octal text, or GNU's signed base-256.

/// The value of a header field; an empty field is 0. `None` if it is not a number or does not fit.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    let first = *field.first()?;
    if first & 0x80 != 0 {
        return base_256(field);
    }
    let start = field.iter().position(|byte| *byte != b' ').unwrap_or(field.len());
    let mut value: i64 = 0;
    let mut bytes = field[start..].iter();
    for byte in bytes.by_ref() {
        match byte {
            b'0'..=b'7' => value = value.checked_mul(8)?.checked_add(i64::from(byte - b'0'))?,
            b' ' | 0 => break,
            _ => return None,
        }
    }
    bytes.all(|byte| matches!(byte, b' ' | 0)).then_some(value)
}

/// Two's complement, most significant byte first; the top bit is the mark, the next one the sign.
fn base_256(field: &[u8]) -> Option<i64> {
    let negative = field[0] & 0x40 != 0;
    let mut value: i128 = if negative { -1 } else { 0 };
    for (index, byte) in field.iter().enumerate() {
        let byte = match (index, negative) {
            (0, false) => byte & 0x7f,
            (0, true) => byte | 0x80,
            _ => *byte,
        };
        value = value.checked_mul(256)?.checked_add(i128::from(byte))?;
        if value > i128::from(i64::MAX) || value < i128::from(i64::MIN) {
            return None;
        }
    }
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn octal_and_base_256() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(number(b"77777777777\0"), Some(0o77_777_777_777));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\x02\0\0\0\0"), Some(0x2_0000_0000));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff"), Some(-1));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe"), Some(-2));
        assert_eq!(number(b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(number(b"12x\0"), None);
        assert_eq!(number(b"12\0x"), None);
        assert_eq!(number(b"8\0"), None);
    }
}
