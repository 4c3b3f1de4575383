//! Number and schedules of a case's runs after its first, shuffled run.

use super::Level;
use crate::device::{DeviceKind, Order, Schedule};

/// Depths of the priority schedules that smoke alternates between. Constant priorities hold one warp or warpgroup back,
/// or let it run ahead, for a whole block; each lowered priority adds one more coincidence that a bug may need.
const DEPTHS: [u32; 4] = [0, 1, 3, 10];

/// One case in this many gets a priority schedule in smoke. A second run doubles a case's time, and a bug that only the
/// second run finds (a missing wait, or a wait for the wrong warp) shows in each kernel's share of the cases.
const EVERY: u64 = 8;

/// Every further run of a case of the kernel `kernel`; all must give the result of the first. `requested` is the user's
/// schedule, which replaces the usual ones.
pub fn further(
    device: DeviceKind,
    level: Level,
    requested: Option<Order>,
    kernel: &str,
    seed: u64,
    order_matters: bool,
) -> Vec<Schedule> {
    let shuffled = Schedule::shuffled(!seed);
    let by_priority = |depth| Schedule { seed: seed_of(seed, depth), order: Order::Priorities { depth } };
    match (device, requested) {
        (DeviceKind::Gpu, _) => vec![shuffled],
        (DeviceKind::Emulator, Some(Order::Shuffled)) => vec![],
        (DeviceKind::Emulator, Some(Order::Priorities { depth })) => vec![by_priority(depth)],
        (DeviceKind::Emulator, None) => match (level, order_matters) {
            (Level::Smoke, true) if has_a_turn(kernel, seed) => {
                vec![by_priority(DEPTHS[(seed >> 32) as usize % DEPTHS.len()])]
            }
            (Level::Smoke, _) => vec![],
            (Level::Thorough, false) => vec![shuffled],
            (Level::Thorough, true) => [shuffled].into_iter().chain(DEPTHS.map(by_priority)).collect(),
        },
    }
}

/// True for smoke cases that run twice: different cases for each kernel, so that kernels of one template complement
/// each other.
fn has_a_turn(kernel: &str, seed: u64) -> bool {
    let hash = blake3::hash(kernel.as_bytes());
    let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    (u64::from_le_bytes(*first) ^ seed).is_multiple_of(EVERY)
}

/// Seed of a depth; the same depth has the same seed in every list.
fn seed_of(seed: u64, depth: u32) -> u64 {
    seed ^ (u64::from(depth) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_that_a_failure_names_is_the_one_that_asking_for_it_runs() {
        for (seed, level) in (0..100).map(|n| n << 30).flat_map(|seed| [(seed, Level::Smoke), (seed, Level::Thorough)]) {
            for usual in further(DeviceKind::Emulator, level, None, "kernel", seed, true) {
                if let Order::Priorities { .. } = usual.order {
                    let requested = Some(usual.order);
                    assert_eq!(further(DeviceKind::Emulator, Level::Smoke, requested, "kernel", seed, true), [usual]);
                }
            }
        }
    }

    #[test]
    fn smoke_gives_some_cases_of_every_kernel_a_second_run_of_each_depth() {
        let runs = |kernel: &str| -> Vec<(u64, Schedule)> {
            let all = (0..4000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let more = |seed| further(DeviceKind::Emulator, Level::Smoke, None, kernel, seed, true);
            all.flat_map(|seed| more(seed).into_iter().map(move |schedule| (seed, schedule))).collect()
        };
        let (one, other) = (runs("flash_fwd"), runs("flash_bwd"));
        for runs in [&one, &other] {
            let depths: std::collections::HashSet<Order> = runs.iter().map(|(_, schedule)| schedule.order).collect();
            assert_eq!(depths.len(), DEPTHS.len());
            assert!((400..600).contains(&runs.len()), "{} of 4000", runs.len());
        }
        assert_ne!(one, other, "kernels of one template have cases of the same names");
    }

    #[test]
    fn what_no_order_changes_runs_once_and_a_gpu_runs_twice() {
        assert!((0..100).all(|seed| further(DeviceKind::Emulator, Level::Smoke, None, "kernel", seed, false).is_empty()));
        assert!((0..100).all(|seed| further(DeviceKind::Gpu, Level::Smoke, None, "kernel", seed, true).len() == 1));
    }
}
