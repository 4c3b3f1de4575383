//! One kernel at one shape on the GPU: lays the tensors out, checks what it computes, times it, and checks again.

use super::{
    Shape,
    data::Normals,
    sample::{Sample, elements, fp32, relative_error, softmax_scale},
};
use crate::{
    check::{Number, merge_splits},
    device::{
        BwdParams, DeviceError, DeviceMemory, FwdParams, Gpu, GpuFacts, Launch, Nvml, Params, RoundTimes, Strides, TimingPlan,
    },
    grid::{Dtype, Kind, Variant},
};

/// Relative error of the sampled rows that a 16-bit kernel may have; rounding gives 0.002 to 0.005.
const LARGEST_ERROR: f64 = 0.02;

/// The same of an FP8 kernel, whose P has three bits of mantissa: 0.02 to 0.03.
const LARGEST_ERROR_FP8: f64 = 0.08;

/// Distance of LSE from the reference that is still the same LSE.
const LARGEST_LSE_ERROR: f64 = 1e-3;

/// K and V together go round copies that are so many times the L2, where the L2 is to be cold.
const COLD_L2_TIMES: f64 = 10.0;

/// Most splits that a launcher takes, and the fewest keys worth a split (`kgen/split_plan.cuh`).
const MOST_SPLITS: u32 = 256;
const FEWEST_KEYS: u32 = 128;

/// Rows of a split kernel's tile, and blocks of it that a multiprocessor runs at once.
const SPLIT_ROWS: u32 = 16;
const SPLIT_BLOCKS: u32 = 2;

/// Why there is no time.
#[derive(Debug)]
pub enum Failure {
    /// The kernel computes something else, or refuses, or faults.
    Wrong(String),
    /// The machine did not let it run.
    Machine(String),
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        if error.blames_kernel() { Self::Wrong(error.to_string()) } else { Self::Machine(error.to_string()) }
    }
}

/// What was measured.
pub struct Finding {
    /// Times and the card meanwhile.
    pub times: RoundTimes,
    /// Largest relative error of the sampled rows, over all outputs.
    pub relative_error: f64,
    /// Splits of the keys, where they are split.
    pub num_splits: Option<u32>,
    /// Whether K and V came from memory rather than from a warm L2.
    pub cold_l2: bool,
}

/// A tensor that a kernel writes.
struct Output {
    name: &'static str,
    bytes: usize,
    /// Type of its elements; `None` for fp32.
    number: Option<Number>,
    /// A second run may give other bits.
    may_differ: bool,
}

/// Everything about one kernel at one shape.
pub struct Experiment<'a> {
    /// The device, with the kernel loaded.
    pub gpu: &'a Gpu,
    /// What the device has.
    pub facts: &'a GpuFacts,
    /// The card's sensors, if any.
    pub nvml: Option<&'a Nvml>,
    /// The kernel.
    pub variant: Variant,
    /// Its sizes.
    pub shape: Shape,
    /// What its inputs are cut from.
    pub normals: &'a Normals,
    /// Draws the inputs.
    pub seed: u64,
}

