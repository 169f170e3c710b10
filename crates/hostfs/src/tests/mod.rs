//! Tests over a kernel that is made of memory ([`fake::Process`]).

mod copy_up;
mod fake;
mod files;
mod host_name;
mod inode_log;
mod layered;
mod machine;
mod overlay;
mod turns;
