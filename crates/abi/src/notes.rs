//! The format of records in a container's log: ownership of inodes that cannot carry an attribute.
//!
//! A record has 256 bytes: a checksum, the lengths of key and value, the key, the value. A record
//! without a value removes the key. The last record of a key counts. Writers append whole records
//! under a lock on the file, so records of several processes never mix. A record that a crash left
//! incomplete is overwritten by the next writer, and the checksum tells readers to skip it.

/// Size of a record in bytes.
pub const RECORD: usize = 256;
/// Checksum (8), length of the key (1), length of the value + 1 or 0 for a removal (1).
const HEAD: usize = 10;
/// The greatest length of key and value together.
pub const ROOM: usize = RECORD - HEAD;

/// FNV-1a over the record behind its checksum. It detects incomplete records, not malice: a process
/// that can write here owns the container.
fn checksum(record: &[u8]) -> u64 {
    record.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Makes a record; `None` if key and value together are longer than [`ROOM`], or the key is empty.
pub fn encode(key: &[u8], value: Option<&[u8]>) -> Option<[u8; RECORD]> {
    let length = value.map_or(0, <[u8]>::len);
    // Lengths are bytes, and 0 means that there is no value.
    if key.len() + length > ROOM || key.is_empty() {
        return None;
    }
    let mut record = [0; RECORD];
    record[8] = key.len() as u8;
    record[9] = value.map_or(0, |value| value.len() as u8 + 1);
    record[HEAD..HEAD + key.len()].copy_from_slice(key);
    if let Some(value) = value {
        record[HEAD + key.len()..][..value.len()].copy_from_slice(value);
    }
    let sum = checksum(&record[8..]);
    record[..8].copy_from_slice(&sum.to_le_bytes());
    Some(record)
}

/// Key and value of a record; `None` if it is damaged.
pub fn decode(record: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let sum = u64::from_le_bytes(*record.first_chunk()?);
    if record.len() != RECORD || sum != checksum(&record[8..]) {
        return None;
    }
    let (key, value) = (usize::from(record[8]), usize::from(record[9]));
    let rest = record.get(HEAD..)?;
    let end = key + value.saturating_sub(1);
    Some((rest.get(..key)?, if value == 0 { None } else { Some(rest.get(key..end)?) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip_and_damage_is_detected() {
        let record = encode(b"key", Some(b"value")).unwrap();
        assert_eq!(decode(&record), Some((&b"key"[..], Some(&b"value"[..]))));
        let gone = encode(b"key", None).unwrap();
        assert_eq!(decode(&gone), Some((&b"key"[..], None)));
        assert_eq!(decode(&encode(b"k", Some(b"")).unwrap()), Some((&b"k"[..], Some(&b""[..]))));
        for at in 0..RECORD {
            let mut damaged = record;
            damaged[at] ^= 1;
            assert_eq!(decode(&damaged), None);
        }
        assert_eq!(decode(&record[..RECORD - 1]), None);
        assert!(encode(b"", None).is_none());
        assert!(encode(b"long", Some(&[0; ROOM - 3])).is_none());
        assert!(encode(b"long", Some(&[7; ROOM - 4])).is_some());
    }
}
