//! A chart with two axes: marks with their ranges, lines through them, rules such as a ceiling, and a legend below.

use super::{
    Scale,
    scale::{Range, tick},
    svg::{Anchor, Picture, cut, escaped, line, path, text, width},
};
use std::fmt::Write;

/// An axis.
#[derive(Debug, Clone)]
pub(in crate::lab::report) struct Axis {
    /// What it measures, with the unit.
    pub label: &'static str,
    /// How values lie along it.
    pub scale: Scale,
}

/// A point of a chart.
#[derive(Debug, Clone)]
pub(in crate::lab::report) struct Mark {
    /// Along the axis at the bottom.
    pub x: f64,
    /// Along the axis at the left.
    pub y: f64,
    /// The range of `y`, drawn as a bar.
    pub range: Option<[f64; 2]>,
    /// What a pointer over the mark shows.
    pub note: String,
}

/// Marks that belong together.
#[derive(Debug, Clone)]
pub(in crate::lab::report) struct Series {
    /// Its name in the legend.
    pub label: String,
    /// Marks are filled and lines solid; otherwise marks are hollow and lines dashed.
    pub solid: bool,
    /// A line goes through the marks.
    pub joined: bool,
    /// In the order of the line.
    pub marks: Vec<Mark>,
}

/// A line that no measurement gave.
#[derive(Debug, Clone)]
pub(in crate::lab::report) struct Rule {
    /// Its name in the legend; empty if it goes with the rule before it.
    pub label: String,
    /// The height at a place of the axis at the bottom.
    pub points: Vec<[f64; 2]>,
}

/// A chart.
#[derive(Debug, Clone)]
pub(in crate::lab::report) struct Chart {
    /// The axis at the bottom.
    pub x: Axis,
    /// The axis at the left.
    pub y: Axis,
    /// What was measured.
    pub series: Vec<Series>,
    /// What it is compared with.
    pub rules: Vec<Rule>,
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 728.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 334.0;
const LEGEND: f64 = 400.0;
const LEGEND_ROW: f64 = 22.0;
const LABEL: usize = 92;
/// Half the size of a mark.
const HALF: f64 = 4.5;
/// The same where there are many marks, which also let those below them be seen.
const HALF_OF_MANY: f64 = 3.0;
/// Number of marks from which they are many.
const MANY: usize = 120;
const COLOURS: usize = 8;

/// Ranges of both axes on the paper.
struct Plane {
    x: Range,
    y: Range,
}

impl Plane {
    fn at(&self, x: f64, y: f64) -> Option<[f64; 2]> {
        let (across, up) = (self.x.place(x)?, self.y.place(y)?);
        Some([LEFT + across * (RIGHT - LEFT), BOTTOM - up * (BOTTOM - TOP)])
    }
}

impl Chart {
    /// The picture of this identity and title; `None` if nothing can be shown.
    pub fn picture(&self, [id, title]: [String; 2], description: String) -> Option<Picture> {
        let marks = || self.series.iter().flat_map(|series| &series.marks);
        let heights = marks().flat_map(|mark| [mark.y].into_iter().chain(mark.range.into_iter().flatten()));
        let rules = || self.rules.iter().flat_map(|rule| &rule.points);
        let plane = Plane {
            x: Range::of(self.x.scale, marks().map(|mark| mark.x).chain(rules().map(|point| point[0])))?,
            y: Range::of(self.y.scale, heights.chain(rules().map(|point| point[1])))?,
        };
        let mut body = String::new();
        self.axes(&plane, &mut body);
        for (class, rule) in self.rules() {
            path(&mut body, rule.points.iter().filter_map(|[x, y]| plane.at(*x, *y)), &class);
        }
        // The first lies on top.
        let many = marks().count() >= MANY;
        for (place, series) in self.series.iter().enumerate().rev() {
            series.draw(place, many, &plane, &mut body);
        }
        let height = self.legend(&mut body);
        Some(Picture { id, title, description, size: [WIDTH, height], body })
    }

    /// The rules with their classes: each with a name has dashes of its own.
    fn rules(&self) -> impl Iterator<Item = (String, &Rule)> {
        let named = |place: usize| self.rules[..=place].iter().filter(|rule| !rule.label.is_empty()).count();
        self.rules.iter().enumerate().map(move |(place, rule)| (format!("rule r{}", named(place) % 3), rule))
    }

    fn axes(&self, plane: &Plane, body: &mut String) {
        for value in plane.x.ticks(9) {
            let Some([x, _]) = plane.at(value, plane.y.ends()[1]) else { continue };
            line(body, [x, TOP], [x, BOTTOM], "grid");
            text(body, [x, BOTTOM + 18.0], Anchor::Middle, "", &tick(value));
        }
        for value in plane.y.ticks(7) {
            let Some([_, y]) = plane.at(plane.x.ends()[1], value) else { continue };
            line(body, [LEFT, y], [RIGHT, y], "grid");
            text(body, [LEFT - 8.0, y + 4.0], Anchor::End, "", &tick(value));
        }
        // Writing into a string cannot fail.
        let (across, down) = (RIGHT - LEFT, BOTTOM - TOP);
        writeln!(body, "<rect class=\"frame\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{across}\" height=\"{down}\"/>").ok();
        text(body, [f64::midpoint(LEFT, RIGHT), BOTTOM + 42.0], Anchor::Middle, "soft", self.x.label);
        let middle = f64::midpoint(TOP, BOTTOM);
        let label = escaped(self.y.label);
        writeln!(
            body,
            "<text class=\"soft\" text-anchor=\"middle\" transform=\"translate(18 {middle}) rotate(-90)\">{label}</text>"
        )
        .ok();
    }

