//! Default tiles: the files of `tiles/`, embedded in the binary and parsed at first use.

use super::{Point, Tile, tile::BASE};
use crate::{family::attention::tile_keys, grid::TileFile, kernel::TileKey};

/// The file with this name in `tiles/`, as a `LazyLock`.
macro_rules! tile_file {
    ($name:literal) => {
        std::sync::LazyLock::new(|| {
            crate::family::attention::recipes::defaults::read(
                $name,
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tiles/", $name)),
            )
        })
    };
}

pub(super) use tile_file;

/// Parses the text of the file `name`.
///
/// # Panics
/// If the text is invalid, which tests exclude.
pub(super) fn read(name: &str, text: &str) -> TileFile {
    let keys: Vec<&TileKey> = tile_keys::KEYS.iter().collect();
    TileFile::parse(text, &format!("tiles/{name}"), &keys).unwrap_or_else(|error| panic!("{error}"))
}

/// The default tile of a kernel: the keys set by matching rows, and [`BASE`] for the rest.
pub(super) fn default_of(file: &TileFile, variant: Point) -> Result<Tile, String> {
    let Some(rows) = file.table.of(&variant.into()) else {
        return Err(format!("`{variant}` has no default tile"));
    };
    Ok(BASE.changed(&rows))
}

#[cfg(test)]
mod tests {
    //! Tests of the files of `tiles/` as a whole: every row has an effect, and every kernel has a default and
    //! candidates.

    use super::super::{Kind, Recipe, recipe_of};
    use crate::{
        expression::{Declared, KeptScore, UserScore},
        family::{self, attention::Point},
        grid::Grid,
        kernel::{Dtype, Feature, Features, HeadDim, Target, Variant},
        plan::Plan,
        render::{Renderer, Templates},
    };
    use rand::{RngExt, SeedableRng, seq::IndexedRandom};
    use rand_chacha::ChaCha8Rng;
    use std::{
        collections::{BTreeMap, BTreeSet},
        path::Path,
    };

    const KINDS: [Kind; 4] = [Kind::Fwd, Kind::FwdShort, Kind::FwdSplit, Kind::Bwd];

    /// A file, with the rows that have had no effect so far.
    struct Untouched {
        recipe: &'static dyn Recipe,
        rows: BTreeSet<usize>,
    }

