//! Cards by name, with the numbers from which times are predicted.

use super::gpus::normal;
use serde::Serialize;

/// A card: a product, not only its architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct Card {
    /// Its name, as users type it: `h100`, `rtx-pro-6000`.
    pub name: String,
    /// Compute capability, `major * 10 + minor`.
    pub capability: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Clock of the multiprocessors under load (MHz).
    pub clock_mhz: u32,
    /// Rated bandwidth of device memory (GB/s).
    pub dram_gbs: u32,
    /// Size of L2 (MB).
    pub l2_mb: u32,
    /// What was measured on such a card, in place of the numbers above and of its architecture's rates.
    pub measured: Option<Measured>,
}

/// Numbers of a card that were measured on it (`kgen probe`); what is `None` was not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Name of the card, as its driver reports it.
    pub on: String,
    /// When, UTC: `2026-11-21T16:43:05Z`.
    pub date: String,
    /// Clock that the multiprocessors held under products of tensor cores (MHz).
    pub clock_mhz: Option<f64>,
    /// Time of a launch of an empty kernel (microseconds).
    pub launch_us: Option<f64>,
    /// Bandwidth of reads from device memory (GB/s).
    pub dram_read_gbs: Option<f64>,
    /// Bandwidth of copies in device memory, reads and writes together (GB/s).
    pub dram_copy_gbs: Option<f64>,
    /// Operations of a multiprocessor in a cycle by `wgmma`, 16-bit inputs and fp32 sums.
    pub wgmma_flops_a_cycle: Option<f64>,
    /// The same by `mma.sync`.
    pub mma_flops_a_cycle: Option<f64>,
    /// The same by `wgmma` with FP8 inputs.
    pub wgmma_fp8_flops_a_cycle: Option<f64>,
    /// The same by `mma.sync` with FP8 inputs.
    pub mma_fp8_flops_a_cycle: Option<f64>,
    /// Exponentials of a multiprocessor in a cycle.
    pub exponentials_a_cycle: Option<f64>,
}

/// A number of a card from which times are predicted, with its source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardConstant {
    /// What it is: `clock`.
    pub name: &'static str,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Where it comes from.
    pub source: Source,
}

/// Origin of a card's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// NVIDIA's data sheet of the card or of its architecture.
    DataSheet,
    /// NVIDIA's programming guide, for the architecture.
    ProgrammingGuide,
    /// Fitted to the times of kernels on an H100.
    Fitted,
    /// Measured on the card by `kgen probe`.
    Probe,
}

impl Source {
    /// The words in a table.
    pub fn words(self) -> &'static str {
        match self {
            Self::DataSheet => "data sheet",
            Self::ProgrammingGuide => "programming guide",
            Self::Fitted => "fitted to an H100",
            Self::Probe => "probe",
        }
    }
}

const fn card(
    name: &'static str,
    capability: u32,
    multiprocessors: u32,
    clock_mhz: u32,
    dram_gbs: u32,
    l2_mb: u32,
) -> (&'static str, [u32; 5]) {
    (name, [capability, multiprocessors, clock_mhz, dram_gbs, l2_mb])
}

/// Capability, multiprocessors, clock, bandwidth and L2 of each card: NVIDIA's data sheets and architecture papers,
/// with the boost clock. H100, H200 and GH200: 1755 MHz, the clock that an H100 holds under attention kernels.
const CARDS: &[(&str, [u32; 5])] = &[
    card("t4", 75, 40, 1590, 320, 4),
    card("rtx-2080-ti", 75, 68, 1545, 616, 5),
    card("a100", 80, 108, 1410, 2039, 40),
    card("a100-40gb", 80, 108, 1410, 1555, 40),
    card("a30", 80, 56, 1440, 933, 24),
    card("a10", 86, 72, 1695, 600, 6),
    card("a40", 86, 84, 1740, 696, 6),
    card("a6000", 86, 84, 1800, 768, 6),
    card("rtx-3090", 86, 82, 1695, 936, 6),
    card("agx-orin", 87, 16, 1300, 205, 4),
    card("l4", 89, 58, 2040, 300, 48),
    card("l40s", 89, 142, 2520, 864, 96),
    card("rtx-4090", 89, 128, 2520, 1008, 72),
    card("h100", 90, 132, 1755, 3350, 50),
    card("h100-pcie", 90, 114, 1755, 2039, 50),
    card("h200", 90, 132, 1755, 4800, 60),
    card("gh200", 90, 132, 1755, 4000, 50),
    card("b200", 100, 148, 1850, 8000, 126),
    card("b300", 103, 148, 1850, 8000, 126),
    card("thor", 110, 20, 1570, 273, 32),
    card("rtx-5090", 120, 170, 2407, 1792, 96),
    card("rtx-pro-6000", 120, 188, 2400, 1792, 128),
    card("gb10", 121, 48, 2400, 273, 24),
];

