//! Parses the output of `ptxas -v` for each kernel.

use super::KernelResources;

/// The kernels of a compile log, in order. Lines of other tools are skipped.
pub(super) fn parse(log: &str) -> Vec<KernelResources> {
    let mut kernels: Vec<KernelResources> = Vec::new();
    // Properties of device functions that were not inlined look like a kernel's; they belong to no entry.
    let mut inside_entry = false;
    for line in log.lines() {
        if let Some(rest) = line.split_once("Compiling entry function '").map(|(_, rest)| rest) {
            kernels.push(KernelResources {
                kernel: rest.split('\'').next().unwrap_or_default().to_owned(),
                registers: 0,
                spill_store_bytes: 0,
                spill_load_bytes: 0,
                stack_bytes: 0,
                shared_bytes: 0,
            });
            inside_entry = true;
            continue;
        }
        let Some(kernel) = kernels.last_mut() else { continue };
        if let Some((_, of)) = line.split_once("Function properties for ") {
            inside_entry = of.trim() == kernel.kernel;
        } else if inside_entry && line.contains(" bytes stack frame") {
            kernel.stack_bytes = number_before(line, "bytes stack frame");
            kernel.spill_store_bytes = number_before(line, "bytes spill stores");
            kernel.spill_load_bytes = number_before(line, "bytes spill loads");
        } else if line.contains(": Used ") && line.contains(" registers") {
            kernel.registers = number_before(line, "registers");
            kernel.shared_bytes = number_before(line, "bytes smem");
        }
    }
    kernels
}

/// ptxas's reason for serialising a kernel's `wgmma`; products then no longer overlap with other work.
pub(super) fn serialised(log: &str) -> Option<String> {
    let (_, reason) = log.split_once("wgmma.mma_async instructions are serialized due to ")?;
    let line = reason.lines().next().unwrap_or_default();
    Some(line.split(" in the function").next().unwrap_or(line).trim().to_owned())
}

/// The number in front of `unit` in a list such as `Used 255 registers, 4096 bytes smem`; 0 if the unit is absent.
fn number_before(line: &str, unit: &str) -> u32 {
    let number = line.split(',').find_map(|item| {
        let words = item.trim().strip_suffix(unit)?;
        words.split_whitespace().last()?.parse().ok()
    });
    number.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_gets_its_own_numbers() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function '_Zone' for 'sm_80'\n\
            ptxas info    : Function properties for _Zone\n\
            \x20   24 bytes stack frame, 20 bytes spill stores, 28 bytes spill loads\n\
            ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 576 bytes cmem[0]\n\
            ptxas info    : Compile time = 274.622 ms\n\
            ptxas info    : Compiling entry function '_Ztwo' for 'sm_80'\n\
            ptxas info    : Function properties for _Ztwo\n\
            \x20   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 40 registers, used 1 barriers, 4096 bytes smem, 400 bytes cmem[0]\n";
        let kernel = |kernel: &str, numbers: [u32; 5]| KernelResources {
            kernel: kernel.into(),
            registers: numbers[0],
            spill_store_bytes: numbers[1],
            spill_load_bytes: numbers[2],
            stack_bytes: numbers[3],
            shared_bytes: numbers[4],
        };
        assert_eq!(parse(log), [kernel("_Zone", [255, 20, 28, 24, 0]), kernel("_Ztwo", [40, 0, 0, 0, 4096])]);
    }

    #[test]
    fn a_called_function_does_not_overwrite_its_kernel() {
        let log = "ptxas info    : Compiling entry function 'k' for 'sm_80'\n\
            ptxas info    : Function properties for k\n\
            \x20   8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n\
            ptxas info    : Used 30 registers, 8 bytes cumulative stack size\n\
            ptxas info    : Function properties for helper\n\
            \x20   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";
        assert_eq!(parse(log)[0].spill_store_bytes, 4);
        assert_eq!(parse(log)[0].stack_bytes, 8);
    }

    #[test]
    fn the_reason_for_serialised_products_is_ptxas_own() {
        let log = "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient \
            register resources for the wgmma pipeline in the function '_Zattention'\nptxas info    : Compile time = 1 ms\n";
        assert_eq!(serialised(log).as_deref(), Some("insufficient register resources for the wgmma pipeline"));
        assert_eq!(serialised("ptxas info    : Used 168 registers\n"), None);
    }

    #[test]
    fn a_log_without_kernels_has_none() {
        assert_eq!(parse("x.cu(3): warning #177-D: variable \"a\" was declared but never referenced\n"), []);
    }
}
