//! Helpers of the tests.

use rootfs::{Applied, Error, Layer, Limits};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use testkit::scratch::Scratch;

/// A directory with layers in it.
pub(crate) struct Place {
    pub(crate) scratch: Scratch,
    count: std::cell::Cell<u32>,
}

impl Place {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new("rootfs").expect("scratch directory");
        Self { scratch, count: std::cell::Cell::new(0) }
    }

    pub(crate) fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// A new empty directory.
    pub(crate) fn fresh(&self) -> PathBuf {
        self.count.set(self.count.get() + 1);
        let path = self.path().join(format!("n{}", self.count.get()));
        std::fs::create_dir(&path).expect("fresh directory");
        path
    }

    /// Applies an archive as a new layer.
    pub(crate) fn try_apply(&self, tar: &[u8], limits: &Limits) -> Result<(Layer, Applied), Error> {
        let directory = self.fresh();
        let staging = File::open(&directory).expect("open");
        let applied = rootfs::apply(tar, &staging, limits, &|_| {})?;
        let text = serde_json::to_vec(&applied.meta).expect("json");
        std::fs::write(directory.join("layer.json"), text).expect("write");
        Ok((Layer::open(&directory).expect("description"), applied))
    }

    pub(crate) fn apply(&self, tar: &[u8]) -> (Layer, Applied) {
        self.try_apply(tar, &Limits::default()).expect("apply")
    }

    /// The error of an archive that must be refused.
    pub(crate) fn refuse(&self, tar: &[u8]) -> Error {
        self.refuse_with(tar, &Limits::default())
    }

    pub(crate) fn refuse_with(&self, tar: &[u8], limits: &Limits) -> Error {
        match self.try_apply(tar, limits) {
            Ok((layer, _)) => panic!("{layer:?} was taken"),
            Err(error) => error,
        }
    }
}

/// Names in a directory, sorted.
pub(crate) fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(path)
        .expect("read_dir")
        .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Returns true if a path is a whiteout.
pub(crate) fn is_whiteout(path: &Path) -> bool {
    std::fs::symlink_metadata(path)
        .is_ok_and(|meta| meta.mode() & 0o170_000 == 0o020_000 && meta.rdev() == 0)
}

/// Returns true if whiteouts are on disk here, not in the table.
pub(crate) fn marks_on_disk(place: &Place) -> bool {
    let tar = testkit::layer::Layer::new().dir("d").opaque("d").whiteout("x").finish();
    let (_, applied) = place.apply(&tar);
    if applied.meta.marks_in_table {
        eprintln!(
            "SKIP marks on disk: no whiteouts or user attributes in {}",
            place.path().display()
        );
    }
    !applied.meta.marks_in_table
}
