//! Checks the store for damage: hashes every blob, follows every reference, and checks that every
//! unpacked directory is complete.
//!
//! [`VerifyOptions::repair`] removes damaged blobs and unpacked layers that can no longer be
//! checked against their blob, so that the next pull fetches them again. Names stay, because they
//! say what to pull. `rootfs` compares a layer's tree with its blob, through a callback, because
//! this crate knows no tar.

use std::collections::HashSet;
use std::io::Read as _;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use oci::Digest;

use crate::error::{Error, Result};
use crate::trees::{Cached, Kind};
use crate::{Image, Store, gc, index};

const BUFFER: usize = 1 << 20;
/// More threads than this do not hash faster: the disk limits the speed.
const THREADS: usize = 8;

/// Compares an unpacked layer or tree with its source; `Err` describes the difference.
pub type TreeCheck<'call> = dyn Fn(Kind, &Cached) -> std::result::Result<(), String> + Sync + 'call;

/// Options of [`Store::verify`].
#[derive(Default)]
pub struct VerifyOptions<'call> {
    /// Remove damaged content.
    pub repair: bool,
    /// Compares unpacked trees.
    pub check_tree: Option<&'call TreeCheck<'call>>,
    /// Called from any thread with the number of bytes hashed since the last call.
    pub progress: Option<&'call (dyn Fn(u64) + Sync)>,
    /// Check only the contents of these images (everything when empty).
    pub only: Vec<Image>,
}

impl std::fmt::Debug for VerifyOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerifyOptions")
            .field("repair", &self.repair)
            .field("only", &self.only.len())
            .finish_non_exhaustive()
    }
}

/// One finding of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// A blob's content has another digest.
    BadContent {
        /// The digest in its name.
        digest: Digest,
        /// The digest of its content.
        found: Digest,
    },
    /// A blob cannot be read.
    Unreadable {
        /// The blob.
        digest: Digest,
        /// The kernel's error.
        why: String,
    },
    /// A blob has another size than a manifest or index says.
    BadSize {
        /// The blob.
        digest: Digest,
        /// The size in the manifest or index.
        expected: u64,
        /// The size of the file.
        found: u64,
    },
    /// An image refers to a blob that is missing.
    MissingBlob {
        /// The image's name or digest.
        image: String,
        /// The blob.
        digest: Digest,
    },
    /// A blob that is called a manifest, an index or a configuration cannot be parsed as one.
    BadDocument {
        /// The blob.
        digest: Digest,
        /// The parser's error.
        why: String,
    },
    /// An unpacked layer or tree is incomplete, or differs from its source.
    BadTree {
        /// Layer or tree.
        kind: Kind,
        /// Its digest.
        digest: Digest,
        /// The difference.
        why: String,
    },
    /// A layer of a container is missing.
    MissingTree {
        /// The container's id.
        container: String,
        /// The layer's diff ID, or the tree's chain ID.
        digest: Digest,
    },
    /// A file of the store cannot be parsed.
    BadFile {
        /// The file and the error.
        why: String,
    },
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadContent { digest, found } => {
                write!(f, "blob {digest} is damaged: its content has digest {found}")
            }
            Self::Unreadable { digest, why } => write!(f, "blob {digest} cannot be read: {why}"),
            Self::BadSize { digest, expected, found } => {
                write!(f, "blob {digest} has {found} bytes instead of {expected}")
            }
            Self::MissingBlob { image, digest } => {
                write!(f, "blob {digest} of image {image} is missing")
            }
            Self::BadDocument { digest, why } => {
                write!(f, "blob {digest} is not a valid document: {why}")
            }
            Self::BadTree { kind, digest, why } => {
                write!(f, "{} {digest} is damaged: {why}", kind.name())
            }
            Self::MissingTree { container, digest } => {
                write!(f, "layer {digest} of container {} is missing", &container[..12])
            }
            Self::BadFile { why } => f.write_str(why),
        }
    }
}

impl Store {
    /// Checks this store (not those beneath) for damage. The result is empty if there is none.
    ///
    /// With `repair` it waits for the exclusive lock of the store.
    pub fn verify(&self, options: &VerifyOptions<'_>) -> Result<Vec<Problem>> {
        let lease = (!options.repair).then(|| self.lease()).transpose()?;
        let alone = options
            .repair
            .then(|| self.exclusive("repairing the store", self.inner.wait.limit))
            .transpose()?;
        let mut problems = self.verify_blobs(options)?;
        self.verify_index(options, &mut problems)?;
        let mut needed = self.verify_images(options, &mut problems)?;
        self.add_of_containers(&mut needed)?;
        if let Some(needed) = needed.filter(|_| !options.repair) {
            // No image needs the blob: a broken-off pull left it, and the next collection removes
            // it.
            problems.retain(|problem| match problem {
                Problem::BadContent { digest, .. } => needed.contains(digest),
                _ => true,
            });
        }
        self.verify_trees(options, &mut problems)?;
        if options.only.is_empty() {
            self.verify_containers(&mut problems)?;
        }
        if options.repair {
            self.repair(&problems)?;
        }
        drop((lease, alone));
        Ok(problems)
    }

