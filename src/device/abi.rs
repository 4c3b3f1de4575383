//! `kgen_fwd_params` of `kgen.h`, and the same call with tensors in place of pointers.

use super::Image;
use std::ffi::{c_char, c_void};

/// `KGEN_FLAG_CAUSAL`.
const FLAG_CAUSAL: u32 = 1;

/// `KGEN_DTYPE_FP16`.
pub const DTYPE_FP16: i32 = 0;

/// `KGEN_DTYPE_BF16`.
pub const DTYPE_BF16: i32 = 1;

/// Element strides of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Strides {
    /// From one batch entry to the next; not read where `cu_seqlens` is given.
    pub batch: i64,
    /// From one token to the next.
    pub row: i64,
    /// From one head to the next.
    pub head: i64,
}

/// One call of a forward launcher: the tensors by value, so that each run starts from the same memory.
#[derive(Debug, Clone)]
pub struct Call {
    /// Q.
    pub q: Image,
    /// K.
    pub k: Image,
    /// V.
    pub v: Image,
    /// O, poisoned.
    pub o: Image,
    /// The log-sum-exp, poisoned; `None` passes NULL.
    pub lse: Option<Image>,
    /// Strides of Q, K, V and O.
    pub strides: [Strides; 4],
    /// Batch and head stride of the log-sum-exp.
    pub lse_strides: [i64; 2],
    /// Sequence starts of Q and O, where they are packed.
    pub cu_seqlens_q: Option<Image>,
    /// Sequence starts of K and V, where they are packed.
    pub cu_seqlens_k: Option<Image>,
    /// Rows of each sequence of Q that take part.
    pub seqused_q: Option<Image>,
    /// Rows of each sequence of K and V that take part.
    pub seqused_k: Option<Image>,
    /// Sequences.
    pub batch: i32,
    /// Query heads.
    pub num_heads: i32,
    /// Key heads.
    pub num_heads_k: i32,
    /// Rows of Q, or a bound on them.
    pub seqlen_q: i32,
    /// Rows of K, or a bound on them.
    pub seqlen_k: i32,
    /// Elements of a row.
    pub head_dim: i32,
    /// `KGEN_DTYPE_*`.
    pub dtype: i32,
    /// Causal mask.
    pub causal: bool,
    /// Factor on Q Kᵀ.
    pub softmax_scale: f32,
}

impl Call {
    /// Every input tensor that is there, with its name in `kgen.h`.
    pub fn inputs(&self) -> impl Iterator<Item = (&'static str, &Image)> {
        [
            ("q", Some(&self.q)),
            ("k", Some(&self.k)),
            ("v", Some(&self.v)),
            ("cu_seqlens_q", self.cu_seqlens_q.as_ref()),
            ("cu_seqlens_k", self.cu_seqlens_k.as_ref()),
            ("seqused_q", self.seqused_q.as_ref()),
            ("seqused_k", self.seqused_k.as_ref()),
        ]
        .into_iter()
        .filter_map(|(name, image)| Some((name, image?)))
    }

