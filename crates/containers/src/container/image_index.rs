//! The index of a container's image: what every name in it is, in one file ([`rootfs::index`]).
//!
//! Only a container without mounts needs one. It is made with the image's tree. A tree of an
//! earlier version of Coracle gets its index when that is first asked for. If no index can be made
//! or kept, the reason is logged and new containers do without ([`super::root_form`]); one that was
//! made above its image cannot.

use std::path::PathBuf;

use serde_json::Value;
use store::{Image, Store};

use super::record::Record;
use super::root_form;
use crate::error::{Error, Result};

/// The path of the index of the tree beneath a container's own changes, checked. It is made if it
/// is missing or damaged.
///
/// Costs four calls of the kernel if it was checked since this machine was started. The file is
/// replaced and never written, so a process that has mapped it keeps what it has.
pub fn needed(store: &Store, record: &Record) -> Result<PathBuf> {
    let missing = || {
        Error::failed("the container's image cannot be used without its index")
            .with_hint("coracle verify finds what is damaged; else make the container again")
    };
    let text = record.own.root_form.tree.as_ref().ok_or_else(missing)?;
    let tree = store.trees().get(&text.parse()?)?.ok_or_else(missing)?;
    rootfs::index::checked(store, &tree).map_err(|error| missing().because(error.to_string()))
}

/// What the index of an image holds, for `image inspect --index`.
///
/// An index that an existing tree lacks is made. A tree is not: that would unpack the image for
/// modes that its user may never choose.
pub fn describe(store: &Store, image: &Image) -> Result<Value> {
    let id = image.id()?;
    let key = root_form::settled_key_of(&image.config()?);
    let missing = format!("image {} has no index here", id.short());
    let tree = store.trees().get(&key)?.ok_or_else(|| {
        Error::not_found(&missing)
            .because("no container without mounts was made of it")
            .with_hint("the first 'coracle run' in a mode such as I1 or P1 makes one; --execmode=MODE asks for it")
    })?;
    let path =
        rootfs::index::checked(store, &tree).map_err(|error| Error::from(error).within(missing))?;
    let bytes = std::fs::read(&path)
        .map_err(|error| Error::failed(format!("cannot read {}", path.display())).cause(error))?;
    let found = rootfs::index::summary(&bytes)
        .ok_or_else(|| Error::failed(format!("{} was changed just now", path.display())))?;
    let text = [
        ("Id", id.to_string()),
        ("Tree", key.to_string()),
        ("Path", path.display().to_string()),
        ("Digest", format!("sha256:{}", found.digest)),
    ];
    let numbers = [
        ("Version", found.version.into()),
        ("Names", found.names),
        ("Directories", found.directories),
        ("Files", found.files),
        ("Links", found.links),
        ("Others", found.others),
        ("Inodes", found.inodes),
        ("Owners", found.owners),
        ("WithAttributes", found.with_attributes),
        ("ToAsk", found.to_ask),
        ("Bytes", found.bytes),
        ("BytesPerName", found.bytes.div_ceil(found.names.max(1))),
    ];
    let text = text.into_iter().map(|(key, text)| (key.to_owned(), Value::String(text)));
    let numbers = numbers.into_iter().map(|(key, number)| (key.to_owned(), number.into()));
    Ok(Value::Object(text.chain(numbers).collect()))
}
