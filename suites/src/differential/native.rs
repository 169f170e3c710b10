//! Runs the programs in the same tree in a real chroot, as the reference.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use testkit::command::{Finished, Input, run_with};

/// The user of the tree.
pub(crate) const USER: &str = "1234:1235";

/// The ids of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    /// 0:0.
    Root,
    /// [`USER`].
    User,
}

impl Who {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
        }
    }
}

/// Runs programs natively, and keeps what each has said.
pub(crate) struct Native {
    place: PathBuf,
    layer: PathBuf,
    hidden: PathBuf,
    results: Mutex<HashMap<(&'static str, Who), Finished>>,
}

/// Mounts the file systems of a container, and changes the root. `$1` tree, `$2` user, `$3`
/// program, `$4` its argument.
const SCRIPT: &str = r#"
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=755 dev "$1/dev"
for node in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
    IFS=: read -r name major minor <<END
$node
END
    mknod -m 666 "$1/dev/$name" c "$major" "$minor"
done
ln -s /proc/self/fd "$1/dev/fd"
for at in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${at%:*}" "$1/dev/${at#*:}"; done
mkdir "$1/bind"
mount -t tmpfs bind "$1/bind"
: > "$1/bind/in-binding"
: > "$1/bind/another"
PATH=$PATH:/usr/sbin:/sbin
env -i PATH=/bin HOME=/ "$(command -v chroot)" --userspec="$2" --groups="${2#*:}" "$1" "$3" "$4"
"#;

impl Native {
    /// Stores the tree as a tar: every program gets a new copy.
    pub(crate) fn prepare(scratch: &Path, layer: &[u8], hidden: &Path) -> Result<Self, String> {
        let place = scratch.join("native");
        std::fs::create_dir_all(&place).map_err(|error| error.to_string())?;
        let tar = scratch.join("native.tar");
        std::fs::write(&tar, layer).map_err(|error| error.to_string())?;
        let native = Self {
            place,
            layer: tar,
            hidden: hidden.to_owned(),
            results: Mutex::new(HashMap::new()),
        };
        let tree = native.tree("probe", Who::Root)?;
        std::fs::remove_dir_all(&tree).map_err(|error| error.to_string())?;
        Ok(native)
    }

    fn tree(&self, program: &str, who: Who) -> Result<PathBuf, String> {
        let tree = self.place.join(format!("{program}-{}", who.name()));
        std::fs::create_dir_all(&tree).map_err(|error| error.to_string())?;
        let output = Command::new("tar")
            .args(["--extract", "--same-owner", "--same-permissions", "--numeric-owner", "--file"])
            .arg(&self.layer)
            .arg("--directory")
            .arg(&tree)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("tar: {error}"))?;
        if output.status.success() {
            Ok(tree)
        } else {
            let _ = std::io::stderr().write_all(&output.stderr);
            Err("tar failed".to_owned())
        }
    }

    /// Forgets what a program has said: [`Self::run`] runs it again.
    pub(crate) fn forget(&self, program: &'static str, who: Who) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.remove(&(program, who));
    }

    /// The program's native output.
    pub(crate) fn run(&self, program: &'static str, who: Who) -> Finished {
        // One at a time: several cases need the same result.
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = results.get(&(program, who)) {
            return known.clone();
        }
        let tree = self.tree(program, who).expect("a tree for the native program");
        let user = if who == Who::Root { "0:0" } else { USER };
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--ipc", "--fork", "--kill-child", "--", "sh", "-c"])
            .args([SCRIPT, "native"])
            .arg(&tree)
            .arg(user)
            .arg(format!("/bin/{program}"))
            .arg(&self.hidden);
        let done = run_with(&mut command, Input::Null, super::LIMIT);
        std::fs::remove_dir_all(&tree).expect("the native program's tree is removed");
        results.insert((program, who), done.clone());
        done
    }
}
