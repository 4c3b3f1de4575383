//! The factors of FP8 pages of K and V, by page and key head.

use super::{pages::PageTable, problem::Problem};
use crate::{device::Image, family::attention::PageDescales};
use std::{borrow::Cow, collections::BTreeSet};

/// Names of the factor tensors of K and V in `kgen.h`.
const NAMES: [&str; 2] = ["k_page_descale", "v_page_descale"];

/// The factors of a problem's pages.
#[derive(Debug, Clone)]
pub struct PageFactors {
    table: PageTable,
    of: PageDescales,
    heads_k: usize,
}

impl PageFactors {
    /// The largest factor.
    pub const LARGEST: f32 = 0.375 + 12.0 / 8.0;

    /// The factors of a problem, if it has any.
    pub fn of(problem: &Problem) -> Option<Self> {
        let of = problem.options.pages?.descales?;
        Some(Self { table: problem.page_table()?, of, heads_k: problem.heads_k })
    }

    /// The factor of tensor number `tensor` (K: 1, V: 2) for a page and key head: between 3/8 and 15/8, different for
    /// neighbouring pages and heads.
    fn factor(&self, tensor: usize, page: usize, head_k: usize) -> f32 {
        if self.of.has(tensor) { 0.375 + ((4 * tensor + 5 * page + 3 * head_k) % 13) as f32 / 8.0 } else { 1.0 }
    }

    /// Rows of `tensor` for a sequence's key head, times the factors of their pages: exact, because each has few bits.
    pub fn times<'a>(
        &self,
        tensor: usize,
        [sequence, head_k]: [usize; 2],
        rows: Cow<'a, [f32]>,
        head_dim: usize,
    ) -> Cow<'a, [f32]> {
        let mut rows = rows.into_owned();
        for (row, values) in rows.chunks_exact_mut(head_dim).enumerate() {
            let factor = self.factor(tensor, self.table.place(sequence, row).0, head_k);
            for value in values {
                *value *= factor;
            }
        }
        Cow::Owned(rows)
    }

    /// Page and head stride of the factors of K and of V, with gaps.
    pub fn strides(&self) -> [[i64; 2]; 2] {
        [1, 2].map(|tensor| if self.of.has(tensor) { [self.heads_k as i64 * tensor as i64 + 2, tensor as i64] } else { [0; 2] })
    }

    /// The factors in memory, for pages that a sequence uses, with gaps between them.
    pub fn images(&self) -> impl Iterator<Item = (&'static str, Image)> {
        let used: BTreeSet<usize> = self.table.used().collect();
        let image = move |tensor: usize| {
            let [page_stride, head_stride] = self.strides()[tensor - 1];
            let all = itertools::iproduct!(used.iter().copied(), 0..self.heads_k);
            let place = |page: usize, head: usize| page as i64 * page_stride + head as i64 * head_stride;
            Image::of_numbers(&all.map(|(page, head)| (place(page, head), self.factor(tensor, page, head))).collect::<Vec<_>>())
        };
        [1, 2].into_iter().filter(|tensor| self.of.has(*tensor)).map(move |tensor| (NAMES[tensor - 1], image(tensor)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::attention::{CallOptions, Pages};

    fn factors(descales: PageDescales) -> PageFactors {
        let pages = Pages { rows: 16, shared: 0, counter: false, descales: Some(descales) };
        let options = CallOptions { pages: Some(pages), ..CallOptions::default() };
        PageFactors::of(&Problem::new(&[(1, 40), (1, 17)], 4, 2).asking(options)).expect("it has factors")
    }

    #[test]
    fn rows_of_a_page_have_its_factor_and_those_of_the_next_one_another() {
        let both = factors(PageDescales::Both);
        let rows = both.times(1, [0, 1], vec![1.0; 40].into(), 1);
        assert!(rows[..16].iter().all(|factor| *factor == rows[0]) && rows[16] != rows[0]);
        assert_ne!(both.factor(1, 3, 0), both.factor(1, 3, 1));
        assert_ne!(both.factor(1, 3, 0), both.factor(2, 3, 0));
        assert!(rows.iter().all(|factor| *factor <= PageFactors::LARGEST));
    }

    #[test]
    fn a_tensor_without_factors_keeps_its_rows_and_has_no_image() {
        let of_v = factors(PageDescales::OfV);
        assert_eq!(*of_v.times(1, [1, 0], vec![3.0; 17].into(), 1), [3.0; 17]);
        assert_eq!(of_v.images().map(|(name, _)| name).collect::<Vec<_>>(), ["v_page_descale"]);
        assert_eq!(of_v.strides()[0], [0; 2]);
    }
}
