//! Pictures as SVG text: charts with two axes, and grids of cells. Colours are classes, which `picture.css` gives for
//! light and dark surroundings; every picture has a title and a description for those who do not see it.

mod chart;
mod grid;
mod scale;
mod svg;

pub(super) use chart::{Axis, Chart, Mark, Rule, Series};
pub(super) use grid::{Cell, Grid};
pub(super) use scale::Scale;
pub(super) use svg::{Picture, escaped, plain};

/// The style of all pictures: for the page once, and for a picture that stands alone.
pub(super) const STYLE: &str = include_str!("draw/picture.css");
