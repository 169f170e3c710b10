//! Maps an ELF image step by step as the kernel does it (`load_elf_binary`, `load_elf_interp`).

use abi::elf::{self, Extent, Header, Mapping, PAGE};

use crate::patched_code::Text;
use crate::system::{self, Failed, Place, Written};

/// `ELF_ET_DYN_BASE`: the address of position-independent programs with an interpreter before
/// randomisation, at two thirds of the address space.
const PROGRAM_BASE: u64 = (0x7fff_ffff_f000 / 3 * 2) & !(PAGE - 1);
/// Number of random bits in page numbers; the kernel's default (`vm.mmap_rnd_bits`).
const RANDOM_BITS: u32 = 28;
/// The greatest random distance of the heap from the end of the program (32 MiB before Linux 6.10).
const HEAP_RANDOM: u64 = 1 << 30;

/// Program headers that do not follow the file header, of one image at a time.
static TABLE: Written<[u8; elf::TABLE_MAX]> = Written::new([0; elf::TABLE_MAX]);

/// `PROT_EXEC`.
const EXECUTE: u32 = 4;

/// The role of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The program that was executed.
    Program {
        /// It has an interpreter.
        interpreted: bool,
        /// A random number, if addresses are randomised.
        random: Option<u64>,
    },
    /// The program's interpreter.
    Interpreter,
}

/// An image in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Image {
    /// The difference between addresses in memory and in the file.
    pub(crate) bias: u64,
    /// The address where it starts.
    pub(crate) entry: u64,
    /// Number of program headers.
    pub(crate) entries: u16,
    /// `PT_GNU_STACK` asks for an executable stack.
    pub(crate) executable_stack: bool,
    /// Its memory, with addresses as in the file.
    pub(crate) extent: Extent,
    /// Set if it is position-independent.
    pub(crate) relocatable: bool,
}

impl Image {
    /// Maps the file at `path`.
    pub(crate) fn load(path: &[u8], role: Role) -> Result<Self, Failed> {
        let file = system::open(path)?;
        let image = Self::load_file(file, role);
        system::close(file);
        image
    }

    /// Maps an open file, which stays open.
    pub(crate) fn load_file(file: u64, role: Role) -> Result<Self, Failed> {
        // Nearly always the program headers follow the file header, so one read returns both.
        let mut usual = [0; 1024];
        let count = system::read(file, &mut usual, 0)?;
        let header = header(&usual[..count])?;
        let length = header.table_length().ok_or(Failed)?;
        let start = usize::try_from(header.table).map_err(|_| Failed)?;
        let there = start.checked_add(length).and_then(|end| usual[..count].get(start..end));
        let table = match there {
            Some(table) => table,
            None => read_table(file, header.table, length)?,
        };
        let segments = elf::segments(header.class, table);
        let extent = elf::extent(&header, segments.clone()).ok_or(Failed)?;
        let relocatable = header.kind == elf::SHARED;
        let loaded = segments.clone().filter(|segment| segment.kind == elf::LOAD);
        let whole = is_whole(&extent, loaded.clone().filter_map(|segment| segment.mapping()));
        // The first mapping, and the difference of addresses.
        let mut first: Option<(Mapping, u64)> = None;
        for segment in loaded {
            let mapping = segment.mapping().ok_or(Failed)?;
            let Some((start, bias)) = first else {
                let place = place(&extent, relocatable, role)?;
                let bias = reserve(&extent, place, file, (&mapping, whole))?;
                map(file, bias, &mapping, covers(&extent, &mapping))?;
                first = Some((mapping, bias));
                continue;
            };
            // If the first mapping extends over this segment with the right contents, the segment
            // is mapped already.
            let is_there = whole
                && mapping.protection == start.protection
                && mapping.offset.wrapping_sub(start.offset) == mapping.start - start.start;
            map(file, bias, &mapping, is_there)?;
        }
        let bias = first.map(|(_, bias)| bias);
        let bias = bias.ok_or(Failed)?;
        let executable_stack =
            segments.clone().any(|segment| segment.kind == elf::STACK && segment.flags & 1 != 0);
        let entry = header.entry.wrapping_add(bias);
        Ok(Self { bias, entry, entries: header.entries, executable_stack, extent, relocatable })
    }

    /// Calls `each` for the executable segments of the image as they are mapped from its file.
    pub(crate) fn each_text(
        &self,
        file: u64,
        mut each: impl FnMut(Text) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let mut usual = [0; 1024];
        let count = system::read(file, &mut usual, 0)?;
        let header = header(&usual[..count])?;
        let length = header.table_length().ok_or(Failed)?;
        let table = read_table(file, header.table, length)?;
        let texts = elf::segments(header.class, table).filter(|one| one.kind == elf::LOAD);
        let texts = texts.filter_map(|one| one.mapping());
        for one in texts.filter(|one| one.protection & EXECUTE != 0 && one.length != 0) {
            each(Text {
                at: one.start.wrapping_add(self.bias),
                length: one.length,
                offset: one.offset,
            })?;
        }
        Ok(())
    }