    /// The structure to pass, with `address` giving the pointer to element (0, 0, 0) of the tensor of that name.
    /// `address` is asked for `q`, `k`, `v`, `o`, `lse` and the four arrays of lengths, and gives NULL for what is absent.
    pub(super) fn params(&self, mut address: impl FnMut(&'static str) -> *mut c_void) -> FwdParams {
        let [q, k, v, o] = self.strides;
        FwdParams {
            struct_size: size_of::<FwdParams>() as u32,
            flags: if self.causal { FLAG_CAUSAL } else { 0 },
            q: address("q"),
            k: address("k"),
            v: address("v"),
            o: address("o"),
            lse: address("lse"),
            tensor_strides: [q, k, v, o].map(|s| [s.batch, s.row, s.head]),
            lse_strides: self.lse_strides,
            cu_seqlens_q: address("cu_seqlens_q"),
            cu_seqlens_k: address("cu_seqlens_k"),
            seqused_q: address("seqused_q"),
            seqused_k: address("seqused_k"),
            batch: self.batch,
            num_heads: self.num_heads,
            num_heads_k: self.num_heads_k,
            seqlen_q: self.seqlen_q,
            seqlen_k: self.seqlen_k,
            head_dim: self.head_dim,
            dtype: self.dtype,
            softmax_scale: self.softmax_scale,
        }
    }
}

/// `kgen_fwd_params`, version 1. Twelve strides of Q, K, V, O in the order batch, row, head each.
#[derive(Debug)]
#[repr(C)]
pub(super) struct FwdParams {
    struct_size: u32,
    flags: u32,
    q: *const c_void,
    k: *const c_void,
    v: *const c_void,
    o: *mut c_void,
    lse: *mut c_void,
    tensor_strides: [[i64; 3]; 4],
    lse_strides: [i64; 2],
    cu_seqlens_q: *const c_void,
    cu_seqlens_k: *const c_void,
    seqused_q: *const c_void,
    seqused_k: *const c_void,
    batch: i32,
    num_heads: i32,
    num_heads_k: i32,
    seqlen_q: i32,
    seqlen_k: i32,
    head_dim: i32,
    dtype: i32,
    softmax_scale: f32,
}

/// `kgen_fwd_launcher`: parameters and stream in, `KGEN_*` code out.
pub(super) type Launcher = unsafe extern "C" fn(*const FwdParams, *mut c_void) -> i32;

/// `kgen_last_error`.
pub(super) type LastError = unsafe extern "C" fn() -> *const c_char;

/// What a launcher's code means.
pub(super) fn code_word(code: i32) -> &'static str {
    match code {
        0 => "KGEN_SUCCESS",
        1 => "KGEN_ERROR_INVALID_VALUE",
        2 => "KGEN_ERROR_MISMATCH",
        3 => "KGEN_ERROR_NO_VARIANT",
        4 => "KGEN_ERROR_LAUNCH",
        _ => "no code of kgen.h",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{mem::offset_of, path::Path, process::Command};

    /// Compiles a C file that includes the real header and asserts our offsets and numbers: the two can never drift apart.
    #[test]
    fn structure_and_constants_are_those_of_the_c_header() {
        let fields = [
            ("q", offset_of!(FwdParams, q)),
            ("lse", offset_of!(FwdParams, lse)),
            ("q_batch_stride", offset_of!(FwdParams, tensor_strides)),
            ("o_head_stride", offset_of!(FwdParams, tensor_strides) + 11 * 8),
            ("lse_batch_stride", offset_of!(FwdParams, lse_strides)),
            ("cu_seqlens_q", offset_of!(FwdParams, cu_seqlens_q)),
            ("seqused_k", offset_of!(FwdParams, seqused_k)),
            ("batch", offset_of!(FwdParams, batch)),
            ("dtype", offset_of!(FwdParams, dtype)),
            ("softmax_scale", offset_of!(FwdParams, softmax_scale)),
        ];
        let size = ("sizeof(kgen_fwd_params)".to_owned(), size_of::<FwdParams>());
        let offsets = fields.map(|(field, offset)| (format!("offsetof(kgen_fwd_params, {field})"), offset));
        let flag = ("KGEN_FLAG_CAUSAL", FLAG_CAUSAL as usize);
        let dtypes = [("KGEN_DTYPE_FP16", DTYPE_FP16 as usize), ("KGEN_DTYPE_BF16", DTYPE_BF16 as usize)];
        let codes = (0..=4).map(|code| (code_word(code), code as usize));
        let constants = codes.chain(dtypes).chain([flag]).map(|(name, value)| (name.to_owned(), value));
        let asserts = constants
            .chain(offsets)
            .chain([size])
            .map(|(what, value)| format!("_Static_assert({what} == {value}, \"{what}\");\n"));
        let text = format!("#include \"kgen.h\"\n{}", asserts.collect::<String>());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("layout.c");
        std::fs::write(&file, text).expect("the folder is writable");
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates/include");
        let output = Command::new("cc").arg("-fsyntax-only").arg("-I").arg(include).arg(&file).output().expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
