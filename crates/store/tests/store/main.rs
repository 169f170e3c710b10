//! Integration tests: the public interface of the store, with real processes and other tools.

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