    /// Adds the legend; returns the height of the picture.
    fn legend(&self, body: &mut String) -> f64 {
        let (mut x, mut y) = (LEFT, LEGEND);
        let mut entry = |body: &mut String, label: &str, sample: &dyn Fn(&mut String, [f64; 2])| {
            let label = cut(label, LABEL);
            let needed = 40.0 + width(&label);
            if x > LEFT && x + needed > WIDTH {
                (x, y) = (LEFT, y + LEGEND_ROW);
            }
            sample(body, [x, y]);
            text(body, [x + 30.0, y + 4.0], Anchor::Start, "", &label);
            x += needed + 16.0;
        };
        for (place, series) in self.series.iter().enumerate() {
            entry(body, &series.label, &|body, [x, y]| {
                if series.joined {
                    line(body, [x, y], [x + 24.0, y], &series.class(place, "path"));
                }
                shape(body, place, [x + 12.0, y, HALF], &series.class(place, "key mark"), "");
            });
        }
        for (class, rule) in self.rules().filter(|(_, rule)| !rule.label.is_empty()) {
            entry(body, &rule.label, &|body, [x, y]| line(body, [x, y], [x + 24.0, y], &class));
        }
        y + LEGEND_ROW
    }
}

impl Series {
    fn class(&self, place: usize, what: &str) -> String {
        format!("{what}{} s{}", if self.solid { "" } else { " peer" }, place % COLOURS)
    }

    fn draw(&self, nth: usize, many: bool, plane: &Plane, body: &mut String) {
        let shown = || self.marks.iter().filter_map(|mark| Some((mark, plane.at(mark.x, mark.y)?)));
        if self.joined {
            path(body, shown().map(|(_, at)| at), &self.class(nth, "path"));
        }
        let range = self.class(nth, "range");
        let (what, half) = if many { ("mark many", HALF_OF_MANY) } else { ("mark", HALF) };
        let class = self.class(nth, what);
        for (mark, at) in shown() {
            let ends = mark.range.and_then(|[low, high]| Some([plane.at(mark.x, low)?, plane.at(mark.x, high)?]));
            if let Some([low, high]) = ends {
                line(body, low, high, &range);
            }
            shape(body, nth, [at[0], at[1], half], &class, &mark.note);
        }
    }
}

/// Adds a mark at a place with half its size; its form identifies the series without colour.
fn shape(body: &mut String, place: usize, [x, y, half]: [f64; 3], class: &str, note: &str) {
    let note = if note.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(note)) };
    let polygon = |points: &[[f64; 2]]| {
        let points: Vec<String> = points.iter().map(|[dx, dy]| format!("{:.1},{:.1}", x + dx * half, y + dy * half)).collect();
        format!("<polygon class=\"{class}\" points=\"{}\">{note}</polygon>\n", points.join(" "))
    };
    let element = match place % 5 {
        0 => format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{half}\">{note}</circle>\n"),
        1 => polygon(&[[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]),
        2 => polygon(&[[0.0, -1.2], [1.1, 0.8], [-1.1, 0.8]]),
        3 => polygon(&[[0.0, -1.3], [1.3, 0.0], [0.0, 1.3], [-1.3, 0.0]]),
        _ => polygon(&[[0.0, 1.2], [1.1, -0.8], [-1.1, -0.8]]),
    };
    body.push_str(&element);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(marks: usize) -> Chart {
        let mark =
            |place: usize| Mark { x: (place as f64).exp2(), y: 1.0 + place as f64, range: Some([0.5, 9.0]), note: "<n>".into() };
        let series =
            |label: &str, solid| Series { label: label.into(), solid, joined: true, marks: (0..marks).map(mark).collect() };
        Chart {
            x: Axis { label: "length", scale: Scale::Log2 },
            y: Axis { label: "rate", scale: Scale::Linear },
            series: vec![series("own & more", true), series("peer", false)],
            rules: vec![Rule { label: "peak".into(), points: vec![[1.0, 10.0], [8.0, 10.0]] }],
        }
    }

    #[test]
    fn every_mark_is_drawn_with_its_range_and_note() {
        let picture = chart(4).picture(["c".into(), "T".into()], "D".into()).expect("there are marks");
        let count = |part: &str| picture.body.matches(part).count();
        assert_eq!((count("class=\"mark s0\""), count("class=\"mark peer s1\""), count("class=\"range")), (4, 4, 8));
        assert_eq!((count("<title>&lt;n&gt;</title>"), count("class=\"rule r1\"")), (8, 2), "the legend has the rule too");
        assert!(picture.body.contains("own &amp; more") && picture.size[1] > LEGEND);
        assert!(chart(0).picture(["c".into(), "T".into()], "D".into()).is_some_and(|empty| !empty.body.contains("<title>")));
        assert!(Chart { rules: Vec::new(), ..chart(0) }.picture(["c".into(), "T".into()], "D".into()).is_none());
    }

    #[test]
    fn many_marks_are_small_and_transparent() {
        let picture = chart(MANY / 2).picture(["c".into(), "T".into()], "D".into()).expect("there are marks");
        assert_eq!(picture.body.matches("class=\"mark many").count(), MANY);
        assert!(picture.body.contains("r=\"3\"") && picture.body.contains("class=\"key mark s0\""));
    }

    #[test]
    fn a_legend_takes_as_many_lines_as_it_needs() {
        let mut chart = chart(1);
        let low = chart.picture(["c".into(), "T".into()], "D".into()).expect("marks").size[1];
        chart.series = vec![chart.series[0].clone(); 30];
        let high = chart.picture(["c".into(), "T".into()], "D".into()).expect("marks").size[1];
        assert!(high > low + 4.0 * LEGEND_ROW, "{low} {high}");
    }
}
