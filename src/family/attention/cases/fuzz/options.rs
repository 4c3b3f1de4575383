//! Draws a call's masks and scores from the features of a kernel.

use crate::{
    expression::KeptScore,
    family::attention::{
        CallOptions, DeclaredCall,
        features::rooms,
        random::{Draw, Rng, once_in, pick, weighted},
    },
    kernel::Features,
};
use rand::RngExt;

/// Draws some of the features, often all, sometimes none; nothing for a plain kernel. Ends of windows and chunks are at
/// or next to tile ends, near the lengths of the sequences, or beyond them.
pub fn draw(rng: &mut Rng, features: Features, sequences: &[(usize, usize)]) -> CallOptions {
    let mut options = CallOptions::default();
    if features.is_empty() {
        return options;
    }
    let longest = sequences.iter().map(|s| s.0.max(s.1)).max().unwrap_or(0);
    let one_of = weighted(rng, &[(3, 1), (4, 2), (1, 0)]);
    let mut is_asked = |optional: bool| !optional || (one_of > 0 && once_in(rng, one_of));
    let chosen: Vec<_> = rooms(features).filter(|room| is_asked(room.is_optional())).collect();
    let draw = &mut Draw { rng, longest };
    for room in chosen {
        room.draw(draw, &mut options);
    }
    options.declared = features.score().map(|score| declared(draw, score));
    options
}

/// A declared score is always used, because its kernels serve no other calls.
fn declared(draw: &mut Draw<'_>, score: KeptScore) -> DeclaredCall {
    let integer = match draw.rng.random_range(0..8) {
        0 => draw.rng.random_range(-3..8),
        1 => 1_000_000,
        _ => draw.length() as i32,
    };
    DeclaredCall { set: pick(draw.rng, &DeclaredCall::sets(score)), integer, score }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Feature;
    use rand::SeedableRng;

    #[test]
    fn a_call_asks_for_some_of_what_a_kernel_has_and_for_nothing_else() {
        let mut rng = Rng::seed_from_u64(1);
        let held = Features::from_iter([Feature::Window, Feature::Sinks]);
        let drawn: Vec<CallOptions> = (0..400).map(|_| draw(&mut rng, held, &[(70, 300)])).collect();
        assert!(drawn.iter().all(|options| held.contains(options.wanted(false).1)));
        for (window, sinks) in itertools::iproduct!([false, true], [false, true]) {
            let count =
                drawn.iter().filter(|options| (options.window.is_some(), options.sinks.is_some()) == (window, sinks)).count();
            assert!(count > 20, "{window} {sinks}: {count}");
        }
    }

    #[test]
    fn windows_and_chunks_end_at_the_borders_of_tiles_and_beside_them() {
        let mut rng = Rng::seed_from_u64(1);
        let drawn: Vec<CallOptions> = (0..4000).map(|_| draw(&mut rng, Features::all(), &[(70, 300)])).collect();
        for wanted in [-1, 0, 63, 64, 65, 127, 128, 129, i32::MAX] {
            assert!(drawn.iter().any(|options| options.window.is_some_and(|sides| sides.contains(&wanted))), "window {wanted}");
        }
        for wanted in [1, 63, 64, 65, 128, i32::MAX as u32] {
            assert!(drawn.iter().any(|options| options.chunk == wanted), "chunk {wanted}");
        }
    }
}
