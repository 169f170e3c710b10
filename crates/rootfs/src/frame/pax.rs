//! PAX extension records (POSIX.1-2001 pax, "Extended Header Format"): `length key=value\n`.

use std::collections::BTreeMap;

/// Attributes that PAX has and the kernel has in another form: kept under these names in the
/// ownership table.
const KEPT: [&[u8]; 3] = [b"SCHILY.acl.access", b"SCHILY.acl.default", b"SCHILY.acl.ace"];

/// The records of one extended header.
#[derive(Default, Clone, Debug)]
pub(super) struct Records {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// `GNU.sparse.offset` and `GNU.sparse.numbytes` of format 0.0, in their order.
    ranges: Vec<(u64, u64)>,
}

/// Splits a header's data into records.
pub(super) fn parse(mut data: &[u8]) -> Result<Records, String> {
    let mut records = Records::default();
    let mut offset = None;
    // Some writers pad with NULs inside the size.
    while !data.is_empty() && data.iter().any(|byte| *byte != 0) {
        let bad = || "a PAX record is malformed".to_owned();
        let space = data.iter().take(20).position(|byte| *byte == b' ').ok_or_else(bad)?;
        let length = decimal(&data[..space]).ok_or_else(bad)?;
        let length = usize::try_from(length).map_err(|_| bad())?;
        if length <= space + 1 || length > data.len() || data[length - 1] != b'\n' {
            return Err(bad());
        }
        let record = &data[space + 1..length - 1];
        data = &data[length..];
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(bad)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"GNU.sparse.offset" => offset = Some(decimal(value).ok_or_else(bad)?),
            b"GNU.sparse.numbytes" => {
                let start = offset.take().ok_or_else(bad)?;
                records.ranges.push((start, decimal(value).ok_or_else(bad)?));
            }
            _ => {
                records.values.insert(key.to_vec(), value.to_vec());
            }
        }
    }
    Ok(records)
}

/// An unsigned decimal number.
pub(super) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl Records {
    /// Adds later records, which override earlier ones; an empty value removes an earlier one.
    pub(super) fn merge(&mut self, later: Self) {
        for (key, value) in later.values {
            let is_xattr =
                key.starts_with(b"SCHILY.xattr.") || key.starts_with(b"LIBARCHIVE.xattr.");
            if value.is_empty() && !is_xattr {
                self.values.remove(&key);
            } else {
                self.values.insert(key, value);
            }
        }
        if !later.ranges.is_empty() {
            self.ranges = later.ranges;
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// The entry's name; a sparse file's true name is under another key.
    pub(super) fn path(&self) -> Option<&[u8]> {
        self.get(b"GNU.sparse.name").or_else(|| self.get(b"path"))
    }

    pub(super) fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    pub(super) fn number(&self, key: &[u8]) -> Result<Option<i64>, String> {
        let Some(text) = self.get(key) else { return Ok(None) };
        let value = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        value.map(Some).ok_or_else(|| format!("{} is not a number", String::from_utf8_lossy(key)))
    }

    /// Seconds and nanoseconds; digits beyond the ninth are cut off.
    pub(super) fn time(&self, key: &[u8]) -> Result<Option<(i64, u32)>, String> {
        let Some(text) = self.get(key) else { return Ok(None) };
        time(text)
            .map(Some)
            .ok_or_else(|| format!("{} is not a valid time", String::from_utf8_lossy(key)))
    }

    /// All extended attributes.
    pub(super) fn xattrs(&self) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, String> {
        let mut xattrs = BTreeMap::new();
        for (key, value) in &self.values {
            if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                xattrs.insert(name.to_vec(), value.clone());
            } else if let Some(name) = key.strip_prefix(b"LIBARCHIVE.xattr.") {
                let value = base64(value).ok_or("an attribute's value is not base64")?;
                xattrs.insert(percent(name), value);
            } else if key == b"RHT.security.selinux" {
                xattrs.insert(b"security.selinux".to_vec(), value.clone());
            } else if KEPT.contains(&&key[..]) {
                xattrs.insert([b"pax:", &key[..]].concat(), value.clone());
            }
        }
        if xattrs.keys().any(|name| name.is_empty() || name.len() > 255 || name.contains(&0)) {
            return Err("an attribute has an invalid name".into());
        }
        Ok(xattrs)
    }
}

fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let negative = whole.starts_with('-');
    let seconds: i64 = if whole == "-" { 0 } else { whole.parse().ok()? };
    let mut nanoseconds = 0_u32;
    for index in 0..9 {
        let digit = fraction.as_bytes().get(index).map_or(0, |byte| byte - b'0');
        nanoseconds = nanoseconds * 10 + u32::from(digit);
    }
    if negative && nanoseconds > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some((seconds, nanoseconds))
}

fn percent(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut at = 0;
    while at < name.len() {
        let hex = name.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match hex.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) if name[at] == b'%' => {
                plain.push(byte);
                at += 3;
            }
            _ => {
                plain.push(name[at]);
                at += 1;
            }
        }
    }
    plain
}

/// Decodes base64 with or without padding; white space is skipped.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            b'=' | b'\n' | b'\r' | b' ' => continue,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_their_faults() {
        let records = parse(b"12 path=a=b\n14 mtime=-1.5\n").unwrap();
        assert_eq!(records.path(), Some(&b"a=b"[..]));
        assert_eq!(records.time(b"mtime").unwrap(), Some((-2, 500_000_000)));
        for bad in [
            &b"x"[..],
            b"5 a=b\n",
            b"99 a=b\n",
            b"6 a=bc",
            b"6 abc\n",
            b"0 \n",
            b"-6 a=b\n",
            b" 6a=b\n",
        ] {
            assert!(parse(bad).is_err(), "{:?}", String::from_utf8_lossy(bad));
        }
        assert_eq!(parse(b"").unwrap().path(), None);
    }

    #[test]
    fn times() {
        assert_eq!(time(b"1"), Some((1, 0)));
        assert_eq!(time(b"1.000000001"), Some((1, 1)));
        assert_eq!(time(b"1.0000000019"), Some((1, 1)));
        assert_eq!(time(b"-0.25"), Some((-1, 750_000_000)));
        assert_eq!(time(b"-3"), Some((-3, 0)));
        assert_eq!(time(b"x"), None);
        assert_eq!(time(b"1.x"), None);
    }

    #[test]
    fn libarchive_attributes() {
        assert_eq!(base64(b"aGVsbG8=").unwrap(), b"hello");
        assert_eq!(base64(b"aGVsbG8").unwrap(), b"hello");
        assert!(base64(b"a*b").is_none());
        assert_eq!(percent(b"user.%3d%zz"), b"user.=%zz");
    }
}
