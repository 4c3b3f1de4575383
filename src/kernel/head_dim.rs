//! Valid head dims: one for Q and K, one for V and O.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Smallest head dim of a kernel: the K of one MMA.
const SMALLEST: u32 = 16;
/// Largest head dim, `FlashAttention`'s own limit: beyond it the accumulators of a row no longer fit in registers.
const LARGEST: u32 = 256;
/// Rows are copied in pieces of 16 bytes: 8 elements of 16 bits.
const STEP: u32 = 8;

/// A number that is not a valid head dim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", self.title(), self.help())]
pub struct HeadDimError {
    /// The requested number.
    pub requested: i64,
}

impl HeadDimError {
    /// The problem, in one sentence.
    pub(crate) fn title(self) -> String {
        format!("impossible head dim `{}`", self.requested)
    }

    /// The nearest valid head dims, as a sentence.
    pub(crate) fn help(self) -> String {
        let (smallest, largest, step) = (i64::from(SMALLEST), i64::from(LARGEST), i64::from(STEP));
        let below = (self.requested.clamp(smallest, largest) / step) * step;
        let nearest = if below == self.requested || self.requested < smallest || self.requested > largest {
            format!("nearest: {below}")
        } else {
            format!("nearest: {below} and {}", below + step)
        };
        format!("head dims are multiples of {step} from {smallest} to {largest}; {nearest}")
    }
}

/// Returns `requested` if it is a valid head dim: a multiple of 8 from 16 to 256.
///
/// # Errors
/// [`HeadDimError`] with the nearest valid ones.
fn check_head_dim(requested: i64) -> Result<u32, HeadDimError> {
    let possible = u32::try_from(requested).ok().filter(|d| (SMALLEST..=LARGEST).contains(d) && d % STEP == 0);
    possible.ok_or(HeadDimError { requested })
}

/// Elements of a head's row in each tensor. A pair of two head dims is written `192_128`, an equal pair `128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct HeadDim {
    /// Head dim of Q and K, over which scores are summed.
    #[serde(rename = "head_dim")]
    pub qk: u32,
    /// Head dim of V and O.
    #[serde(rename = "head_dim_v")]
    pub v: u32,
}

/// The form in files; older versions have no `head_dim_v`.
#[derive(Deserialize)]
struct Written {
    head_dim: u32,
    head_dim_v: Option<u32>,
}

impl From<Written> for HeadDim {
    fn from(written: Written) -> Self {
        Self { qk: written.head_dim, v: written.head_dim_v.unwrap_or(written.head_dim) }
    }
}

impl HeadDim {
    /// The head dims of `DeepSeek`'s latent attention: queries and keys of 64 elements with rotary embedding, and
    /// values of 512 elements that are also attended to. Only kernels with `qv` have them, and no other head dim
    /// exceeds 256.
    pub const LATENT: Self = Self { qk: 64, v: 512 };

    /// One head dim for all tensors.
    pub const fn equal(head_dim: u32) -> Self {
        Self { qk: head_dim, v: head_dim }
    }

    /// True if it is the same for all tensors.
    pub const fn is_equal(self) -> bool {
        self.qk == self.v
    }

    /// The larger of the two, which a tile must accommodate.
    pub fn wider(self) -> u32 {
        self.qk.max(self.v)
    }

    /// These head dims, both rounded up to multiples of `step`.
    #[must_use]
    pub fn padded_to(self, step: u32) -> Self {
        Self { qk: self.qk.next_multiple_of(step), v: self.v.next_multiple_of(step) }
    }

    /// Returns the pair if kernels can have both.
    ///
    /// # Errors
    /// [`HeadDimError`] for the first invalid one.
    pub fn checked(self) -> Result<Self, HeadDimError> {
        if self == Self::LATENT {
            return Ok(self);
        }
        check_head_dim(self.qk.into())?;
        check_head_dim(self.v.into())?;
        Ok(self)
    }
}

impl fmt::Display for HeadDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_equal() { f.pad(&self.qk.to_string()) } else { f.pad(&format!("{}_{}", self.qk, self.v)) }
    }
}

