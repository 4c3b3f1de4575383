//! Counts of accesses to memory by line of source, as the emulator reports them.

use serde::{Deserialize, Serialize};

/// Bytes that a wavefront of shared memory moves at most.
const WAVEFRONT_BYTES: u64 = 128;

/// Bytes of a sector of device memory.
const SECTOR_BYTES: u64 = 32;

/// Accesses of whole warps to one kind of memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Accesses of a warp.
    pub accesses: u64,
    /// Wavefronts of shared memory, or sectors of device memory, that they need.
    pub needed: u64,
    /// The fewest that accesses of as many bytes need.
    pub ideal: u64,
    /// How many more than the fewest.
    pub excess: u64,
}

impl Count {
    /// Adds the accesses of another line.
    pub fn add(&mut self, other: Self) {
        self.accesses += other.accesses;
        self.needed += other.needed;
        self.ideal += other.ideal;
        self.excess += other.excess;
    }
}

/// The accesses of a line of source by one primitive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The file: that of the kernel, or a header of kgen.
    pub file: String,
    /// Number of the line, from 1.
    pub line: u32,
    /// The primitive: `load_shared`, `cp_async`, …
    pub primitive: String,
    /// Text of the line.
    pub text: String,
    /// Wavefronts of shared memory.
    pub shared: Count,
    /// Sectors of device memory.
    pub global: Count,
    /// Operations that are not measured: copies by TMA, products that read shared memory.
    pub unmeasured: u64,
}

impl Line {
    /// Bytes that the memories move in vain, by which lines are sorted.
    pub fn wasted_bytes(&self) -> u64 {
        self.shared.excess * WAVEFRONT_BYTES + self.global.excess * SECTOR_BYTES
    }
}

/// The accesses of all lines together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Wavefronts of shared memory.
    pub shared: Count,
    /// Sectors of device memory.
    pub global: Count,
}

impl Totals {
    /// The sum of these lines.
    pub fn of(lines: &[Line]) -> Self {
        let mut totals = Self::default();
        for line in lines {
            totals.shared.add(line.shared);
            totals.global.add(line.global);
        }
        totals
    }
}

/// Reads the text of `kgen_emulator_profile`: one entry for each line of source and primitive, without texts, the
/// largest waste first.
///
/// # Errors
/// A sentence with the first line that is none of that text.
pub fn parse(text: &str) -> Result<Vec<Line>, String> {
    let mut lines: Vec<Line> = Vec::new();
    for entry in text.lines() {
        let read = read(entry).ok_or_else(|| format!("the emulator says `{entry}` of its accesses, which kgen cannot read"))?;
        let is_same = |known: &&mut Line| (&known.file, known.line, &known.primitive) == (&read.file, read.line, &read.primitive);
        match lines.iter_mut().find(is_same) {
            None => lines.push(read),
            Some(known) => {
                known.shared.add(read.shared);
                known.global.add(read.global);
                known.unmeasured += read.unmeasured;
            }
        }
    }
    lines.sort_by(|a, b| {
        let traffic = |line: &Line| line.shared.needed * WAVEFRONT_BYTES + line.global.needed * SECTOR_BYTES;
        let order = b.wasted_bytes().cmp(&a.wasted_bytes()).then(traffic(b).cmp(&traffic(a)));
        order.then_with(|| (&a.file, a.line).cmp(&(&b.file, b.line)))
    });
    Ok(lines)
}

/// An entry: file, line, primitive, kind of memory, accesses, units needed, and the fewest.
fn read(entry: &str) -> Option<Line> {
    let fields: Vec<&str> = entry.split('\t').collect();
    let [file, line, primitive, space, accesses, needed, ideal] = fields[..] else { return None };
    let (accesses, needed, ideal) = (accesses.parse().ok()?, needed.parse().ok()?, ideal.parse().ok()?);
    let mut read = Line { file: file.to_owned(), line: line.parse().ok()?, primitive: primitive.to_owned(), ..Line::default() };
    let count = Count { accesses, needed, ideal, excess: u64::checked_sub(needed, ideal)? };
    match space {
        "shared" => read.shared = count,
        "global" => read.global = count,
        "unmeasured" => read.unmeasured = accesses,
        _ => return None,
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_one_entry_and_the_largest_waste_comes_first() {
        let text = "x.cu\t7\tload_global\tglobal\t1\t8\t4\n\
                    a/tile.cuh\t9\tcp_async\tglobal\t2\t32\t32\na/tile.cuh\t9\tcp_async\tshared\t2\t16\t8\n\
                    x.cu\t3\ttma_load\tunmeasured\t5\t0\t0\nx.cu\t7\tload_global\tglobal\t1\t8\t4\n";
        let lines = parse(text).expect("lines");
        assert_eq!(lines.iter().map(|line| line.line).collect::<Vec<_>>(), [9, 7, 3]);
        let copy = &lines[0];
        assert_eq!((copy.shared.excess, copy.global.excess, copy.wasted_bytes()), (8, 0, 1024));
        assert_eq!(lines[1].global, Count { accesses: 2, needed: 16, ideal: 8, excess: 8 });
        assert_eq!((lines[2].unmeasured, lines[2].wasted_bytes()), (5, 0));
    }

    #[test]
    fn what_is_no_entry_is_named() {
        let bad =
            ["x.cu\t7", "x.cu\t7\tload\tlocal\t1\t1\t1", "x.cu\t7\tload\tshared\t1\t1\t2", "x.cu\t7\tload\tshared\t1\t1\t1\t1"];
        assert!(bad.iter().all(|entry| parse(entry).is_err_and(|error| error.contains(entry))));
        assert_eq!(parse(""), Ok(Vec::new()));
    }
}
