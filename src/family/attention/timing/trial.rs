//! Timing of one kernel at one shape: its tensors, the launch parameters, and a check that the outputs are attention.

use super::{
    Shape, declared,
    sample::{Sample, relative_error, softmax_scale},
    work,
};
use crate::{
    bench::{Normals, Output, Trial, Work, elements, fp32},
    check::Number,
    device::Params,
    family::attention::abi::{AttentionFeatures, BwdParams, FwdParams, PagedKeys, Strides},
    family::attention::{DeclaredCall, Kind, KvFormat, Point, cases::merge_splits},
    kernel::{Dtype, HeadDim},
};
use rand::{SeedableRng as _, seq::SliceRandom as _};
use rand_chacha::ChaCha8Rng;

/// Tolerated relative error of the sampled rows of a 16-bit kernel; rounding gives 0.002 to 0.005.
const LARGEST_ERROR: f64 = 0.02;

/// [`LARGEST_ERROR`] for an FP8 kernel, whose P has three mantissa bits: rounding gives 0.02 to 0.03.
const LARGEST_ERROR_FP8: f64 = 0.08;

/// Tolerated difference of LSE from the reference.
const LARGEST_LSE_ERROR: f64 = 1e-3;

/// [`LARGEST_LSE_ERROR`] for an FP8 kernel: Hopper sums Q Kᵀ with 14 bits; 4.4e-3 was measured on an H100.
const LARGEST_LSE_ERROR_FP8: f64 = 2e-2;

/// For cold-L2 timing, launches rotate through copies of K and V totalling this many times L2.
const COLD_L2_TIMES: f64 = 10.0;

/// Maximum number of tensor sets.
const MOST_COPIES: usize = 512;

/// Maximum number of splits of a launcher, and minimum keys per split (`kgen/split_plan.cuh`).
const MOST_SPLITS: u32 = 256;
const FEWEST_KEYS: u32 = 128;

/// Rows of a split kernel's tile, and concurrent blocks per multiprocessor.
const SPLIT_ROWS: u32 = 16;
const SPLIT_BLOCKS: u32 = 2;

/// Rows of an MLA kernel's tile; its block occupies a whole multiprocessor.
const LATENT_ROWS: u32 = 64;

/// One kernel at one shape, independent of the device.
pub struct AttentionTrial<'a> {
    /// The kernel.
    pub variant: Point,
    /// Sizes of the problem.
    pub shape: Shape,
    /// Random numbers that its inputs are copied from.
    pub normals: &'a Normals,
    /// Random numbers that K and V are copied from.
    pub kv_normals: &'a Normals,
    /// Generator of the inputs.
    pub seed: u64,
    /// Splits of the keys; 0 if the kernel does not split them.
    pub splits: u32,
}

