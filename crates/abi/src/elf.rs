//! Reads headers of ELF files as the kernel's loader does (`fs/binfmt_elf.c`; elf(5)), and computes
//! what is mapped where.
//!
//! Both sides of an `execve` need the same results: the view, which must find every error before
//! the point of no return, and the loader, which maps. So this is arithmetic on bytes that the
//! caller has read, for 64-bit and 32-bit files. It does not check more than the kernel does: a
//! file that the kernel accepts and then kills the process for is treated alike here.

/// Size of a page.
pub const PAGE: u64 = 4096;

/// `ET_EXEC`.
pub const EXECUTABLE: u16 = 2;
/// `ET_DYN`: position-independent.
pub const SHARED: u16 = 3;

/// `EM_386`.
pub const MACHINE_I386: u16 = 3;
/// `EM_486`, which the kernel treats as the same.
pub const MACHINE_I486: u16 = 6;
/// `EM_X86_64`.
pub const MACHINE_X86_64: u16 = 62;
/// `EM_AARCH64`.
pub const MACHINE_AARCH64: u16 = 183;

/// `PT_LOAD`.
pub const LOAD: u32 = 1;
/// `PT_INTERP`.
pub const INTERPRETER: u32 = 3;
/// `PT_GNU_STACK`.
pub const STACK: u32 = 0x6474_e551;

/// Size limit of the program headers that the kernel reads, in bytes.
pub const TABLE_MAX: usize = 65536;
/// The greatest number of bytes that [`Header::read`] uses.
pub const HEADER_MAX: usize = 64;

/// 32 or 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// `ELFCLASS32`.
    Bits32,
    /// `ELFCLASS64`.
    Bits64,
}

impl Class {
    /// Size of one program header.
    pub const fn entry_size(self) -> usize {
        match self {
            Self::Bits32 => 32,
            Self::Bits64 => 56,
        }
    }
}

/// The file header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Width.
    pub class: Class,
    /// `e_type`.
    pub kind: u16,
    /// `e_machine`.
    pub machine: u16,
    /// `e_entry`, not relocated.
    pub entry: u64,
    /// `e_phoff`: offset of the program headers in the file.
    pub table: u64,
    /// `e_phnum`.
    pub entries: u16,
    /// `e_phentsize`.
    pub entry_size: u16,
}

impl Header {
    /// Reads the first bytes of a file; `None` if they are not an ELF header of this byte order.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.get(..4)? != b"\x7fELF" {
            return None;
        }
        let class = match (bytes.get(4)?, bytes.get(5)?) {
            (1, 1) => Class::Bits32,
            (2, 1) => Class::Bits64,
            _ => return None,
        };
        let wide = class == Class::Bits64;
        let (entry, table) = if wide {
            (u64_at(bytes, 24)?, u64_at(bytes, 32)?)
        } else {
            (u64::from(u32_at(bytes, 24)?), u64::from(u32_at(bytes, 28)?))
        };
        let sizes = if wide { 54 } else { 42 };
        Some(Self {
            class,
            kind: u16_at(bytes, 16)?,
            machine: u16_at(bytes, 18)?,
            entry,
            table,
            entry_size: u16_at(bytes, sizes)?,
            entries: u16_at(bytes, sizes + 2)?,
        })
    }

    /// Length of the program headers, if the kernel would read them.
    pub fn table_length(&self) -> Option<usize> {
        let size = self.class.entry_size();
        let length = size * usize::from(self.entries);
        (usize::from(self.entry_size) == size && length != 0 && length <= TABLE_MAX)
            .then_some(length)
    }

    /// Returns true if a program (or its interpreter) of this type can be mapped at all.
    pub fn is_loadable(&self) -> bool {
        matches!(self.kind, EXECUTABLE | SHARED)
    }
}

/// A program header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`: 1 executable, 2 writable, 4 readable.
    pub flags: u32,
    /// `p_offset`.
    pub offset: u64,
    /// `p_vaddr`.
    pub address: u64,
    /// `p_filesz`.
    pub file_size: u64,
    /// `p_memsz`.
    pub memory_size: u64,
    /// `p_align`.
    pub align: u64,
}

