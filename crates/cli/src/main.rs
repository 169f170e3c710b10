//! coracle
fn main() {}
