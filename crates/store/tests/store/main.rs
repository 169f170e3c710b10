//! The store as its users see it: through its public interface, with real processes and other people's tools.

mod blobs;
mod containers;
mod filesystems;
mod fixture;
mod garbage;
mod images;
mod processes;
mod stacking;
mod tools;
mod trees;
