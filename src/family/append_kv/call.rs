//! The tensors of a case, and its expected results.

use super::{
    abi::{DESCALE_BY_PAGE, INTERLEAVED, Request},
    case::{AppendCase, Cache, Descales, Queries, Sequence, Starts, position_of_index},
    memory::{Lie, Places, Row, image_of_long},
};
use crate::{
    check::{Comparison, Tally, fill_normal},
    device::{Call, Element, Field, Image, Outputs},
    family::rotary::{Tables, nearest_right},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// Number of rows of a sequence.
type Length = fn(&Sequence) -> usize;

/// A tensor of new rows and its values.
struct Values {
    lie: Lie,
    /// Rows by index, then by head.
    rows: Vec<Vec<Vec<f32>>>,
    image: Image,
}

/// The part of a cache tensor that holds K or V.
struct Part {
    /// Name of the tensor.
    name: &'static str,
    lie: Lie,
    /// First column within that tensor.
    first_column: usize,
    columns: usize,
}

/// A row of K and V that is written.
struct Written {
    row: Row,
    page: usize,
    page_row: usize,
    /// Position for the rotation.
    position: Option<usize>,
}

/// A case with its tensors.
pub(super) struct Drawing {
    case: AppendCase,
    places: Places,
    tables: Option<Tables>,
    /// K and V.
    new: [Values; 2],
    parts: [Part; 2],
    written: Vec<Written>,
    q: Values,
    q_out: Lie,
}

impl AppendCase {
    /// Values of a tensor with `length` rows per sequence; includes the packed rows after the last sequence.
    fn values(&self, name: &str, length: Length, [heads, dim]: [usize; 2], seed: u64) -> Values {
        let lie = self.lie(name, length, heads, dim);
        let mut image = lie.image(self.number);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut rows = self.rows_of(length);
        let count = rows.len();
        if self.packed {
            rows.extend((count..count + self.spare).map(|index| Row { index, batch: 0, row: 0 }));
        }
        let mut draw = |row: &Row| {
            let [batch, at] = row.place(self.packed);
            let head = |head: usize| {
                let mut values = vec![0.0; dim];
                fill_normal(&mut values, &mut rng);
                for (column, value) in values.iter_mut().enumerate() {
                    *value = self.number.through(*value);
                    image.put(lie.at([batch, at, head, column]), self.number.round(*value));
                }
                values
            };
            (0..heads).map(head).collect()
        };
        let rows = rows.iter().map(&mut draw).collect();
        Values { lie, rows, image }
    }

    fn integers(&self) -> Vec<(&'static str, Image)> {
        let cumulated = |length: Length| {
            let mut total = 0;
            let ends = self.sequences.iter().map(|s| {
                total += length(s) as i32;
                total
            });
            Image::of_integers(&[0].into_iter().chain(ends).collect::<Vec<_>>())
        };
        let cached: Vec<i32> = self.sequences.iter().map(|s| s.cached).collect();
        let mut inputs = Vec::new();
        if !matches!(self.cache, Cache::Slots { .. }) || self.starts == Starts::Cached && self.rotary.is_some() {
            inputs.push(("cache_seqlens", Image::of_integers(&cached)));
        }
        if self.packed {
            inputs.push(("cu_seqlens_new", cumulated(|s| s.new)));
            inputs.push(("cu_seqlens_q", cumulated(|s| s.queries)));
        }
        match self.starts {
            Starts::Cached => {}
            Starts::Given => {
                let starts: Vec<i32> = self.starts().iter().map(|&start| start as i32).collect();
                inputs.push(("seqlens_rotary", Image::of_integers(&starts)));
            }
            Starts::EachRow => {
                let positions: Vec<i64> = self.rows().iter().map(|row| position_of_index(row.index)).collect();
                inputs.push(("positions", image_of_long(&positions)));
            }
        }
        inputs
    }

    /// The parts of the cache.
    fn parts(&self, places: &Places) -> [Part; 2] {
        let [d, dv] = self.head_dims;
        let lie = |columns, name| Lie::new([places.pages, places.page_rows, self.heads_k, columns], self.pad, self.crooked(name));
        if self.one_cache {
            let part = |first_column, columns| Part { name: "k_cache", lie: lie(d + dv, "k_cache"), first_column, columns };
            return [part(0, d), part(d, dv)];
        }
        [("k_cache", d), ("v_cache", dv)].map(|(name, columns)| Part { name, lie: lie(columns, name), first_column: 0, columns })
    }
}

impl Part {
    fn at(&self, written: &Written, head: usize, column: usize) -> i64 {
        self.lie.at([written.page, written.page_row, head, self.first_column + column])
    }
}

impl Drawing {
    /// Draws the tensors; the same seed gives the same tensors.
    pub(super) fn new(case: AppendCase, seed: u64) -> Self {
        let places = Places::new(&case);
        let [d, dv] = case.head_dims;
        let k = case.values("k", |s| s.new, [case.heads_k, d], seed);
        let v = case.values("v", |s| s.new, [case.heads_k, dv], seed.wrapping_add(1));
        let q = case.values("q", |s| s.queries, [case.heads, d], seed.wrapping_add(2));
        let q_out = if case.queries == Queries::Apart { case.lie("q_out", |s| s.queries, case.heads, d) } else { q.lie };
        let tables = case.rotary.map(|rotary| Tables::new(rotary, case.number));
        let written = case.rows().into_iter().filter_map(|row| {
            let position = case.position(&row, true);
            let (page, page_row) = places.of_rows[row.index].filter(|_| case.rotary.is_none() || position.is_some())?;
            Some(Written { row, page, page_row, position })
        });
        let written = written.collect();
        let parts = case.parts(&places);
        Self { case, places, tables, new: [k, v], parts, written, q, q_out }
    }

    /// The call.
    pub(super) fn call(&self) -> Call {
        let case = &self.case;
        let mut inputs = case.integers();
        inputs.extend(self.places.inputs.iter().cloned());
        inputs.extend(["k", "v"].into_iter().zip(&self.new).map(|(name, values)| (name, values.image.clone())));
        let (tables, rotary_row_stride) = self.rotary_tables();
        inputs.extend(tables);
        inputs.extend(self.descales());
        if case.queries == Queries::Apart {
            inputs.push(("q", self.q.image.clone()));
        }
        let mut outputs = self.caches();
        match case.queries {
            Queries::None => {}
            Queries::InPlace => outputs.push(("q", self.q.image.clone())),
            Queries::Apart => outputs.push(("q_out", self.unwritten_queries())),
        }
        outputs.extend(self.tells_lengths().then(|| {
            let mut lengths = Image::poisoned(Element::Bits32, case.sequences.len(), 0);
            (0..case.sequences.len()).for_each(|sequence| _ = lengths.mark(sequence as i64));
            ("seqlens_after", lengths)
        }));
        let params = self.request(rotary_row_stride).params();
        Call { inputs, outputs, scratch: false, multiprocessors: None, params }
    }

    /// The cache tensors: writable elements for the new rows, nothing elsewhere.
    fn caches(&self) -> Vec<(&'static str, Image)> {
        let mut images: Vec<(&'static str, Image)> = Vec::new();
        for part in &self.parts {
            if images.last().is_none_or(|(name, _)| *name != part.name) {
                images.push((part.name, part.lie.image(self.case.stored)));
            }
            let image = &mut images.last_mut().expect("just pushed").1;
            for written in &self.written {
                for head in 0..self.case.heads_k {
                    for column in 0..part.columns {
                        image.mark(part.at(written, head, column));
                    }
                }
            }
        }
        images
    }

    /// Cosines and sines, and their row stride.
    fn rotary_tables(&self) -> (Vec<(&'static str, Image)>, usize) {
        let Some(tables) = &self.tables else { return (Vec::new(), 0) };
        let (columns, number) = (tables.rotary.columns(), self.case.number);
        let lie = |name| Lie::new([1, tables.rotary.rows, 1, columns], self.case.pad, self.case.crooked(name));
        let image = |name, values: &[f32]| {
            let mut image = lie(name).image(number);
            for (at, value) in values.iter().enumerate() {
                image.put(lie(name).at([0, at / columns, 0, at % columns]), number.round(*value));
            }
            (name, image)
        };
        let images = vec![image("rotary_cos", &tables.cos), image("rotary_sin", &tables.sin)];
        (images, lie("rotary_cos").strides.row as usize)
    }

    fn descales(&self) -> Vec<(&'static str, Image)> {
        let case = &self.case;
        let image = |of_v: bool| {
            // Factors of pages that receive no row are absent, so that a read of one is caught.
            let written: BTreeSet<usize> = self.written.iter().map(|written| written.page).collect();
            let entries = if case.descales == Descales::ByPage {
                written.into_iter().collect()
            } else {
                (0..case.sequences.len()).collect::<Vec<_>>()
            };
            let factors = entries.into_iter().flat_map(|entry| (0..case.heads_k).map(move |head| (entry, head)));
            let place = |(entry, head)| ((entry * case.descale_stride() + head) as i64, case.descale(of_v, entry, head));
            Image::of_numbers(&factors.map(place).collect::<Vec<_>>())
        };
        if case.descales == Descales::None { Vec::new() } else { vec![("k_descale", image(false)), ("v_descale", image(true))] }
    }

    /// Space for the rows of Q that are written.
    fn unwritten_queries(&self) -> Image {
        let case = &self.case;
        let mut image = self.q_out.image(case.number);
        for row in case.query_rows().iter().filter(|row| case.position(row, case.mask != 0).is_some()) {
            let [batch, at] = row.place(case.packed);
            for head in 0..case.heads {
                for column in 0..case.head_dims[0] {
                    image.mark(self.q_out.at([batch, at, head, column]));
                }
            }
        }
        image
    }

    fn request(&self, rotary_row_stride: usize) -> Request {
        let Self { case, places, new: [k, v], parts: [k_part, v_part], q, q_out, .. } = self;
        let total = |length: Length| if case.packed { case.rows_of(length).len() + case.spare } else { 0 };
        let longest = |length: Length| if case.packed { 0 } else { case.longest(length) };
        let columns = (v_part.first_column * case.stored.element().bytes()).cast_signed();
        Request {
            flags: case.mask
                | if case.rotary.is_some_and(|r| r.interleaved) { INTERLEAVED } else { 0 }
                | if case.descales == Descales::ByPage { DESCALE_BY_PAGE } else { 0 },
            k_cache: Field::Tensor("k_cache"),
            v_cache: if case.one_cache { Field::TensorAt("k_cache", columns) } else { Field::Tensor("v_cache") },
            q_out: Field::Tensor(if case.queries == Queries::InPlace { "q" } else { "q_out" }),
            strides: [&k.lie, &v.lie, &k_part.lie, &v_part.lie, &q.lie, q_out].map(|lie| lie.strides),
            rotary_row_stride,
            page_table_stride: places.table_stride,
            descale_strides: [[case.descale_stride(), 1]; 2],
            batch: case.sequences.len(),
            seqlen_new: longest(|s| s.new),
            total_new: total(|s| s.new),
            seqlen_q: longest(|s| s.queries),
            total_q: total(|s| s.queries),
            heads: case.heads,
            heads_k: case.heads_k,
            head_dims: case.head_dims,
            rotary_dim: case.rotary.map_or(0, |r| r.dim),
            rotary_rows: case.rotary.map_or(0, |r| r.rows),
            page_size: places.page_rows,
            num_pages: places.pages,
            pages_per_sequence: places.pages_per_sequence,
            number: case.number,
            cache: case.stored,
        }
    }

    /// True if the call requests the lengths after the append.
    fn tells_lengths(&self) -> bool {
        let slots = matches!(self.case.cache, Cache::Slots { .. });
        self.case.mask != 0 && !slots && !self.case.sequences.is_empty()
    }

    /// Judges the returned lengths, which never exceed the cache's capacity.
    fn judge_lengths(&self, image: &Image) -> Tally {
        let mut tally = Tally::new("lengths", 0.0);
        let capacity = self.places.page_rows as i64 * self.places.pages_per_sequence.max(1) as i64;
        let uniform = self.case.longest(|s| s.new);
        for (number, sequence) in self.case.sequences.iter().enumerate() {
            let new = if self.case.packed { sequence.new } else { uniform };
            let after = if sequence.cached < 0 { 0 } else { (i64::from(sequence.cached) + new as i64).min(capacity) };
            let got = f64::from(image.bits(number as i64).cast_signed());
            tally.see([number, 0, 0, 0], got, after as f64, true);
        }
        tally
    }

    /// Compares a run's outputs with float64.
    pub(super) fn judge(&self, outputs: &Outputs) -> Comparison {
        let mut tallies = vec![self.judge_cache(0, outputs), self.judge_cache(1, outputs)];
        let name = if self.case.queries == Queries::InPlace { "q" } else { "q_out" };
        tallies.extend(outputs.get(name).map(|image| self.judge_queries(image)));
        tallies.extend(outputs.get("seqlens_after").map(|image| self.judge_lengths(image)));
        let images: Vec<(&'static str, &Image)> = outputs.0.iter().map(|(name, image)| (*name, image)).collect();
        Comparison::of(&tallies, &images)
    }

    /// Expected values of a row, and the number of its rotated columns.
    fn become_of(&self, row: &[f32], position: Option<usize>) -> (Vec<f64>, usize) {
        match (&self.tables, position) {
            (Some(tables), Some(position)) => (tables.rotated(row, position), tables.rotary.dim),
            _ => (row.iter().map(|&x| x.into()).collect(), 0),
        }
    }

    /// Judges K, or V if `which` is 1.
    fn judge_cache(&self, which: usize, outputs: &Outputs) -> Tally {
        let (case, part) = (&self.case, &self.parts[which]);
        let mut tally = Tally::new(["K", "V"][which], 0.0);
        let image = outputs.get(part.name).expect("every call has a cache");
        let converted = case.stored != case.number;
        for written in &self.written {
            let row = &written.row;
            for (head, new) in self.new[which].rows[row.index].iter().enumerate() {
                let entry = if case.descales == Descales::ByPage { written.page } else { row.batch };
                let descale = if converted { case.descale(which == 1, entry, head).into() } else { 1.0 };
                let (exact, rotated) = self.become_of(new, written.position.filter(|_| which == 0));
                for (column, exact) in exact.iter().enumerate() {
                    let got = case.stored.widen(image.bits(part.at(written, head, column))).into();
                    // The rotation; the reciprocal of the factor, and the product with it.
                    let roundings = u32::from(column < rotated) + if converted { 2 } else { 0 };
                    let right = nearest_right(case.stored, exact / descale, roundings, got);
                    tally.see([row.batch, head, row.row, column], got, right, false);
                }
            }
        }
        tally
    }

    fn judge_queries(&self, image: &Image) -> Tally {
        let case = &self.case;
        let mut tally = Tally::new("Q", 0.0);
        let rows = case.query_rows();
        for row in &rows {
            let position = case.position(row, case.mask != 0);
            if position.is_some() || case.queries == Queries::InPlace {
                self.judge_query(&mut tally, image, row, position);
            }
        }
        // Packed rows after the last sequence keep their contents.
        let spare = rows.len()..if case.queries == Queries::InPlace { self.q.rows.len() } else { 0 };
        for index in spare {
            self.judge_query(&mut tally, image, &Row { index, batch: case.sequences.len(), row: index }, None);
        }
        tally
    }

    fn judge_query(&self, tally: &mut Tally, image: &Image, row: &Row, position: Option<usize>) {
        let [batch, at] = row.place(self.case.packed);
        for (head, old) in self.q.rows[row.index].iter().enumerate() {
            let (exact, rotated) = self.become_of(old, position);
            for (column, exact) in exact.iter().enumerate() {
                let got = self.case.number.widen(image.bits(self.q_out.at([batch, at, head, column]))).into();
                let right = nearest_right(self.case.number, *exact, u32::from(column < rotated), got);
                tally.see([row.batch, head, row.row, column], got, right, false);
            }
        }
    }
}
