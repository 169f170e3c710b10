//! Reduces the memory of a process that waits for months: returns free heap and unused code pages
//! to the kernel.

use std::ffi::c_int;

use rustix::mm::{Advice, madvise};

unsafe extern "C" {
    fn malloc_trim(pad: usize) -> c_int;
}

/// Returns free pages of the heap, and of the first thread's stack, to the kernel.
pub fn trim_memory() {
    // SAFETY: `malloc_trim` has no preconditions and takes the allocator's own locks.
    unsafe {
        malloc_trim(0);
    }
    if rustix::thread::gettid() == rustix::process::getpid() {
        trim_stack();
    }
}

/// How far below its end the stack is looked for. The kernel leaves a gap of a megabyte below the
/// first thread's stack, so nothing else is there.
const STACK: usize = 512 << 10;
/// What this function and those that it calls may use.
const IN_USE: usize = 8 << 10;

fn trim_stack() {
    let here = 0_u8;
    let end = ((&raw const here).addr() - IN_USE) & !4095;
    let start = std::ptr::with_exposed_provenance_mut(end - STACK);
    // SAFETY: pages below all frames of this thread, whose content nothing reads before it is
    // written again, and pages that are not mapped.
    let _ = unsafe { madvise(start, STACK, Advice::LinuxDontNeed) };
}

/// Removes the pages of the program file from this process's page table, so that code and constants
/// that were used once (argument parsing, starting) do not count as its memory. Pages that are
/// needed again are mapped again from the page cache. Best effort: needs `/proc/self/smaps`.
pub fn release_code() {
    let Ok(text) = std::fs::read_to_string("/proc/self/smaps") else { return };
    let mut mapping = None;
    for line in text.lines() {
        if let Some(found) = read_only_file(line) {
            mapping = Some(found);
        } else if line.starts_with("Anonymous:") {
            // Only mappings without a private copy of any page: the file still has their whole
            // content. Relocated constants (RELRO) are private copies and must stay.
            let untouched = line.split_ascii_whitespace().nth(1) == Some("0");
            if let Some((start, end)) = mapping.take().filter(|_| untouched) {
                let address = std::ptr::with_exposed_provenance_mut(start);
                // SAFETY: a private, read-only mapping of a file without changed pages; its content
                // is the same when it is next read.
                let _ = unsafe { madvise(address, end - start, Advice::LinuxDontNeed) };
            }
        }
    }
}

/// Start and end of a mapping, if the line is the header of a read-only file mapping.
fn read_only_file(line: &str) -> Option<(usize, usize)> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let mode = words.next()?;
    let inode: u64 = words.nth(2)?.parse().ok()?;
    (matches!(mode, "r--p" | "r-xp") && inode != 0).then_some((start, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unwritable_file_mappings_are_taken() {
        let at = |mode: &str, inode: u64| {
            read_only_file(&format!("1000-3000 {mode} 00000000 fe:00 {inode}  /bin/x"))
        };
        assert_eq!(at("r-xp", 7), Some((0x1000, 0x3000)));
        assert_eq!(at("r--p", 7), Some((0x1000, 0x3000)));
        assert_eq!(at("rw-p", 7), None);
        assert_eq!(at("r--p", 0), None);
        assert_eq!(read_only_file("Anonymous:   0 kB"), None);
    }

    #[test]
    fn the_process_goes_on_after_giving_back() {
        let text = format!("{:?}", vec![1, 2, 3]);
        trim_memory();
        release_code();
        assert_eq!(text, format!("{:?}", vec![1, 2, 3]));
    }
}
