//! rootfs