/// The program headers in a slice of bytes.
pub fn segments(class: Class, table: &[u8]) -> impl Iterator<Item = Segment> + Clone + '_ {
    table.chunks_exact(class.entry_size()).filter_map(move |entry| segment(class, entry))
}

fn segment(class: Class, entry: &[u8]) -> Option<Segment> {
    let word = |at| u32_at(entry, at);
    let narrow = |at| u32_at(entry, at).map(u64::from);
    let wide = |at| u64_at(entry, at);
    Some(match class {
        Class::Bits64 => Segment {
            kind: word(0)?,
            flags: word(4)?,
            offset: wide(8)?,
            address: wide(16)?,
            file_size: wide(32)?,
            memory_size: wide(40)?,
            align: wide(48)?,
        },
        Class::Bits32 => Segment {
            kind: word(0)?,
            offset: narrow(4)?,
            address: narrow(8)?,
            file_size: narrow(16)?,
            memory_size: narrow(20)?,
            flags: word(24)?,
            align: narrow(28)?,
        },
    })
}

/// The mappings of one `PT_LOAD`, with addresses before relocation, in this order; lengths of 0 are
/// left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// First page.
    pub start: u64,
    /// Offset of the first page in the file. (The kernel refuses an offset that is not a multiple
    /// of a page.)
    pub offset: u64,
    /// Length of the part from the file, whole pages.
    pub length: u64,
    /// `PROT_*` of the mapping.
    pub protection: u32,
    /// Memory is zeroed from here to the end of its page (if it is writable).
    pub zero: Option<u64>,
    /// First page that does not come from the file.
    pub bare_start: u64,
    /// Length of that part, whole pages.
    pub bare_length: u64,
    /// `PROT_*` of that part: always writable, whatever the segment says.
    pub bare_protection: u32,
}

impl Segment {
    /// How the kernel maps this segment (`elf_load`); `None` for values that it refuses.
    pub fn mapping(&self) -> Option<Mapping> {
        if self.file_size > self.memory_size {
            return None;
        }
        let within = self.address % PAGE;
        let start = self.address - within;
        let end = self.address.checked_add(self.memory_size)?;
        let file_end = self.address.checked_add(self.file_size)?;
        let has_file = self.file_size != 0;
        let bare_start = if has_file { page_up(file_end)? } else { start };
        let bare_end = if self.memory_size > self.file_size { page_up(end)? } else { bare_start };
        Some(Mapping {
            start,
            offset: self.offset.wrapping_sub(within),
            length: if has_file { page_up(file_end)? - start } else { 0 },
            protection: protection(self.flags),
            zero: (has_file && self.memory_size > self.file_size && file_end % PAGE != 0)
                .then_some(file_end),
            bare_start,
            bare_length: bare_end.saturating_sub(bare_start),
            bare_protection: 3 | if self.flags & 1 != 0 { 4 } else { 0 },
        })
    }
}

/// `PROT_*` for `PF_*`.
const fn protection(flags: u32) -> u32 {
    (flags & 4) >> 2 | (flags & 2) | (flags & 1) << 2
}

/// The memory of a whole image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its first page.
    pub low: u64,
    /// Its end (exclusive), a multiple of a page.
    pub high: u64,
    /// The greatest alignment of any segment, at least a page.
    pub align: u64,
    /// Address of the program headers in memory.
    pub table: u64,
    /// End of the last segment to the byte: the earliest start of the heap.
    pub heap: u64,
    /// `start_code` and `end_code` of `prctl(PR_SET_MM)`.
    pub code: (u64, u64),
    /// `start_data` and `end_data` of the same.
    pub data: (u64, u64),
}

