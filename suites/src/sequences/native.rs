//! Plays sequences in the same tree in a real chroot, as the reference.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use testkit::command::{Finished, Input, run_with};

use crate::sequences::image::SLOTS;
use crate::sequences::record::Play;

/// Runs sequences natively; those of the corpus once for all engines.
pub(crate) struct Native {
    place: PathBuf,
    layer: PathBuf,
    results: Mutex<HashMap<Play, Finished>>,
}

/// Mounts the file systems of a container, and changes the root. `$1` tree, `$2` directory to bind,
/// then the arguments of the program.
const SCRIPT: &str = r#"
set -e
tree=$1 bound=$2
shift 2
mount --make-rprivate /
mount --bind "$tree" "$tree"
mount -t proc proc "$tree/proc"
mount -t tmpfs -o mode=755 dev "$tree/dev"
mknod -m 666 "$tree/dev/null" c 1 3
ln -s /proc/self/fd "$tree/dev/fd"
mkdir "$tree/bind"
mount --bind "$bound" "$tree/bind"
PATH=$PATH:/usr/sbin:/sbin
exec env -i PATH=/bin HOME=/ "$(command -v chroot)" --userspec=0:0 --groups=0 "$tree" "$@"
"#;

/// Empties a directory and fills it with the files of `/bind`.
pub(crate) fn fresh_bound(dir: &Path, play: &Play, owner: Option<(u32, u32)>) -> io::Result<()> {
    let give = |path: &Path| match owner {
        Some((uid, gid)) => chown(path, Some(uid), Some(gid)),
        None => Ok(()),
    };
    fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(dir)? {
        fs::remove_dir_all(entry?.path())?;
    }
    for seed in &play.seeds {
        let own = dir.join(format!("s{}", seed % SLOTS));
        fs::create_dir(&own)?;
        fs::create_dir(own.join("d"))?;
        fs::write(own.join("f"), "bound")?;
        for path in [&own, &own.join("d"), &own.join("f")] {
            give(path)?;
        }
    }
    Ok(())
}

impl Native {
    /// Stores the tree as a tar: every play gets a new copy.
    pub(crate) fn prepare(scratch: &Path, layer: &[u8]) -> Result<Self, String> {
        let text = |error: io::Error| error.to_string();
        let place = scratch.join("native");
        fs::create_dir_all(&place).map_err(text)?;
        let tar = scratch.join("native.tar");
        fs::write(&tar, layer).map_err(text)?;
        Ok(Self { place, layer: tar, results: Mutex::default() })
    }

    /// The tree; for a few sequences without the directories of the others.
    fn tree(&self, play: &Play) -> io::Result<PathBuf> {
        let tree = self.place.join("tree");
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        fs::create_dir_all(&tree)?;
        let mut members = Vec::new();
        if (play.seeds.len() as u64) < SLOTS {
            members.extend(["bin", "etc", "proc", "dev"].map(str::to_owned));
            members.extend(play.seeds.iter().map(|seed| format!("work/s{}", seed % SLOTS)));
        }
        let status = Command::new("tar")
            .args(["--extract", "--same-owner", "--same-permissions", "--numeric-owner", "--file"])
            .arg(&self.layer)
            .arg("--directory")
            .arg(&tree)
            .args(members)
            .stdin(Stdio::null())
            .status()?;
        if status.success() { Ok(tree) } else { Err(io::Error::other("tar failed")) }
    }

    /// The records of native sequences.
    pub(crate) fn run(&self, play: &Play, hidden: &str) -> Finished {
        // One at a time: there is one tree, and several engines need the same result.
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = results.get(play) {
            return known.clone();
        }
        let tree = self.tree(play).expect("a tree for the native program");
        let bound = self.place.join("bound");
        fs::create_dir_all(&bound).expect("a directory to bind");
        fresh_bound(&bound, play, None).expect("a directory to bind");
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--ipc", "--fork", "--kill-child", "--", "sh", "-c"])
            .args([SCRIPT, "native"])
            .args([&tree, &bound])
            .args(play.words(hidden));
        let done = run_with(&mut command, Input::Null, crate::sequences::LIMIT);
        if play.is_whole() {
            results.insert(play.clone(), done.clone());
        }
        done
    }
}