impl Experiment<'_> {
    /// Runs it.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn run(&self, plan: &TimingPlan) -> Result<Finding, Failure> {
        let splits = (self.variant.kind == Kind::FwdSplit).then(|| self.splits());
        let params = self.params(splits.unwrap_or(0));
        let outputs = self.outputs(&params)?;
        let host = self.inputs(0);
        let mut sets = Vec::new();
        for copy in 0..self.copies() {
            let inputs = if copy == 0 { &host } else { &self.inputs(copy) };
            let on_device = |(name, bytes): &(&'static str, Vec<u8>)| Ok((*name, DeviceMemory::of(bytes)?));
            let mut set = inputs.iter().map(on_device).collect::<Result<Vec<_>, DeviceError>>()?;
            for output in &outputs {
                set.push((output.name, DeviceMemory::allocate(output.bytes)?));
            }
            sets.push(set);
        }
        let launches: Vec<Launch<'_>> = sets
            .iter()
            .map(|set| self.gpu.prepare(&params, &set.iter().map(|(name, memory)| (*name, memory)).collect::<Vec<_>>()))
            .collect();
        let written = |set: &'static str| outputs.iter().any(|output| output.name == set);
        let poison = || sets.iter().flatten().filter(|(name, _)| written(name)).try_for_each(|(_, memory)| memory.poison());
        let read = || -> Result<Vec<Vec<u8>>, DeviceError> {
            let memory = |name| sets[0].iter().find(|(known, _)| *known == name).map(|(_, memory)| memory);
            let of = |output: &Output| {
                let mut bytes = vec![0; output.bytes];
                memory(output.name).map_or(Ok(()), |memory| memory.read(&mut bytes)).map(|()| bytes)
            };
            outputs.iter().map(of).collect()
        };

        poison()?;
        self.gpu.launch(&launches[0])?;
        let before = read()?;
        let relative_error =
            self.judge(&host, &outputs, &before, splits).map_err(|e| Failure::Wrong(format!("before timing: {e}")))?;
        // What is found afterwards was then written by launches that were timed.
        poison()?;
        let times = self.gpu.time(&launches, plan, self.nvml)?;
        let after = read()?;
        self.judge(&host, &outputs, &after, splits).map_err(|e| Failure::Wrong(format!("after timing: {e}")))?;
        for (output, (before, after)) in outputs.iter().zip(before.iter().zip(&after)) {
            if !output.may_differ && before != after {
                return Err(Failure::Wrong(format!("`{}` has other bits after timing than before: threads race", output.name)));
            }
        }
        Ok(Finding { times, relative_error, num_splits: splits, cold_l2: sets.len() > 1 })
    }

    fn head_dim(&self) -> usize {
        self.variant.head_dim as usize
    }

    /// Rows of Q and of K over all sequences and heads.
    fn rows(&self) -> [usize; 2] {
        let Shape { batch, heads, heads_k, seqlen_q, seqlen_k } = self.shape;
        [batch as usize * heads as usize * seqlen_q as usize, batch as usize * heads_k as usize * seqlen_k as usize]
    }

    /// As many splits as make every block run at once.
    fn splits(&self) -> u32 {
        let Shape { batch, heads, heads_k, seqlen_q, seqlen_k } = self.shape;
        let tiles = (heads / heads_k * seqlen_q).div_ceil(SPLIT_ROWS) * batch * heads_k;
        let most = seqlen_k.div_ceil(FEWEST_KEYS).min(MOST_SPLITS);
        (self.facts.multiprocessors * SPLIT_BLOCKS / tiles).clamp(1, most)
    }

    /// Sets of tensors that launches take turns with: one, or as many as leave nothing of K and V in the L2.
    fn copies(&self) -> usize {
        if self.variant.kind != Kind::FwdSplit {
            return 1;
        }
        let bytes = super::work::key_value_bytes(&self.variant, &self.shape);
        (COLD_L2_TIMES * f64::from(self.facts.l2_bytes) / bytes).ceil().max(2.0) as usize
    }

    /// The tensors that the kernel reads, by their names in `kgen.h`. `copy` tells several sets apart.
    fn inputs(&self, copy: usize) -> Vec<(&'static str, Vec<u8>)> {
        let [queries, keys] = self.rows();
        let normal = |rows: usize, number: u64| {
            self.normals
                .tensor(rows * self.head_dim(), self.seed.wrapping_mul(8).wrapping_add(number).wrapping_add((copy as u64) << 20))
        };
        let mut inputs = vec![("q", normal(queries, 0)), ("k", normal(keys, 1)), ("v", normal(keys, 2))];
        if self.variant.kind == Kind::Bwd {
            inputs.extend([("o", normal(queries, 3)), ("dout", normal(queries, 4)), ("lse", self.likely_lse())]);
        }
        if self.variant.dtype == Dtype::Fp8 {
            let ones = 1.0_f32.to_le_bytes().repeat(self.shape.batch as usize * self.shape.heads_k as usize);
            inputs.extend(["q_descale", "k_descale", "v_descale"].map(|name| (name, ones.clone())));
        }
        inputs
    }

    /// The log-sum-exp that normal inputs give on average, ln(keys) + 1/2: scores are normal too, and e to them has the mean e^½.
    fn likely_lse(&self) -> Vec<u8> {
        let nothing: &[u8] = &[];
        let sample = Sample { variant: self.variant, shape: self.shape, tensor: &|_| nothing };
        let row = |row| match sample.visible(row) {
            0 => f32::NEG_INFINITY,
            keys => (keys as f32).ln() + 0.5,
        };
        let head: Vec<u8> = (0..self.shape.seqlen_q as usize).flat_map(|i| row(i).to_le_bytes()).collect();
        head.repeat(self.shape.batch as usize * self.shape.heads as usize)
    }

    /// The tensors that it writes.
    fn outputs(&self, params: &Params) -> Result<Vec<Output>, DeviceError> {
        let [queries, keys] = self.rows();
        let number = self.normals.number().of_output();
        let tensor = |name, rows: usize, may_differ| Output {
            name,
            bytes: rows * self.head_dim() * number.element().bytes(),
            number: Some(number),
            may_differ,
        };
        let floats = |name, bytes, may_differ| Output { name, bytes, number: None, may_differ };
        let forward = [tensor("o", queries, false), floats("lse", queries * 4, false)];
        Ok(match self.variant.kind {
            // Blocks add to dQ in whatever order they come.
            Kind::Bwd => vec![
                tensor("dq", queries, true),
                tensor("dk", keys, false),
                tensor("dv", keys, false),
                floats("workspace", self.gpu.workspace_bytes(params)?, true),
            ],
            Kind::FwdSplit => {
                forward.into_iter().chain([floats("workspace", self.gpu.workspace_bytes(params)?, false)]).collect()
            }
            _ => forward.into(),
        })
    }

    /// Strides of a contiguous (batch, seqlen, heads, `head_dim`) tensor.
    fn strides(&self, heads: u32, seqlen: u32) -> Strides {
        let row = i64::from(heads) * i64::from(self.variant.head_dim);
        Strides { batch: i64::from(seqlen) * row, row, head: self.variant.head_dim.into() }
    }

    fn params(&self, num_splits: u32) -> Params {
        let Variant { kind, head_dim, dtype, causal, .. } = self.variant;
        let Shape { batch, heads, heads_k, seqlen_q, seqlen_k } = self.shape;
        let (query, key) = (self.strides(heads, seqlen_q), self.strides(heads_k, seqlen_k));
        let lse_strides = [i64::from(heads) * i64::from(seqlen_q), seqlen_q.into()];
        let [batch, num_heads, num_heads_k] = [batch, heads, heads_k].map(u32::cast_signed);
        let [seqlen_q, seqlen_k, head_dim] = [seqlen_q, seqlen_k, head_dim].map(u32::cast_signed);
        let (dtype, softmax_scale) = (Number::of(dtype).code(), softmax_scale(self.variant.head_dim));
        if kind == Kind::Bwd {
            return Params::Bwd(BwdParams {
                // Q, K, V, O, dO, dQ, dK, dV.
                strides: [query, key, key, query, query, query, key, key],
                lse_strides,
                batch,
                num_heads,
                num_heads_k,
                seqlen_q,
                seqlen_k,
                total_q: 0,
                head_dim,
                dtype,
                causal,
                deterministic: false,
                softmax_scale,
            });
        }
        Params::Fwd(FwdParams {
            strides: [query, key, key, query],
            lse_strides,
            descale_strides: [[i64::from(num_heads_k), 1]; 3],
            batch,
            num_heads,
            num_heads_k,
            seqlen_q,
            seqlen_k,
            total_rows: [0; 2],
            num_splits: num_splits.cast_signed(),
            concurrent_blocks: 0,
            head_dim,
            dtype,
            causal,
            softmax_scale,
        })
    }

    /// Largest relative error of the sampled rows.
    ///
    /// # Errors
    /// A sentence: a NaN anywhere, or rows too far from the reference.
    fn judge(
        &self,
        host: &[(&'static str, Vec<u8>)],
        outputs: &[Output],
        written: &[Vec<u8>],
        splits: Option<u32>,
    ) -> Result<f64, String> {
        let tensor = |name: &str| -> &[u8] {
            let written = outputs.iter().zip(written).find(|(output, _)| output.name == name).map(|(_, bytes)| bytes);
            // The inputs of a backward pass and the outputs of a forward one share names; a call has either.
            let given = host.iter().find(|(known, _)| *known == name).map(|(_, bytes)| bytes);
            given.or(written).map_or(&[], Vec::as_slice)
        };
        let sample = Sample { variant: self.variant, shape: self.shape, tensor: &tensor };
        let errors = match (self.variant.kind, splits) {
            (Kind::FwdSplit, Some(splits)) => self.judge_splits(&sample, tensor("workspace"), splits as usize)?,
            (kind, _) => {
                for (output, bytes) in outputs.iter().zip(written).filter(|(output, _)| output.name != "workspace") {
                    refuse_nan(output, bytes)?;
                }
                if kind == Kind::Bwd { self.judge_gradients(&sample, &tensor) } else { self.judge_forward(&sample, &tensor)? }
            }
        };
        let largest = if self.variant.dtype == Dtype::Fp8 { LARGEST_ERROR_FP8 } else { LARGEST_ERROR };
        let mut worst = 0.0_f64;
        for (name, error) in errors {
            // Written so that a NaN fails too.
            if !(error <= largest) {
                return Err(format!("{name} is wrong: the relative error of a sampled row is {error:.2e}, more than {largest}"));
            }
            worst = worst.max(error);
        }
        Ok(worst)
    }

    fn judge_forward<'t>(
        &self,
        sample: &Sample<'_>,
        tensor: &dyn Fn(&str) -> &'t [u8],
    ) -> Result<Vec<(&'static str, f64)>, String> {
        let Shape { heads, seqlen_q, .. } = self.shape;
        let mut errors = Vec::new();
        for place in sample.picks(heads, seqlen_q).into_iter().filter(|place| sample.visible(place[2]) > 0) {
            let [sequence, head, row] = place;
            let expected = sample.forward(place);
            let start = sample.start(heads, seqlen_q, place);
            let o = elements(tensor("o"), self.normals.number().of_output(), start, self.head_dim());
            errors.push(("O", relative_error(&o, &expected.o)));
            let lse = fp32(tensor("lse"), (sequence * heads as usize + head) * seqlen_q as usize + row);
            refuse_lse(lse, expected.lse)?;
        }
        Ok(errors)
    }

    fn judge_gradients<'t>(&self, sample: &Sample<'_>, tensor: &dyn Fn(&str) -> &'t [u8]) -> Vec<(&'static str, f64)> {
        let Shape { heads, heads_k, seqlen_q, seqlen_k, .. } = self.shape;
        let error = |name: &str, heads, rows, place, expected: &[f64]| {
            let start = sample.start(heads, rows, place);
            relative_error(&elements(tensor(name), self.normals.number().of_output(), start, self.head_dim()), expected)
        };
        let mut errors = Vec::new();
        for place in sample.picks(heads, seqlen_q) {
            errors.push(("dQ", error("dq", heads, seqlen_q, place, &sample.query_gradient(place))));
        }
        for place in sample.picks(heads_k, seqlen_k) {
            let [dk, dv] = sample.key_gradients(place);
            errors.push(("dK", error("dk", heads_k, seqlen_k, place, &dk)));
            errors.push(("dV", error("dv", heads_k, seqlen_k, place, &dv)));
        }
        errors
    }

    /// Merges the partial results of every row, which must hold no NaN, and compares some.
    fn judge_splits(&self, sample: &Sample<'_>, workspace: &[u8], splits: usize) -> Result<Vec<(&'static str, f64)>, String> {
        let Shape { batch, heads, seqlen_q, .. } = self.shape;
        let rows = batch as usize * seqlen_q as usize * heads as usize;
        let merged = |[sequence, head, row]: [usize; 3]| {
            let index = |split: usize| split * rows + (sequence * seqlen_q as usize + row) * heads as usize + head;
            let parts: Vec<f64> = (0..splits).map(|s| fp32(workspace, splits * rows * self.head_dim() + index(s))).collect();
            merge_splits(&parts, self.head_dim(), |s, d| fp32(workspace, index(s) * self.head_dim() + d))
        };
        for (sequence, row, head) in itertools::iproduct!(0..batch as usize, 0..seqlen_q as usize, 0..heads as usize) {
            let (o, lse) = merged([sequence, head, row]);
            if lse.is_nan() || o.iter().any(|value| value.is_nan()) {
                return Err(format!("a NaN in the partial results of sequence {sequence}, head {head}, row {row}"));
            }
        }
        let mut errors = Vec::new();
        for place in sample.picks(heads, seqlen_q).into_iter().filter(|place| sample.visible(place[2]) > 0) {
            let (expected, (o, lse)) = (sample.forward(place), merged(place));
            errors.push(("O", relative_error(&o, &expected.o)));
            refuse_lse(lse, expected.lse)?;
        }
        Ok(errors)
    }
}