    /// The recipes with a file, by template.
    fn recipes() -> BTreeMap<&'static str, Untouched> {
        let targets = Target::ALL.iter().copied();
        let head_dims = [HeadDim::equal(64), HeadDim::equal(192), HeadDim::LATENT];
        let points = itertools::iproduct!(KINDS, [Dtype::Bf16, Dtype::Fp8], head_dims, targets);
        let recipes = points.filter_map(|(kind, dtype, head_dim, target)| {
            let features = (head_dim == HeadDim::LATENT).then_some(Feature::Qv);
            recipe_of(Point { kind, head_dim, dtype, causal: false, features: features.into_iter().collect(), target }).ok()
        });
        let with_rows = recipes.filter_map(|recipe| {
            let rows = recipe.tiles()?.table.rows().len();
            Some((recipe.template(), Untouched { recipe, rows: (0..rows).collect() }))
        });
        with_rows.collect()
    }

    /// A random kernel of a recipe that users can request.
    fn random_point(rng: &mut ChaCha8Rng, scores: &[KeptScore]) -> Option<(Point, &'static dyn Recipe)> {
        let head_dim = |rng: &mut ChaCha8Rng| rng.random_range(2..=32) * 8;
        let qk = head_dim(rng);
        let plain = Point {
            kind: *KINDS.choose(rng)?,
            head_dim: HeadDim { qk, v: if rng.random_bool(0.5) { qk } else { head_dim(rng) } },
            dtype: *[Dtype::Fp16, Dtype::Bf16, Dtype::Fp8].choose(rng)?,
            causal: rng.random(),
            features: Features::NONE,
            target: *Target::ALL.choose(rng)?,
        };
        let recipe = recipe_of(plain).ok()?;
        if rng.random_bool(0.3) {
            return Some((plain, recipe));
        }
        let score = if rng.random_bool(0.3) { scores.choose(rng).copied() } else { None };
        // Second tiles go with nothing else.
        let (second, others): (Vec<_>, Vec<_>) = recipe.features().iter().partition(|feature| feature.info().is_second_tile);
        let features: Features = if !second.is_empty() && rng.random_bool(0.1) {
            second.choose(rng).copied().into_iter().collect()
        } else {
            others.into_iter().filter(|_| rng.random_bool(0.25)).collect()
        };
        Some((Point { features: features.with_score(score), ..plain }, recipe))
    }

    fn scores() -> Vec<KeptScore> {
        let of = |name, score, mask| KeptScore::of(UserScore::of(name, Declared::default(), score, mask).expect("it reads"));
        vec![of("halved", Some("s / 2"), None), of("even", None, Some("k % 2 == 0"))]
    }

    #[test]
    fn without_any_row_some_kernel_would_have_another_tile() {
        let mut left = recipes();
        assert_eq!(left.len(), 11, "a file for each recipe with tiles");
        // Only one kernel has it.
        left.remove("attention/fwd_mla_sm90.cu.tera");
        let (mut rng, scores) = (ChaCha8Rng::seed_from_u64(5), scores());
        for _ in 0..4_000_000 {
            let Some((point, recipe)) = random_point(&mut rng, &scores) else { continue };
            let (Some(of_file), Some(file)) = (left.get_mut(recipe.template()), recipe.tiles()) else { continue };
            if recipe.default_tile(point).is_err() {
                continue;
            }
            let variant = Variant::from(point);
            let whole = file.table.of(&variant);
            let matching = |row: &usize| file.table.rows()[*row].matches(&variant);
            of_file.rows.retain(|row| !matching(row) || file.table.without(*row).of(&variant) == whole);
            if of_file.rows.is_empty() {
                left.remove(recipe.template());
            }
            if left.is_empty() {
                return;
            }
        }
        let described = left.values().flat_map(|file| {
            let rows = file.recipe.tiles().expect("it has a file").table.rows();
            file.rows.iter().map(|row| format!("{}: line {}", file.recipe.template(), rows[*row].line))
        });
        panic!("these rows change no tile:\n{}", described.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn keys_of_a_file_are_those_that_its_kernels_read_and_records_are_there() {
        for Untouched { recipe, .. } in recipes().into_values() {
            let file = recipe.tiles().expect("it has a file");
            for row in file.table.rows() {
                let record = row.measured.as_deref().map(|record| Path::new(env!("CARGO_MANIFEST_DIR")).join(record));
                assert!(record.is_none_or(|record| record.is_file()), "{}: line {}", recipe.template(), row.line);
            }
            for (key, values) in &file.candidates {
                assert!(recipe.keys().contains(&key.name), "{}: {}", recipe.template(), key.name);
                assert!(!values.is_empty() && !["rescale_threshold", "accuracy"].contains(&key.name), "{}", key.name);
            }
        }
    }

    #[test]
    fn every_kernel_of_the_grid_has_distinct_candidates_with_its_default_among_them_as_many_as_the_page_says() {
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for variant in Grid::builtin().variants() {
            let Some(point) = Point::of(variant) else { continue };
            let default = Plan::new(point, None).unwrap_or_else(|error| panic!("{error}"));
            let tiles: Vec<_> =
                family::candidates(*variant).expect("it has a default").map(|plan| plan.attention().tile).collect();
            assert!(tiles.contains(&default.attention().tile), "{variant}");
            assert!(tiles.iter().enumerate().all(|(at, tile)| !tiles[..at].contains(tile)), "{variant}");
            let (kernels, candidates) = counts.entry(default.template).or_default();
            (*kernels, *candidates) = (*kernels + 1, *candidates + tiles.len());
        }
        let page = include_str!("../../../../docs/tiles.md");
        let cells = page.lines().filter_map(|line| line.strip_prefix("| `tiles/")?.split_once("` | "));
        let of_file: BTreeMap<&str, &str> = cells.clone().filter(|(_, rest)| !rest.starts_with('`')).collect();
        let files = cells.filter_map(|(file, rest)| Some((file, rest.strip_prefix("`templates/")?.split_once('`')?.0)));
        for (file, template) in files {
            let (kernels, candidates) = counts[template];
            let mean = (candidates as f64 / kernels as f64).round();
            let shown = of_file.get(file).copied().unwrap_or("1 |");
            assert_eq!(shown, format!("{mean} |"), "docs/tiles.md, candidates of `tiles/{file}`");
        }
        assert_eq!(of_file.len() + 1, recipes().len(), "all files but that of one tile");
    }

    #[test]
    fn candidates_render() {
        let renderer = Renderer::new(&Templates::embedded()).expect("the templates parse");
        let (mut rng, grid) = (ChaCha8Rng::seed_from_u64(6), Grid::builtin());
        for variant in grid.variants().sample(&mut rng, 120) {
            for plan in family::candidates(*variant).expect("it has a default").step_by(3) {
                let text = renderer.kernel(&plan);
                assert!(text.is_ok(), "{variant} {}: {:?}", plan.tile(), text.err());
            }
        }
    }
}
