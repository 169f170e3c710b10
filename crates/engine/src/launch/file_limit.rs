//! Lifts limits with which Coracle itself cannot work. That of file sizes (`ulimit -f`) is restored
//! for programs: a container's own files may be larger than what the caller lets programs write.
//! That of a very small stack (`ulimit -s`) stays lifted, since the process that becomes a program
//! is on its stack until it does.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// The caller's soft limit of file sizes, where it was below the hard one.
static CALLERS: OnceLock<Option<u64>> = OnceLock::new();

/// What the stack may have at least, where the hard limit permits it.
const STACK: u64 = 1 << 20;
/// With less nothing works.
const LEAST_STACK: u64 = 384 << 10;

/// Raises the soft limits, as far as the hard ones permit: the first step of the command.
pub fn lift() {
    let files = getrlimit(Resource::Fsize);
    let raised = Rlimit { current: files.maximum, maximum: files.maximum };
    if files.current != files.maximum && setrlimit(Resource::Fsize, raised).is_ok() {
        let _ = CALLERS.set(files.current);
    }
    let stack = getrlimit(Resource::Stack);
    if stack.current.is_some_and(|current| current < STACK) {
        let current = Some(stack.maximum.map_or(STACK, |maximum| maximum.min(STACK)));
        let _ = setrlimit(Resource::Stack, Rlimit { current, ..stack });
    }
}

/// The limit of the stack in bytes, where it cannot be lifted to what Coracle needs.
pub fn short_stack() -> Option<u64> {
    getrlimit(Resource::Stack).current.filter(|current| *current < LEAST_STACK)
}

/// The caller's soft limit of file sizes, where it was lifted.
pub(crate) fn callers() -> Option<u64> {
    CALLERS.get().copied().flatten()
}

/// Sets the caller's soft limit of file sizes in a process that Coracle has executed anew.
pub(crate) fn remember(limit: u64) {
    let _ = CALLERS.set(Some(limit));
}

/// Restores the caller's limit of file sizes, for a program.
pub(crate) fn give_back() {
    if let Some(current) = CALLERS.get() {
        let maximum = getrlimit(Resource::Fsize).maximum;
        let _ = setrlimit(Resource::Fsize, Rlimit { current: *current, maximum });
    }
}
