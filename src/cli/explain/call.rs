//! `kgen explain --call`.

use super::super::{
    bench::size,
    table::{self, Column},
};
use crate::{
    command::call::{KvDtype, Outcome, Weighed},
    text::size as bytes,
};
use clap::ValueEnum;
use std::{collections::BTreeMap, fmt::Write};

/// Rows of a page if `--page-size` is left out.
const PAGE: u32 = 16;

/// A call; its head dim, element type and mask are flags of the selection.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Call")]
pub(super) struct CallArgs {
    /// Explain which path the dispatcher takes for a call on `--gpu`, instead of kernels. `--head-dim`, `--dtype` and
    /// `--causal` are the call's; `--kind`, `--target`, `--set` and `--filter` say which kernels the library holds.
    #[arg(long, requires_all = ["gpu", "batch", "heads", "seqlen_q", "seqlen_k", "head_dim", "dtype"])]
    #[arg(conflicts_with_all = ["names", "features", "score", "mask", "full"])]
    pub call: bool,

    /// Sequences.
    #[arg(long, value_name = "N", value_parser = size(), requires = "call")]
    pub batch: Option<u32>,

    /// Query heads.
    #[arg(long, value_name = "N", value_parser = size(), requires = "call")]
    pub heads: Option<u32>,

    /// Key heads [default: the query heads].
    #[arg(long, value_name = "N", value_parser = size(), requires = "call")]
    pub heads_k: Option<u32>,

    /// Queries of a sequence, of the longest one if lengths differ.
    #[arg(long, value_name = "N", value_parser = size(), requires = "call")]
    pub seqlen_q: Option<u32>,

    /// Keys of a sequence, of the longest one if lengths differ.
    #[arg(long, value_name = "N", value_parser = size(), requires = "call")]
    pub seqlen_k: Option<u32>,

    /// Sequences have different numbers of queries, packed, this many in all; 0 if the caller does not pass the total.
    #[arg(long, value_name = "N", requires = "call")]
    pub total_q: Option<u32>,

    /// Sequences have different numbers of keys, this many in all; 0 if the caller does not pass the total.
    #[arg(long, value_name = "N", requires = "call")]
    pub total_k: Option<u32>,

    /// K and V are in pages.
    #[arg(long, requires = "call")]
    pub paged: bool,

    /// Rows of a page [default: 16].
    #[arg(long, value_name = "N", value_parser = size(), requires = "paged")]
    page_size: Option<u32>,

    /// Element type of an FP8 cache of K and V.
    #[arg(long, value_name = "DTYPE", value_enum, requires = "call")]
    kv_dtype: Option<KvArg>,

    /// Keys to the left and to the right of its own that a query sees: `1023,0`; -1 is no limit.
    #[arg(long, value_name = "LEFT,RIGHT", allow_hyphen_values = true, value_parser = window, requires = "call")]
    pub window: Option<Window>,

    /// Splits that the caller asks for [default: the dispatcher chooses].
    #[arg(long, value_name = "N", requires = "call")]
    pub num_splits: Option<u32>,
}

/// Both sides of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window(pub [i32; 2]);

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KvArg {
    E4m3,
    E5m2,
}

impl CallArgs {
    pub fn kv_dtype(&self) -> Option<KvDtype> {
        self.kv_dtype.map(|kv_dtype| match kv_dtype {
            KvArg::E4m3 => KvDtype::E4m3,
            KvArg::E5m2 => KvDtype::E5m2,
        })
    }

    /// Rows of a page; `None` without pages.
    pub fn page_size(&self) -> Option<u32> {
        self.paged.then(|| self.page_size.unwrap_or(PAGE))
    }
}

fn window(text: &str) -> Result<Window, String> {
    let sides = text.split_once(',').and_then(|(left, right)| Some([left.trim().parse().ok()?, right.trim().parse().ok()?]));
    sides.map(Window).ok_or_else(|| "give two numbers, such as `1023,0`".to_owned())
}

/// The table of candidates, the reason for the choice, and why other paths are excluded.
pub(super) fn describe(outcome: &Outcome) -> String {
    let parts = ["predicted", "launch", "tile", "chain", "step", "memory", "combine", "scheduler"].map(Column::number);
    let first = [Column::text("").needed(), Column::text("path").needed(), Column::number("splits").needed()];
    let last = [
        Column::number("kernel, learned"),
        Column::number("kernel, measured"),
        Column::number("workspace"),
        Column::text("kernel"),
    ];
    let columns = [&first[..], &[parts[0].needed()], &parts[1..], &last].concat();
    let able = outcome.candidates.iter().enumerate().filter(|(_, candidate)| candidate.excluded.is_none());
    let rows = able.map(|(place, candidate)| line(candidate, place == outcome.chosen));
    let mut text = table::of(&columns, rows);
    // Writing into a string cannot fail.
    writeln!(text, "\n{}", outcome.reason).ok();
    text += "µs; chain, step and memory overlap; learned and measured times are those of the kernel alone\n";
    let mut excluded: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for candidate in &outcome.candidates {
        if let Some(why) = &candidate.excluded {
            excluded.entry((candidate.path, why)).or_default().push(candidate.num_splits.to_string());
        }
    }
    if !excluded.is_empty() {
        text += "\nexcluded\n";
    }
    for ((path, why), splits) in excluded {
        let splits = if splits == ["1"] { String::new() } else { format!(" ({} splits)", splits.join(", ")) };
        writeln!(text, "  {path}{splits}: {why}").ok();
    }
    text
}

fn line(candidate: &Weighed, is_chosen: bool) -> Vec<String> {
    let us = |part: fn(&crate::command::call::Times) -> f64| {
        candidate.microseconds.as_ref().map_or_else(String::new, |times| format!("{:.2}", part(times)))
    };
    let combine = us(|times| times.combine);
    let measured = candidate.measured.first();
    vec![
        if is_chosen { "*" } else { "" }.to_owned(),
        candidate.path.to_owned(),
        candidate.num_splits.to_string(),
        us(|times| times.predicted),
        us(|times| times.launch),
        us(|times| times.tile),
        us(|times| times.chain),
        us(|times| times.step),
        us(|times| times.memory),
        if candidate.by_last_block { format!("{combine} by last blocks") } else { combine },
        us(|times| times.scheduler),
        candidate.learned.map_or_else(String::new, |learned| format!("{:.2}", learned.microseconds)),
        measured.map_or_else(String::new, |measured| format!("{:.2}", measured.microseconds)),
        if candidate.workspace_bytes == 0 { String::new() } else { bytes(candidate.workspace_bytes) },
        candidate.kernel.clone().unwrap_or_default(),
    ]
}
