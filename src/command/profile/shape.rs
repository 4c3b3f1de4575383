//! The size that kernels are profiled at.

use crate::{
    bench::Wanted,
    command::{
        CommandError,
        limits::{self, within},
    },
    device::DeviceKind,
};
use itertools::Itertools;
use serde::{Deserialize, Serialize};

/// A size; `None` selects a small one for the emulator, and a usual one of the kernel's family for a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Shape {
    /// Sequences.
    pub batch: Option<u32>,
    /// Query heads.
    pub heads: Option<u32>,
    /// Key heads.
    pub heads_k: Option<u32>,
    /// Queries and keys of a sequence. Not together with `seqlen_k`.
    pub seqlen: Option<u32>,
    /// Queries of a sequence.
    pub seqlen_q: Option<u32>,
    /// Keys of a sequence.
    pub seqlen_k: Option<u32>,
    /// Rows of a page, for kernels that read K and V from pages.
    pub page_size: Option<u32>,
    /// Rows of a matrix, for families other than attention.
    pub rows: Option<u64>,
    /// Elements of a row, or of a vector.
    pub columns: Option<u64>,
}

impl Shape {
    /// All numbers by name.
    fn numbers(&self) -> [(&'static str, Option<u64>); 9] {
        [
            ("batch", self.batch.map(u64::from)),
            ("heads", self.heads.map(u64::from)),
            ("heads_k", self.heads_k.map(u64::from)),
            ("seqlen", self.seqlen.map(u64::from)),
            ("seqlen_q", self.seqlen_q.map(u64::from)),
            ("seqlen_k", self.seqlen_k.map(u64::from)),
            ("page_size", self.page_size.map(u64::from)),
            ("rows", self.rows),
            ("columns", self.columns),
        ]
    }

    pub(super) fn refuse_out_of_range(&self) -> Result<(), CommandError> {
        if self.seqlen.is_some() && self.seqlen_k.is_some() {
            return Err(CommandError::Usage("`seqlen` and `seqlen_k` are both set; leave one out".to_owned()));
        }
        for (name, number) in self.numbers() {
            let range = if ["rows", "columns"].contains(&name) { limits::MATRIX_SIDE } else { limits::SIZE };
            number.map_or(Ok(()), |number| within(name, number, &range))?;
        }
        Ok(())
    }

    /// The numbers as a family takes them, with usual ones for a device. Conflicts repeat from tile to tile, so the
    /// emulator needs few tiles.
    pub(super) fn wanted(&self, device: DeviceKind) -> Wanted {
        let is_length = |name: &str| name.starts_with("seqlen");
        let has_length = self.numbers().iter().any(|(name, number)| is_length(name) && number.is_some());
        let has_side = self.rows.is_some() || self.columns.is_some();
        let usual = |name: &str| match (name, device) {
            ("seqlen", DeviceKind::Emulator) if !has_length => Some(256),
            ("seqlen", DeviceKind::Gpu) if !has_length => Some(4096),
            ("batch" | "heads", DeviceKind::Emulator) => Some(1),
            ("rows", DeviceKind::Emulator) if !has_side => Some(8),
            ("columns", DeviceKind::Emulator) if !has_side => Some(1024),
            _ => None,
        };
        Wanted::new(self.numbers().map(|(name, number)| (name, number.or_else(|| usual(name)).into_iter().collect_vec())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_small_on_the_emulator_and_as_requested_where_it_is() {
        let wanted = |shape: &Shape, device| {
            let wanted = shape.wanted(device);
            ["batch", "heads", "seqlen", "seqlen_q", "rows"].map(|name| wanted.of(name).first().copied())
        };
        let usual = Shape::default();
        assert_eq!(wanted(&usual, DeviceKind::Emulator), [Some(1), Some(1), Some(256), None, Some(8)]);
        assert_eq!(wanted(&usual, DeviceKind::Gpu), [None, None, Some(4096), None, None]);
        let own = Shape { seqlen_q: Some(7), heads: Some(3), columns: Some(5), ..Shape::default() };
        assert_eq!(wanted(&own, DeviceKind::Emulator), [Some(1), Some(3), None, Some(7), None]);
        let both = Shape { seqlen: Some(1), seqlen_k: Some(1), ..Shape::default() };
        assert!(both.refuse_out_of_range().is_err_and(|error| error.to_string().contains("leave one out")));
        let large = Shape { batch: Some(1 << 25), ..Shape::default() };
        assert!(large.refuse_out_of_range().is_err_and(|error| error.to_string().contains("`batch`")));
    }
}
