//! `oci/index.json`: the list of manifests in the store and their names.
//!
//! Other tools that know OCI layouts write this file too, so it is edited as a JSON value: an entry
//! or field that this program does not understand is written back unchanged, in its place. Changes
//! are made under `locks/index`, and made again on a fresh reading if a tool that does not take
//! this lock has replaced the file meanwhile.
//!
//! A file that is missing, empty or not an index says nothing about the contents of the store. If
//! there are blobs, that is an error and never an empty store, since a collection would delete
//! everything; [`rebuild`] makes a new index from the blobs.

use oci::descriptor::{ANNOTATION_CONTAINERD_NAME, ANNOTATION_REF_NAME};
use oci::{Descriptor, Digest, ImageConfig, Manifest, Reference};
use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::Store;
use crate::error::{Error, Result, Step};
use crate::lock::{Lock, Mode};
use crate::root::{DOCUMENT_LIMIT, read_all, reread};

const FILE: &str = "oci/index.json";
/// How often a change is tried again because another tool has replaced the file.
const TRIES: usize = 16;
/// Size limit of a manifest in bytes; larger blobs are not parsed.
const MANIFEST_LIMIT: u64 = 4 << 20;

/// The index of a store without images.
pub(crate) const EMPTY: &str =
    r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;

/// The parsed file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IndexFile {
    value: Map<String, Value>,
}

/// Identifies one version of the file.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: i64,
    modified: (i64, u64),
}

impl IndexFile {
    fn parse(store: &Store, bytes: &[u8]) -> Result<Self> {
        entries(store, bytes)?;
        let value = serde_json::from_slice(bytes).map_err(|error| bad(store, &error))?;
        Ok(Self { value })
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

    /// Gives an entry a name; the entry that had the name before stays without it.
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

    /// Removes a name; `true` if it existed. The entry is removed if its digest has other entries
    /// (or will have one: `coming`), else it stays without a name.
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
                // A named entry replaces a nameless one with the same digest.
                !(coming.as_ref() == Some(&digest) && name_of(entry).is_none())
            }
        });
        found
    }

    /// The names of a manifest.
    pub(crate) fn names(&self, digest: &Digest) -> Vec<Reference> {
        let digest = digest.to_string();
        let entries = self.value.get("manifests").and_then(Value::as_array);
        let of_it = |entry: &&Value| entry.get("digest").and_then(Value::as_str) == Some(&*digest);
        entries.into_iter().flatten().filter(of_it).filter_map(name_of).collect()
    }

    /// Removes the entries for which `which` returns true; returns their number.
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

/// Parses a name in an index, as this program writes it or as other tools do (`debian:12`,
/// `latest`).
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

/// Reads the entries of a store's own index that are descriptors. With `containing`, entries
/// without this text may be left out: parsing a thousand entries costs more than everything else at
/// the start of a container.
pub(crate) fn read_entries(store: &Store, containing: Option<&str>) -> Result<Vec<Descriptor>> {
    let bytes = content_or_empty(store, store.inner.root.read(FILE, DOCUMENT_LIMIT)?)?;
    let wanted = |entry: &&&RawValue| {
        containing.is_none_or(|text| entry.get().contains(text) || entry.get().contains("\\u"))
    };
    Ok(entries(store, &bytes)?
        .iter()
        .filter(wanted)
        .filter_map(|entry| serde_json::from_str(entry.get()).ok())
        .collect())
}

/// Returns the file's content, or an empty index if nothing was stored yet.
fn content_or_empty(store: &Store, bytes: Option<Vec<u8>>) -> Result<Vec<u8>> {
    let why = match bytes {
        Some(bytes) if !bytes.trim_ascii().is_empty() => return Ok(bytes),
        Some(_) => "it is empty",
        None => "it is missing",
    };
    if store.blobs().list()?.is_empty() { Ok(EMPTY.into()) } else { Err(bad(store, &why)) }
}

/// The raw entries, if the file is an index.
fn entries<'file>(store: &Store, bytes: &'file [u8]) -> Result<Vec<&'file RawValue>> {
    #[derive(Deserialize)]
    struct Entries<'file> {
        #[serde(rename = "schemaVersion")]
        version: Option<u64>,
        // Go writes an empty list as `null`, but always writes the field.
        #[serde(borrow, deserialize_with = "Deserialize::deserialize")]
        manifests: Option<Vec<&'file RawValue>>,
    }
    // serde would accept a list for a structure.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(bad(store, &"it is not a JSON object"));
    }
    let found: Entries<'_> = serde_json::from_slice(bytes).map_err(|error| bad(store, &error))?;
    match found.version {
        None | Some(2) => Ok(found.manifests.unwrap_or_default()),
        Some(other) => Err(bad(store, &format!("it has schemaVersion {other} instead of 2"))),
    }
}

