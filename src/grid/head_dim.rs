//! Which head dims are possible.

/// Smallest head dim a kernel is made for: the K of one MMA.
const SMALLEST: u32 = 16;
/// Largest, `FlashAttention`'s own limit: beyond it the accumulators of a row no longer fit the registers.
const LARGEST: u32 = 256;
/// Rows are copied in pieces of 16 bytes: 8 elements of 16 bits.
const STEP: u32 = 8;

/// A number that no kernel can have as its head dim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", self.title(), self.help())]
pub struct HeadDimError {
    /// What was asked for.
    pub asked: i64,
}

impl HeadDimError {
    /// What is wrong, in one sentence.
    pub(super) fn title(self) -> String {
        format!("impossible head dim `{}`", self.asked)
    }

    /// What is possible, nearest first.
    pub(super) fn help(self) -> String {
        let (smallest, largest, step) = (i64::from(SMALLEST), i64::from(LARGEST), i64::from(STEP));
        let below = (self.asked.clamp(smallest, largest) / step) * step;
        let nearest = if below == self.asked || self.asked < smallest || self.asked > largest {
            format!("nearest: {below}")
        } else {
            format!("nearest: {below} and {}", below + step)
        };
        format!("head dims are multiples of {step} from {smallest} to {largest}; {nearest}")
    }
}

/// Gives `asked` back where it is a possible head dim: a multiple of 8 from 16 to 256.
///
/// # Errors
/// [`HeadDimError`], naming the nearest possible ones.
pub fn check_head_dim(asked: i64) -> Result<u32, HeadDimError> {
    let possible = u32::try_from(asked).ok().filter(|d| (SMALLEST..=LARGEST).contains(d) && d % STEP == 0);
    possible.ok_or(HeadDimError { asked })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_of_8_from_16_to_256_are_possible_and_nothing_else() {
        let possible: Vec<i64> = (-300..600).filter(|d| check_head_dim(*d).is_ok()).collect();
        assert_eq!(possible, (2..=32).map(|i| i * 8).collect::<Vec<_>>());
        assert!(check_head_dim(i64::MAX).is_err());
    }

    #[test]
    fn an_impossible_head_dim_names_the_nearest_possible_ones() {
        for (asked, nearest) in
            [(68, "nearest: 64 and 72"), (8, "nearest: 16"), (-8, "nearest: 16"), (300, "nearest: 256"), (255, "248 and 256")]
        {
            let message = check_head_dim(asked).expect_err("impossible").to_string();
            assert!(message.contains(nearest) && message.contains(&format!("`{asked}`")), "{message}");
        }
    }
}