    /// Start of the heap: behind the program; for a position-independent program without an
    /// interpreter, where one with an interpreter would be.
    pub(crate) fn heap(&self, interpreted: bool, random: Option<u64>) -> Result<u64, Failed> {
        let end = elf::page_up(self.extent.heap.wrapping_add(self.bias)).ok_or(Failed)?;
        let Some(random) = random else { return Ok(end) };
        let end = if self.relocatable && !interpreted { PROGRAM_BASE } else { end };
        // Uses other bits than [`place`].
        Ok(end + (random >> 32) % (HEAP_RANDOM / PAGE) * PAGE)
    }
}

fn header(start: &[u8]) -> Result<Header, Failed> {
    let header = Header::read(start).ok_or(Failed)?;
    let is_ours = header.class == elf::Class::Bits64
        && header.machine == elf::MACHINE_X86_64
        && header.is_loadable();
    if is_ours { Ok(header) } else { Err(Failed) }
}

/// Reads program headers that are elsewhere in the file. The result is valid until the next image
/// is loaded.
fn read_table(file: u64, offset: u64, length: usize) -> Result<&'static [u8], Failed> {
    // SAFETY: images are loaded one after the other, in the only thread, and no reference outlives
    // the loading of one.
    let buffer = unsafe { TABLE.get_mut() };
    let buffer = buffer.get_mut(..length).ok_or(Failed)?;
    let count = system::read(file, buffer, offset)?;
    if count == length { Ok(buffer) } else { Err(Failed) }
}

/// The place for an image's lowest page.
fn place(extent: &Extent, relocatable: bool, role: Role) -> Result<Place, Failed> {
    Ok(match role {
        _ if !relocatable => Place::Free(extent.low),
        Role::Program { interpreted: true, random } => {
            let moved = random.map_or(0, |random| (random & ((1 << RANDOM_BITS) - 1)) * PAGE);
            let base = (PROGRAM_BASE + moved) & !(extent.align - 1);
            Place::Free(base & !(PAGE - 1))
        }
        _ if extent.align > PAGE => {
            // The kernel finds an address for whole pages only: take more, and give back the
            // excess.
            let room = (extent.high - extent.low).checked_add(extent.align).ok_or(Failed)?;
            let got = system::map(Place::Near(0), room, 0, None)?;
            system::unmap(got, room);
            Place::Free((got + extent.align - 1) & !(extent.align - 1))
        }
        _ => Place::Near(0),
    })
}

/// Returns true if mapping this first segment can reserve the image's whole memory.
fn covers(extent: &Extent, first: &Mapping) -> bool {
    first.start == extent.low && first.length != 0
}

/// Returns true if the image's segments follow each other without holes, so that mapping them
/// leaves nothing of a reservation.
fn is_whole(extent: &Extent, mut mappings: impl Iterator<Item = Mapping>) -> bool {
    let end = mappings.try_fold(extent.low, |end, mapping| {
        let joins = mapping.start == end && mapping.length != 0;
        joins.then_some(mapping.bare_start.wrapping_add(mapping.bare_length))
    });
    end == Some(extent.high)
}

/// Reserves all memory of the image at once, so that nothing is mapped between its segments;
/// returns the difference of addresses.
///
/// The first segment is mapped over the whole length and cut, as the kernel does it. That is one
/// call less than an empty reservation, and parts that no segment fills stay holes. If segments
/// fill all of it (`whole`), it need not even be cut, because the others are mapped over it.
fn reserve(
    extent: &Extent,
    place: Place,
    file: u64,
    (first, whole): (&Mapping, bool),
) -> Result<u64, Failed> {
    let length = extent.high - extent.low;
    if !covers(extent, first) {
        return Ok(system::map(place, length, 0, None)?.wrapping_sub(extent.low));
    }
    let got = system::map(place, length, first.protection, Some((file, first.offset)))?;
    if !whole {
        system::unmap(got + first.length, length - first.length);
    }
    Ok(got.wrapping_sub(extent.low))
}

fn map(file: u64, bias: u64, mapping: &Mapping, mapped: bool) -> Result<(), Failed> {
    if mapping.length != 0 && !mapped {
        let at = Place::Over(mapping.start.wrapping_add(bias));
        system::map(at, mapping.length, mapping.protection, Some((file, mapping.offset)))?;
    }
    if let Some(zero) = mapping.zero
        && mapping.protection & 2 != 0
    {
        let start = zero.wrapping_add(bias);
        let length = PAGE - start % PAGE;
        // SAFETY: the rest of a writable page that has just been mapped for this image.
        unsafe { core::ptr::write_bytes(start as *mut u8, 0, length as usize) };
    }
    if mapping.bare_length != 0 {
        let at = Place::Over(mapping.bare_start.wrapping_add(bias));
        system::map(at, mapping.bare_length, mapping.bare_protection, None)?;
    }
    Ok(())
}
