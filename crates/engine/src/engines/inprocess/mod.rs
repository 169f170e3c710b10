//! The engine inside the process (I1, I2, F1, F2): a program in the guest's own address space, the
//! stage, catches its system calls, and the view decides about them there.
//!
//! Variants of one mechanism. In I1 a call site jumps straight to the stage from its second call
//! on, because it was rewritten; in I2 every call that is caught comes by a signal (`SIGSYS`), and
//! the guest's code is never changed. F1 and F2 change the text of programs instead of using a
//! filter.
//!
//! ```text
//!   engine (here)                          stage (crate `stage`, in each process of the container)
//!   ─────────────                          ───────────────────────────────────────────────────────
//!   prepares the world on disk
//!   makes the shared file, adds this world ──────► maps it
//!   plans the first `execve` with the view
//!   executes the stage, ───── a string ──────────► installs the filter, loads the program
//! ```
//!
//! - [`become_guest`]: from a plan to a guest. [`first_exec`]: the first program, decided by the
//!   same rules as every later one.
//! - [`memory`]: the arguments of that program, as the view reads them. [`stage_file`]: what is
//!   executed.
//! - [`shared`]: what a start writes for all processes of the container.
//!   [`crate::launch::members::by_stage`]: who these are.
//! - [`probe`]: the trial by which a host shows that all this works.
//!
//! No process of Coracle stays beside the guests. When the last one ends, what it left is removed
//! by the next start, or with the container.
//!
//! It is no security boundary: a guest that wants to get at the caller's files finds a way.

pub(super) mod become_guest;
mod first_exec;
mod memory;
pub mod probe;
mod shared;
mod stage_file;

use super::contract::{
    Asked, Begun, CallsBy, Engine, Fit, IdsFrom, MadeFiles, Properties, RootKind,
};
use super::interpose;
use crate::error::Result;
use crate::exit::Ended;
use crate::facts::Facts;
use crate::launch::streams::{Child, Streams};
use crate::plan::Plan;

/// How call sites are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are rewritten where that is safe: I1.
    Rewritten,
    /// They stay as they are: I2.
    Signals,
    /// Each of them raises a signal by itself, without a filter: F1.
    Traps,
    /// All are rewritten when a file is mapped, without a filter: F2.
    Texts,
}

impl Mode {
    /// Whether calls are caught without a filter.
    pub const fn has_texts(self) -> bool {
        matches!(self, Self::Traps | Self::Texts)
    }
}

const I1: Properties = Properties {
    name: "I1",
    aliases: &[],
    about: "inside the process, call sites rewritten",
    asked: Asked::Where(|facts| facts.inside_works),
    root: RootKind::LinkedTree,
    ids: IdsFrom::Engine,
    calls: CallsBy::Process,
    made: MadeFiles::None,
    helper: None,
    caps: interpose::CAPS,
};
const I2: Properties = Properties { name: "I2", about: "inside the process, by signals", ..I1 };
const F1: Properties = Properties {
    name: "F1",
    about: "text changed, by signals",
    asked: Asked::Where(|facts| facts.texts_work),
    made: MadeFiles::BesideImage,
    ..I1
};
/// Where text is rewritten, it makes no difference whether a loader or a library is patched, as
/// udocker's F3 and F4 do.
const F2: Properties = Properties {
    name: "F2",
    aliases: &[("F3", "the same as F2"), ("F4", "the same as F2")],
    about: "text changed, call sites rewritten",
    ..F1
};

impl Engine for Mode {
    fn properties(&self) -> &'static Properties {
        match self {
            Self::Rewritten => &I1,
            Self::Signals => &I2,
            Self::Traps => &F1,
            Self::Texts => &F2,
        }
    }

    fn probe(&self, facts: &Facts) -> Fit {
        fit(*self, facts)
    }

    fn spawn(&self, plan: &Plan, streams: Streams<'_>) -> Result<Child> {
        become_guest::spawn(*self, plan, streams)
    }

    fn become_guest(&self, plan: &Plan, begun: Begun<'_>) -> Result<Ended> {
        become_guest::here(*self, plan, begun)
    }
}

/// It needs a filter that may trap, the one architecture that the stage is for, and a trial that
/// did not fail.
fn fit(mode: Mode, facts: &Facts) -> Fit {
    let rewriting = facts.no_rewriting.as_ref().filter(|_| mode == Mode::Rewritten);
    let failed = if mode.has_texts() {
        [facts.no_texts.as_ref(), None, None]
    } else {
        [facts.no_seccomp.as_ref(), facts.no_inside.as_ref(), rewriting]
    };
    match failed.into_iter().flatten().next() {
        Some(why) => Fit::Unusable(why.clone()),
        None if cfg!(target_arch = "x86_64") => Fit::Ready,
        None => Fit::Unusable("it is for x86-64".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_needs_filters_and_no_tracing() {
        let none = Facts { no_seccomp: Some("no filters".into()), ..Facts::default() };
        assert_eq!(fit(Mode::Signals, &none), Fit::Unusable("no filters".into()));
        let none = Facts { no_ptrace: Some("Yama".into()), ..Facts::default() };
        assert_eq!(fit(Mode::Signals, &none), Fit::Ready);
        let none = Facts { no_rewriting: Some("SELinux".into()), ..Facts::default() };
        assert_eq!(fit(Mode::Signals, &none), Fit::Ready);
        assert_eq!(fit(Mode::Rewritten, &none), Fit::Unusable("SELinux".into()));
    }
}
