//! `std` refers to a function weakly, and a weak reference takes nothing from an archive. Without
//! it a command with a directory is forked, which copies the page tables of a large suite.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,-u,posix_spawn_file_actions_addchdir_np");
}
