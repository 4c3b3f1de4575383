//! `kgen list`.

use super::{
    Global,
    select::SelectionArgs,
    show,
    table::{self, Column},
    ui,
};
use crate::{
    command::{
        self, CommandError,
        list::{Entry, Request},
    },
    kernel::{Features, HeadDim},
    plan::Plan,
    text::count,
};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  kgen list                                            the whole grid
  kgen list --dtype bf16 --causal --target ampere      a slice of it
  kgen list --head-dim 72 --plan                       any head dim, planned
  kgen list --filter 'hdim >= 128 and dtype == bf16'   a condition
  kgen list --set standard-74 --format json            a named set, for scripts
  kgen --variants my.toml list                         another grid";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Add the plan of each variant: tile, shared memory, registers, blocks per multiprocessor.
    #[arg(long)]
    plan: bool,

    /// Build folder in which `--plan` looks up registers of compiled kernels.
    #[arg(long, value_name = "DIR", default_value = "build")]
    build_dir: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// The errors of [`command::list::run`], and [`CommandError::Failed`] after the list.
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    let Args { selection, plan, build_dir } = args;
    let request = Request { selection: selection.into(), plan, build_dir };
    let outcome = command::list::run(&request, &global.context(), &global.console())?;
    show(global, &outcome, || table(&outcome.entries, plan))?;
    outcome.notes.iter().for_each(|note| ui::note(note));
    outcome.verdict()
}

impl Entry {
    fn pair_of_head_dims(&self) -> Option<HeadDim> {
        Some(HeadDim { qk: self.head_dim?, v: self.head_dim_v? })
    }

    fn has_features(&self) -> bool {
        self.features.is_some_and(|features| features != Features::NONE)
    }

    fn cells(&self, shown: Shown) -> Vec<String> {
        let or_dash = |cell: Option<String>| cell.unwrap_or_else(|| "-".to_owned());
        let mask = self.causal.map(|causal| if causal { "causal" } else { "full" }.to_owned());
        let mut cells = vec![
            self.name.clone(),
            self.kind.to_string(),
            or_dash(self.pair_of_head_dims().map(|head_dim| head_dim.to_string())),
            or_dash(self.dtype.map(|dtype| dtype.to_string())),
            or_dash(mask),
        ];
        if shown.features {
            cells.push(or_dash(self.features.filter(|_| self.has_features()).map(|features| features.to_string())));
        }
        cells.push(self.target.to_string());
        if shown.plan {
            let of = |cell: &dyn Fn(&Plan) -> String| or_dash(self.plan.as_ref().map(cell));
            cells.push(of(&|plan| plan.tile().to_string()));
            cells.push(of(&|plan| plan.shared_memory_bytes.to_string()));
            cells.push(of(&|plan| plan.registers.total.to_string()));
            if shown.compiled {
                cells.push(or_dash(self.compiled_registers.map(|registers| registers.to_string())));
            }
            cells.push(of(&|plan| plan.occupancy.blocks_per_sm.to_string()));
        }
        cells
    }
}

/// Optional columns of the table.
#[derive(Clone, Copy)]
struct Shown {
    /// Some variant has features.
    features: bool,
    plan: bool,
    /// The registers of some variant are known from a build.
    compiled: bool,
}

