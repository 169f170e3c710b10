//! Error numbers, as the kernel returns them.

use linux_raw_sys::errno as raw;

/// A positive error number; see errno(3).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub u16);

/// Result of an operation that the kernel can refuse.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! names {
    ($($name:ident)*) => {
        #[expect(missing_docs, reason = "the names of errno(3)")]
        impl Errno {
            $(pub const $name: Self = Self(raw::$name as u16);)*
        }
        impl core::fmt::Debug for Errno {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)*
                    Self(number) => write!(f, "errno {number}"),
                }
            }
        }
    };
}

names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR
    EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP ENODATA EOVERFLOW ELIBBAD ENOTSOCK EDESTADDRREQ EMSGSIZE EOPNOTSUPP EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENOTCONN ESTALE
    EDQUOT EPROTONOSUPPORT ECONNREFUSED ETIMEDOUT ENOBUFS EHOSTUNREACH ENETUNREACH
}

impl Errno {
    /// The value that a system call returns for this error.
    pub const fn result(self) -> i64 {
        -(self.0 as i64)
    }
}
