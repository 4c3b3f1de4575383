//! A declared score in one call: its arguments, and its values for one head of one sequence. Used by the reference, the
//! gradients, the sample check and the count of work.
#![allow(clippy::cast_possible_wrap, reason = "rows, heads and keys are fewer than 2^31")]

use crate::{
    expression::{At, Expr, KeptScore, List, MOST_SCALARS, MOST_TABLES},
    family::attention::abi::ScoreParams,
};

/// A score with the arguments of one call, which two small numbers determine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredCall {
    /// The score.
    pub score: KeptScore,
    /// Index of a set of real numbers.
    pub set: u8,
    /// The first integer; the others follow from it. At least 1 if an integer is a divisor.
    pub integer: i32,
}

/// Number of sets of real numbers: usual ones, negative ones, and widely spread magnitudes.
pub const SETS: u8 = 3;

impl DeclaredCall {
    /// The first set, and an integer that leaves some of the keys visible.
    pub fn usual(score: KeptScore) -> Self {
        Self { score, set: 0, integer: 40 }
    }

    fn scalars(self) -> [f32; MOST_SCALARS] {
        const NUMBERS: [[f32; MOST_SCALARS]; SETS as usize] = [
            [0.25, 1.5, 0.75, 3.0, 0.05, 2.0, 1.0, 0.5],
            [-0.375, -1.25, 0.875, -2.0, -0.03, 1.0, -0.5, -4.0],
            [30.0, 0.001, 1e-6, 20.0, 1e-20, 0.01, 50.0, 1e-10],
        ];
        self.passed(List::Scalars, NUMBERS[self.set as usize % NUMBERS.len()])
    }

    fn integers(self) -> [i32; MOST_SCALARS] {
        let divisors: Vec<String> = self.score.score.iter().chain(&self.score.mask).flat_map(Expr::divisors).collect();
        let names = self.score.names.names(List::Integers);
        let numbers = std::array::from_fn(|index| {
            let number = if index % 2 == 0 { self.integer + index as i32 * 7 } else { self.integer / 8 + index as i32 };
            let divides = names.get(index).is_some_and(|name| divisors.iter().any(|divisor| **divisor == **name));
            if divides { number.max(1) } else { number }
        });
        self.passed(List::Integers, numbers)
    }

    /// The declared numbers, padded with zeros.
    fn passed<T: Copy + Default>(self, list: List, mut numbers: [T; MOST_SCALARS]) -> [T; MOST_SCALARS] {
        numbers[self.score.names.names(list).len()..].fill(T::default());
        numbers
    }

    /// Number of tables that the call passes.
    pub fn tables(self) -> usize {
        self.score.names.names(List::Tables).len()
    }

    /// A table's value for a query head: powers of two, with both signs in the second set.
    pub fn table(self, table: usize, head: usize) -> f32 {
        let sign = if self.set == 1 && head % 2 == 1 { -1.0 } else { 1.0 };
        sign * 0.5_f32.powi((head % 8 + table) as i32)
    }

    /// The arguments for a launcher, except the tables.
    pub fn params(self) -> ScoreParams {
        ScoreParams { id: self.score.id(), scalars: self.scalars(), integers: self.integers() }
    }

    /// The rule for one head of a sequence.
    pub fn rule(self, sequence: usize, head: usize, queries: usize, keys: usize) -> DeclaredRule {
        let mut tables = [0.0; MOST_TABLES];
        for (index, value) in tables.iter_mut().take(self.tables()).enumerate() {
            *value = f64::from(self.table(index, head));
        }
        DeclaredRule {
            score: self.score,
            sequence,
            head,
            queries,
            keys,
            scalars: self.scalars().map(f64::from),
            integers: self.integers().map(i64::from),
            tables,
        }
    }

    /// The words used in case names.
    pub fn words(self) -> String {
        let set = if self.set == 0 { String::new() } else { format!("/{}", self.set) };
        let integer =
            if self.score.names.names(List::Integers).is_empty() { String::new() } else { format!(":{}", self.integer) };
        format!(" score={}{integer}{set}", self.score)
    }

