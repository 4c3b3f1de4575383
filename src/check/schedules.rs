//! How often a case runs after its first, shuffled run, and under which schedules.

use super::Level;
use crate::device::{DeviceKind, Order, Schedule};

/// Depths of the priority schedules that smoke alternates between: priorities that stay as they are hold one warp or
/// warpgroup back, or let it run ahead, from a block's beginning to its end; each fall is one more coincidence that a
/// mistake may need.
const DEPTHS: [u32; 4] = [0, 1, 3, 10];

/// Every further run of a case; all must give what the first gave. `asked` is what a user wants in place of the usual.
pub fn further(device: DeviceKind, level: Level, asked: Option<Order>, seed: u64, order_matters: bool) -> Vec<Schedule> {
    let shuffled = Schedule::shuffled(!seed);
    let by_priority = |depth| Schedule { seed: seed_of(seed, depth), order: Order::Priorities { depth } };
    match (device, asked) {
        (DeviceKind::Gpu, _) => vec![shuffled],
        (DeviceKind::Emulator, Some(Order::Shuffled)) => vec![],
        (DeviceKind::Emulator, Some(Order::Priorities { depth })) => vec![by_priority(depth)],
        (DeviceKind::Emulator, None) => match (level, order_matters) {
            (Level::Smoke, false) => vec![],
            (Level::Smoke, true) => vec![by_priority(DEPTHS[(seed >> 32) as usize % DEPTHS.len()])],
            (Level::Thorough, false) => vec![shuffled],
            (Level::Thorough, true) => [shuffled].into_iter().chain(DEPTHS.map(by_priority)).collect(),
        },
    }
}

/// Another seed for each depth, that of a depth being the same in whatever list it stands.
fn seed_of(seed: u64, depth: u32) -> u64 {
    seed ^ (u64::from(depth) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_that_a_failure_names_is_the_one_that_asking_for_it_runs() {
        for (seed, level) in (0..100).map(|n| n << 30).flat_map(|seed| [(seed, Level::Smoke), (seed, Level::Thorough)]) {
            for usual in further(DeviceKind::Emulator, level, None, seed, true) {
                if let Order::Priorities { .. } = usual.order {
                    assert_eq!(further(DeviceKind::Emulator, Level::Smoke, Some(usual.order), seed, true), [usual]);
                }
            }
        }
    }

    #[test]
    fn smoke_takes_every_depth_by_turns_and_leaves_out_what_no_order_changes() {
        let depths: std::collections::HashSet<Order> = (0..20u64)
            .flat_map(|n| further(DeviceKind::Emulator, Level::Smoke, None, n << 32, true))
            .map(|schedule| schedule.order)
            .collect();
        assert_eq!(depths.len(), DEPTHS.len());
        assert!(further(DeviceKind::Emulator, Level::Smoke, None, 1, false).is_empty());
        assert_eq!(further(DeviceKind::Gpu, Level::Smoke, None, 1, true).len(), 1);
    }
}
