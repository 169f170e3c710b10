//! `login` and `logout`.

use registry::Secret;

use crate::args::images::{LoginArgs, LogoutArgs};
use crate::context::Context;
use crate::report::{Exit, Report};

/// A password from the terminal, for `user`.
pub(crate) fn ask_password(_: &Context, user: &str) -> Result<Secret, Report> {
    crate::prompt::secret(&format!("Password for {user}: "))
}

/// `login`.
pub(crate) fn run(_: &Context, _: LoginArgs) -> Result<Exit, Report> {
    Err(Report::new("this is not built yet"))
}
/// `logout`.
pub(crate) fn logout(_: &Context, _: LogoutArgs) -> Result<Exit, Report> {
    Err(Report::new("this is not built yet"))
}