/// Dense floating-point operations of 16-bit tensor cores in one cycle of one multiprocessor, by compute capability.
///
/// Derived from peak rate, multiprocessors and boost clock of one product each, from NVIDIA's architecture papers:
/// T4 (65 TFLOP/s, 40 at 1.59 GHz), A100 (312, 108 at 1.41), A40 (150, 84 at 1.74), L40S (362, 142 at 2.52), H100 SXM
/// (989, 132 at 1.83), B200 (2250, 148 at 1.85), RTX PRO 6000 (504, 188 at 2.62); Orin, Thor and GB10 from their FP8,
/// FP4 or INT8 rates. If accumulation in fp32 runs at half the rate of fp16 (`GeForce`), this is the fp16 rate.
const FLOPS_A_CYCLE: [(u32, f64); 11] = [
    (75, 1024.0),
    (80, 2048.0),
    (86, 1024.0),
    (87, 2048.0),
    (89, 1024.0),
    (90, 4096.0),
    (100, 8192.0),
    (103, 8192.0),
    (110, 8192.0),
    (120, 1024.0),
    (121, 1024.0),
];

/// The rate of `mma.sync` on an A100, and the most that it is rated at on later architectures.
const MOST_OF_MMA: f64 = 2048.0;

/// Fraction of the rated memory bandwidth that a read-only kernel reaches, per mille: 3180 GB/s on an H100 rated 3350
/// GB/s (docs/results/2026-11-22-families-h100.md, the read-only probe over 1 GiB).
pub const DRAM_PER_MILLE: u32 = 950;

/// Bytes per cycle that L2 delivers to one multiprocessor: fitted to attention kernels on an H100, whose loads it does
/// not all see. What `kgen probe` reads from L2 is therefore not put in its place.
pub const L2_BYTES_A_CYCLE: f64 = 58.9;

/// Exponentials per multiprocessor and cycle, for every compute capability that kgen supports (CUDA C++ Programming
/// Guide, "Arithmetic Instructions": results per clock cycle of type conversions and special functions).
pub const EXPONENTIALS_A_CYCLE: f64 = 16.0;

/// Dense floating-point operations of 16-bit tensor cores in one cycle of one multiprocessor; `None` if unknown.
pub fn flops_a_cycle(capability: u32) -> Option<f64> {
    FLOPS_A_CYCLE.iter().find(|(known, _)| *known == capability).map(|(_, flops)| *flops)
}

impl Card {
    /// Dense floating-point operations of a multiprocessor in a cycle, 16-bit inputs and fp32 sums, by the fastest
    /// instructions of the architecture. `GeForce` has half the rate of its architecture if sums are in fp32.
    pub fn peak_flops_a_cycle(&self) -> f64 {
        let of_architecture = flops_a_cycle(self.capability).unwrap_or(MOST_OF_MMA);
        if self.is_geforce() { of_architecture / 2.0 } else { of_architecture }
    }

    /// The same by `mma.sync`. From sm90 on, the full rate needs `wgmma` or `tcgen05`.
    pub fn mma_flops_a_cycle(&self) -> f64 {
        self.peak_flops_a_cycle().min(MOST_OF_MMA)
    }

