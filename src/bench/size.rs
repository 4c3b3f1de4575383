//! The size that a kernel is timed at, in the terms of its family.

use super::Shape;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A row-major matrix; a vector is one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// Rows.
    pub rows: u64,
    /// Elements of a row.
    pub columns: u64,
}

impl Matrix {
    /// Its elements.
    pub fn elements(&self) -> u64 {
        self.rows * self.columns
    }
}

impl fmt::Display for Matrix {
    /// `4096x1024`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.columns)
    }
}

/// What a kernel is timed at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Size {
    /// Sequences, heads and lengths.
    Attention(Shape),
    /// Rows and columns.
    Matrix(Matrix),
}

impl From<Shape> for Size {
    fn from(shape: Shape) -> Self {
        Self::Attention(shape)
    }
}

impl From<Matrix> for Size {
    fn from(matrix: Matrix) -> Self {
        Self::Matrix(matrix)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attention(shape) => shape.fmt(f),
            Self::Matrix(matrix) => matrix.fmt(f),
        }
    }
}