/// Computes the extent of an image. `None` if there is nothing to load, or it wraps around the end
/// of the address space.
pub fn extent(header: &Header, segments: impl Iterator<Item = Segment>) -> Option<Extent> {
    let mut found: Option<Extent> = None;
    for segment in segments.filter(|segment| segment.kind == LOAD) {
        let low = segment.address - segment.address % PAGE;
        let heap = segment.address.checked_add(segment.memory_size)?;
        let file_end = segment.address.checked_add(segment.file_size)?;
        let high = page_up(heap)?;
        let extent = found.get_or_insert(Extent {
            low,
            high,
            align: PAGE,
            table: 0,
            heap,
            code: (u64::MAX, 0),
            data: (0, 0),
        });
        extent.low = extent.low.min(low);
        extent.high = extent.high.max(high);
        extent.heap = extent.heap.max(heap);
        // As in the kernel, an alignment that is not a power of two is ignored.
        if segment.align.is_power_of_two() {
            extent.align = extent.align.max(segment.align);
        }
        if header.table.wrapping_sub(segment.offset) < segment.file_size && extent.table == 0 {
            extent.table = (header.table - segment.offset).wrapping_add(segment.address);
        }
        extent.code.0 = extent.code.0.min(segment.address);
        extent.data.0 = extent.data.0.max(segment.address);
        if segment.flags & 1 != 0 {
            extent.code.1 = extent.code.1.max(file_end);
        }
        extent.data.1 = extent.data.1.max(file_end);
    }
    found
}

/// The next multiple of a page.
pub const fn page_up(address: u64) -> Option<u64> {
    match address.checked_add(PAGE - 1) {
        Some(sum) => Some(sum - sum % PAGE),
        None => None,
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(address: u64, offset: u64, file_size: u64, memory_size: u64, flags: u32) -> Segment {
        Segment { kind: LOAD, flags, offset, address, file_size, memory_size, align: PAGE }
    }

    #[test]
    fn a_segment_with_a_tail_of_zeros() {
        let mapping = load(0x40_3e10, 0x2e10, 0x220, 0x2228, 6).mapping().unwrap();
        assert_eq!(
            mapping,
            Mapping {
                start: 0x40_3000,
                offset: 0x2000,
                length: 0x2000,
                protection: 3,
                zero: Some(0x40_4030),
                bare_start: 0x40_5000,
                bare_length: 0x2000,
                bare_protection: 3,
            }
        );
    }

    #[test]
    fn segments_without_a_file_begin_at_their_page() {
        let mapping = load(0x5123, 0x123, 0, 0x10, 7).mapping().unwrap();
        assert_eq!((mapping.length, mapping.zero), (0, None));
        assert_eq!(
            (mapping.bare_start, mapping.bare_length, mapping.bare_protection),
            (0x5000, 0x1000, 7)
        );
        let nothing = load(0x5000, 0, 0, 0, 4).mapping().unwrap();
        assert_eq!((nothing.length, nothing.bare_length), (0, 0));
    }

    #[test]
    fn numbers_that_the_kernel_refuses() {
        assert_eq!(load(0x1000, 0, 2, 1, 4).mapping(), None);
        assert_eq!(load(u64::MAX - 10, 0, 5, 50, 4).mapping(), None);
        assert_eq!(load(u64::MAX - 10, 0, 5, 6, 4).mapping(), None);
    }

    #[test]
    fn headers() {
        assert_eq!(Header::read(b""), None);
        assert_eq!(Header::read(b"\x7fELF\x02\x01"), None);
        let mut file = [0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[16] = 3;
        file[18] = 62;
        file[32] = 64;
        file[54] = 56;
        file[56] = 2;
        let header = Header::read(&file).unwrap();
        assert_eq!((header.table, header.table_length()), (64, Some(112)));
        assert_eq!(Header { entries: 0, ..header }.table_length(), None);
        assert_eq!(Header { entries: 1171, ..header }.table_length(), None);
        assert_eq!(Header { entry_size: 32, ..header }.table_length(), None);
        let all = [load(0x1000, 0x1000, 0x10, 0x10, 5), load(0, 0, 0x200, 0x200, 4)];
        let extent = extent(&header, all.into_iter()).unwrap();
        assert_eq!((extent.low, extent.high, extent.table, extent.heap), (0, 0x2000, 64, 0x1010));
        assert_eq!(super::extent(&header, [].into_iter()), None);
    }
}
