//! The kernels of the probes on the emulator: they do what their formulas count, and break no rule of the machine.

use super::{Probe, abi::Scalars};
use crate::{
    device::{Call, Device, Emulator, EmulatorKit, Image, Outputs, Schedule, test_kit},
    render::{Renderer, Templates},
};

/// Blocks of the launches; another number than that of chunks, so that blocks go round.
const BLOCKS: u32 = 3;

/// A bf16 and an E4M3 of value 1, and an E4M3 of value 1/2, in every element of a word.
const ONES_BF16: u32 = 0x3f80_3f80;
const ONES_FP16: u32 = 0x3c00_3c00;
const ONES_E4M3: u32 = 0x3838_3838;
const HALVES_E4M3: u32 = 0x3030_3030;

/// The compiled emulator and the texts of kernels.
struct Machine {
    kit: EmulatorKit,
    renderer: Renderer,
}

impl Machine {
    fn new() -> Self {
        Self { kit: test_kit(), renderer: Renderer::new(&Templates::embedded()).expect("templates parse") }
    }

    /// Launches `launcher` of a probe on memory that holds `words`; it may write there.
    fn launch(&self, probe: &Probe, launcher: &str, scalars: Scalars, words: &[u32]) -> Outputs {
        let text = self.renderer.program(probe.template(), &probe.words()).expect(probe.name);
        let library = self.kit.library(&probe.launcher(), &text).expect(probe.name);
        let image = |words: &[u32]| Image::of_integers(&words.iter().map(|word| word.cast_signed()).collect::<Vec<_>>());
        let kept = vec![0; probe.threads_of(scalars) + 1024];
        let outputs =
            vec![("memory", image(words)), ("kept", image(&kept)), ("spans", image(&vec![0; 4 * scalars.blocks as usize]))];
        let call = Call { inputs: Vec::new(), outputs, scratch: false, multiprocessors: None, params: scalars.params() };
        let mut emulator = Emulator::open(&library, launcher, 90).expect(probe.name);
        emulator.run(&call, Schedule::shuffled(1)).unwrap_or_else(|error| panic!("{}: {error}", probe.name))
    }

    /// Runs a probe for `steps` steps and returns the results of its threads and what is in memory after it. Every
    /// block has a span.
    fn run(&self, name: &str, steps: u32, words: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let probe = Probe::named(name).expect(name);
        let scalars = Scalars { bytes: 4 * words.len() as u64, blocks: BLOCKS, steps, shared_bytes: 98304 };
        let outputs = self.launch(probe, &probe.launcher(), scalars, words);
        let words_of = |tensor: &str, count: usize| {
            let image = outputs.get(tensor).expect(tensor);
            (0..).take(count).map(|at| image.bits(at)).collect::<Vec<_>>()
        };
        let spans = words_of("spans", 4 * BLOCKS as usize);
        assert!(spans.chunks(4).all(|span| span[0] > 0 && span[2] > 0 && [span[1], span[3]] == [0, 0]), "{name}: {spans:?}");
        (words_of("kept", probe.threads_of(scalars)), words_of("memory", words.len()))
    }
}

/// Words without a pattern.
fn words(count: usize) -> Vec<u32> {
    (0..count as u32).map(|at| at.wrapping_mul(0x9e37_79b9) ^ at >> 7).collect()
}

/// What the thread of a block visits: in each step the first words of the pieces of 16 bytes that it loads.
fn visited(name: &str, block: u32, thread: usize, steps: u32, chunks: usize) -> impl Iterator<Item = usize> {
    let probe = Probe::named(name).expect(name);
    let (threads, loads) = (probe.threads as usize, probe.chains as usize);
    let chunk = move |step: u32| (block + step * BLOCKS) as usize % chunks;
    (0..steps).flat_map(move |step| (0..loads).map(move |load| 4 * ((chunk(step) * loads + load) * threads + thread)))
}

/// Words of a chunk.
fn chunk_words(name: &str) -> usize {
    let probe = Probe::named(name).expect(name);
    (probe.threads * probe.chains * 4) as usize
}

