//! Tables for people: aligned, and never wider than the terminal.

use super::{verbosity, wrap};
use console::{Alignment, Term};
use std::fmt::Write;

/// Tables of up to this many rows are printed in full; longer ones show only rows that need attention.
const FEW: usize = 10;

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column<'a> {
    heading: &'a str,
    number: bool,
    needed: bool,
}

impl<'a> Column<'a> {
    /// Text that a narrow terminal may omit.
    pub fn text(heading: &'a str) -> Self {
        Self { heading, number: false, needed: false }
    }

    /// A right-aligned number that a narrow terminal may omit.
    pub fn number(heading: &'a str) -> Self {
        Self { number: true, ..Self::text(heading) }
    }

    /// This column, but never omitted.
    pub fn needed(self) -> Self {
        Self { needed: true, ..self }
    }
}

/// A row of a table.
pub(super) struct Row {
    /// A cell for each column.
    pub cells: Vec<String>,
    /// The row needs attention: it failed, or is not as good as it should be.
    pub notable: bool,
}

/// The table of a result: all rows with `--verbose` or if it is short, otherwise the notable ones. A last line reports
/// the omitted rows. Empty if no row is shown.
pub(super) fn of_results(columns: &[Column<'_>], rows: Vec<Row>) -> String {
    let (all, verbose) = (rows.len(), verbosity::verbose());
    let shown: Vec<Row> = rows.into_iter().filter(|row| verbose || all <= FEW || row.notable).collect();
    if shown.is_empty() {
        return String::new();
    }
    let left_out = all - shown.len();
    let mut text = of(columns, shown.into_iter().map(|row| row.cells));
    if left_out > 0 {
        // Writing into a string cannot fail.
        writeln!(text, "… and {left_out} more without anything to say of them; `--verbose` lists all").ok();
    }
    text
}

/// A table without rules, as text with a final newline, fitted to the terminal if standard output is one.
pub(super) fn of(columns: &[Column<'_>], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    within(wrap::columns(&Term::stdout()), columns, &rows.into_iter().collect::<Vec<_>>())
}

/// A table without rules, as text with a final newline, fitted to `width` columns if possible: first by omitting
/// optional columns, the last first, and then by putting the first column on lines of its own.
fn within(width: Option<usize>, columns: &[Column<'_>], rows: &[Vec<String>]) -> String {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let mut left_out = Vec::new();
    loop {
        let text = render(columns, &kept, rows);
        let widest = text.lines().map(console::measure_text_width).max().unwrap_or(0);
        let next = kept.iter().rposition(|column| !columns[*column].needed);
        let is_too_wide = width.is_some_and(|width| widest > width);
        if let Some(next) = next.filter(|_| is_too_wide) {
            left_out.insert(0, columns[kept.remove(next)].heading);
            continue;
        }
        let text = if is_too_wide && kept.len() > 1 { stacked(columns, &kept, rows) } else { text };
        let names = left_out.join(", ");
        return if names.is_empty() { text } else { format!("{text}(too narrow for: {names})\n") };
    }
}

/// Two lines for each row: its first cell, and the others below it.
fn stacked(columns: &[Column<'_>], kept: &[usize], rows: &[Vec<String>]) -> String {
    let (first, others) = (render(columns, &kept[..1], rows), render(columns, &kept[1..], rows));
    let mut text = String::new();
    for (first, others) in first.lines().zip(others.lines()) {
        // Writing into a string cannot fail.
        writeln!(text, "{first}\n  {others}").ok();
    }
    text
}

fn render(columns: &[Column<'_>], kept: &[usize], rows: &[Vec<String>]) -> String {
    const GAP: &str = "  ";
    let lines = || {
        let heading = kept.iter().map(|column| columns[*column].heading).collect::<Vec<_>>();
        let cells = rows.iter().map(|row| kept.iter().map(|column| row[*column].as_str()).collect());
        std::iter::once(heading).chain(cells)
    };
    let mut widths = vec![0; kept.len()];
    for line in lines() {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = console::measure_text_width(cell).max(*width);
        }
    }
    let mut text = String::new();
    for line in lines() {
        for (index, (cell, width)) in line.into_iter().zip(&widths).enumerate() {
            let side = if columns[kept[index]].number { Alignment::Right } else { Alignment::Left };
            text += if index > 0 { GAP } else { "" };
            text += &console::pad_str(cell, *width, side, None);
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_aligns_numbers_to_the_right() {
        let columns = [Column::text("name"), Column::number("n")];
        let text = within(None, &columns, &[vec!["a".into(), "100".into()], vec!["b".into(), "7".into()]]);
        assert_eq!(text, "name    n\na     100\nb       7\n");
    }

    #[test]
    fn a_narrow_terminal_goes_without_the_last_columns_that_are_not_needed() {
        let columns =
            [Column::text("variant").needed(), Column::number("aaaa"), Column::text("bbbb"), Column::text("result").needed()];
        let rows = || vec![["flash_fwd", "1", "two", "pass"].map(str::to_owned).to_vec()];
        assert!(within(Some(29), &columns, &rows()).starts_with("variant    aaaa  bbbb  result\n"));
        let narrow = within(Some(28), &columns, &rows());
        assert_eq!(narrow, "variant    aaaa  result\nflash_fwd     1  pass\n(too narrow for: bbbb)\n");
        let narrower = within(Some(4), &columns, &rows());
        assert_eq!(narrower, "variant\n  result\nflash_fwd\n  pass\n(too narrow for: aaaa, bbbb)\n", "what is needed stays");
    }

    #[test]
    fn many_passing_rows_do_not_bury_one_that_fails() {
        let row = |index: usize, notable| Row { cells: vec![format!("kernel{index}")], notable };
        let columns = [Column::text("variant").needed()];
        let text = of_results(&columns, (0..=FEW).map(|index| row(index, index == 3)).collect());
        assert_eq!(text, "variant\nkernel3\n… and 10 more without anything to say of them; `--verbose` lists all\n");
        assert_eq!(of_results(&columns, (0..=FEW).map(|index| row(index, false)).collect()), "");
        let few = of_results(&columns, (0..FEW).map(|index| row(index, false)).collect());
        assert_eq!(few.lines().count(), FEW + 1);
    }
}