    /// Parses the text after `score=`. The score must have been read by this process, from its grid or a library.
    ///
    /// # Errors
    /// One sentence.
    pub fn read(words: &str) -> Result<Self, String> {
        let unread = || format!("`score={words}` does not name a score and its numbers, as `score=decay:40/1` does");
        let (rest, set) = words.split_once('/').unwrap_or((words, "0"));
        let (name, integer) = rest.split_once(':').unwrap_or((rest, "40"));
        let set = set.parse().ok().filter(|set| *set < SETS).ok_or_else(unread)?;
        let integer = integer.parse().map_err(|_| unread())?;
        let score = KeptScore::named(name).ok_or_else(|| format!("no score `{name}` is declared by the library's kernels"))?;
        Ok(Self { score, set, integer })
    }

    /// The sets of real numbers for which the scores fit in 16 bits: an expression may take the logarithm or the
    /// exponential of a number.
    pub fn sets(score: KeptScore) -> Vec<u8> {
        let is_tame = |set: &u8| {
            let rule = Self { set: *set, ..Self::usual(score) }.rule(1, 1, 300, 300);
            let values = itertools::iproduct!([-9.0, -0.5, 0.0, 2.0, 9.0], [0_i64, 17, 299], [0_usize, 16, 299]);
            let mut all = values.filter(|(_, q, k)| rule.sees(*q, *k)).map(|(s, q, k)| (rule.of(s, q, k), rule.slope(s, q, k)));
            all.all(|(value, slope)| value.abs() < 3e4 && slope.is_finite())
        };
        let tame: Vec<u8> = (0..SETS).filter(is_tame).collect();
        if tame.is_empty() { vec![0] } else { tame }
    }
}

/// A declared score with all its inputs except the query and key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeclaredRule {
    score: KeptScore,
    sequence: usize,
    head: usize,
    queries: usize,
    keys: usize,
    scalars: [f64; MOST_SCALARS],
    integers: [i64; MOST_SCALARS],
    tables: [f64; MOST_TABLES],
}

impl DeclaredRule {
    fn at(&self, s: f64, q: i64, k: usize) -> At<'_> {
        At {
            s,
            q,
            k: k as i64,
            h: self.head,
            b: self.sequence,
            seqlen_q: self.queries,
            seqlen_k: self.keys,
            scalars: &self.scalars,
            integers: &self.integers,
            tables: &self.tables,
        }
    }

    /// True if the query at position `q` sees key `k`.
    pub fn sees(&self, q: i64, k: usize) -> bool {
        self.score.mask.as_ref().is_none_or(|mask| mask.holds(&self.at(0.0, q, k)))
    }

    /// The declared score of `s`; -∞ if the mask hides the key.
    pub fn of(&self, s: f64, q: i64, k: usize) -> f64 {
        self.visible(s, q, k, Expr::value)
    }

    /// [`of`](Self::of) with every intermediate result rounded to fp32.
    pub fn naive(&self, s: f32, q: i64, k: usize) -> f32 {
        self.visible(f64::from(s), q, k, |score, at| score.rounded(at, |value| f64::from(value as f32))) as f32
    }

    fn visible(&self, s: f64, q: i64, k: usize, of: impl Fn(&Expr, &At<'_>) -> f64) -> f64 {
        if !self.sees(q, k) {
            return f64::NEG_INFINITY;
        }
        self.score.score.as_ref().map_or(s, |score| of(score, &self.at(s, q, k)))
    }

    /// The derivative with respect to `s`; 0 if the mask hides the key.
    pub fn slope(&self, s: f64, q: i64, k: usize) -> f64 {
        if !self.sees(q, k) {
            return 0.0;
        }
        self.score.derivative().map_or(1.0, |slope| slope.value(&self.at(s, q, k)))
    }

    /// Bound on the error in fp32, if `s` has an error of `of_s`.
    pub fn error(&self, s: f64, of_s: f64, q: i64, k: usize) -> f64 {
        if !self.sees(q, k) {
            return 0.0;
        }
        self.score.score.as_ref().map_or(0.0, |score| score.fp32_error(&self.at(s, q, k), of_s))
    }

    /// Bound on the fp32 error of [`slope`](Self::slope), if `s` has an error of `of_s`.
    pub fn slope_error(&self, s: f64, of_s: f64, q: i64, k: usize) -> f64 {
        if !self.sees(q, k) {
            return 0.0;
        }
        self.score.derivative().map_or(0.0, |slope| slope.fp32_error(&self.at(s, q, k), of_s))
    }

    /// True if it has a score, and not only a mask.
    pub fn has_score(&self) -> bool {
        self.score.score.is_some()
    }
}
