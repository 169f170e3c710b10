//! Runs one trial in a child process and returns the first step that failed.

use std::time::Duration;

use rustix::io::Errno;
use sys::probe::{Ended, Link, in_child};

/// The step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The step.
    pub step: String,
    /// The kernel's error, or `None` if the child died or hung.
    pub errno: Option<Errno>,
    /// The signal that ended the child.
    pub signal: Option<i32>,
}

impl Failure {
    pub(crate) fn new(step: impl Into<String>, errno: Errno) -> Failure {
        Failure { step: step.into(), errno: Some(errno), signal: None }
    }

    pub(crate) fn io(step: impl Into<String>, error: &std::io::Error) -> Failure {
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        let step = step.into();
        match errno {
            Some(_) => Failure { step, errno, signal: None },
            None => Failure { step: format!("{step} ({error})"), errno, signal: None },
        }
    }

    /// The failure, in words.
    pub(crate) fn why(&self) -> String {
        match (self.errno, self.signal) {
            (Some(errno), _) => format!("{}: {}", self.step, describe(errno)),
            (None, Some(signal)) => format!("{}: ended by signal {signal}", self.step),
            (None, None) => self.step.clone(),
        }
    }

    pub(crate) fn number(&self) -> Option<i32> {
        self.errno.map(Errno::raw_os_error)
    }
}

/// `EPERM (Operation not permitted)` for the errors that probes meet, the system's text for others.
fn describe(errno: Errno) -> String {
    let name = match errno {
        Errno::PERM => "EPERM",
        Errno::ACCESS => "EACCES",
        Errno::NOSPC => "ENOSPC",
        Errno::INVAL => "EINVAL",
        Errno::NOSYS => "ENOSYS",
        Errno::USERS => "EUSERS",
        Errno::NODEV => "ENODEV",
        Errno::NOENT => "ENOENT",
        Errno::BUSY => "EBUSY",
        Errno::ROFS => "EROFS",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::XDEV => "EXDEV",
        Errno::AGAIN => "EAGAIN",
        _ => return errno.to_string(),
    };
    let words = errno.to_string();
    let words = words.split(" (os error").next().unwrap_or_default();
    format!("{name} ({words})")
}

/// Names the step of a failed call.
pub(crate) trait Step<T> {
    fn step(self, what: &str) -> Result<T, Failure>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, what: &str) -> Result<T, Failure> {
        self.map_err(|errno| Failure::new(what, errno))
    }
}

impl<T> Step<T> for std::io::Result<T> {
    fn step(self, what: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::io(what, &error))
    }
}

/// Runs the steps in a child. On a failure the child sends `errno step`; otherwise it sends
/// nothing.
pub(crate) fn attempt(
    timeout: Duration,
    body: impl FnOnce(&Link) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let report = in_child(timeout, |link| match body(link) {
        Ok(()) => 0,
        Err(failure) => {
            link.send(format!("{} {}", failure.number().unwrap_or(0), failure.step).as_bytes());
            1
        }
    })
    .step("starting a child for the trial")?;
    let output = String::from_utf8_lossy(&report.output);
    match report.ended {
        Ended::Exited(0) => Ok(()),
        Ended::Killed(signal) => {
            Err(Failure { step: "the trial".into(), errno: None, signal: Some(signal) })
        }
        Ended::TimedOut => {
            let step = format!("the trial did not end within {} s", timeout.as_secs_f32());
            Err(Failure { step, errno: None, signal: None })
        }
        Ended::Exited(_) => match output.split_once(' ') {
            Some((number, step)) => {
                let number = number.parse().ok().filter(|number| *number > 0);
                let errno = number.map(Errno::from_raw_os_error);
                Err(Failure { step: step.into(), errno, signal: None })
            }
            None => Err(Failure {
                step: "the trial ended without a result".into(),
                errno: None,
                signal: None,
            }),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn the_failed_step_comes_back() {
        let failure = attempt(LONG, |_| Err(Failure::new("mount(overlay)", Errno::NODEV)));
        let failure = failure.unwrap_err();
        assert_eq!(failure, Failure::new("mount(overlay)", Errno::NODEV));
        assert_eq!(failure.why(), "mount(overlay): ENODEV (No such device)");
        assert_eq!(attempt(LONG, |_| Ok(())), Ok(()));
    }
}
