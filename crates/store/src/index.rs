//! `oci/index.json`: which manifests are here under which names.
//!
//! The file belongs to every tool that knows OCI layouts, so it is handled as the JSON value that it is: an entry or field
//! that this program does not understand goes back as it came, in its place. Changes are made under `locks/index`, and
//! made again on a fresh reading when somebody without that lock has replaced the file meanwhile.

use oci::descriptor::{ANNOTATION_CONTAINERD_NAME, ANNOTATION_REF_NAME};
use oci::{Descriptor, Reference};
use rustix::fs::OFlags;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::Store;
use crate::error::{Error, Result, Step};
use crate::lock::Mode;
use crate::root::{DOCUMENT_LIMIT, read_all};

const FILE: &str = "oci/index.json";
/// How often a change is tried again because a foreign tool got in between.
const TRIES: usize = 16;

/// The index of a store without images.
pub(crate) const EMPTY: &str =
    r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;

/// The parsed file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IndexFile {
    value: Map<String, Value>,
}

/// What identifies one version of the file.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: i64,
    modified: (i64, u64),
}

impl IndexFile {
    pub(crate) fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        // A writer without atomic replacement (or a power failure) can leave it empty.
        let text = if bytes.trim_ascii().is_empty() { EMPTY.as_bytes() } else { bytes };
        Ok(Self { value: serde_json::from_slice(text)? })
    }

    fn entries_mut(&mut self) -> &mut Vec<Value> {
        let entries = self.value.entry("manifests").or_insert(Value::Null);
        if !entries.is_array() {
            *entries = Value::Array(Vec::new());
        }
        match entries {
            Value::Array(entries) => entries,
            _ => unreachable!("made an array above"),
        }
    }

    /// Gives an entry a name; whoever had it before keeps its place without one.
    pub(crate) fn tag(
        &mut self,
        reference: &Reference,
        descriptor: &Descriptor,
    ) -> serde_json::Result<()> {
        self.untag(reference, Some(descriptor));
        let mut entry = descriptor.clone();
        let name = reference.to_string();
        entry.annotations.insert(ANNOTATION_REF_NAME.into(), name.clone());
        entry.annotations.insert(ANNOTATION_CONTAINERD_NAME.into(), name);
        let value = serde_json::to_value(entry)?;
        self.entries_mut().push(value);
        Ok(())
    }

    /// Takes a name away. The entry goes where its digest has other entries (or will have: `coming`), else it stays
    /// without a name. `true` when there was such a name.
    pub(crate) fn untag(&mut self, reference: &Reference, coming: Option<&Descriptor>) -> bool {
        let digest_of =
            |entry: &Value| entry.get("digest").and_then(Value::as_str).map(str::to_owned);
        let coming = coming.map(|descriptor| descriptor.digest.to_string());
        let entries = self.entries_mut();
        let named = |entry: &Value| name_of(entry).as_ref() == Some(reference);
        let mut kept: Vec<String> = coming.iter().cloned().collect();
        kept.extend(entries.iter().filter(|entry| !named(entry)).filter_map(digest_of));
        let mut found = false;
        entries.retain_mut(|entry| {
            let Some(digest) = digest_of(entry) else { return true };
            if named(entry) {
                found = true;
                if kept.contains(&digest) {
                    return false;
                }
                kept.push(digest);
                strip_name(entry);
                true
            } else {
                // A nameless entry is superseded by a named one with the same digest.
                !(coming.as_ref() == Some(&digest) && name_of(entry).is_none())
            }
        });
        found
    }

    /// Removes the entries for which `which` says so; how many.
    pub(crate) fn remove(&mut self, which: impl Fn(&Descriptor) -> bool) -> usize {
        let entries = self.entries_mut();
        let before = entries.len();
        entries.retain(|entry| {
            let descriptor: Option<Descriptor> = serde::Deserialize::deserialize(entry).ok();
            !descriptor.is_some_and(|descriptor| which(&descriptor))
        });
        before - entries.len()
    }
}