impl Trial for AttentionTrial<'_> {
    fn work(&self) -> Work {
        let bytes = (self.variant.kind == Kind::FwdSplit).then(|| work::key_value_bytes(&self.variant, &self.shape));
        Work { flops: work::flops(&self.variant, &self.shape), bytes }
    }

    fn has_workspace(&self) -> bool {
        matches!(self.variant.kind, Kind::Bwd | Kind::FwdSplit)
    }

    fn splits(&self) -> Option<u32> {
        (self.splits > 0).then_some(self.splits)
    }

    fn passed(&self) -> Option<String> {
        declared::call_of(&self.variant).map(|call| call.words().trim_start().to_owned())
    }

    fn copies(&self, l2_bytes: u32) -> usize {
        if self.variant.kind != Kind::FwdSplit {
            return 1;
        }
        let bytes = work::key_value_bytes(&self.variant, &self.shape);
        ((COLD_L2_TIMES * f64::from(l2_bytes) / bytes).ceil() as usize).clamp(2, MOST_COPIES)
    }

    fn is_cold(&self, copies: usize, l2_bytes: u32) -> bool {
        copies > 1 && copies as f64 * work::key_value_bytes(&self.variant, &self.shape) > 2.0 * f64::from(l2_bytes)
    }

    fn inputs(&self, copy: usize) -> Vec<(&'static str, Vec<u8>)> {
        let [queries, keys] = self.rows();
        let seed = |number: u64| self.seed.wrapping_mul(8).wrapping_add(number).wrapping_add((copy as u64) << 20);
        let normal = |name, rows: usize, number: u64| {
            let elements = rows * self.sample(&|_| &[]).pitch(name);
            let normals = if matches!(name, "k" | "v") { self.kv_normals } else { self.normals };
            (name, normals.tensor(elements, seed(number)))
        };
        let mut inputs = vec![normal("q", queries, 0), normal("k", keys, 1), normal("v", keys, 2)];
        if self.variant.has_latent_queries() {
            inputs.push(normal("qv", queries, 5));
        }
        if self.shape.page_size > 0 {
            inputs.push(("page_table", self.page_table(seed(6))));
        }
        if self.variant.kind == Kind::Bwd {
            inputs.extend([normal("o", queries, 3), normal("dout", queries, 4), ("lse", self.likely_lse())]);
        }
        if self.variant.dtype == Dtype::Fp8 || KvFormat::of(self.variant.features).is_some() {
            let ones = 1.0_f32.to_le_bytes().repeat(self.shape.batch as usize * self.shape.heads_k as usize);
            inputs.extend(["q_descale", "k_descale", "v_descale"].map(|name| (name, ones.clone())));
        }
        inputs.extend(declared::tables(&self.variant, &self.shape));
        inputs
    }

    fn outputs(&self, workspace_bytes: usize) -> Vec<Output> {
        let [queries, keys] = self.rows();
        let number = self.normals.number().of_output();
        let tensor = |name, rows: usize, may_differ| Output {
            name,
            bytes: rows * self.sample(&|_| &[]).pitch(name) * number.element().bytes(),
            number: Some(number),
            may_differ,
        };
        let floats = |name, bytes, may_differ| Output { name, bytes, number: None, may_differ };
        let forward = [tensor("o", queries, false), floats("lse", queries * 4, false)];
        match self.variant.kind {
            // Blocks add to dQ in no fixed order.
            Kind::Bwd => vec![
                tensor("dq", queries, true),
                tensor("dk", keys, false),
                tensor("dv", keys, false),
                floats("workspace", workspace_bytes, true),
            ],
            Kind::FwdSplit => forward.into_iter().chain([floats("workspace", workspace_bytes, false)]).collect(),
            _ => forward.into(),
        }
    }

    fn params(&self) -> Params {
        let Point { kind, head_dim, dtype, causal, .. } = self.variant;
        let Shape { batch, heads, heads_k, seqlen_q, seqlen_k, page_size } = self.shape;
        let pitch = |name| self.sample(&|_| &[]).pitch(name) as u32;
        let query = |name| strides(heads, seqlen_q, pitch(name));
        // In a paged tensor the batch stride is the distance between pages.
        let key = |name| strides(heads_k, if page_size > 0 { page_size } else { seqlen_k }, pitch(name));
        let HeadDim { qk, v } = head_dim;
        let lse_strides = [i64::from(heads) * i64::from(seqlen_q), seqlen_q.into()];
        let [batch, num_heads, num_heads_k] = [batch, heads, heads_k].map(u32::cast_signed);
        let [seqlen_q, seqlen_k, head_dim, head_dim_v] = [seqlen_q, seqlen_k, qk, v].map(u32::cast_signed);
        let (dtype, softmax_scale) = (Number::of(dtype).code(), softmax_scale(self.variant));
        let score = declared::call_of(&self.variant).map(DeclaredCall::params).unwrap_or_default();
        let features = AttentionFeatures::with_score(score);
        if kind == Kind::Bwd {
            return Params::of(BwdParams {
                strides: [query("q"), key("k"), key("v"), query("o"), query("dout"), query("dq"), key("dk"), key("dv")],
                lse_strides,
                dlse_strides: [0; 2],
                batch,
                num_heads,
                num_heads_k,
                seqlen_q,
                seqlen_k,
                total_q: 0,
                total_k: 0,
                head_dim,
                head_dim_v,
                dtype,
                causal,
                deterministic: false,
                softmax_scale,
                features,
            });
        }
        Params::of(FwdParams {
            strides: [query("q"), key("k"), key("v"), query("o")],
            lse_strides,
            descale_strides: [[i64::from(num_heads_k), 1]; 3],
            batch,
            num_heads,
            num_heads_k,
            seqlen_q,
            seqlen_k,
            total_rows: [0; 2],
            num_splits: self.splits.cast_signed(),
            concurrent_blocks: 0,
            head_dim,
            head_dim_v,
            dtype,
            kv_dtype: KvFormat::of(self.variant.features).map_or(0, |format| format.number().code()),
            causal,
            merging: 0,
            arrivals: 0,
            softmax_scale,
            features,
            qv_strides: self.variant.has_latent_queries().then(|| query("qv")),
            pages: self.pages(),
            new_rows: None,
            cache_entries: 0,
        })
    }

    fn judge(&self, host: &[(&'static str, Vec<u8>)], outputs: &[Output], written: &[Vec<u8>]) -> Result<f64, String> {
        let tensor = |name: &str| -> &[u8] {
            let written = outputs.iter().zip(written).find(|(output, _)| output.name == name).map(|(_, bytes)| bytes);
            // Inputs of a backward pass and outputs of a forward pass share names; a call has only one of them.
            let given = host.iter().find(|(known, _)| *known == name).map(|(_, bytes)| bytes);
            given.or(written).map_or(&[], Vec::as_slice)
        };
        let sample = self.sample(&tensor);
        let errors = match self.variant.kind {
            Kind::FwdSplit => self.judge_splits(&sample, tensor("workspace"))?,
            kind => {
                for (output, bytes) in outputs.iter().zip(written).filter(|(output, _)| output.name != "workspace") {
                    refuse_nan(output, bytes)?;
                }
                if kind == Kind::Bwd { self.judge_gradients(&sample, &tensor) } else { self.judge_forward(&sample, &tensor)? }
            }
        };
        let largest = if self.variant.dtype == Dtype::Fp8 { LARGEST_ERROR_FP8 } else { LARGEST_ERROR };
        let mut worst = 0.0_f64;
        for (name, error) in errors {
            if error.is_nan() || error > largest {
                return Err(format!("{name} is wrong: the relative error of a sampled row is {error:.2e}, more than {largest}"));
            }
            worst = worst.max(error);
        }
        Ok(worst)
    }
}

impl AttentionTrial<'_> {
    /// Rows of Q and of K over all sequences and heads; with pages, including the unused rows of the last page.
    fn rows(&self) -> [usize; 2] {
        let Shape { batch, heads, heads_k, seqlen_q, seqlen_k, page_size } = self.shape;
        let keys = if page_size > 0 { self.shape.pages_per_sequence() * page_size } else { seqlen_k };
        [batch as usize * heads as usize * seqlen_q as usize, batch as usize * heads_k as usize * keys as usize]
    }

    /// The parameters of paging.
    fn pages(&self) -> Option<PagedKeys> {
        let Shape { batch, page_size, .. } = self.shape;
        let each = self.shape.pages_per_sequence();
        (page_size > 0).then(|| PagedKeys {
            table_stride: each.into(),
            size: page_size.cast_signed(),
            count: (batch * each).cast_signed(),
            ..PagedKeys::default()
        })
    }

    /// A random permutation of all pages, as in a cache in which many sequences have been allocated and freed.
    fn page_table(&self, seed: u64) -> Vec<u8> {
        let mut pages: Vec<u32> = (0..self.shape.batch * self.shape.pages_per_sequence()).collect();
        pages.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        pages.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// Average log-sum-exp of normal inputs, ln(keys) + 1/2: scores are normal too, and e^score has the mean e^½.
    fn likely_lse(&self) -> Vec<u8> {
        let heads = self.shape.heads as usize;
        if self.variant.features.score().is_some() {
            let head = |head| declared::likely_lse(&self.variant, &self.shape, head);
            let sequence: Vec<u8> = (0..heads).flat_map(head).flat_map(f32::to_le_bytes).collect();
            return sequence.repeat(self.shape.batch as usize);
        }
        let sample = self.sample(&|_| &[]);
        let row = |row| match sample.unmasked(row).len() {
            0 => f32::NEG_INFINITY,
            keys => (keys as f32).ln() + 0.5,
        };
        let head: Vec<u8> = (0..self.shape.seqlen_q as usize).flat_map(|i| row(i).to_le_bytes()).collect();
        head.repeat(self.shape.batch as usize * heads)
    }

    /// The reference for single rows of these tensors.
    fn sample<'t>(&self, tensor: &'t dyn Fn(&str) -> &'t [u8]) -> Sample<'t> {
        Sample { variant: self.variant, shape: self.shape, tensor }
    }

    fn refuse_lse(&self, got: f64, expected: f64) -> Result<(), String> {
        let of_products = if self.variant.dtype == Dtype::Fp8 { LARGEST_LSE_ERROR_FP8 } else { LARGEST_LSE_ERROR };
        // A declared score may be in the thousands, so its fp32 rounding errors exceed those of the products.
        let of_score = if self.variant.features.score().is_some() { expected.abs() * 2.0_f64.powi(-20) } else { 0.0 };
        let largest = of_products.max(of_score);
        if (got - expected).abs() <= largest { Ok(()) } else { Err(format!("LSE is wrong: {got} instead of {expected}")) }
    }

    fn judge_forward<'t>(
        &self,
        sample: &Sample<'_>,
        tensor: &dyn Fn(&str) -> &'t [u8],
    ) -> Result<Vec<(&'static str, f64)>, String> {
        let Shape { heads, seqlen_q, .. } = self.shape;
        let mut errors = Vec::new();
        for place in sample.picks(heads, seqlen_q).into_iter().filter(|place| sample.sees_any(*place)) {
            let [sequence, head, row] = place;
            let expected = sample.forward(place);
            let start = sample.start("o", heads, seqlen_q, place);
            let o = elements(tensor("o"), self.normals.number().of_output(), start, sample.head_dim("o"));
            errors.push(("O", relative_error(&o, &expected.o)));
            let lse = fp32(tensor("lse"), (sequence * heads as usize + head) * seqlen_q as usize + row);
            self.refuse_lse(lse, expected.lse)?;
        }
        Ok(errors)
    }

    fn judge_gradients<'t>(&self, sample: &Sample<'_>, tensor: &dyn Fn(&str) -> &'t [u8]) -> Vec<(&'static str, f64)> {
        let Shape { heads, heads_k, seqlen_q, seqlen_k, .. } = self.shape;
        let error = |name: &str, heads, rows, place, expected: &[f64]| {
            let start = sample.start(name, heads, rows, place);
            relative_error(&elements(tensor(name), self.normals.number().of_output(), start, sample.head_dim(name)), expected)
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

    /// Merges the partial results of every row, which must not contain NaN, and compares some rows.
    fn judge_splits(&self, sample: &Sample<'_>, workspace: &[u8]) -> Result<Vec<(&'static str, f64)>, String> {
        let (Shape { batch, heads, seqlen_q, .. }, splits) = (self.shape, self.splits as usize);
        let rows = batch as usize * seqlen_q as usize * heads as usize;
        let columns = sample.head_dim("o");
        let merged = |[sequence, head, row]: [usize; 3]| {
            let index = |split: usize| split * rows + (sequence * seqlen_q as usize + row) * heads as usize + head;
            let parts: Vec<f64> = (0..splits).map(|s| fp32(workspace, splits * rows * columns + index(s))).collect();
            merge_splits(&parts, columns, |s, d| fp32(workspace, index(s) * columns + d))
        };
        for (sequence, row, head) in itertools::iproduct!(0..batch as usize, 0..seqlen_q as usize, 0..heads as usize) {
            let (o, lse) = merged([sequence, head, row]);
            if lse.is_nan() || o.iter().any(|value| value.is_nan()) {
                return Err(format!("a NaN in the partial results of sequence {sequence}, head {head}, row {row}"));
            }
        }
        let mut errors = Vec::new();
        for place in sample.picks(heads, seqlen_q).into_iter().filter(|place| sample.sees_any(*place)) {
            let (expected, (o, lse)) = (sample.forward(place), merged(place));
            errors.push(("O", relative_error(&o, &expected.o)));
            self.refuse_lse(lse, expected.lse)?;
        }
        Ok(errors)
    }
}

/// Strides of a contiguous (batch, seqlen, heads, pitch) tensor.
fn strides(heads: u32, seqlen: u32, pitch: u32) -> Strides {
    let head = i64::from(pitch);
    let row = i64::from(heads) * head;
    Strides { batch: i64::from(seqlen) * row, row, head }
}

/// Number of splits that lets all blocks run at once on a device with this many multiprocessors.
pub fn splits(variant: Point, shape: &Shape, multiprocessors: u32) -> u32 {
    let Shape { batch, heads, heads_k, seqlen_q, seqlen_k, .. } = *shape;
    let (rows, blocks) = if variant.has_latent_queries() { (LATENT_ROWS, 1) } else { (SPLIT_ROWS, SPLIT_BLOCKS) };
    let [batch, heads, heads_k, seqlen_q] = [batch, heads, heads_k, seqlen_q].map(u64::from);
    // Sizes are below 2^24, so the first product fits.
    let tiles = (heads / heads_k * seqlen_q).div_ceil(rows.into()).saturating_mul(batch * heads_k);
    let most = seqlen_k.div_ceil(FEWEST_KEYS).min(MOST_SPLITS);
    (u64::from(multiprocessors * blocks) / tiles.max(1)).clamp(1, most.into()) as u32
}

/// Rejects an output that contains a NaN, including the initial pattern if it was not overwritten.
fn refuse_nan(output: &Output, bytes: &[u8]) -> Result<(), String> {
    let nan = match output.number {
        None => bytes
            .chunks_exact(4)
            .filter(|element| f32::from_le_bytes([element[0], element[1], element[2], element[3]]).is_nan())
            .count(),
        Some(number) => {
            // The bits of infinity; larger ones, without the sign, are NaNs.
            let infinity = number.round(f32::INFINITY);
            bytes
                .chunks_exact(2)
                .filter(|element| u32::from(u16::from_le_bytes([element[0], element[1]])) & 0x7fff > infinity)
                .count()
        }
    };
    if nan == 0 { Ok(()) } else { Err(format!("`{}` holds {nan} NaNs: not written, or wrong", output.name)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{Declared, KeptScore, List, UserScore};
    use crate::kernel::{Feature, Features};
    use crate::{
        device::{Call, Device, Element, Emulator, EmulatorKit, Image, Schedule, test_kit},
        kernel::Target,
        plan::Plan,
        render::{Renderer, Templates},
    };

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

    /// Runs a kernel on the emulator with the tensors of a GPU run; returns the bytes of its outputs.
    fn emulated(kit: &EmulatorKit, layout: &AttentionTrial<'_>) -> (Vec<Output>, Vec<Vec<u8>>) {
        let plan = Plan::new(layout.variant, None).expect("it has a plan");
        let source = Renderer::new(&Templates::embedded()).and_then(|r| r.kernel(&plan)).expect("it renders");
        let (name, capability) = (layout.variant.name(), layout.variant.target.compute_capability());
        let library = kit.library(&name, &source.text).expect("it compiles");
        let mut emulator = Emulator::open(&library, &name, capability).expect("it loads");
        let image = |name: &str, bytes: &[u8]| {
            let element = match name {
                "lse" | "workspace" | "page_table" | "q_descale" | "k_descale" | "v_descale" | "score_table0" => Element::Bits32,
                "k" | "v" => layout.kv_normals.number().element(),
                "q" => layout.normals.number().element(),
                _ => Element::Bits16,
            };
            let mut image = Image::poisoned(element, bytes.len() / element.bytes(), 0);
            for (offset, value) in bytes.chunks_exact(element.bytes()).enumerate() {
                image.put(
                    i64::try_from(offset).expect("it is small"),
                    value.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte)),
                );
            }
            image
        };
        let Shape { batch, heads, seqlen_q, .. } = layout.shape;
        let workspace = layout.splits * batch * heads * seqlen_q * (layout.variant.head_dim.v + 1) * 4;
        let mut outputs = layout.outputs(workspace as usize);
        let scratch = layout.variant.kind == Kind::Bwd;
        outputs.retain(|output| !(scratch && output.name == "workspace"));
        let inputs = layout.inputs(0).iter().map(|(name, bytes)| (*name, image(name, bytes))).collect();
        let poisoned = outputs.iter().map(|output| (output.name, image(output.name, &vec![0xff; output.bytes]))).collect();
        let call = Call { inputs, outputs: poisoned, scratch, multiprocessors: None, params: layout.params() };
        let left = emulator.run(&call, Schedule::shuffled(1)).expect("it runs");
        let bytes = |output: &Output| {
            let image = left.get(output.name).expect("every output is there");
            let width = image.element().bytes();
            (0..).take(output.bytes / width).flat_map(|i| image.bits(i).to_le_bytes()[..width].to_vec()).collect()
        };
        let written = outputs.iter().map(bytes).collect();
        (outputs, written)
    }

    #[test]
    fn what_every_kind_of_kernel_leaves_on_the_emulator_is_attention_and_a_changed_row_is_not() {
        let kit = test_kit();
        let shape = Shape { batch: 2, heads: 4, heads_k: 2, seqlen_q: 130, seqlen_k: 70, page_size: 0 };
        let decoding = Shape { seqlen_q: 1, seqlen_k: 300, ..shape };
        for (kind, dtype, causal, target, shape, spoilt) in [
            (Kind::Fwd, Dtype::Bf16, true, Target::Sm80, shape, "o"),
            (Kind::Fwd, Dtype::Fp16, false, Target::Sm80, shape, "lse"),
            (Kind::Fwd, Dtype::Fp8, true, Target::Sm89, shape, "o"),
            (Kind::FwdShort, Dtype::Fp16, true, Target::Sm90, shape, "o"),
            (Kind::Bwd, Dtype::Bf16, true, Target::Sm80, Shape { seqlen_k: 130, ..shape }, "dk"),
            (Kind::Bwd, Dtype::Fp16, false, Target::Sm80, shape, "dq"),
            (Kind::FwdSplit, Dtype::Bf16, false, Target::Sm80, decoding, "workspace"),
        ] {
            let variant = Point { kind, head_dim: HeadDim::equal(32), dtype, causal, features: Features::NONE, target };
            let splits = if kind == Kind::FwdSplit { 3 } else { 0 };
            let normals = Normals::draw(Number::of(dtype), 1);
            let layout = AttentionTrial { variant, shape, normals: &normals, kv_normals: &normals, seed: 1, splits };
            let (outputs, mut written) = emulated(&kit, &layout);
            let inputs = layout.inputs(0);
            let error = layout.judge(&inputs, &outputs, &written).unwrap_or_else(|why| panic!("{variant}: {why}"));
            assert!(error > 0.0, "{variant}: rounding errs");
            let at = outputs.iter().position(|output| output.name == spoilt).expect("it is an output");
            // The last element belongs to a sampled row, wherever the tensor's last row is.
            let end = written[at].len();
            written[at][end - 4..].copy_from_slice(&[0x00, 0x42, 0x00, 0x42]);
            assert!(layout.judge(&inputs, &outputs, &written).is_err(), "{variant}: `{spoilt}` was changed");
        }
    }

    #[test]
    fn kernels_that_read_pages_leave_attention_over_what_the_table_names() {
        let kit = test_kit();
        let shape = Shape { batch: 2, heads: 4, heads_k: 2, seqlen_q: 70, seqlen_k: 70, page_size: 16 };
        let decoding = Shape { seqlen_q: 1, seqlen_k: 300, ..shape };
        let latent = Shape { heads: 8, heads_k: 1, page_size: 64, ..decoding };
        let small = HeadDim::equal(32);
        for (kind, head_dim, dtype, features, target, shape) in [
            (Kind::Fwd, small, Dtype::Bf16, &[Feature::Paged][..], Target::Sm80, shape),
            (Kind::Fwd, small, Dtype::Fp8, &[Feature::Paged], Target::Sm89, Shape { page_size: 5, ..shape }),
            (Kind::Fwd, small, Dtype::Fp16, &[Feature::KvE5m2], Target::Sm80, Shape { page_size: 0, ..shape }),
            (Kind::FwdSplit, small, Dtype::Bf16, &[Feature::Paged, Feature::KvE4m3], Target::Sm80, decoding),
            (Kind::FwdSplit, small, Dtype::Fp8, &[Feature::Paged], Target::Sm80, decoding),
            (Kind::FwdSplit, HeadDim::LATENT, Dtype::Bf16, &[Feature::Qv, Feature::Paged], Target::Sm90, latent),
            // TMA refuses rows of 40 bytes: theirs are 48 bytes apart.
            (Kind::Fwd, HeadDim::equal(40), Dtype::Fp8, &[], Target::Sm90, Shape { page_size: 0, ..shape }),
        ] {
            let features: Features = features.iter().copied().collect();
            let variant = Point { kind, head_dim, dtype, causal: true, features, target };
            let splits = if kind == Kind::FwdSplit { 3 } else { 0 };
            let normals = Normals::draw(Number::of(dtype), 1);
            let kv = KvFormat::of(features).map(|format| Normals::draw(format.number(), 1));
            let layout = AttentionTrial {
                variant,
                shape,
                normals: &normals,
                kv_normals: kv.as_ref().unwrap_or(&normals),
                seed: 1,
                splits,
            };
            let (outputs, written) = emulated(&kit, &layout);
            let inputs = layout.inputs(0);
            let error = layout.judge(&inputs, &outputs, &written).unwrap_or_else(|why| panic!("{variant}: {why}"));
            assert!(error > 0.0, "{variant}: rounding errs");
            // If the table lists the same pages in another order, the keys differ, and so must the results.
            let mut turned = inputs;
            let Some((_, table)) = turned.iter_mut().find(|(name, _)| *name == "page_table") else { continue };
            table.rotate_left(4);
            assert!(layout.judge(&turned, &outputs, &written).is_err(), "{variant}: the table changes nothing");
        }
    }

    #[test]
    fn kernels_with_declared_scores_get_their_usual_numbers_and_leave_what_those_give() {
        let kit = test_kit();
        let mut names = Declared::default();
        for (list, name) in [(List::Scalars, "decay"), (List::Integers, "width"), (List::Tables, "slope")] {
            names.declare(list, name).expect("it is a name");
        }
        let text = "s - decay * slope[h] * abs(q - k) + 0.1 * s * s";
        let score = UserScore::of("timed", names, Some(text), Some("k <= q and q - k < width")).expect("it reads");
        let features = Features::NONE.with_score(Some(KeptScore::of(score)));
        let shape = Shape { batch: 2, heads: 4, heads_k: 2, seqlen_q: 130, seqlen_k: 130, page_size: 0 };
        for kind in [Kind::Fwd, Kind::Bwd] {
            let (dtype, target) = (Dtype::Bf16, Target::Sm80);
            let variant = Point { kind, head_dim: HeadDim::equal(32), dtype, causal: false, features, target };
            let normals = Normals::draw(Number::of(dtype), 1);
            let layout = AttentionTrial { variant, shape, normals: &normals, kv_normals: &normals, seed: 1, splits: 0 };
            let (outputs, written) = emulated(&kit, &layout);
            let error = layout.judge(&layout.inputs(0), &outputs, &written).unwrap_or_else(|why| panic!("{variant}: {why}"));
            assert!(error > 0.0, "{variant}: rounding errs");
            assert_eq!(layout.passed().as_deref(), Some("score=timed:40"));
            // For a kernel without the score, these outputs are wrong.
            let plain = AttentionTrial { variant: Point { features: Features::NONE, ..variant }, ..layout };
            assert!(plain.judge(&plain.inputs(0), &outputs, &written).is_err(), "{variant}: the score changes nothing");
        }
    }

    #[test]
    fn splits_fill_the_device_and_are_never_shorter_than_what_pays() {
        let shape = Shape { batch: 1, heads: 32, heads_k: 8, seqlen_q: 1, seqlen_k: 32_768, page_size: 0 };
        let variant = Point {
            kind: Kind::FwdSplit,
            head_dim: HeadDim::equal(128),
            dtype: Dtype::Bf16,
            causal: false,
            features: Features::NONE,
            target: Target::Sm80,
        };
        assert_eq!(splits(variant, &shape, 132), 33);
        assert_eq!(splits(variant, &Shape { batch: 64, ..shape }, 132), 1);
        assert_eq!(splits(variant, &Shape { seqlen_k: 300, ..shape }, 132), 3);
        // 128 heads of MLA are two tiles of 64 rows.
        let latent = Point { head_dim: HeadDim::LATENT, features: Features::from_iter([Feature::Qv]), ..variant };
        assert_eq!(splits(latent, &Shape { heads: 128, heads_k: 1, ..shape }, 132), 66);
    }

    #[test]
    fn decoding_goes_round_enough_copies_to_leave_the_l2_cold_unless_they_are_tiny() {
        let variant = Point {
            kind: Kind::FwdSplit,
            head_dim: HeadDim::equal(64),
            dtype: Dtype::Bf16,
            causal: false,
            features: Features::NONE,
            target: Target::Sm80,
        };
        let normals = Normals::draw(Number::Bf16, 1);
        let layout = |seqlen_k| {
            let shape = Shape { batch: 1, heads: 8, heads_k: 2, seqlen_q: 1, seqlen_k, page_size: 0 };
            AttentionTrial { variant, shape, normals: &normals, kv_normals: &normals, seed: 1, splits: 1 }
        };
        // 16384 keys of two heads are 8 MB.
        let (large, tiny) = (layout(16_384), layout(16));
        assert_eq!(large.copies(50 << 20), 63);
        assert!(large.is_cold(63, 50 << 20) && !tiny.is_cold(tiny.copies(50 << 20), 50 << 20));
    }
}
