//! R2 and R3: the ptrace engine in a container whose tree has only what the plan names, under the
//! same paths as on the host.
//!
//! So the plan means in the container what it means outside, and the container's files are the same
//! for P1, P2, R2 and R3. The view shows what is mounted in the container, with the plan's flags
//! and in its order.

use super::Mode;
use super::container::{self, Container};
use crate::engines::external::handed::Order;
use crate::error::{Error, Result};
use crate::launch::etc_files::write_all;
use crate::launch::spawn::{Ties, spawn_elsewhere};
use crate::launch::streams::{Child, Session, Streams};
use crate::launch::terminal::Pty;
use crate::plan::{Mount, MountFlags, Plan, Root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// File systems of the kernel, of which the view shows parts.
const KERNELS: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A plan in which every path on the host is canonical, and the plan of the container in which it
/// can be carried out.
struct Split {
    inside: Plan,
    around: Plan,
}

impl Split {
    fn of(plan: &Plan) -> Result<Self> {
        let mut inside = Plan { files: Vec::new(), ..plan.clone() };
        inside.place = canonical(&plan.place)?;
        let mut needed: BTreeSet<PathBuf> = KERNELS.iter().map(PathBuf::from).collect();
        needed.insert(inside.place.clone());
        needed.extend(tree(&mut inside)?);
        let mut mounts = Vec::with_capacity(plan.mounts.len());
        for mount in &plan.mounts {
            let mut mount = mount.clone();
            if let Mount::Bind { source, target, optional, .. } = &mut mount {
                match source.canonicalize() {
                    Ok(path) => *source = path,
                    Err(_) if *optional => continue,
                    Err(error) => {
                        return Err(Error::MountSource {
                            path: source.clone(),
                            target: target.clone(),
                            errno: error.into(),
                        });
                    }
                }
                needed.insert(source.clone());
            }
            mounts.push(mount);
        }
        inside.mounts = mounts;
        let around = Plan {
            // The tracer puts its guests' tree together.
            root: Root::Directory { path: inside.place.clone() },
            mounts: around(&needed),
            read_only_root: false,
            init: false,
            files: Vec::new(),
            ..inside.clone()
        };
        Ok(Self { inside, around })
    }
}

/// Makes the paths of a plan's tree canonical; returns those that the tracer needs.
fn tree(plan: &mut Plan) -> Result<Vec<PathBuf>> {
    let mut needed = Vec::new();
    let mut add = |path: &mut PathBuf| -> Result<()> {
        *path = canonical(path)?;
        needed.push(path.clone());
        Ok(())
    };
    match &mut plan.root {
        Root::Directory { path } => add(path)?,
        Root::Overlay { lowers, upper, .. } => {
            lowers.iter_mut().try_for_each(&mut add)?;
            add(upper)?;
        }
    }
    plan.index.iter_mut().try_for_each(&mut add)?;
    Ok(needed)
}

/// Binds of these paths to themselves; what lies in another one is there already. A runtime must
/// see that `/dev` is not for it to fill.
fn around(needed: &BTreeSet<PathBuf>) -> Vec<Mount> {
    let is_kernels = |path: &PathBuf| KERNELS.iter().any(|kernels| path == Path::new(kernels));
    let is_covered =
        |path: &PathBuf| needed.iter().any(|other| other != path && path.starts_with(other));
    needed
        .iter()
        .filter(|path| is_kernels(path) || !is_covered(path))
        .map(|path| Mount::Bind {
            source: path.clone(),
            target: path.clone(),
            flags: MountFlags::default(),
            optional: false,
        })
        .collect()
}

fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| Error::File {
        doing: "find".into(),
        path: path.into(),
        errno: error.into(),
    })
}

/// Starts a container of its own for the program.
pub(super) fn spawn(mode: Mode, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
    spawn_elsewhere(pty(streams.session), streams, |ties, _| {
        // They are made from files of the host, which the container does not have.
        write_all(plan)?;
        let Split { inside, around } = Split::of(plan)?;
        let runtime = super::runtime(plan);
        let first = order(mode, &inside, ties);
        container::make(&runtime, Container { plan: &around, first }, None)
    })
}

/// The terminal that the caller passes: of a `/dev/pts` of the container's own the view shows what
/// the host's is.
fn pty(session: Session) -> Pty {
    Pty::passed(session)
}

fn order(mode: Mode, inside: &Plan, ties: Ties) -> Order<'_> {
    Order { plan: inside, engine: mode.engine_inside(), reports: false, ties }
}

/// Starts another program in the container of a process, as a child of the caller.
pub(super) fn enter(mode: Mode, pid: u32, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
    spawn_elsewhere(pty(streams.session), streams, |ties, sender| {
        let inside = Split::of(plan)?.inside;
        container::enter(pid, order(mode, &inside, ties), sender).map(|never| match never {})
    })
}
