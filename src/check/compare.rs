//! Judges the memory after a launch: every element that had to be written, and every byte that had to stay.

use crate::device::Image;

/// Distance of one tensor from its reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// `O`, `LSE`, `dQ`, ...
    pub output: &'static str,
    /// Largest absolute error; infinite if only one of the two numbers is finite.
    pub error: f64,
    /// Largest allowed error.
    pub tolerance: f64,
}

impl Distance {
    /// Error relative to the allowed error.
    pub fn ratio(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.tolerance }
    }
}

/// The comparison of one case.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The tensor nearest to its tolerance, or furthest beyond it.
    pub worst: Distance,
    /// Description of the failure, if any.
    pub complaint: Option<String>,
}

impl Comparison {
    /// The comparison over all tensors of one case, each with the memory around it.
    pub fn of(tallies: &[Tally], images: &[(&'static str, &Image)]) -> Self {
        let complaints: Vec<String> = tallies
            .iter()
            .filter_map(Tally::complaint)
            .chain(images.iter().filter_map(|(name, image)| damage(name, image)))
            .collect();
        let worst = tallies.iter().map(|tally| tally.distance).reduce(|a, b| if b.ratio() > a.ratio() { b } else { a });
        let worst = worst.unwrap_or(Distance { output: "nothing", error: 0.0, tolerance: 0.0 });
        Self { worst, complaint: (!complaints.is_empty()).then(|| complaints.join("; ")) }
    }

    /// The comparison of a case whose tolerance is not usable: the naive computation overflows.
    pub fn impossible(output: &'static str, tolerance: f64) -> Self {
        let worst = Distance { output, error: f64::INFINITY, tolerance };
        Self { worst, complaint: Some("the naive computation overflows: this case allows no judgement".to_owned()) }
    }
}

/// Reports writes to the memory around a tensor.
fn damage(name: &str, image: &Image) -> Option<String> {
    let offset = image.first_damage()?;
    Some(format!(
        "{name}: memory that is no part of it was written, first at element {offset} from its start (a gap between rows, a row that \
         takes no part, or the guard zone)"
    ))
}

/// Accumulates the comparison of one tensor.
pub struct Tally {
    distance: Distance,
    seen: usize,
    wrong: usize,
    /// Elements that still hold the NaN of unwritten memory.
    nan: usize,
    /// The first wrong element and the worst one: index, got, expected.
    first: Option<([usize; 4], f64, f64)>,
    worst: Option<([usize; 4], f64, f64)>,
    /// Meaning of the index.
    index: Index,
}

/// Meanings of an element's index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Index {
    /// Sequence, head, row and, except for LSE, column.
    Attention,
    /// Only the last number of the index is used.
    Element,
}

impl Tally {
    /// An empty tally for the tensor `output`.
    pub fn new(output: &'static str, tolerance: f64) -> Self {
        Self {
            distance: Distance { output, error: 0.0, tolerance },
            seen: 0,
            wrong: 0,
            nan: 0,
            first: None,
            worst: None,
            index: Index::Attention,
        }
    }

    /// An empty tally for `output`, a contiguous tensor whose elements are named by one index.
    pub fn of_elements(output: &'static str, tolerance: f64) -> Self {
        Self { index: Index::Element, ..Self::new(output, tolerance) }
    }

    /// Counts element `index` of a contiguous tensor.
    pub fn see_element(&mut self, index: usize, got: f64, expected: f64) {
        self.see([0, 0, 0, index], got, expected, false);
    }

    /// Counts an element. A `masked` row must match exactly; for other rows, a difference that is NaN or infinite is an
    /// infinite error and never passes.
    pub fn see(&mut self, index: [usize; 4], got: f64, expected: f64, masked: bool) {
        self.seen += 1;
        self.nan += usize::from(got.is_nan());
        // Exact equality: zero and infinity of a masked row, and any other bit-exact result.
        #[expect(clippy::float_cmp, reason = "equality is what is asked")]
        let same = got == expected;
        let difference = (got - expected).abs();
        let error = match (same, difference.is_finite() && !masked) {
            (true, _) => 0.0,
            (false, true) => difference,
            (false, false) => f64::INFINITY,
        };
        if error > self.distance.tolerance {
            self.wrong += 1;
            self.first.get_or_insert((index, got, expected));
        }
        if error > self.distance.error {
            self.distance.error = error;
            self.worst = Some((index, got, expected));
        }
    }

    fn complaint(&self) -> Option<String> {
        let first = self.first?;
        let at = |([b, h, row, d], got, expected): ([usize; 4], f64, f64)| {
            let place = match self.index {
                Index::Element => format!("element {d}"),
                Index::Attention if self.distance.output == "LSE" => format!("sequence {b}, head {h}, row {row}"),
                Index::Attention => format!("sequence {b}, head {h}, row {row}, d {d}"),
            };
            format!("[{place}] is {got:.6}, expected {expected:.6}")
        };
        let Distance { output, error, tolerance } = self.distance;
        let nan = match self.nan {
            0 => String::new(),
            nan => format!(" ({nan} NaN: unwritten, or computed from uninitialised memory)"),
        };
        let worst =
            self.worst.filter(|worst| worst.0 != first.0).map_or_else(String::new, |worst| format!("; worst {}", at(worst)));
        let Self { wrong, seen, .. } = self;
        let first = at(first);
        Some(format!(
            "{output}: {wrong} of {seen} elements are wrong{nan}; first {first}{worst}; error {error:.2e}, allowed {tolerance:.2e}"
        ))
    }
}
