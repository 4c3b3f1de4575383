//! Kernels that are one program on the emulator: the same text except for name and comments, the same tiling and the
//! same cases. This holds for forward and backward kernels of `mma.sync` on several targets, which differ on a GPU only
//! in ptxas's output. Checking one of them covers all that the emulator can check of the others.

use super::{Cases, CheckRequest, Kernel, Level, Subject, selected_cases};
use crate::{device::DeviceKind, kernel::Target, plan::Limits};
use std::collections::HashMap;

/// Indices of the requests, grouped. A pass of a group's first member counts for the others; each request is in one
/// group, in order.
pub(super) fn groups(requests: &[CheckRequest], cases: Cases, level: Level, filter: Option<&str>) -> Vec<Vec<usize>> {
    let mut programs: HashMap<String, Vec<usize>> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        match &request.kernel {
            Kernel::Source(text) => programs.entry(program(text, &request.variant.name())).or_default().push(index),
            Kernel::Library { .. } => groups.push(vec![index]),
        }
    }
    for alike in programs.into_values() {
        if alike.len() == 1 {
            groups.push(alike);
        } else {
            groups.extend(divide(requests, alike, cases, level, filter));
        }
    }
    groups.sort_unstable();
    groups
}

/// Divides requests with the same text by their cases, and by the devices that one of them can represent.
fn divide(requests: &[CheckRequest], mut alike: Vec<usize>, cases: Cases, level: Level, filter: Option<&str>) -> Vec<Vec<usize>> {
    let examined = |request: &CheckRequest| {
        let subject = Subject { variant: request.variant, tiling: request.tiling, device: DeviceKind::Emulator };
        format!("{:?} {:?}", request.tiling, selected_cases(cases, &subject, level, filter))
    };
    // The representative comes first.
    alike.sort_by_key(|&index| {
        let target = requests[index].compiled_for;
        (Limits::of(target).shared_memory_per_block, target, index)
    });
    let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
    for index in alike {
        let (cases, target) = (examined(&requests[index]), requests[index].compiled_for);
        match groups.iter_mut().find(|(known, group)| *known == cases && stands_for(requests[group[0]].compiled_for, target)) {
            Some((_, group)) => group.push(index),
            None => groups.push((cases, vec![index])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// True if a program that runs on the emulated device `one` runs in the same way on `other`: it uses no instruction
/// that the other lacks, and no more shared memory. TMA, clusters and warpgroups began with Hopper; all older features
/// of the emulator exist on every device.
fn stands_for(one: Target, other: Target) -> bool {
    let same_instructions =
        one < Target::Sm90 && one <= other || one.compute_capability() / 10 == other.compute_capability() / 10;
    same_instructions && Limits::of(one).shared_memory_per_block <= Limits::of(other).shared_memory_per_block
}

/// The text without comments, white space and the kernel's own name, which its functions and messages contain. Lines
/// break differently in a kernel with a longer name; only directives keep their line ends.
fn program(text: &str, name: &str) -> String {
    let mut program = String::with_capacity(text.len());
    for line in text.lines() {
        program.extend(without_comment(line).split_whitespace());
        if line.starts_with('#') {
            program.push('\n');
        }
    }
    program.replace(name, "\u{0}")
}

/// A line up to its `//`, unless that is inside a string. The templates use no other comments; a template that did
/// would only fail to match.
fn without_comment(line: &str) -> &str {
    let (mut in_string, mut escaped, mut slash) = (false, false, false);
    for (at, byte) in line.bytes().enumerate() {
        if byte == b'/' && slash && !in_string {
            return &line[..at - 1];
        }
        slash = byte == b'/';
        if byte == b'"' && !escaped {
            in_string = !in_string;
        }
        escaped = byte == b'\\' && !escaped;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        family,
        grid::Grid,
        plan::Plan,
        render::{Renderer, Templates},
    };

    fn requests(filter: impl Fn(&str) -> bool) -> Vec<CheckRequest> {
        let (grid, renderer) = (Grid::builtin(), Renderer::new(&Templates::embedded()).expect("the templates parse"));
        let variants = grid.variants().iter().filter(|variant| filter(&variant.name()));
        let request = |variant: &crate::kernel::Variant| {
            let plan = Plan::new(*variant, grid.tile_override(variant).as_ref()).expect("the grid holds what has a plan");
            CheckRequest {
                variant: *variant,
                tiling: plan.tiling(),
                compiled_for: plan.compiled_for(),
                kernel: Kernel::Source(renderer.kernel(&plan).expect("it renders").text),
            }
        };
        variants.map(request).collect()
    }

    fn names(requests: &[CheckRequest]) -> Vec<Vec<String>> {
        let name = |&index: &usize| requests[index].variant.name();
        groups(requests, family::cases, Level::Smoke, None).iter().map(|group| group.iter().map(name).collect()).collect()
    }

    #[test]
    fn a_kernel_that_differs_only_in_its_name_and_comments_is_checked_by_its_least_capable_twin() {
        let made = requests(|name| name.starts_with("flash_bwd_hdim32_bf16_window_sm"));
        assert_eq!(
            names(&made),
            [
                vec![
                    "flash_bwd_hdim32_bf16_window_sm80",
                    "flash_bwd_hdim32_bf16_window_sm90",
                    "flash_bwd_hdim32_bf16_window_sm100"
                ],
                vec!["flash_bwd_hdim32_bf16_window_sm120"],
            ]
        );
    }

    #[test]
    fn kernels_of_the_grid_that_are_one_program_are_checked_once_and_nothing_is_lost() {
        let made = requests(|_| true);
        let groups = groups(&made, family::cases, Level::Smoke, None);
        let mut all: Vec<usize> = groups.iter().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..made.len()).collect::<Vec<_>>());
        assert_eq!((groups.len(), made.len()), (949, 1324), "programs and kernels of the grid");
    }

    #[test]
    fn one_changed_character_tiling_or_device_makes_another_program() {
        let made = requests(|name| name.starts_with("flash_bwd_hdim32_bf16_window_sm") && !name.ends_with("sm120"));
        assert_eq!(groups(&made, family::cases, Level::Smoke, None).len(), 1);
        let changed = |change: &dyn Fn(&mut CheckRequest)| {
            let mut made = made.clone();
            change(&mut made[1]);
            groups(&made, family::cases, Level::Smoke, None).len()
        };
        let edited = |from: &'static str, to: &'static str| {
            changed(&|request: &mut CheckRequest| {
                let Kernel::Source(text) = &mut request.kernel else { panic!("it is a source") };
                assert!(text.contains(from), "{from}");
                *text = text.replacen(from, to, 1);
            })
        };
        assert_eq!(edited("block_sync();", ""), 2);
        assert_eq!(edited("block_sync();", "block_sync();  // remark"), 1);
        assert_eq!(changed(&|request| request.tiling.n += 8), 2);
        assert_eq!(changed(&|request| request.compiled_for = Target::Sm120), 2, "99 KB may be too little");
    }

    #[test]
    fn a_device_stands_for_those_that_have_all_it_has() {
        assert!(stands_for(Target::Sm80, Target::Sm90) && stands_for(Target::Sm89, Target::Sm120));
        assert!(stands_for(Target::Sm120, Target::Sm121) && stands_for(Target::Sm89, Target::Sm80));
        assert!(!stands_for(Target::Sm80, Target::Sm120), "less shared memory");
        assert!(!stands_for(Target::Sm90, Target::Sm100), "no wgmma");
    }

    #[test]
    fn two_slashes_in_a_string_are_no_comment() {
        assert_eq!(without_comment(r#"a("x // \" // y"); // z"#), r#"a("x // \" // y"); "#);
        assert_eq!(without_comment("a / b"), "a / b");
    }
}
