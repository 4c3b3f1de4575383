//! One kernel: its kind and its position on the axes of the grid.

use super::{Axis, Dtype, Features, HeadDim, Kind, Target, kind::DtypeWord};
use itertools::Itertools;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// A value for each axis that a kind has; `None` on the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coordinates {
    /// Elements of one head's row of each tensor.
    pub head_dim: Option<HeadDim>,
    /// Element type of the inputs.
    pub dtype: Option<Dtype>,
    /// Causal mask; otherwise full attention.
    pub causal: Option<bool>,
    /// Features in addition to the mask.
    pub features: Option<Features>,
    /// The architecture that the kernel is generated for.
    pub target: Target,
}

impl Coordinates {
    /// A position on the target axis only.
    pub fn at(target: Target) -> Self {
        Self { head_dim: None, dtype: None, causal: None, features: None, target }
    }
}

/// One kernel: its specification, without implementation choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Variant {
    kind: Kind,
    at: Coordinates,
}

impl Kind {
    /// The kernel of this kind at these coordinates. Values on axes that the kind lacks are dropped; a missing feature
    /// set counts as empty.
    ///
    /// # Panics
    /// If a value on another axis of the kind is missing.
    pub fn at(self, coordinates: &Coordinates) -> Variant {
        let Coordinates { head_dim, dtype, causal, features, target } = *coordinates;
        let at = Coordinates {
            head_dim: self.has(Axis::HeadDim).then(|| given(self, Axis::HeadDim, head_dim)),
            dtype: self.has(Axis::Dtype).then(|| given(self, Axis::Dtype, dtype)),
            causal: self.has(Axis::Mask).then(|| given(self, Axis::Mask, causal)),
            features: self.has(Axis::Features).then(|| features.unwrap_or_default()),
            target,
        };
        Variant { kind: self, at }
    }
}

fn given<T>(kind: Kind, axis: Axis, value: Option<T>) -> T {
    value.unwrap_or_else(|| panic!("a kernel of kind `{kind}` needs a value for `{}`", axis.key()))
}

impl Variant {
    /// Kind of the kernel.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The position of the variant on the axes of the grid.
    pub fn coordinates(&self) -> Coordinates {
        self.at
    }

    /// The architecture that the kernel is generated for.
    pub fn target(&self) -> Target {
        self.at.target
    }

    /// Element type of its inputs; `None` for a kind without that axis.
    pub fn dtype(&self) -> Option<Dtype> {
        self.at.dtype
    }

    /// Elements of one head's row of each tensor; `None` for a kind without that axis.
    pub fn head_dim(&self) -> Option<HeadDim> {
        self.at.head_dim
    }

    /// True for a causal mask; `None` for a kind without that axis.
    pub fn causal(&self) -> Option<bool> {
        self.at.causal
    }

    /// The features of the kernel; `None` for a kind without that axis.
    pub fn features(&self) -> Option<Features> {
        self.at.features
    }

    /// Kinds that a library must contain to use the kernel: those of its kind and of its features.
    pub fn helpers(&self) -> impl Iterator<Item = Kind> {
        let features = self.at.features.unwrap_or_default();
        let of_features: Vec<Kind> = features.iter().flat_map(|feature| feature.info().helpers).copied().collect();
        self.kind.helpers().iter().copied().chain(of_features).unique()
    }

    /// Element type of the inputs of a kind whose only other axis is the target.
    ///
    /// # Panics
    /// If the kind has no dtype.
    pub fn element(&self) -> Dtype {
        self.at.dtype.unwrap_or_else(|| panic!("`{}` has no dtype", self.kind))
    }

