//! The resource model: a kernel's shared memory and registers, and the checks that refuse a plan.

use super::{AnyDesign, Design, Limits, Occupancy, Plan, PlanError, Region, RegisterEstimate, TensorCore};
use crate::kernel::{Target, Variant};

/// Resources of a block, and the remedies if one is exceeded.
pub(crate) struct Resources {
    /// Threads of a block.
    pub threads: u32,
    /// Minimum number of blocks per multiprocessor.
    pub min_blocks_per_sm: u32,
    /// Shared memory of a block, in order; the end of the last region is the size that a launch requests.
    pub shared_memory: Vec<Region>,
    /// Registers of a thread.
    pub registers: RegisterEstimate,
    /// Registers available to a thread.
    pub registers_available: u32,
    /// Registers of a thread at the start of its block.
    pub registers_launched_with: u32,
    /// The remedy if shared memory is exceeded: ``lower `n` ``.
    pub to_save_shared_memory: String,
    /// The remedy if registers are exceeded.
    pub to_save_registers: String,
}

impl Plan {
    /// Checks a kernel's resources against the GPU it is compiled for, and returns the plan.
    pub(crate) fn resolve(
        variant: Variant,
        run_as: Option<Target>,
        template: &'static str,
        design: impl Design,
        resources: Resources,
        tensor_core: TensorCore,
    ) -> Result<Self, PlanError> {
        let limits = Limits::of(run_as.unwrap_or(variant.target()));
        let shared_memory_bytes = resources.shared_memory.last().map_or(0, |last| last.offset + last.bytes);
        resources.check_shared_memory(variant, shared_memory_bytes, &limits)?;
        resources.check_registers(variant)?;
        Ok(Self {
            variant,
            run_as,
            template,
            design: AnyDesign::new(design),
            threads: resources.threads,
            occupancy: resources.occupancy(shared_memory_bytes, &limits),
            shared_memory: resources.shared_memory,
            shared_memory_bytes,
            registers: resources.registers,
            limits,
            tensor_core,
        })
    }
}

impl Resources {
    fn check_shared_memory(&self, variant: Variant, bytes: u32, limits: &Limits) -> Result<(), PlanError> {
        let refuse = |needed, available, unit, remedy: String| {
            Err(PlanError::DoesNotFit { variant: variant.name(), resource: "shared memory", needed, available, unit, remedy })
        };
        let shrink = &self.to_save_shared_memory;
        if bytes > limits.shared_memory_per_block {
            return refuse(bytes, limits.shared_memory_per_block, "bytes a block", shrink.clone());
        }
        let blocks = self.min_blocks_per_sm;
        let together = blocks.saturating_mul(bytes + limits.shared_memory_reserved);
        if together > limits.shared_memory_per_sm {
            let remedy = format!("{shrink}, or `min_blocks_per_sm` from {blocks}");
            return refuse(together, limits.shared_memory_per_sm, "bytes a multiprocessor", remedy);
        }
        Ok(())
    }

    fn check_registers(&self, variant: Variant) -> Result<(), PlanError> {
        if self.registers.total <= self.registers_available {
            return Ok(());
        }
        Err(PlanError::DoesNotFit {
            variant: variant.name(),
            resource: "registers",
            needed: self.registers.total,
            available: self.registers_available,
            unit: "a thread",
            remedy: self.to_save_registers.clone(),
        })
    }

    /// Blocks per multiprocessor as limited by each resource alone; the scarcest one decides.
    fn occupancy(&self, shared_memory_bytes: u32, limits: &Limits) -> Occupancy {
        let warps = self.threads / 32;
        let registers_per_warp = self.registers_launched_with.min(limits.registers_per_thread).next_multiple_of(8) * 32;
        let together = shared_memory_bytes + limits.shared_memory_reserved;
        let fits = [
            ("registers", limits.registers_per_sm / registers_per_warp / warps),
            // A kernel without shared memory is not limited by it if the system reserves none either.
            ("shared memory", limits.shared_memory_per_sm.checked_div(together).unwrap_or(u32::MAX)),
            ("warps", limits.warps_per_sm / warps),
            ("blocks", limits.blocks_per_sm),
        ];
        // `min_by_key` returns the first of equals: registers before shared memory, the order in which they are tuned.
        let (limited_by, blocks_per_sm) = fits.into_iter().min_by_key(|(_, blocks)| *blocks).unwrap_or(("blocks", 0));
        Occupancy { blocks_per_sm, warps_per_sm: blocks_per_sm * warps, limited_by }
    }
}
