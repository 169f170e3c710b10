//! Compiles the plan's mounts into the view's table of bindings.
//!
//! Pure, except for the question whether mount points exist: [`super::prepare`] has resolved
//! symbolic links on both sides. Later mounts hide earlier ones at and beneath their target, as the
//! kernel's do.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use view::World;
use view::world::{Binding, Identity, Kind};

/// A [`view::Binding`] that owns its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Guest path: absolute, without symbolic links.
    pub guest: Vec<u8>,
    /// Host path: absolute, canonical.
    pub host: Vec<u8>,
    /// Writing is refused.
    pub read_only: bool,
    /// What is behind it.
    pub kind: Kind,
}

impl Bound {
    fn borrow(&self) -> Binding<'_> {
        let Self { guest, host, read_only, kind } = self;
        Binding { guest, host, read_only: *read_only, kind: *kind }
    }
}

/// A [`view::World`] that owns its parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compiled {
    bound: Vec<Bound>,
    identity: Option<Identity>,
    host_name: Vec<u8>,
}

impl Compiled {
    /// Takes mounts in the order in which they are made; the first is the root.
    #[must_use]
    pub fn new(mounts: Vec<Bound>, identity: Option<Identity>) -> Self {
        let mut bound: Vec<Bound> = Vec::with_capacity(mounts.len());
        for mount in mounts {
            bound.retain(|earlier| !is_at_or_below(&earlier.guest, &mount.guest));
            bound.push(mount);
        }
        bound.sort_by(|one, other| one.guest.cmp(&other.guest));
        Self { bound, identity, host_name: Vec::new() }
    }

    /// The same with a host name of the container's own; empty for the host's.
    #[must_use]
    pub fn with_host_name(self, name: &str) -> Self {
        Self { host_name: name.into(), ..self }
    }

    /// The host name that the guest sees ([`World::host_name`]).
    #[must_use]
    pub fn host_name(&self) -> &[u8] {
        &self.host_name
    }

    /// Sorted by guest path.
    #[must_use]
    pub fn bound(&self) -> &[Bound] {
        &self.bound
    }

    /// How ids appear.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// The table for a [`view::World`]. It borrows the names, so it is kept beside them:
    ///
    /// ```text
    /// let bindings = compiled.bindings();
    /// let world = World::new(&bindings, compiled.identity(), &[]);
    /// ```
    #[must_use]
    pub fn bindings(&self) -> Vec<Binding<'_>> {
        self.bound.iter().map(Bound::borrow).collect()
    }

    /// Index of the binding that contains a guest path.
    #[must_use]
    pub fn binding_of(&self, guest: &[u8]) -> u16 {
        let bindings = self.bindings();
        let found = view::paths::find(&World::new(&bindings, None, &[]), guest);
        found.and_then(|(index, _)| u16::try_from(index).ok()).unwrap_or(0)
    }

    /// Whether a mount point is missing on disk, so that the listing of its directory must be
    /// completed.
    #[must_use]
    pub fn lacks_mount_points(&self) -> bool {
        let bindings = self.bindings();
        let world = World::new(&bindings, None, &[]);
        self.bound.iter().any(|bound| {
            let Some(slash) = bound.guest.iter().rposition(|byte| *byte == b'/') else {
                return false;
            };
            let (above, name) = (&bound.guest[..slash.max(1)], &bound.guest[slash + 1..]);
            let Some((index, rest)) = view::paths::find(&world, above).filter(|_| !name.is_empty())
            else {
                return false;
            };
            let point = [bindings[index].host, rest, b"/", name].concat();
            Path::new(OsStr::from_bytes(&point)).symlink_metadata().is_err()
        })
    }
}

/// Whether a path is another or lies beneath it.
pub(super) fn is_at_or_below(path: &[u8], other: &[u8]) -> bool {
    let rest = if other == b"/" { Some(path) } else { path.strip_prefix(other) };
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(guest: &str, host: &str) -> Bound {
        Bound { guest: guest.into(), host: host.into(), read_only: false, kind: Kind::Host }
    }

    #[test]
    fn later_mounts_hide_what_is_beneath_them() {
        let all =
            vec![bound("/", "/r"), bound("/a/b", "/1"), bound("/ab", "/2"), bound("/a", "/3")];
        let compiled = Compiled::new(all, None);
        let names: Vec<_> = compiled.bindings().iter().map(|one| (one.guest, one.host)).collect();
        assert_eq!(names, [(&b"/"[..], &b"/r"[..]), (b"/a", b"/3"), (b"/ab", b"/2")]);
    }

    #[test]
    fn mount_points_that_are_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().to_str().unwrap();
        std::fs::create_dir_all(dir.path().join("root/a")).unwrap();
        let with = |guest: &str| {
            let root = bound("/", &format!("{top}/root"));
            Compiled::new(vec![root, bound("/a", "/etc"), bound(guest, "/tmp")], None)
        };
        assert!(!with("/a").lacks_mount_points());
        assert!(with("/b").lacks_mount_points());
        assert!(with("/a/none").lacks_mount_points());
        assert!(!with("/a/passwd").lacks_mount_points());
    }
}