    /// The unique name of this variant: file stem, launcher symbol, cache label.
    /// `<prefix><kind>[_hdim<D>][_<dtype>][_causal][_<feature>…]_<target>`, with `hdim<D>_<DV>` if V and O have another
    /// head dim.
    pub fn name(&self) -> String {
        let info = self.kind.info();
        let mut name = format!("{}{}", info.prefix, info.name);
        let mut append = |part: fmt::Arguments<'_>| name.extend(["_", &part.to_string()]);
        if let Some(head_dim) = self.at.head_dim {
            append(format_args!("hdim{head_dim}"));
        }
        match (self.at.dtype, info.dtype_word) {
            (Some(dtype), DtypeWord::Name) => append(format_args!("{dtype}")),
            (Some(dtype), DtypeWord::Bits) => append(format_args!("b{}", dtype.bytes() * 8)),
            (None, _) => {}
        }
        if self.at.causal == Some(true) {
            append(format_args!("causal"));
        }
        if let Some(features) = self.at.features {
            name += &features.suffix();
        }
        name.extend(["_", self.at.target.name()]);
        name
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

/// A variant in JSON. Kinds of attention that have no head dim, dtype and mask are written with 0, `fp16` and `false`,
/// as in all manifests so far.
#[derive(Serialize, Deserialize)]
struct Record {
    kind: Kind,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    head_dim: Option<HeadDim>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dtype: Option<Dtype>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    causal: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    features: Option<Features>,
    target: Target,
}

impl Serialize for Variant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Coordinates { head_dim, dtype, causal, features, target } = self.at;
        let record = if self.kind.info().axes.is_empty() {
            Record {
                kind: self.kind,
                head_dim: Some(HeadDim::equal(0)),
                dtype: Some(Dtype::Fp16),
                causal: Some(false),
                features: Some(Features::NONE),
                target,
            }
        } else {
            Record { kind: self.kind, head_dim, dtype, causal, features, target }
        };
        record.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Variant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Record { kind, head_dim, dtype, causal, features, target } = Record::deserialize(deserializer)?;
        let given = |axis| match axis {
            Axis::HeadDim => head_dim.is_some(),
            Axis::Dtype => dtype.is_some(),
            Axis::Mask => causal.is_some(),
            Axis::Features => true, // manifests of older versions lack it
        };
        match kind.info().axes.iter().find(|axis| !given(**axis)) {
            Some(axis) => Err(de::Error::custom(format_args!("`{kind}` has no `{}`", axis.key()))),
            None => Ok(kind.at(&Coordinates { head_dim, dtype, causal, features, target })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Coordinates = Coordinates {
        head_dim: Some(HeadDim::equal(224)),
        dtype: Some(Dtype::Fp8),
        causal: Some(true),
        features: Some(Features::NONE),
        target: Target::Sm121,
    };

    #[test]
    fn names_follow_flash_attentions_scheme() {
        assert_eq!(Kind::Fwd.at(&FULL).name(), "flash_fwd_hdim224_fp8_causal_sm121");
        let plain = Coordinates { causal: Some(false), dtype: Some(Dtype::Bf16), target: Target::Sm80, ..FULL };
        assert_eq!(Kind::Bwd.at(&plain).name(), "flash_bwd_hdim224_bf16_sm80");
        assert_eq!(Kind::FwdCombine.at(&plain).name(), "flash_fwd_combine_sm80");
        assert_eq!(Kind::Transpose.at(&plain).name(), "transpose_b16_sm80");
        assert_eq!(Kind::ReduceMax.at(&plain).name(), "reduce_max_bf16_sm80");
        let latent = Coordinates { head_dim: Some(HeadDim { qk: 192, v: 128 }), ..plain };
        assert_eq!(Kind::Fwd.at(&latent).name(), "flash_fwd_hdim192_128_bf16_sm80");
    }

    #[test]
    fn a_variant_is_read_back_as_it_was_written() {
        for kind in Kind::ALL {
            let variant = kind.at(&FULL);
            let text = serde_json::to_string(&variant).expect("it is a plain value");
            assert_eq!(serde_json::from_str::<Variant>(&text).expect("it reads"), variant, "{text}");
        }
        let helper = serde_json::to_string(&Kind::FwdCombine.at(&FULL)).expect("it is a plain value");
        let shape = r#""head_dim":0,"head_dim_v":0,"dtype":"fp16","causal":false,"features":[]"#;
        assert_eq!(helper, format!(r#"{{"kind":"fwd_combine",{shape},"target":"sm121"}}"#));
        let small = serde_json::to_string(&Kind::VectorAdd.at(&FULL)).expect("it is a plain value");
        assert_eq!(small, r#"{"kind":"vector_add","dtype":"fp8","target":"sm121"}"#);
    }

    #[test]
    fn a_record_without_a_value_on_an_axis_of_its_kind_is_refused() {
        let error = serde_json::from_str::<Variant>(r#"{"kind":"fwd","head_dim":64,"causal":true,"target":"sm80"}"#);
        assert!(error.expect_err("no dtype").to_string().contains("`fwd` has no `dtype`"));
    }
}