fn bad(store: &Store, why: &dyn std::fmt::Display) -> Error {
    Error::BadIndex { path: store.inner.root.join(FILE), why: why.to_string() }
}

/// Makes an empty index if the file is missing or empty and the store has no blobs; with blobs,
/// that is damage. Under the lock and in one step: another host that saw it empty would trust that
/// for a while. With `durable` it survives a power failure, whatever the store's [`Durability`].
///
/// [`Durability`]: crate::Durability
pub(crate) fn begin(store: &Store, durable: bool) -> Result<()> {
    let root = &store.inner.root;
    if root.stat(FILE)?.is_some_and(|stat| stat.st_size > 8) {
        return Ok(());
    }
    let _lock = lock(store)?;
    let bytes = root.read(FILE, DOCUMENT_LIMIT)?;
    if bytes.as_ref().is_none_or(|bytes| bytes.trim_ascii().is_empty()) {
        let empty = content_or_empty(store, bytes)?;
        root.replace(FILE, &empty, durable || store.syncs_names())?;
    }
    Ok(())
}

/// Replaces the index by one that has every image among the blobs, without names; returns their
/// number. The old file stays as `index.json.damaged`. Callers hold the exclusive lock.
pub(crate) fn rebuild(store: &Store) -> Result<usize> {
    let root = &store.inner.root;
    let mut found = Vec::new();
    for (digest, size) in store.blobs().list()? {
        if size > MANIFEST_LIMIT {
            continue;
        }
        // Unreadable blobs and wrong digests are reported and removed elsewhere.
        let Ok(bytes) = store.blobs().read(&digest) else { continue };
        let Ok(manifest) = Manifest::parse(bytes, "") else { continue };
        if manifest.check_is_image().is_err() {
            continue;
        }
        let Ok(config) = store.blobs().read(&manifest.config.digest) else { continue };
        let Ok(config) = ImageConfig::parse(config) else { continue };
        let platform = Some(config.platform());
        found.push(Descriptor { digest, platform, ..manifest.descriptor() });
    }
    found.sort_by_key(|entry| entry.digest.to_string());
    let encode = |source| Error::Encode { path: root.join(FILE), source };
    let entries = serde_json::to_value(&found).map_err(encode)?;
    let mut index: Map<String, Value> = serde_json::from_str(EMPTY).map_err(encode)?;
    index.insert("manifests".into(), entries);
    let bytes = serde_json::to_vec(&index).map_err(encode)?;
    let _lock = lock(store)?;
    if root.exists(FILE)? {
        root.rename(FILE, &format!("{FILE}.damaged"))?;
    }
    root.replace(FILE, &bytes, store.syncs_names())?;
    Ok(found.len())
}

fn lock(store: &Store) -> Result<Lock> {
    let limit = Some(store.inner.wait.limit);
    let lockable = store.lockable("index", "the list of images", false);
    lockable.take(Mode::Exclusive, &store.inner.wait, limit)
}

fn read_stamped(store: &Store) -> Result<(IndexFile, Option<Stamp>)> {
    let root = &store.inner.root;
    let path = || root.join(FILE);
    let (bytes, stamp) = reread(|| {
        let Some(file) = root.open_file(FILE, OFlags::RDONLY)? else { return Ok((None, None)) };
        let stat =
            rustix::fs::fstat(&file).map_err(|errno| Error::io(Step::Stat, path(), errno))?;
        Ok((Some(read_all(file, path, DOCUMENT_LIMIT)?), Some(stamp(&stat))))
    })?;
    Ok((IndexFile::parse(store, &content_or_empty(store, bytes)?)?, stamp))
}

fn stamp(stat: &rustix::fs::Stat) -> Stamp {
    Stamp { inode: stat.st_ino, size: stat.st_size, modified: (stat.st_mtime, stat.st_mtime_nsec) }
}

/// Changes the index. `change` may be called several times, each time on the file's current
/// content.
pub(crate) fn edit<T>(
    store: &Store,
    mut change: impl FnMut(&mut IndexFile) -> Result<T>,
) -> Result<T> {
    store.writable()?;
    let _lease = store.lease()?;
    let root = &store.inner.root;
    let _lock = lock(store)?;
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