fn refuse_lse(got: f64, expected: f64) -> Result<(), String> {
    if (got - expected).abs() <= LARGEST_LSE_ERROR { Ok(()) } else { Err(format!("LSE is wrong: {got} instead of {expected}")) }
}

/// Refuses an output that holds a NaN, be it poison that nobody has overwritten.
fn refuse_nan(output: &Output, bytes: &[u8]) -> Result<(), String> {
    let nan = match output.number {
        None => bytes
            .chunks_exact(4)
            .filter(|element| f32::from_le_bytes([element[0], element[1], element[2], element[3]]).is_nan())
            .count(),
        Some(number) => {
            // The bits of infinity: larger ones, without the sign, are NaNs.
            let infinity = number.round(f32::INFINITY);
            bytes.chunks_exact(2).filter(|element| u16::from_le_bytes([element[0], element[1]]) & 0x7fff > infinity).count()
        }
    };
    if nan == 0 { Ok(()) } else { Err(format!("`{}` holds {nan} NaNs: not written, or wrong", output.name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nan_is_found_in_each_type_and_infinity_is_none() {
        for (number, fine, nan) in
            [(Some(Number::Bf16), 0xff80_u32, 0x7f81), (Some(Number::Fp16), 0xfc00, 0xffff), (None, 0xff80_0000, 0x7f80_0001)]
        {
            let output = Output { name: "o", bytes: 8, number, may_differ: false };
            let width = if number.is_some() { 2 } else { 4 };
            let bytes = |bits: u32| bits.to_le_bytes()[..width].repeat(3);
            assert!(refuse_nan(&output, &bytes(fine)).is_ok(), "{number:?}");
            assert!(refuse_nan(&output, &bytes(nan)).is_err_and(|why| why.contains("3 NaNs")), "{number:?}");
            assert!(refuse_nan(&output, &bytes(u32::MAX)).is_err(), "poison");
        }
    }
}
