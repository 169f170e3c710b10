//! Kernel release, architecture, and the boot and user namespace that limit the validity of a
//! finding.

use serde::{Deserialize, Serialize};

/// The running kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernel {
    /// `uname -r`, for example `6.1.0-18-amd64`.
    pub release: String,
    /// First number of the release.
    pub major: u32,
    /// Second number of the release.
    pub minor: u32,
    /// `uname -m`, for example `x86_64`.
    pub machine: String,
    /// `/proc/sys/kernel/random/boot_id`: changes with every boot.
    pub boot_id: String,
    /// The caller's user namespace, as in `/proc/self/ns/user` (`user:[4026531837]`).
    pub user_namespace: String,
}

impl Kernel {
    pub(crate) fn read() -> Kernel {
        let uname = rustix::system::uname();
        let release = uname.release().to_string_lossy().into_owned();
        let (major, minor) = version_of(&release);
        Kernel {
            release,
            major,
            minor,
            machine: uname.machine().to_string_lossy().into_owned(),
            boot_id: sys::machine::Machine::here().boot_id.clone(),
            user_namespace: std::fs::read_link("/proc/self/ns/user")
                .map(|path| path.to_string_lossy().into_owned())
                .unwrap_or_default(),
        }
    }

    /// Returns true if the release is at least `major.minor`. For messages to the user, not for
    /// decisions: distributions backport (RHEL's 4.18 has much of 5.x), so features are probed
    /// instead.
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

fn version_of(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|character: char| !character.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::version_of;

    #[test]
    fn releases_of_several_distributions() {
        assert_eq!(version_of("6.1.0-18-amd64"), (6, 1));
        assert_eq!(version_of("3.10.0-1160.el7.x86_64"), (3, 10));
        assert_eq!(version_of("5.15.167.4-microsoft-standard-WSL2"), (5, 15));
        assert_eq!(version_of("7-rc1"), (7, 0));
        assert_eq!(version_of(""), (0, 0));
    }
}
