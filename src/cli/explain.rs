//! `kgen explain`.

mod call;

use super::{
    Global,
    db::StoreArgs,
    escape::cell,
    select::SelectionArgs,
    show,
    table::{self, Column},
};
use crate::{
    command::{
        self, CommandError, call as choice,
        explain::{Choice, Explanation, Measured, Neighbour, Optimisation, Predicted, Reason, Request},
    },
    family,
    lab::ladder::Gain,
    text::size,
};
use call::CallArgs;
use std::fmt::Write;

const EXAMPLES: &str = "\
Examples:
  kgen explain flash_fwd_hdim128_bf16_causal_sm90
  kgen explain flash_fwd_hdim128_bf16_causal_sm90 --gpu h200
                                                with predicted times
  kgen explain --head-dim 72 --dtype bf16 --causal --target sm80
  kgen explain flash_fwd_hdim64_fp16_sm80 --format json
                                                for scripts
  kgen explain --call --gpu h100 --batch 1 --heads 32 --heads-k 8 --seqlen-q 1 \\
      --seqlen-k 32768 --head-dim 128 --dtype bf16
                                                the dispatcher's choice";

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    selection: SelectionArgs,

    /// Also predict times on this card: of the kernel, and of the tiles beside it. With `--call`: the call's card.
    #[arg(long, value_name = "CARD")]
    gpu: Option<String>,

    /// Refused, with what takes it: clap would suggest `--seqlen-k`, which the plan of a kernel does not depend on
    /// either.
    #[arg(long, hide = true, value_name = "N", allow_hyphen_values = true)]
    seqlen: Option<String>,

    #[command(flatten)]
    call: CallArgs,

    #[command(flatten)]
    store: StoreArgs,
}

/// Runs the command.
///
/// # Errors
/// As [`command::explain::run`] and [`command::call::run`].
pub fn run(global: &Global, args: Args) -> Result<(), CommandError> {
    if args.seqlen.is_some() {
        let why = "a kernel's plan is the same for all lengths, so that `--seqlen` explains nothing";
        let how = "`kgen predict` takes it; with `--call`, give `--seqlen-q` and `--seqlen-k`";
        return Err(CommandError::Usage(format!("{why}; {how}")));
    }
    if args.call.call {
        let outcome = command::call::run(&args.into(), &global.context(), &global.console())?;
        return show(global, &outcome, || call::describe(&outcome));
    }
    let request = Request { selection: args.selection.into(), db: args.store.db, gpu: args.gpu };
    let outcome = command::explain::run(&request, &global.context(), &global.console())?;
    show(global, &outcome, || outcome.kernels.iter().map(describe).collect::<Vec<_>>().join("\n"))
}

impl From<Args> for choice::Request {
    fn from(Args { selection, gpu, call, store, .. }: Args) -> Self {
        Self {
            selection: selection.into(),
            // clap requires what has no default.
            gpu: gpu.unwrap_or_default(),
            batch: call.batch.unwrap_or_default(),
            heads: call.heads.unwrap_or_default(),
            heads_k: call.heads_k,
            seqlen_q: call.seqlen_q.unwrap_or_default(),
            seqlen_k: call.seqlen_k.unwrap_or_default(),
            total_q: call.total_q,
            total_k: call.total_k,
            page_size: call.page_size(),
            kv_dtype: call.kv_dtype(),
            window: call.window.map(|window| window.0),
            num_splits: call.num_splits.unwrap_or_default(),
            db: store.db,
        }
    }
}

fn describe(kernel: &Explanation) -> String {
    let Explanation { name, template, tile, threads, occupancy, registers, .. } = kernel;
    let mut text = format!("{name}\n  templates/{template}\n  tile: {tile}\n");
    let shared = size(kernel.shared_memory_bytes.into());
    // Writing into a string cannot fail.
    writeln!(
        text,
        "  {threads} threads, {shared} of shared memory, about {registers} registers a thread: {} a multiprocessor, limited by {}",
        crate::text::count(occupancy.blocks_per_sm as usize, "block"),
        occupancy.limited_by
    )
    .ok();
    if !kernel.reasons.is_empty() {
        text += "\nwhy this tile (later rows win)\n";
        kernel.reasons.iter().for_each(|reason| text += &describe_reason(reason));
    }
    if !kernel.optimisations.is_empty() {
        text += "\noptimisations (the effects are those of the kernels, shapes and cards that were timed)\n";
        kernel.optimisations.iter().for_each(|optimisation| text += &describe_optimisation(optimisation));
    }
    if !kernel.ladder.is_empty() {
        text += &describe_ladder(kernel);
    }
    if !kernel.neighbours.is_empty() {
        let columns = ["one key changed", "shared memory", "registers", "blocks", "limited by", "time/default", "predicted"];
        text += "\n";
        text += &table::of(&columns.map(Column::text), kernel.neighbours.iter().map(|neighbour| line(neighbour).into()));
    }
    if !kernel.predicted.is_empty() {
        let columns = ["size", "µs, predicted", "of peak", "limited by", "card"];
        text += "\n";
        text += &table::of(&columns.map(Column::text), kernel.predicted.iter().map(|call| predicted_line(call, kernel)));
    }
    if let Some(why) = &kernel.unpredicted {
        writeln!(text, "\n{why}").ok();
    }
    text += "\n";
    if kernel.measured.is_empty() {
        text += "not measured: `kgen bench` adds times to the store\n";
    } else {
        let columns = ["size", "µs", "TFLOP/s", "of peak", "card", "date", "source"];
        text += &table::of(&columns.map(Column::text), kernel.measured.iter().map(|measured| measured_line(measured).into()));
    }
    text
}

