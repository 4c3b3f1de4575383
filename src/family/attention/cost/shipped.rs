//! The formulas of `templates/include/kgen/path_cost.cuh`, called from Rust: `kgen predict` and the dispatcher of a
//! library compute the same times. build.rs compiles them with the host compiler.
#![expect(unsafe_code, reason = "calls functions that are written in C++, because the shipped library uses them too")]

/// A request; field by field as `request_cost`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// Sequences.
    pub batch: f64,
    /// Query heads.
    pub heads: f64,
    /// Key heads.
    pub heads_k: f64,
    /// Queries of a sequence, on average.
    pub queries: f64,
    /// Keys of a sequence, on average.
    pub keys: f64,
    /// Queries of the longest sequence.
    pub longest_queries: f64,
    /// Keys of the longest sequence.
    pub longest_keys: f64,
    /// Columns of Q and K.
    pub head_dim: f64,
    /// Columns of V and O.
    pub head_dim_v: f64,
    /// Bytes of an element of Q and O.
    pub element_bytes: f64,
    /// Bytes of an element of K and V.
    pub kv_element_bytes: f64,
    /// Most keys that a query sees; infinite without a window.
    pub most_seen: f64,
    /// Keys of a query's sequence, on average over queries, relative to `keys`.
    pub keys_to_mean: f64,
    /// Causal mask.
    pub causal: bool,
    /// Lengths differ.
    pub unequal: bool,
    /// Lengths of queries differ.
    pub unequal_queries: bool,
    /// Lengths of keys differ.
    pub unequal_keys: bool,
    /// The sum of the lengths of keys is unknown.
    pub keys_unknown: bool,
    /// Sequences with the most queries, if the others have one each; 0: no guess.
    pub longer: f64,
    /// Weight of the guess that queries are spread evenly.
    pub spread: f64,
}

/// A kernel; as `kernel_cost`, which documents the fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Kernel {
    pub rows: f64,
    pub group_rows: f64,
    pub keys: f64,
    pub resident: f64,
    pub launch_ns: f64,
    pub crowded_ns: f64,
    pub tile_cycles: f64,
    pub chain_cycles: f64,
    pub step_cycles: f64,
    pub longest_first: bool,
    pub orders_batch: bool,
}

/// A card; as `device_cost`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Device {
    /// Multiprocessors.
    pub multiprocessors: f64,
    /// Clock in GHz.
    pub cycles_per_ns: f64,
    /// Bandwidth of device memory.
    pub dram_bytes_per_ns: f64,
    /// Bandwidth of L2.
    pub l2_bytes_per_ns: f64,
    /// Bytes of L2.
    pub l2_bytes: f64,
    /// Bytes of a request that L2 may still hold.
    pub kept_bytes: f64,
}

/// The division of a sequence's keys among blocks; as `sharing`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// A tile's rows are those of all heads that read one key head.
    pub packed: bool,
    /// Splits of a sequence, on average.
    pub splits: f64,
    /// Longer sequences have more splits.
    pub balanced: bool,
    /// Splits of the longest sequence.
    pub most_splits: f64,
}

impl Sharing {
    /// Every block reads all keys of its sequence.
    pub const WHOLE: Self = Self { packed: false, splits: 1.0, balanced: false, most_splits: 1.0 };
}

/// Parts of a kernel's time in nanoseconds; as `kernel_time`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Time {
    /// From the launch to the first product, and from the last store to the end.
    pub launch: f64,
    /// The first query tile of a block, without its steps.
    pub tile: f64,
    /// Steps of a block, one after the other.
    pub chain: f64,
    /// Steps of a multiprocessor whose units are busy.
    pub step: f64,
    /// Traffic of device memory or L2.
    pub memory: f64,
}

unsafe extern "C" {
    fn kgen_cost_time(request: &Request, kernel: &Kernel, device: &Device, shares: &Sharing, time: &mut Time);
    fn kgen_cost_total(time: &Time) -> f64;
    #[cfg(test)]
    fn kgen_cost_sizes(sizes: &mut [usize; 5]);
}

impl Time {
    /// The time of a kernel.
    pub fn of(request: &Request, kernel: &Kernel, device: &Device, shares: &Sharing) -> Self {
        let mut time = Self::default();
        // SAFETY: the function reads four structures and writes one; `the_structures_agree` compares their sizes.
        unsafe { kgen_cost_time(request, kernel, device, shares, &mut time) };
        time
    }

    /// All parts together: the longest of chain, step and memory hides most of the others.
    pub fn total(&self) -> f64 {
        // SAFETY: the function reads one structure.
        unsafe { kgen_cost_total(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_agree() {
        let mut sizes = [0; 5];
        // SAFETY: the function writes five numbers.
        unsafe { kgen_cost_sizes(&mut sizes) };
        let own = [size_of::<Request>(), size_of::<Kernel>(), size_of::<Device>(), size_of::<Sharing>(), size_of::<Time>()];
        assert_eq!(sizes, own);
    }

    /// The first example of tests/library/formula.cpp: a field that is read as another would give other numbers.
    #[test]
    fn one_tile_takes_what_is_computed_by_hand() {
        let request = Request {
            batch: 1.0,
            heads: 1.0,
            heads_k: 1.0,
            queries: 64.0,
            keys: 640.0,
            longest_queries: 64.0,
            longest_keys: 640.0,
            head_dim: 64.0,
            head_dim_v: 64.0,
            element_bytes: 2.0,
            kv_element_bytes: 2.0,
            most_seen: f64::INFINITY,
            keys_to_mean: 1.0,
            spread: 1.0,
            ..Request::default()
        };
        let kernel = Kernel {
            rows: 64.0,
            group_rows: 64.0,
            keys: 64.0,
            resident: 2.0,
            launch_ns: 1000.0,
            crowded_ns: 300.0,
            tile_cycles: 500.0,
            chain_cycles: 100.0,
            step_cycles: 60.0,
            longest_first: false,
            orders_batch: false,
        };
        let device = Device {
            multiprocessors: 10.0,
            cycles_per_ns: 1.0,
            dram_bytes_per_ns: 100.0,
            l2_bytes_per_ns: 1000.0,
            l2_bytes: 8e6,
            kept_bytes: 1e6,
        };
        let time = Time::of(&request, &kernel, &device, &Sharing::WHOLE);
        assert_eq!(time, Time { launch: 1000.0, tile: 500.0, chain: 1000.0, step: 600.0, memory: 163.84 });
        assert!((time.total() - (1500.0 + 1000.0 + 0.2 * (600.0 + 163.84))).abs() < 1e-9);
        // A causal mask halves the steps of the average tile of many; only the right flag does that.
        let many = Request { queries: 640.0, longest_queries: 640.0, heads: 100.0, ..request };
        let causal = Time::of(&Request { causal: true, ..many }, &kernel, &device, &Sharing::WHOLE);
        assert!(causal.step < 0.75 * Time::of(&many, &kernel, &device, &Sharing::WHOLE).step);
    }
}