#[test]
fn traffic_visits_the_bytes_that_are_counted() {
    let machine = Machine::new();
    for (name, chunks) in [("dram_read", 4), ("l2_read", 5)] {
        let memory = words(chunks * chunk_words(name));
        let (kept, after) = machine.run(name, 5, &memory);
        assert!(after == memory, "{name} only reads");
        let threads = kept.len() / BLOCKS as usize;
        for (place, found) in kept.iter().enumerate() {
            let at = visited(name, (place / threads) as u32, place % threads, 5, chunks);
            let sum = at.flat_map(|first| memory[first..first + 4].to_vec()).fold(0, |sum, word| sum ^ word);
            assert_eq!(*found, sum, "{name}: thread {place}");
        }
    }
    let memory = vec![0; 4 * chunk_words("dram_write")];
    let (_, after) = machine.run("dram_write", 1, &memory);
    let written = after.iter().filter(|word| **word == 1).count();
    assert_eq!(written, BLOCKS as usize * chunk_words("dram_write"), "one chunk of each block");
    let memory = words(2 * 3 * chunk_words("dram_copy"));
    let (_, after) = machine.run("dram_copy", 1, &memory);
    let half = memory.len() / 2;
    assert!(after[..half] == memory[..half] && after[half..] == memory[..half], "the second half is the first");

    let probe = Probe::named("shared_read").expect("a probe");
    let (threads, loads) = (probe.threads as usize, probe.chains as usize);
    let memory = words((loads + 1) * threads * 4);
    let (kept, _) = machine.run("shared_read", 3, &memory);
    for (place, found) in kept.iter().enumerate() {
        let rows = (0..3).flat_map(|step| (0..loads).map(move |load| step % 2 + load));
        let pieces = rows.map(|row| 4 * (row * threads + place % threads));
        let sum = pieces.flat_map(|first| memory[first..first + 4].to_vec()).fold(0, |sum, word| sum ^ word);
        assert_eq!(*found, sum, "thread {place}");
    }
}

#[test]
fn products_are_as_many_as_are_counted() {
    let machine = Machine::new();
    // Each product of ones adds its inner dimension to all elements of D; a thread keeps the sum of its elements.
    for (name, ones, depth, elements) in [
        ("mma_fp16", ONES_FP16, 16, 16),
        ("mma_bf16", ONES_BF16, 16, 16),
        ("mma_e4m3", ONES_E4M3, 32, 16),
        ("wgmma_bf16", ONES_BF16, 16, 128),
        ("wgmma_e4m3", HALVES_E4M3, 8, 128),
    ] {
        let probe = Probe::named(name).expect(name);
        let (kept, _) = machine.run(name, 1, &vec![ones; 1 << 14]);
        // Those of a chain add to the same elements.
        let expected = f64::from(depth * probe.products() / probe.chains * elements);
        let found = f64::from(half::f16::from_bits(kept[0] as u16).to_f32());
        assert!((found - expected).abs() < 1e-6, "{name}: {found}, expected {expected}");
        assert!(kept.iter().all(|word| *word == kept[0]), "{name}");
    }
}

#[test]
fn chains_of_scalar_operations_approach_their_fixed_points() {
    let machine = Machine::new();
    let operands = [0.25_f32.to_bits(), 1.5_f32.to_bits()].repeat(1 << 13);
    let sum = |word: u32| f64::from(half::f16::from_bits(word as u16).to_f32());
    let (kept, _) = machine.run("exp2", 1, &operands);
    assert!(kept.iter().all(|word| (sum(*word) - 4.0 * 0.641_186).abs() < 2e-3), "x = 2^-x");
    let (kept, _) = machine.run("fma", 1, &operands);
    // x = x / 2 + b with b of the thread.
    let expected = |place: usize| 4.0 * 2.0 * [0.25, 1.5][place % 2];
    assert!(kept.iter().enumerate().all(|(place, word)| (sum(*word) - expected(place)).abs() < 1e-2), "x = x / 2 + b");
}

#[test]
fn a_chain_of_pointers_visits_every_line_and_other_loops_run_their_steps() {
    let machine = Machine::new();
    for name in ["dram_latency", "l2_latency"] {
        let (probe, lines) = (Probe::named(name).expect(name), 256_usize);
        let scalars = Scalars { bytes: 128 * lines as u64, blocks: BLOCKS, steps: 1, shared_bytes: 0 };
        let outputs = machine.launch(probe, &probe.preparation().expect("it lays"), scalars, &vec![0; 32 * lines]);
        let (memory, kept) = (outputs.get("memory").expect("memory"), outputs.get("kept").expect("kept"));
        let pointer = |image: &Image, at: i64| u64::from(image.bits(at)) | u64::from(image.bits(at + 1)) << 32;
        let start = pointer(kept, 2 * i64::from(probe.threads));
        let mut seen = vec![false; lines];
        let mut at = start;
        for _ in 0..lines {
            let line = usize::try_from((at - start) / 128).expect("a line");
            assert!(!seen[line], "{name}: line {line} is visited twice");
            seen[line] = true;
            at = pointer(memory, 32 * i64::try_from(line).expect("a line"));
        }
        assert!(at == start && seen.iter().all(|seen| *seen), "{name}");
    }
    let (kept, _) = machine.run("barrier", 3, &[0]);
    assert!(kept.iter().all(|word| *word == 3));
    let (kept, _) = machine.run("shared_latency", 1, &[0]);
    assert!(kept.iter().all(|word| *word == kept[0] && word % 4 == 0));
}