fn table(entries: &[Entry], with_plan: bool) -> String {
    let compiled = entries.iter().any(|entry| entry.compiled_registers.is_some());
    let shown = Shown { features: entries.iter().any(Entry::has_features), plan: with_plan, compiled };
    let mut columns = vec![
        Column::text("name").needed(),
        Column::text("kind"),
        Column::number("head dim"),
        Column::text("dtype"),
        Column::text("mask"),
    ];
    columns.extend(shown.features.then(|| Column::text("features")));
    columns.push(Column::text("target"));
    if shown.plan {
        // Requested columns stay when a narrow terminal drops others.
        columns.push(Column::text("tile").needed());
        // The planned registers count the kernel's arrays only; the compiler needs 18 to 55 more.
        let compiled = shown.compiled.then_some("compiled");
        let headings = ["smem (B)", "regs ≥"].into_iter().chain(compiled).chain(["blocks/SM"]);
        columns.extend(headings.map(|heading| Column::number(heading).needed()));
    }
    let table = table::of(&columns, entries.iter().map(|entry| entry.cells(shown)));
    let bound = match (shown.plan, shown.compiled) {
        (false, _) => "",
        (true, false) => "; registers are a lower bound, `kgen build` prints the compiler's",
        (true, true) => "; registers are a lower bound, and beside it the compiler's where the last build had the same source",
    };
    format!("{table}\n{}{bound}\n", count(entries.len(), "variant"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family::attention::{self, CopyPath, Fp8Mma, Kind, Point, StorePath, Tile, Turns},
        kernel::{Dtype, Target, Variant},
        plan::{AnyDesign, Limits, Occupancy, RegisterEstimate, TensorCore},
    };

    const POINT: Point = Point {
        kind: Kind::Fwd,
        head_dim: HeadDim::equal(72),
        dtype: Dtype::Fp16,
        causal: true,
        features: Features::NONE,
        target: Target::Sm80,
    };
    fn variant() -> Variant {
        POINT.into()
    }

    /// A plan with made-up numbers: the test is about their place in the output.
    fn plan() -> Plan {
        let tile = Tile {
            m: 128,
            n: 64,
            warps: 4,
            stages: 2,
            q_in_registers: false,
            min_blocks_per_sm: 2,
            rescale_threshold: 0,
            copy: CopyPath::CpAsync,
            fp8_mma: Fp8Mma::Fp32,
            overlap: false,
            turns: Turns::None,
            persistent: false,
            cluster: 1,
            store: StorePath::Direct,
        };
        let limits = Limits {
            shared_memory_per_block: 166_912,
            shared_memory_per_sm: 167_936,
            shared_memory_reserved: 1024,
            registers_per_sm: 65_536,
            registers_per_thread: 255,
            warps_per_sm: 64,
            blocks_per_sm: 32,
        };
        Plan {
            variant: variant(),
            run_as: None,
            template: "attention/fwd_sm80.cu.tera",
            design: AnyDesign::new(attention::Design {
                tile,
                rows_per_warp: 32,
                head_dim_padded: 80,
                head_dim_v_padded: 80,
                early: false,
                widened_to: None,
                kv_columns: None,
                kv: attention::Kv { from: attention::KvSource::CpAsync, threads: 0, registers: 0 },
                panels: vec![],
                panels_v: vec![],
                features: attention::FeatureParts::of(POINT),
                fp8: None,
                backward: None,
                hopper: None,
            }),
            threads: 128,
            shared_memory: vec![],
            shared_memory_bytes: 40_960,
            registers: RegisterEstimate { output: 1, scores: 2, query: 3, other: 4, total: 210 },
            occupancy: Occupancy { blocks_per_sm: 3, warps_per_sm: 12, limited_by: "registers" },
            limits,
            tensor_core: TensorCore::Hmma,
        }
    }

    #[test]
    fn a_table_with_plans_shows_tile_shared_memory_registers_and_blocks() {
        let refused = "no template".to_owned();
        let text = table(&[Entry::new(variant(), Some(Ok(plan()))), Entry::new(variant(), Some(Err(refused)))], true);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let planned = [
            "flash_fwd_hdim72_fp16_causal_sm80",
            "fwd",
            "72",
            "fp16",
            "causal",
            "sm80",
            "128×64,",
            "4",
            "warps",
            "40960",
            "210",
            "3",
        ];
        assert_eq!(rows[1], planned);
        assert_eq!(rows[2][6..], ["-", "-", "-", "-"]);
        assert!(text.lines().all(|line| line.len() == line.trim_end().len()), "no blanks at line ends");
        assert!(text.contains("regs ≥"), "an estimate that the compiler exceeds is no number of registers: {text}");
        assert!(text.ends_with("\n\n2 variants; registers are a lower bound, `kgen build` prints the compiler's\n"), "{text}");
    }

    #[test]
    fn registers_that_a_build_has_found_stand_beside_the_bound() {
        let known = Entry { compiled_registers: Some(247), ..Entry::new(variant(), Some(Ok(plan()))) };
        let text = table(&[known, Entry::new(variant(), Some(Ok(plan())))], true);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows[0].ends_with(&["regs", "≥", "compiled", "blocks/SM"]), "{text}");
        assert!(rows[1].ends_with(&["210", "247", "3"]) && rows[2].ends_with(&["210", "-", "3"]), "{text}");
        assert!(!table(&[Entry::new(variant(), Some(Ok(plan())))], true).contains("compiled"));
    }

    #[test]
    fn a_table_has_a_column_of_features_where_some_variant_has_any() {
        let features: Features = serde_json::from_value(serde_json::json!(["window", "sinks"])).expect("it is a set");
        let windowed = Variant::from(Point { features, ..POINT });
        let text = table(&[Entry::new(variant(), None), Entry::new(windowed, None)], false);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0][6..], ["features", "target"], "`head dim` is two words: {text}");
        assert_eq!(rows[1][4..], ["causal", "-", "sm80"]);
        assert_eq!(rows[2][4..], ["causal", "window,sinks", "sm80"]);
        assert!(!table(&[Entry::new(variant(), None)], false).contains("features"));
    }

    #[test]
    fn json_holds_the_plan_or_why_there_is_none_only_when_asked() {
        let refused = "no template".to_owned();
        let entries =
            [Entry::new(variant(), Some(Ok(plan()))), Entry::new(variant(), Some(Err(refused))), Entry::new(variant(), None)];
        let list = serde_json::to_value(entries).expect("plain data");
        assert_eq!(list[0]["plan"]["tile"]["m"], 128);
        assert!(
            list[1].get("plan").is_none() && list[1]["plan_error"].as_str().is_some_and(|error| error.contains("no template"))
        );
        assert!(list[2].get("plan").is_none() && list[2].get("plan_error").is_none());
    }

    #[test]
    fn a_helper_kernel_has_no_head_dim_dtype_or_mask_to_list() {
        let helper = Variant::from(Point { kind: Kind::FwdCombine, head_dim: HeadDim::equal(0), causal: false, ..POINT });
        let entry = Entry::new(helper, None);
        assert_eq!(
            entry.cells(Shown { features: false, plan: false, compiled: false }),
            ["flash_fwd_combine_sm80", "fwd_combine", "-", "-", "-", "sm80"]
        );
        let json = serde_json::to_value(entry).expect("plain data");
        let value = |key| json.get(key).unwrap_or_else(|| panic!("no `{key}`"));
        assert!(["head_dim", "dtype", "causal"].iter().all(|key| value(key).is_null()), "{json}");
    }
}