    /// Hashes all blobs, several at once.
    fn verify_blobs(&self, options: &VerifyOptions<'_>) -> Result<Vec<Problem>> {
        let mut blobs = self.blobs().list()?;
        if !options.only.is_empty() {
            let mut wanted = HashSet::new();
            options.only.iter().for_each(|image| wanted.extend(gc::contents(self, image)));
            blobs.retain(|(digest, _)| wanted.contains(digest));
        }
        // The largest first, so that no thread is left with a big one at the end.
        blobs.sort_unstable_by_key(|(_, size)| std::cmp::Reverse(*size));
        let next = AtomicUsize::new(0);
        let problems = Mutex::new(Vec::new());
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        std::thread::scope(|scope| {
            for _ in 0..threads.min(blobs.len()) {
                scope.spawn(|| {
                    while let Some((digest, _)) = blobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if let Some(problem) = self.verify_blob(digest, options.progress) {
                            problems.lock().unwrap_or_else(PoisonError::into_inner).push(problem);
                        }
                    }
                });
            }
        });
        Ok(problems.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn verify_blob(
        &self,
        digest: &Digest,
        progress: Option<&(dyn Fn(u64) + Sync)>,
    ) -> Option<Problem> {
        let unreadable = |why: String| Some(Problem::Unreadable { digest: digest.clone(), why });
        let mut blob = match self.blobs().open_digest(digest) {
            Ok(blob) => blob,
            // Removed after it was listed.
            Err(Error::NoBlob { .. }) => return None,
            Err(error) => return unreadable(chain(&error)),
        };
        let mut digester = digest.digester();
        let mut buffer = vec![0; BUFFER];
        loop {
            match blob.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    digester.update(&buffer[..count]);
                    if let Some(progress) = progress {
                        progress(count as u64);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return unreadable(error.to_string()),
            }
        }
        let found = digester.finish();
        (found != *digest).then(|| Problem::BadContent { digest: digest.clone(), found })
    }

    /// Checks the list of images; with `repair`, a missing or damaged one is rebuilt.
    fn verify_index(&self, options: &VerifyOptions<'_>, problems: &mut Vec<Problem>) -> Result<()> {
        let Err(error) = index::read_entries(self, None) else { return Ok(()) };
        let Error::BadIndex { .. } = &error else { return Err(error) };
        let mut why = error.to_string();
        if options.repair {
            let count = index::rebuild(self)?;
            why = format!("{why}; it was rebuilt (with {count} images, without names)");
        }
        add(problems, Problem::BadFile { why });
        Ok(())
    }

    /// Follows every image's references and returns them; `None` if they are not all known.
    fn verify_images(
        &self,
        options: &VerifyOptions<'_>,
        problems: &mut Vec<Problem>,
    ) -> Result<Option<HashSet<Digest>>> {
        let mut needed = Some(HashSet::new());
        let images = match self.images().list() {
            _ if !options.only.is_empty() => options.only.clone(),
            // Reported already.
            Err(Error::BadIndex { .. }) => {
                needed = None;
                Vec::new()
            }
            images => images?,
        };
        for image in images.iter().filter(|image| image.is_own()) {
            let name = image
                .reference()
                .map_or_else(|| image.digest().to_string(), |name| name.familiar());
            if !self.verify_descriptor(&name, image.descriptor(), problems)? {
                needed = None;
                continue;
            }
            let manifest = match image.manifest() {
                Ok(manifest) => manifest,
                Err(error) => {
                    note_document(image.digest(), &name, &error, problems);
                    needed = None;
                    continue;
                }
            };
            if let Some(needed) = &mut needed {
                let own = [image.digest(), &manifest.descriptor().digest, &manifest.config.digest];
                needed.extend(own.into_iter().cloned());
                needed.extend(manifest.layers.iter().map(|layer| layer.digest.clone()));
            }
            for layer in &manifest.layers {
                if !layer.is_foreign() {
                    self.verify_descriptor(&name, layer, problems)?;
                }
            }
            if self.verify_descriptor(&name, &manifest.config, problems)?
                && let Err(error) = image.config()
            {
                note_document(&manifest.config.digest, &name, &error, problems);
            }
        }
        Ok(needed)
    }

    /// Adds the contents of containers' images, whose names may be gone; `None` if they are not
    /// known.
    fn add_of_containers(&self, needed: &mut Option<HashSet<Digest>>) -> Result<()> {
        for config in self.containers().map_nameless(crate::ContainerDir::read_any)? {
            let Ok(Some(config)) = config else { continue };
            let named = config.pointer("/image/manifest").and_then(serde_json::Value::as_str);
            let Some(digest) = named.and_then(|text| text.parse::<Digest>().ok()) else { continue };
            if needed.as_ref().is_none_or(|needed| needed.contains(&digest)) {
                continue;
            }
            let manifest = self.blobs().read(&digest).ok();
            let manifest = manifest.and_then(|bytes| oci::Manifest::parse(bytes, "").ok());
            match (needed.as_mut(), manifest) {
                (Some(needed), Some(manifest)) => {
                    needed.extend(manifest.layers.iter().map(|layer| layer.digest.clone()));
                    needed.extend([digest, manifest.config.digest.clone()]);
                }
                _ => *needed = None,
            }
        }
        Ok(())
    }

    /// Checks that a blob exists and has the right size.
    fn verify_descriptor(
        &self,
        image: &str,
        descriptor: &oci::Descriptor,
        problems: &mut Vec<Problem>,
    ) -> Result<bool> {
        let digest = descriptor.digest.clone();
        let problem = match self.blobs().open(descriptor) {
            Ok(_) => return Ok(true),
            Err(Error::NoBlob { .. }) => Problem::MissingBlob { image: image.to_owned(), digest },
            Err(Error::BadBlob { .. }) => {
                let found = self.blobs().open_digest(&digest)?.size;
                Problem::BadSize { digest, expected: descriptor.size, found }
            }
            Err(error) => Problem::Unreadable { digest, why: chain(&error) },
        };
        add(problems, problem);
        Ok(false)
    }

    fn verify_trees(&self, options: &VerifyOptions<'_>, problems: &mut Vec<Problem>) -> Result<()> {
        let mut wanted = HashSet::new();
        options.only.iter().for_each(|image| wanted.extend(gc::contents(self, image)));
        for kind in Kind::ALL {
            let trees = crate::Trees { store: self, kind };
            for digest in trees.list()? {
                if !options.only.is_empty() && !wanted.contains(&digest) {
                    continue;
                }
                let bad = |why: String| Problem::BadTree { kind, digest: digest.clone(), why };
                match trees.get_own(&digest)? {
                    // The machine went down before the entry was on the disk. It does not count,
                    // and is built again when it is needed.
                    None if options.repair => trees.remove(&digest)?,
                    None => {}
                    Some(cached) if !cached.tree().is_dir() => {
                        add(problems, bad("its tree is missing".into()));
                    }
                    Some(cached) => {
                        if let Some(check) = options.check_tree
                            && let Err(why) = check(kind, &cached)
                        {
                            add(problems, bad(why));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Finds containers whose layers are missing. Their diff IDs are in `image.layers`, if the
    /// engine keeps them there; a container without that list is not checked.
    fn verify_containers(&self, problems: &mut Vec<Problem>) -> Result<()> {
        for container in self.containers().list()? {
            let config = match container.read_any() {
                Ok(Some(config)) => config,
                // It was removed meanwhile, or a power failure lost its record and reading it has
                // just removed it.
                Ok(None) if !container.exists()? => continue,
                Ok(None) => {
                    let path = container.join("container.json");
                    let why = format!("{} is missing", path.display());
                    add(problems, Problem::BadFile { why });
                    continue;
                }
                Err(error @ Error::BadJson { .. }) => {
                    add(problems, Problem::BadFile { why: chain(&error) });
                    continue;
                }
                Err(other) => return Err(other),
            };
            let layers = config.pointer("/image/layers").cloned().unwrap_or_default();
            let layers: Vec<Digest> = serde_json::from_value(layers).unwrap_or_default();
            for digest in layers {
                if !self.layers().contains(&digest)? {
                    let container = container.id().to_owned();
                    add(problems, Problem::MissingTree { container, digest });
                }
            }
        }
        Ok(())
    }

    /// Removes damaged content; names stay.
    fn repair(&self, problems: &[Problem]) -> Result<()> {
        for problem in problems {
            match problem {
                Problem::BadContent { digest, .. }
                | Problem::Unreadable { digest, .. }
                | Problem::BadSize { digest, .. }
                | Problem::BadDocument { digest, .. } => {
                    self.blobs().remove(digest)?;
                }
                Problem::BadTree { kind, digest, .. } => {
                    crate::Trees { store: self, kind: *kind }.remove(digest)?;
                }
                Problem::MissingBlob { .. }
                | Problem::MissingTree { .. }
                | Problem::BadFile { .. } => {}
            }
        }
        Ok(())
    }
}

fn note_document(digest: &Digest, image: &str, error: &Error, problems: &mut Vec<Problem>) {
    let digest = digest.clone();
    let problem = match error {
        Error::NoBlob { digest: missing } => match missing.parse() {
            Ok(digest) => Problem::MissingBlob { image: image.to_owned(), digest },
            Err(_) => Problem::BadDocument { digest, why: chain(error) },
        },
        // Hashing has reported this damage already.
        Error::BadBlob { .. } => return,
        other => Problem::BadDocument { digest, why: chain(other) },
    };
    add(problems, problem);
}

fn add(problems: &mut Vec<Problem>, problem: Problem) {
    if !problems.contains(&problem) {
        problems.push(problem);
    }
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
