//! Names the binary's first instruction (`sys::entry`).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|machine| machine == "x86_64") {
        println!("cargo:rustc-link-arg-bins=-Wl,-u,coracle_entry,-e,coracle_entry");
    }
}