/// The normalised name of a raw entry.
fn name_of(entry: &Value) -> Option<Reference> {
    let annotations = entry.get("annotations")?;
    let get = |key: &str| annotations.get(key).and_then(Value::as_str);
    parse_name(get(ANNOTATION_CONTAINERD_NAME).or_else(|| get(ANNOTATION_REF_NAME))?)
}

/// A name in an index, as we write it or as other tools do (`debian:12`, `latest`).
pub(crate) fn parse_name(name: &str) -> Option<Reference> {
    Reference::parse(name).ok()
}

fn strip_name(entry: &mut Value) {
    let Some(entry) = entry.as_object_mut() else { return };
    let Some(annotations) = entry.get_mut("annotations").and_then(Value::as_object_mut) else {
        return;
    };
    annotations.shift_remove(ANNOTATION_REF_NAME);
    annotations.shift_remove(ANNOTATION_CONTAINERD_NAME);
    if annotations.is_empty() {
        entry.shift_remove("annotations");
    }
}

/// Reads the entries of a store's own index that are descriptors. Where `containing` is given, entries without this text
/// may be left out: taking a thousand entries apart costs more than everything else that a start of a container needs.
pub(crate) fn read_entries(store: &Store, containing: Option<&str>) -> Result<Vec<Descriptor>> {
    #[derive(serde::Deserialize)]
    struct Entries<'file> {
        #[serde(borrow, default)]
        manifests: Option<Vec<&'file RawValue>>,
    }
    let root = &store.inner.root;
    let bytes = root.read(FILE, DOCUMENT_LIMIT)?.unwrap_or_default();
    if bytes.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let entries: Entries<'_> = serde_json::from_slice(&bytes)
        .map_err(|source| Error::BadJson { path: root.join(FILE), source })?;
    let wanted = |entry: &&&RawValue| {
        containing.is_none_or(|text| entry.get().contains(text) || entry.get().contains("\\u"))
    };
    let entries = entries.manifests.unwrap_or_default();
    Ok(entries
        .iter()
        .filter(wanted)
        .filter_map(|entry| serde_json::from_str(entry.get()).ok())
        .collect())
}

fn read_stamped(store: &Store) -> Result<(IndexFile, Option<Stamp>)> {
    let root = &store.inner.root;
    let path = || root.join(FILE);
    let (bytes, stamp) = match root.open_file(FILE, OFlags::RDONLY)? {
        None => (Vec::new(), None),
        Some(file) => {
            let stat =
                rustix::fs::fstat(&file).map_err(|errno| Error::io(Step::Stat, path(), errno))?;
            (read_all(file, path, DOCUMENT_LIMIT)?, Some(stamp(&stat)))
        }
    };
    let index =
        IndexFile::parse(&bytes).map_err(|source| Error::BadJson { path: path(), source })?;
    Ok((index, stamp))
}

fn stamp(stat: &rustix::fs::Stat) -> Stamp {
    Stamp { inode: stat.st_ino, size: stat.st_size, modified: (stat.st_mtime, stat.st_mtime_nsec) }
}

/// Changes the index. `change` may be called several times, each time on what is there then.
pub(crate) fn edit<T>(
    store: &Store,
    mut change: impl FnMut(&mut IndexFile) -> Result<T>,
) -> Result<T> {
    store.writable()?;
    let _lease = store.lease()?;
    let root = &store.inner.root;
    let limit = Some(store.inner.wait.limit);
    let lockable = store.lockable("index", "the list of images", false);
    let _lock = lockable.take(Mode::Exclusive, &store.inner.wait, limit)?;
    for attempt in 1.. {
        let (old, before) = read_stamped(store)?;
        let mut new = old.clone();
        let answer = change(&mut new)?;
        if new == old {
            return Ok(answer);
        }
        let now = root.stat(FILE)?.as_ref().map(stamp);
        if now != before && attempt < TRIES {
            continue;
        }
        let bytes = serde_json::to_vec(&new.value)
            .map_err(|source| Error::Encode { path: root.join(FILE), source })?;
        root.replace(FILE, &bytes, store.syncs_names())?;
        return Ok(answer);
    }
    unreachable!("the loop ends by returning")
}