    /// Dense floating-point operations of a multiprocessor in a cycle that a kernel can count on: those measured, else
    /// the rated ones. `wgmma`: by the fastest instructions of the architecture, else by `mma.sync`. FP8 is rated twice
    /// as fast as 16-bit inputs.
    pub fn tensor_flops_a_cycle(&self, wgmma: bool, fp8: bool) -> f64 {
        let rated = if wgmma { self.peak_flops_a_cycle() } else { self.mma_flops_a_cycle() };
        let measured = self.measured.as_ref().and_then(|measured| match (wgmma, fp8) {
            (true, false) => measured.wgmma_flops_a_cycle,
            (false, false) => measured.mma_flops_a_cycle,
            (true, true) => measured.wgmma_fp8_flops_a_cycle,
            (false, true) => measured.mma_fp8_flops_a_cycle,
        });
        measured.unwrap_or(if fp8 { 2.0 * rated } else { rated })
    }

    /// Exponentials of a multiprocessor in a cycle.
    pub fn exponentials_a_cycle(&self) -> f64 {
        self.measured.as_ref().and_then(|measured| measured.exponentials_a_cycle).unwrap_or(EXPONENTIALS_A_CYCLE)
    }

    /// Clock that the multiprocessors hold under load, MHz.
    pub fn held_mhz(&self) -> f64 {
        self.measured.as_ref().and_then(|measured| measured.clock_mhz).unwrap_or_else(|| self.clock_mhz.into())
    }

    /// Bandwidth of device memory that kernels reach, GB/s.
    pub fn dram_read_gbs(&self) -> f64 {
        let rated = || f64::from(self.dram_gbs) * f64::from(DRAM_PER_MILLE) / 1000.0;
        self.measured.as_ref().and_then(|measured| measured.dram_read_gbs).unwrap_or_else(rated)
    }

    /// The numbers from which times are predicted, with their sources.
    pub fn constants(&self) -> Vec<CardConstant> {
        const FLOPS: &str = "FLOP/cycle/SM";
        let nothing = Measured::default();
        let measured = self.measured.as_ref().unwrap_or(&nothing);
        let from = |source, value: Option<f64>| if value.is_some() { Source::Probe } else { source };
        let rated = |name, value, unit, of_probe| CardConstant { name, value, unit, source: from(Source::DataSheet, of_probe) };
        let wgmma = |fp8| self.tensor_flops_a_cycle(true, fp8);
        let mma = |fp8| self.tensor_flops_a_cycle(false, fp8);
        let mut constants = vec![
            rated("clock", self.held_mhz(), "MHz", measured.clock_mhz),
            rated("device memory", self.dram_read_gbs(), "GB/s", measured.dram_read_gbs),
            CardConstant { name: "L2", value: L2_BYTES_A_CYCLE, unit: "B/cycle/SM", source: Source::Fitted },
            rated("mma.sync, 16 bits", mma(false), FLOPS, measured.mma_flops_a_cycle),
        ];
        if matches!(self.capability, 89 | 120 | 121) {
            constants.push(rated("mma.sync, FP8", mma(true), FLOPS, measured.mma_fp8_flops_a_cycle));
        }
        if self.capability == 90 {
            constants.push(rated("wgmma, 16 bits", wgmma(false), FLOPS, measured.wgmma_flops_a_cycle));
            constants.push(rated("wgmma, FP8", wgmma(true), FLOPS, measured.wgmma_fp8_flops_a_cycle));
        }
        // Those of kernels that only move data; unmeasured, they follow from the bandwidth.
        let moved = [("copies", "GB/s", measured.dram_copy_gbs), ("launch", "us", measured.launch_us)];
        let moved = moved.into_iter().filter_map(|(name, unit, value)| Some(rated(name, value?, unit, value)));
        constants.extend(moved);
        constants.push(CardConstant {
            name: "exponentials",
            value: self.exponentials_a_cycle(),
            unit: "op/cycle/SM",
            source: from(Source::ProgrammingGuide, measured.exponentials_a_cycle),
        });
        constants
    }

    /// Its name, with `(probed)` after it if numbers of it were measured.
    pub fn label(&self) -> String {
        if self.measured.is_some() { format!("{} (probed)", self.name) } else { self.name.clone() }
    }

