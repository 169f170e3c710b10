//! A macro that forwards the methods of [`view::Host`] which concern files.

/// Inside an `impl view::Host`: forwards all calls on files to the field of this name, which has
/// methods of the same names ([`crate::Files`], or another [`view::Host`]).
#[macro_export]
macro_rules! delegate_files {
    ($field:ident) => {
        $crate::delegate_calls! { $field:
            fn open(
                dir: view::Dir, path: &core::ffi::CStr, flags: u32, mode: u32, resolve: u64
            ) -> view::errno::Result<view::HostFd>;
            fn close(fd: view::HostFd);
            fn statx(
                dir: view::Dir, path: &core::ffi::CStr, flags: u32,
                into: &mut linux_raw_sys::general::statx
            ) -> view::errno::Result<()>;
            fn readlink(
                dir: view::Dir, path: &core::ffi::CStr, into: &mut view::Text
            ) -> view::errno::Result<()>;
            fn path_of(dir: view::Dir, into: &mut view::Text) -> view::errno::Result<()>;
            fn access(
                dir: view::Dir, path: &core::ffi::CStr, mode: u32, flags: u32
            ) -> view::errno::Result<()>;
            fn mkdir(
                dir: view::Dir, path: &core::ffi::CStr, mode: u32
            ) -> view::errno::Result<()>;
            fn mknod(
                dir: view::Dir, path: &core::ffi::CStr, mode: u32
            ) -> view::errno::Result<()>;
            fn unlink(
                dir: view::Dir, path: &core::ffi::CStr, flags: u32
            ) -> view::errno::Result<()>;
            fn rename(
                from: (view::Dir, &core::ffi::CStr), to: (view::Dir, &core::ffi::CStr), flags: u32
            ) -> view::errno::Result<()>;
            fn link(
                from: (view::Dir, &core::ffi::CStr), to: (view::Dir, &core::ffi::CStr), flags: u32
            ) -> view::errno::Result<()>;
            fn symlink(
                target: &core::ffi::CStr, dir: view::Dir, path: &core::ffi::CStr
            ) -> view::errno::Result<()>;
            fn chmod(
                dir: view::Dir, path: &core::ffi::CStr, mode: u32
            ) -> view::errno::Result<()>;
            fn chown(
                dir: view::Dir, path: &core::ffi::CStr, uid: u32, gid: u32, flags: u32
            ) -> view::errno::Result<()>;
            fn utimens(
                dir: view::Dir, path: &core::ffi::CStr,
                times: Option<&[linux_raw_sys::general::timespec; 2]>, flags: u32
            ) -> view::errno::Result<()>;
            fn truncate(
                dir: view::Dir, path: &core::ffi::CStr, length: u64
            ) -> view::errno::Result<()>;
            fn statfs(
                dir: view::Dir, path: &core::ffi::CStr,
                into: &mut linux_raw_sys::general::statfs64
            ) -> view::errno::Result<()>;
            fn getxattr(
                dir: view::Dir, path: &core::ffi::CStr, nofollow: bool, name: &core::ffi::CStr,
                into: &mut [u8]
            ) -> view::errno::Result<usize>;
            fn setxattr(
                dir: view::Dir, path: &core::ffi::CStr, nofollow: bool, name: &core::ffi::CStr,
                value: &[u8], flags: u32
            ) -> view::errno::Result<()>;
            fn listxattr(
                dir: view::Dir, path: &core::ffi::CStr, nofollow: bool, into: &mut [u8]
            ) -> view::errno::Result<usize>;
            fn removexattr(
                dir: view::Dir, path: &core::ffi::CStr, nofollow: bool, name: &core::ffi::CStr
            ) -> view::errno::Result<()>;
            fn pread(
                fd: view::HostFd, into: &mut [u8], offset: u64
            ) -> view::errno::Result<usize>;
            fn write_all(fd: view::HostFd, from: &[u8]) -> view::errno::Result<()>;
        }

        fn has_openat2(&self) -> bool {
            self.$field.has_openat2()
        }
    };
}

/// Forwards methods to the field of this name.
#[macro_export]
macro_rules! delegate_calls {
    ($field:ident:
        $(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*
    ) => {
        $(
            fn $name(&mut self $(, $argument: $type)*) $(-> $result)? {
                self.$field.$name($($argument),*)
            }
        )*
    };
}
