//! Rewrites all sites of a page at once: makes the new code of the page, and its stubs.

use super::form::{Padding, Plan, SYSCALL, Text};
use super::stub::{PAGE, Stubs, jump};

/// A page to rewrite.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The current code.
    pub text: Text<'a>,
    /// Address of its first byte.
    pub address: u64,
    /// The site that caused the rewriting, if it is in this page: a `syscall` that was executed.
    pub site: Option<usize>,
    /// The number with which it was executed.
    pub number: u32,
}

/// Returns true if the site that caused the request can be rewritten.
pub fn is_possible(request: &Request<'_>) -> bool {
    request.site.is_some_and(|site| request.text.plan(site, |_| true).is_some())
}

/// Writes the new code of the page. Returns the number of sites that were rewritten; `done` is
/// called for each.
///
/// The site that caused the request comes first, then those with a known number that the stage
/// `wants`.
pub fn rewrite(
    request: &Request<'_>,
    page: &mut [u8; PAGE],
    stubs: &mut Stubs<'_>,
    wants: impl Fn(u32) -> bool + Copy,
    mut done: impl FnMut(&Plan),
) -> usize {
    let text = request.text;
    let (start, end) = text.page;
    page.copy_from_slice(&text.bytes[start..end]);
    let mut count = 0;
    let mut one = |site: usize, wanted: bool| {
        let free = |padding: Padding| {
            let place = padding.at..padding.step() + 5;
            page[place.start - start..place.end - start] == text.bytes[place]
        };
        let Some(plan) = text.plan(site, free) else { return };
        let known = plan.number.is_some_and(wants);
        if (wanted || known) && write(request, &plan, page, stubs, wants).is_some() {
            count += 1;
            done(&plan);
        }
    };
    if let Some(site) = request.site {
        one(site, true);
    }
    for site in promising(&text, wants) {
        if request.site != Some(site) {
            one(site, false);
        }
    }
    count
}

/// Sites of a page that seem to have a wanted number: `mov $nr, %eax; syscall`, or bytes that look
/// like it.
pub fn promising(text: &Text<'_>, wants: impl Fn(u32) -> bool) -> impl Iterator<Item = usize> {
    let (bytes, (start, end)) = (text.bytes, text.page);
    let mut from = start.max(7);
    core::iter::from_fn(move || {
        loop {
            let (site, number) = next_numbered(bytes, from, end)?;
            from = site + 1;
            if wants(number) {
                return Some(site);
            }
        }
    })
}

/// The first position from `from` on that looks like a call with a number before it, and the
/// number.
fn next_numbered(bytes: &[u8], mut from: usize, end: usize) -> Option<(usize, u32)> {
    let end = end.min(bytes.len());
    loop {
        let site = next_call(bytes.get(from..end)?)? + from;
        let set = &bytes[site - 7..site];
        if set[2] == 0xb8 || set[..3] == [0x48, 0xc7, 0xc0] {
            return Some((site, u32::from_le_bytes([set[3], set[4], set[5], set[6]])));
        }
        from = site + 1;
    }
}

/// Position of the first `syscall` bytes.
pub fn next_call(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut at = 0;
    // Eight positions at a time: only few contain the first byte of the instruction.
    while let Some(word) = bytes.get(at..at + 8) {
        let word = u64::from_le_bytes(word.try_into().ok()?) ^ (ONES * u64::from(SYSCALL[0]));
        if word.wrapping_sub(ONES) & !word & (ONES << 7) != 0 {
            for site in at..at + 8 {
                if bytes[site] == SYSCALL[0] && bytes.get(site + 1) == Some(&SYSCALL[1]) {
                    return Some(site);
                }
            }
        }
        at += 8;
    }
    let rest = bytes.get(at..)?;
    rest.windows(SYSCALL.len()).position(|pair| pair == SYSCALL).map(|found| found + at)
}

/// Writes the stub into its page, and the jumps into the code; on failure nothing is changed.
fn write(
    request: &Request<'_>,
    plan: &Plan,
    page: &mut [u8; PAGE],
    stubs: &mut Stubs<'_>,
    wants: impl Fn(u32) -> bool,
) -> Option<()> {
    let start = request.text.page.0;
    let address = |index: usize| request.address + index as u64;
    let from = plan.site - plan.moved;
    let moved = &request.text.bytes[from..plan.site];
    let stub = stubs
        .add(plan, address(plan.site), moved, |number| wants(number) || number == request.number)?;
    let last = plan.padding.map_or(from, Padding::step);
    let jump = jump(address(last), stub)?;
    page[last - start..][..jump.len()].copy_from_slice(&jump);
    if let Some(padding) = plan.padding {
        if padding.over != 0 {
            page[padding.at - start] = 0xeb;
            page[padding.at + 1 - start] = (padding.over - 2) as u8;
        }
        page[from - start] = 0xeb;
        page[from + 1 - start] = (last as isize - (from + 2) as isize) as u8;
    }
    Some(())
}