    fn is_geforce(&self) -> bool {
        // A card that is known by its driver's name only has `GeForce` in it.
        self.name.contains("GeForce")
            || self.name.strip_prefix("rtx-").is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
    }

    /// The card that a word means, as typed (`H100`, `rtx-pro-6000`) or as the driver reports it
    /// (`NVIDIA H100 80GB HBM3`).
    pub fn named(word: &str) -> Option<Self> {
        let wanted = normal(word);
        let wanted = if wanted == "dgxspark" || wanted == "spark" { "gb10".to_owned() } else { wanted };
        let known = CARDS.iter().map(|(name, numbers)| (*name, normal(name), *numbers));
        let means = |(_, name, _): &(&str, String, [u32; 5])| wanted == *name || driver_says(&wanted, name);
        known.filter(means).max_by_key(|(_, name, _)| name.len()).map(|(name, _, numbers)| {
            let [capability, multiprocessors, clock_mhz, dram_gbs, l2_mb] = numbers;
            Self { name: name.to_owned(), capability, multiprocessors, clock_mhz, dram_gbs, l2_mb, measured: None }
        })
    }

    /// The names of all cards, in the order of their architectures.
    pub fn names() -> Vec<&'static str> {
        CARDS.iter().map(|(name, _)| *name).collect()
    }
}

/// True if a driver's name of a product begins with `name`, followed by the kind of its memory or board.
fn driver_says(whole: &str, name: &str) -> bool {
    let Some(rest) = whole.strip_prefix(name) else { return false };
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    rest.starts_with("sxm")
        || rest.starts_with("pcie")
        || rest.starts_with("hbm")
        || (digits > 0 && rest[digits..].starts_with("gb"))
}

#[cfg(test)]
mod tests {
    use super::{super::is_gpu, *};

    fn name(word: &str) -> Option<String> {
        Card::named(word).map(|card| card.name)
    }

    #[test]
    fn cards_have_the_names_that_users_and_drivers_give_them() {
        for (word, expected) in [
            ("h100", "h100"),
            ("H100", "h100"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA H100 PCIe", "h100-pcie"),
            ("NVIDIA H200", "h200"),
            ("NVIDIA A100-SXM4-80GB", "a100"),
            ("NVIDIA A100-PCIE-40GB", "a100"),
            ("a100-40gb", "a100-40gb"),
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("rtx-pro-6000", "rtx-pro-6000"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
            ("L40S", "l40s"),
            ("NVIDIA L4", "l4"),
            ("DGX Spark", "gb10"),
            ("NVIDIA GB10", "gb10"),
        ] {
            assert_eq!(name(word).as_deref(), Some(expected), "{word}");
        }
    }

    #[test]
    fn peak_rates_are_those_of_the_data_sheets() {
        for (name, tflops) in [
            ("t4", 65.0),
            ("a100", 312.0),
            ("a40", 150.0),
            ("rtx-3090", 71.0),
            ("l4", 121.0),
            ("l40s", 362.0),
            ("rtx-4090", 165.0),
            ("rtx-pro-6000", 504.0),
            ("rtx-5090", 210.0),
        ] {
            let card = Card::named(name).expect(name);
            let rate = card.peak_flops_a_cycle() * f64::from(card.multiprocessors * card.clock_mhz) / 1e6;
            assert!((rate / tflops - 1.0).abs() < 0.1, "{name}: {rate}");
        }
    }

    #[test]
    fn unknown_cards_are_not_taken_for_similar_ones() {
        for word in ["", "h1000", "l40sx", "a10g", "h20", "v100", "b2", "9000"] {
            assert_eq!(name(word), None, "{word}");
        }
    }

    #[test]
    fn every_card_is_named_once_and_has_a_known_capability() {
        for (place, (name, [capability, ..])) in CARDS.iter().enumerate() {
            assert!(is_gpu(*capability), "{name}");
            assert!(CARDS[..place].iter().all(|(other, _)| other != name), "{name}");
            assert_eq!(Card::named(name).expect("it is listed").name, *name);
        }
    }
}
