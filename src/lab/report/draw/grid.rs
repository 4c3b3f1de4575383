//! A grid of cells with numbers, coloured by how far they are from the middle.

use super::svg::{Anchor, Picture, cut, escaped, text};
use std::fmt::Write;

/// A cell.
#[derive(Debug, Clone)]
pub(in crate::lab::report) struct Cell {
    /// Place of its row and its column.
    pub at: [usize; 2],
    /// The number in it.
    pub words: String,
    /// From -1, bad, to 1, good.
    pub strength: f64,
    /// What a pointer over the cell shows.
    pub note: String,
}

/// A grid.
#[derive(Debug, Clone)]
pub(in crate::lab::report) struct Grid {
    /// What the rows are.
    pub rows_label: &'static str,
    /// Names of the rows, from above.
    pub rows: Vec<String>,
    /// What the columns are.
    pub columns_label: &'static str,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The cells.
    pub cells: Vec<Cell>,
    /// What the colours mean.
    pub legend: &'static str,
}

const LEFT: f64 = 110.0;
const TOP: f64 = 44.0;
const HEIGHT: f64 = 30.0;
const WIDTH: f64 = 760.0;
const MARGIN: f64 = 16.0;
/// Least and most width of a cell.
const NARROW: f64 = 50.0;
const WIDE: f64 = 110.0;
/// Most characters of a name beside the cells.
const NAME: usize = 13;

impl Grid {
    /// The picture of this identity and title.
    pub fn picture(&self, [id, title]: [String; 2], description: String) -> Picture {
        let count = self.columns.len().max(1) as f64;
        let across = ((WIDTH - LEFT - MARGIN) / count).clamp(NARROW, WIDE);
        let width = WIDTH.max(LEFT + MARGIN + across * count);
        let corner = |[row, column]: [usize; 2]| [LEFT + across * column as f64, TOP + HEIGHT * row as f64];
        let mut body = String::new();
        text(&mut body, [LEFT, 16.0], Anchor::Start, "soft", self.columns_label);
        text(&mut body, [LEFT - 10.0, TOP - 8.0], Anchor::End, "soft", self.rows_label);
        for (place, name) in self.columns.iter().enumerate() {
            let [x, _] = corner([0, place]);
            text(&mut body, [x + across / 2.0, TOP - 8.0], Anchor::Middle, "", &cut(name, NAME));
        }
        for (place, name) in self.rows.iter().enumerate() {
            let [_, y] = corner([place, 0]);
            text(&mut body, [LEFT - 10.0, y + 20.0], Anchor::End, "", &cut(name, NAME));
        }
        for cell in &self.cells {
            let [x, y] = corner(cell.at);
            let side = if cell.strength < 0.0 { "bad" } else { "good" };
            // At most 0.6, so that the number can be read on it.
            let strength = 0.6 * cell.strength.abs().min(1.0);
            // Writing into a string cannot fail.
            writeln!(
                body,
                "<rect class=\"cell {side}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{across:.1}\" height=\"{HEIGHT}\" \
                 fill-opacity=\"{strength:.3}\"><title>{}</title></rect>",
                escaped(&cell.note)
            )
            .ok();
            text(&mut body, [x + across / 2.0, y + 20.0], Anchor::Middle, "", &cell.words);
        }
        let bottom = TOP + HEIGHT * self.rows.len() as f64;
        text(&mut body, [LEFT, bottom + 24.0], Anchor::Start, "soft", self.legend);
        Picture { id, title, description, size: [width, bottom + 38.0], body }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_has_its_number_and_a_colour_of_its_side() {
        let cell = |at, words: &str, strength| Cell { at, words: words.into(), strength, note: "n".into() };
        let grid = Grid {
            rows_label: "head dim",
            rows: vec!["64".into(), "128".into()],
            columns_label: "length",
            columns: vec!["512".into()],
            cells: vec![cell([0, 0], "1.20", 0.5), cell([1, 0], "0.10", -9.0)],
            legend: "blue is good",
        };
        let body = grid.picture(["g".into(), "T".into()], "D".into()).body;
        assert!(body.contains("cell good") && body.contains("fill-opacity=\"0.300\"") && body.contains(">1.20<"), "{body}");
        assert!(body.contains("cell bad") && body.contains("fill-opacity=\"0.600\""), "{body}");
    }
}
