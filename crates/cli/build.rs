//! Names the binary's first instruction (`sys::entry`), places the functions that a start executes
//! side by side, and keeps one of several functions with the same code.
//!
//! `functions.txt` is written by `cargo xtask order`, which reads the linker's map. All options are
//! those of LLD, the compiler's own linker for this target.
//!
//! The tables for unwinding (1 MB) stay, though nothing unwinds: without them modes F cannot prove
//! what is a `syscall` in the binary itself (`abi::code::census`), which runs there as a trial and
//! in nested containers.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=functions.txt");
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|machine| machine == "x86_64") {
        println!("cargo:rustc-link-arg-bins=-Wl,-u,coracle_entry,-e,coracle_entry");
        if let (Ok("release"), Ok(here), Ok(out)) =
            (env::var("PROFILE").as_deref(), env::var("CARGO_MANIFEST_DIR"), env::var("OUT_DIR"))
        {
            println!(
                "cargo:rustc-link-arg-bins=-Wl,--no-demangle,-Map={out}/coracle.map,\
                 --no-warn-symbol-ordering,--symbol-ordering-file={here}/functions.txt"
            );
            // Functions only, never data: no part of the binary compares addresses of functions.
            println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
            // `sys::unwind` has a function of the C compiler's library, which has it, too.
            println!("cargo:rustc-link-arg-bins=-Wl,-z,muldefs");
        }
    }
}
