//! The counters that are asked of Nsight Compute.

/// A counter of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Its name for `ncu`.
    pub name: &'static str,
    /// What it tells.
    pub meaning: &'static str,
}

/// Prefix and suffix of the names of the reasons for which warps wait.
pub(super) const STALL: [&str; 2] = ["smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"];

/// The counters, in the order of reports. A GPU lacks some of them.
pub const METRICS: &[Metric] = &[
    of("gpu__time_duration.sum", "time of the launch"),
    of("sm__throughput.avg.pct_of_peak_sustained_elapsed", "multiprocessors, of their peak"),
    of("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "tensor cores busy"),
    of("sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active", "tensor cores busy, 16-bit products"),
    of("sm__inst_executed_pipe_tensor.sum", "tensor-core instructions"),
    of("sm__inst_executed_pipe_tensor_op_hmma.sum", "tensor-core instructions, 16-bit products"),
    of("sm__inst_executed_pipe_tensor_op_gmma.sum", "tensor-core instructions of warpgroups"),
    of("sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active", "exponentials and conversions"),
    of("sm__issue_active.avg.pct_of_peak_sustained_elapsed", "cycles with an instruction issued"),
    of("sm__warps_active.avg.pct_of_peak_sustained_active", "resident warps, of the most possible"),
    of("dram__bytes.sum", "bytes of device memory"),
    of("dram__throughput.avg.pct_of_peak_sustained_elapsed", "device memory, of its peak"),
    of("lts__t_bytes.sum", "bytes of L2"),
    of("lts__t_sector_hit_rate.pct", "L2 hits"),
    of("l1tex__data_bank_conflicts_pipe_lsu.sum", "bank conflicts"),
    of("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "bank conflicts in shared memory"),
    of("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "wavefronts of shared memory"),
    of("smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", "waits for a barrier"),
    of("smsp__average_warps_issue_stalled_branch_resolving_per_issue_active.ratio", "waits for a branch"),
    of("smsp__average_warps_issue_stalled_dispatch_stall_per_issue_active.ratio", "waits for the dispatcher"),
    of("smsp__average_warps_issue_stalled_drain_per_issue_active.ratio", "waits for stores at the end"),
    of("smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", "waits for products of warpgroups"),
    of("smsp__average_warps_issue_stalled_imc_miss_per_issue_active.ratio", "waits for constants"),
    of("smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio", "waits for the queue of device memory"),
    of("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", "waits for device memory"),
    of("smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio", "waits for a busy pipe"),
    of("smsp__average_warps_issue_stalled_membar_per_issue_active.ratio", "waits for a fence"),
    of("smsp__average_warps_issue_stalled_mio_throttle_per_issue_active.ratio", "waits for the queue of shared memory"),
    of("smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio", "waits for instructions"),
    of("smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio", "another warp was chosen"),
    of("smsp__average_warps_issue_stalled_selected_per_issue_active.ratio", "issues"),
    of("smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio", "waits for shared memory"),
    of("smsp__average_warps_issue_stalled_sleeping_per_issue_active.ratio", "sleeps"),
    of("smsp__average_warps_issue_stalled_wait_per_issue_active.ratio", "waits a fixed number of cycles"),
];

const fn of(name: &'static str, meaning: &'static str) -> Metric {
    Metric { name, meaning }
}

impl Metric {
    /// The counter of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }

    /// True if it tells for what warps wait: a number of warps, on average at an issue.
    pub fn is_stall(&self) -> bool {
        self.name.starts_with(STALL[0]) && self.name.ends_with(STALL[1])
    }

    /// The name without what is computed of it.
    pub(super) fn base(&self) -> &'static str {
        self.name.split('.').next().unwrap_or(self.name)
    }
}
