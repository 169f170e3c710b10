//! Checks that an index is whole: that every record is found where it belongs, and that nothing
//! leads outside of the file or in a circle.

use super::{Entry, Index, ROOT, flags};
use core::ops::Range;
use linux_raw_sys::general::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG, S_IFSOCK};

/// The longest target of a symbolic link.
const TARGET_MAX: usize = 4095;

/// What is wrong with an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Number of the first record that is wrong, or that was expected in a table.
    pub number: u32,
    /// What is wrong with it.
    pub what: &'static str,
}

/// Checks an index whose digest the caller has compared. Takes time in proportion to its size.
pub fn check(index: &Index<'_>) -> Result<(), Damage> {
    let (mut inodes, mut names) = (0, 0);
    for (number, _) in (0..).zip(index.records) {
        let damage = |what| Damage { number, what };
        let entry = index.entry(number).ok_or(damage("no record"))?;
        facts(index, &entry).map_err(damage)?;
        if number == ROOT {
            root(index, &entry).map_err(damage)?;
        } else {
            named(index, number, &entry).map_err(damage)?;
        }
        names += index.children(&entry).len();
        inodes += match index.by_inode(entry.inode) {
            Some(first) if first == number => 1,
            Some(first) if first < number && !entry.is_directory() => 0,
            _ => return Err(damage("its inode is not found")),
        };
    }
    let all = |what| Damage { number: index.len() as u32, what };
    // Each name lies among its own directory's, so more would be names of two.
    if names != index.len() - 1 {
        return Err(all("directories have names of others"));
    }
    let taken = index.slots.iter().filter(|slot| **slot != [0; 8]).count();
    if taken != index.len() - 1 {
        return Err(all("the table of names has other entries"));
    }
    let taken = index.inodes.iter().filter(|slot| **slot != [0; 4]).count();
    if taken != inodes || inodes != index.header.inodes as usize {
        return Err(all("the table of inodes has other entries"));
    }
    Ok(())
}

/// What holds for every record.
fn facts(index: &Index<'_>, entry: &Entry) -> Result<(), &'static str> {
    const SIZE_MAX: u64 = i64::MAX as u64;
    if usize::from(entry.owner) >= index.owners.len() {
        return Err("its owner is not in the table");
    }
    if entry.flags & !flags::ALL != 0 {
        return Err("it has unknown flags");
    }
    if entry.size > SIZE_MAX || entry.links == 0 || entry.inode == 0 {
        return Err("its status is impossible");
    }
    match entry.kind() {
        S_IFDIR => Ok(()),
        S_IFLNK => {
            let target = index.target(entry);
            let whole = target.len() == entry.count as usize;
            let fits = (1..=TARGET_MAX).contains(&target.len()) && !target.contains(&0);
            if whole && fits { Ok(()) } else { Err("its target is none") }
        }
        S_IFREG | S_IFCHR | S_IFBLK | S_IFIFO | S_IFSOCK if entry.count == 0 => Ok(()),
        _ => Err("it is of no kind"),
    }
}

fn root(index: &Index<'_>, entry: &Entry) -> Result<(), &'static str> {
    let at_itself = entry.parent == ROOT && entry.name_length == 0 && entry.is_directory();
    if !at_itself {
        return Err("the root is no root");
    }
    // Every other record is checked to lie among its directory's, so all are reached from here.
    range(index, ROOT, entry).map(|_| ())
}

/// The numbers of a directory's names, which come after its own.
fn range(index: &Index<'_>, number: u32, entry: &Entry) -> Result<Range<u32>, &'static str> {
    let Range { start, end } = index.children(entry);
    let inside = entry.count == 0 || start > number && end as usize <= index.len();
    let whole = u64::from(entry.data) + u64::from(entry.count) == u64::from(end);
    if inside && (whole || entry.count == 0) {
        Ok(start..end)
    } else {
        Err("its names lie nowhere")
    }
}

fn named(index: &Index<'_>, number: u32, entry: &Entry) -> Result<(), &'static str> {
    let parent = Some(entry.parent).filter(|parent| *parent < number);
    let directory = parent.and_then(|parent| index.entry(parent)).filter(Entry::is_directory);
    let directory = directory.ok_or("it is in no directory")?;
    let siblings = range(index, entry.parent, &directory)?;
    if !siblings.contains(&number) {
        return Err("it is not among its directory's names");
    }
    if entry.is_directory() {
        range(index, number, entry)?;
    }
    let name = index.name(entry);
    if name.len() != usize::from(entry.name_length)
        || matches!(name, b"" | b"." | b"..")
        || name.iter().any(|byte| matches!(byte, 0 | b'/'))
    {
        return Err("its name is none");
    }
    let before = (number > siblings.start).then(|| index.entry(number - 1)).flatten();
    if before.is_some_and(|before| index.name(&before) >= name) {
        return Err("its name is not in order");
    }
    if index.child(entry.parent, name) != Some(number) {
        return Err("it is not found by its name");
    }
    Ok(())
}