fn describe_reason(Reason { when, keys, reason, measured }: &Reason) -> String {
    let when = when.as_deref().unwrap_or("every kernel of the template");
    let mut text = format!("  {} ({when})\n", keys.join(", "));
    for line in reason.iter().map(String::as_str).chain(measured.as_deref()) {
        text = text + "    " + line + "\n";
    }
    text
}

fn describe_optimisation(Optimisation { id, name, status, when, reason, measured }: &Optimisation) -> String {
    format!("  {id} {name}: {}\n    {when}\n    {reason}\n    measured: {measured}\n", status.word())
}

/// The choices of the tile with their gains, and the command that measures what is not known.
fn describe_ladder(Explanation { name, ladder, .. }: &Explanation) -> String {
    let columns = ["choice taken back", "time without it", "95 %", "passes", "card", "date", "sizes"];
    let rows = ladder.iter().flat_map(|choice| choice.gains.iter().map(|gain| gain_line(choice, gain)));
    let mut text = "\nwhat the choices of the tile gain\n".to_owned();
    if ladder.iter().any(|choice| !choice.gains.is_empty()) {
        text += &table::of(&columns.map(Column::text), rows);
    }
    for choice in ladder.iter().filter(|choice| choice.gains.is_empty()) {
        let why = choice.refused.as_deref().unwrap_or("not measured");
        // Writing into a string cannot fail.
        writeln!(text, "  {}: {why}", choice.switch.change()).ok();
    }
    if ladder.iter().any(|choice| choice.gains.is_empty() && choice.refused.is_none()) {
        writeln!(text, "  `kgen tune {name} --ladder` measures them").ok();
    }
    text
}

fn gain_line(choice: &Choice, gain: &Gain) -> Vec<String> {
    let [low, high] = gain.time.interval;
    vec![
        choice.switch.change(),
        format!("{:.3}", gain.time.mean),
        if gain.time.passes > 1 { format!("{low:.3} to {high:.3}") } else { String::new() },
        gain.time.passes.to_string(),
        gain.gpu.clone(),
        gain.date.get(..10).unwrap_or(&gain.date).to_owned(),
        gain.sizes.join("; "),
    ]
}

fn line(neighbour: &Neighbour) -> [String; 7] {
    let Neighbour { key, value, shared_memory_bytes, registers, occupancy, time_ratio, predicted_ratio } = neighbour;
    [
        format!("{key} = {value}"),
        size((*shared_memory_bytes).into()),
        registers.to_string(),
        occupancy.blocks_per_sm.to_string(),
        occupancy.limited_by.to_owned(),
        time_ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}")),
        predicted_ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}")),
    ]
}

fn predicted_line(predicted: &Predicted, kernel: &Explanation) -> Vec<String> {
    let Predicted { size, gpu, microseconds, of_peak, limit } = predicted;
    vec![
        family::of(kernel.variant.kind()).label(size),
        format!("{microseconds:.1}"),
        format!("{:.0} %", 100.0 * of_peak),
        limit.word().to_owned(),
        gpu.clone(),
    ]
}

fn measured_line(measured: &Measured) -> [String; 7] {
    [
        cell(&measured.size),
        format!("{:.2}", measured.microseconds),
        measured.tflops.map_or_else(String::new, |tflops| format!("{tflops:.1}")),
        measured.of_peak.map_or_else(String::new, |part| format!("{:.0} %", 100.0 * part)),
        cell(&measured.gpu),
        cell(&measured.date),
        if measured.current { "current" } else { "older" }.to_owned(),
    ]
}
