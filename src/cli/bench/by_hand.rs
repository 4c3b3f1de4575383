//! An edited kernel by the generated one, as text.

use crate::{
    bench::Measurement,
    cli::table::{self, Column},
    command::bench::Comparison,
};

/// Name of the measured kernel; an edited one is named by its file.
pub(super) fn name(measurement: &Measurement) -> String {
    measurement.made.edited.as_ref().map_or_else(|| measurement.name.clone(), |file| format!("{file} (edited)"))
}

/// The table of ratios.
pub(super) fn describe(comparison: &Comparison) -> String {
    let Comparison { file, source, pairs } = comparison;
    let columns = [
        Column::text("shape").needed(),
        Column::number("edited/generated").needed(),
        Column::text("95 %").needed(),
        Column::number("floor"),
        Column::text("result").needed(),
    ];
    let rows = pairs.iter().map(|pair| {
        let [low, high] = pair.ratio.interval;
        vec![
            pair.shape.to_string(),
            format!("{:.3}", pair.ratio.mean),
            format!("{low:.3} to {high:.3}"),
            format!("{:.1} %", 100.0 * pair.floor),
            pair.verdict.word().to_owned(),
        ]
    });
    let table = if pairs.is_empty() { "no size has times of both kernels\n".to_owned() } else { table::of(&columns, rows) };
    format!(
        "\n{file}, source {}, by the generated kernel (below 1: the edited one is faster)\n{table}",
        source.get(..16).unwrap_or(source)
    )
}
