//! Tests of the supervisor with real processes, signals and terminals.
//!
//! Everything runs in `examples/supervise`, a separate process, as the user who runs the tests:
//! they pass as root and as any user.

mod detached;
mod foreground;
mod logs;
mod support;
mod terminal;