/// Reasons why a text is not a head dim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadHeadDimError {
    /// The text is neither one number nor two.
    #[error("{}; {}", self.title(), self.help())]
    NotANumber(String),
    /// A number that is not a valid head dim.
    #[error(transparent)]
    Impossible(#[from] HeadDimError),
}

impl ReadHeadDimError {
    /// The problem, in one sentence.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::NotANumber(text) => format!("`{text}` is no head dim"),
            Self::Impossible(error) => error.title(),
        }
    }

    /// The remedy.
    pub(crate) fn help(&self) -> String {
        match self {
            Self::NotANumber(_) => {
                "write one number such as `128`, or `192_128`: that of Q and K, then that of V and O".to_owned()
            }
            Self::Impossible(error) => error.help(),
        }
    }
}

impl FromStr for HeadDim {
    type Err = ReadHeadDimError;

    /// Reads `128`, `192_128` and `192/128`.
    fn from_str(text: &str) -> Result<Self, ReadHeadDimError> {
        let number = |part: &str| part.parse::<i64>().map_err(|_| ReadHeadDimError::NotANumber(text.to_owned()));
        let (qk, v) = match text.trim().split_once(['_', '/']) {
            None => (number(text.trim())?, number(text.trim())?),
            Some((qk, v)) => (number(qk)?, number(v)?),
        };
        if (qk, v) == (Self::LATENT.qk.into(), Self::LATENT.v.into()) {
            return Ok(Self::LATENT);
        }
        Ok(Self { qk: check_head_dim(qk)?, v: check_head_dim(v)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_written_as_it_is_read_and_an_equal_one_is_one_number() {
        for (text, pair, written) in [
            ("128", HeadDim::equal(128), "128"),
            ("192_128", HeadDim { qk: 192, v: 128 }, "192_128"),
            ("64/256", HeadDim { qk: 64, v: 256 }, "64_256"),
            ("64_512", HeadDim::LATENT, "64_512"),
            ("96_96", HeadDim::equal(96), "96"),
        ] {
            assert_eq!((text.parse(), pair.to_string().as_str()), (Ok(pair), written));
        }
        for text in ["512", "512_64", "72_512"] {
            assert!(text.parse::<HeadDim>().expect_err(text).to_string().contains("impossible head dim `512`"), "{text}");
        }
        for text in ["", "_64", "64_", "64_64_64", "64x64", "six"] {
            let message = text.parse::<HeadDim>().expect_err(text).to_string();
            assert!(message.contains("is no head dim") && message.contains(&format!("`{text}`")), "{message}");
        }
        let message = "192_100".parse::<HeadDim>().expect_err("impossible").to_string();
        assert!(message.contains("impossible head dim `100`") && message.contains("96 and 104"), "{message}");
    }

    #[test]
    fn files_of_older_versions_have_one_head_dim() {
        let read = |text| serde_json::from_str::<HeadDim>(text).expect("a head dim");
        assert_eq!(read(r#"{"head_dim":64}"#), HeadDim::equal(64));
        let pair = HeadDim { qk: 192, v: 128 };
        assert_eq!(read(&serde_json::to_string(&pair).expect("JSON")), pair);
    }

    #[test]
    fn multiples_of_8_from_16_to_256_are_possible_and_nothing_else() {
        let possible: Vec<i64> = (-300..600).filter(|d| check_head_dim(*d).is_ok()).collect();
        assert_eq!(possible, (2..=32).map(|i| i * 8).collect::<Vec<_>>());
        assert!(check_head_dim(i64::MAX).is_err());
    }

    #[test]
    fn an_impossible_head_dim_names_the_nearest_possible_ones() {
        for (requested, nearest) in
            [(68, "nearest: 64 and 72"), (8, "nearest: 16"), (-8, "nearest: 16"), (300, "nearest: 256"), (255, "248 and 256")]
        {
            let message = check_head_dim(requested).expect_err("impossible").to_string();
            assert!(message.contains(nearest) && message.contains(&format!("`{requested}`")), "{message}");
        }
    }
}
