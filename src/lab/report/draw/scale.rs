//! Scales: where a value lies along an axis, and which values are written beside it.

/// How values lie along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lab::report) enum Scale {
    /// In proportion, from zero.
    Linear,
    /// By powers of two.
    Log2,
    /// By powers of ten.
    Log10,
}

/// A part of a scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Range {
    /// The range that shows all of `values`; those that the scale cannot show are left out. `None` if none is left.
    pub fn of(scale: Scale, values: impl Iterator<Item = f64>) -> Option<Self> {
        let shown = values.filter(|value| value.is_finite() && (scale == Scale::Linear || *value > 0.0));
        let [low, high] = shown.fold(None, |ends: Option<[f64; 2]>, value| {
            Some(ends.map_or([value; 2], |[low, high]| [low.min(value), high.max(value)]))
        })?;
        Some(match scale {
            Scale::Linear => {
                let low = low.min(0.0);
                let high = if high > low { high } else { low + 1.0 };
                Self { scale, low: low * 1.05, high: low + (high - low) * 1.08 }
            }
            Scale::Log2 => Self { scale, low: low / 1.4, high: high * 1.4 },
            Scale::Log10 => Self { scale, low: low / 1.5, high: high * 1.5 },
        })
    }

    /// The ends.
    pub fn ends(&self) -> [f64; 2] {
        [self.low, self.high]
    }

    /// The place of `value`, from 0 to 1 within the range; `None` if the scale cannot show it.
    pub fn place(&self, value: f64) -> Option<f64> {
        let measure = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log2 | Scale::Log10 => value.ln(),
        };
        let (low, high) = (measure(self.low), measure(self.high));
        Some((measure(value) - low) / (high - low)).filter(|place| place.is_finite())
    }

    /// The values to write beside the axis, about `wanted` of them.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        match self.scale {
            Scale::Linear => self.linear_ticks(wanted),
            Scale::Log2 => {
                let powers: Vec<i32> = (self.low.log2().ceil() as i32..=self.high.log2().floor() as i32).collect();
                let every = powers.len().div_ceil(wanted.max(1)).max(1);
                powers.into_iter().step_by(every).map(|power| 2_f64.powi(power)).collect()
            }
            Scale::Log10 => {
                let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
                let within = |steps: &[f64]| -> Vec<f64> {
                    let all = decades.clone().flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
                    all.filter(|value| (self.low..=self.high).contains(value)).collect()
                };
                let candidates = [within(&[1.0, 2.0, 5.0]), within(&[1.0, 3.0]), within(&[1.0])];
                let fit = candidates.iter().find(|ticks| ticks.len() <= wanted).unwrap_or(&candidates[2]);
                let every = fit.len().div_ceil(wanted.max(1)).max(1);
                if fit.len() < 3 { self.linear_ticks(wanted) } else { fit.iter().copied().step_by(every).collect() }
            }
        }
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<f64> {
        let step = (self.high - self.low) / wanted.max(1) as f64;
        let power = 10_f64.powf(step.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|nice| nice * power).into_iter().find(|nice| *nice >= step).unwrap_or(step);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|place| place as f64 * step).collect()
    }
}

/// A value of a tick: without digits that are not there.
pub(super) fn tick(value: f64) -> String {
    if value != 0.0 && !(1e-5..1e7).contains(&value.abs()) {
        return format!("{value:e}");
    }
    let digits = if value == 0.0 { 0 } else { (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(scale: Scale, values: &[f64]) -> Range {
        Range::of(scale, values.iter().copied()).expect("there are values")
    }

    #[test]
    fn all_values_lie_within_and_ticks_are_round() {
        for scale in [Scale::Linear, Scale::Log2, Scale::Log10] {
            for values in [[1.0, 1.0], [512.0, 8192.0], [0.003, 0.004], [1e-6, 1e9]] {
                let range = range(scale, &values);
                for value in values {
                    assert!(range.place(value).is_some_and(|place| (0.0..=1.0).contains(&place)), "{scale:?} {value}");
                }
                let ticks = range.ticks(7);
                assert!((1..=8).contains(&ticks.len()), "{scale:?} {values:?} {ticks:?}");
                assert!(ticks.iter().all(|tick| range.place(*tick).is_some_and(|place| (-1e-9..=1.0 + 1e-9).contains(&place))));
            }
        }
        assert_eq!(range(Scale::Log2, &[512.0, 8192.0]).ticks(8), [512.0, 1024.0, 2048.0, 4096.0, 8192.0]);
        assert_eq!(range(Scale::Linear, &[9.0]).ticks(5), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(range(Scale::Log10, &[20.0, 600.0]).ticks(7), [20.0, 50.0, 100.0, 200.0, 500.0]);
    }

    #[test]
    fn what_a_scale_cannot_show_has_no_place() {
        assert!(Range::of(Scale::Log10, [0.0, -1.0, f64::NAN].into_iter()).is_none());
        assert_eq!(range(Scale::Log2, &[1.0, 2.0]).place(0.0), None);
    }

    #[test]
    fn labels_have_no_idle_digits() {
        let of = [0.0, 0.25, 1.0, 2.5, 1024.0, 0.001, 131_072.0, 1e9].map(tick);
        assert_eq!(of, ["0", "0.25", "1", "2.5", "1024", "0.001", "131072", "1e9"]);
    }
}
