//! Ridge regression by the normal equations.

/// The numbers of a row that are not 0, by their columns, which rise.
pub(in crate::lab) type Sparse = Vec<(usize, f64)>;

/// Coefficients b that minimise |A b - y|² + Σ penalty b². `rows`: the rows of A, with as many columns as `penalty`.
///
/// Every penalty is positive, so the equations have one solution.
pub(in crate::lab) fn ridge(rows: &[Sparse], y: &[f64], penalty: &[f64]) -> Vec<f64> {
    let size = penalty.len();
    let mut matrix = vec![0.0; size * size];
    let mut right = vec![0.0; size];
    for (row, y) in rows.iter().zip(y) {
        for &(i, a) in row {
            right[i] += a * y;
            for &(j, b) in row.iter().take_while(|(j, _)| *j <= i) {
                matrix[i * size + j] += a * b;
            }
        }
    }
    for (i, penalty) in penalty.iter().enumerate() {
        matrix[i * size + i] += penalty;
    }
    solve(&mut matrix, right)
}

/// Solves M x = y by Cholesky's decomposition. `matrix`: the lower triangle of M, positive definite, by rows.
fn solve(matrix: &mut [f64], mut y: Vec<f64>) -> Vec<f64> {
    let size = y.len();
    // What is 0 up to a row's first other number stays 0 in the factor: with columns of groups that have nothing in
    // common side by side, most of it.
    let first: Vec<usize> = (0..size).map(|i| (0..i).find(|j| matrix[i * size + j] != 0.0).unwrap_or(i)).collect();
    for i in 0..size {
        for j in first[i]..=i {
            let (above, below) = matrix.split_at(i * size);
            let other = if j == i { below } else { &above[j * size..] };
            let products: f64 = (first[i].max(first[j])..j).map(|k| below[k] * other[k]).sum();
            let rest = below[j] - products;
            matrix[i * size + j] = if i == j { rest.max(f64::MIN_POSITIVE).sqrt() } else { rest / matrix[j * size + j] };
        }
    }
    for i in 0..size {
        let known: f64 = (0..i).map(|k| matrix[i * size + k] * y[k]).sum();
        y[i] = (y[i] - known) / matrix[i * size + i];
    }
    for i in (0..size).rev() {
        let known: f64 = (i + 1..size).map(|k| matrix[k * size + i] * y[k]).sum();
        y[i] = (y[i] - known) / matrix[i * size + i];
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_solved() {
        // M = L Lᵀ with L = (2 0; 1 3): x = (1, -2) gives M x = (0, -18).
        let mut lower = [4.0, 0.0, 2.0, 10.0];
        let found = solve(&mut lower, vec![0.0, -18.0]);
        assert!((found[0] - 1.0).abs() < 1e-12 && (found[1] + 2.0).abs() < 1e-12, "{found:?}");
    }

    #[test]
    fn zeros_that_are_passed_over_change_nothing() {
        // Columns 0 and 1 have nothing in common with 2 and 3, and all have 4: L has zeros where M has them first.
        let lower = [
            [4.0, 0.0, 0.0, 0.0, 0.0],
            [1.0, 5.0, 0.0, 0.0, 0.0],
            [0.0, 0.0, 3.0, 0.0, 0.0],
            [0.0, 0.0, -1.0, 6.0, 0.0],
            [0.5, 0.0, 2.0, 0.25, 9.0],
        ];
        let of = |i: usize, j: usize| lower[i.max(j)][i.min(j)];
        let x = [1.0, -2.0, 0.5, 3.0, -1.5];
        let y: Vec<f64> = (0..5).map(|i| (0..5).map(|j| of(i, j) * x[j]).sum()).collect();
        let found = solve(&mut lower.concat(), y);
        assert!(found.iter().zip(x).all(|(found, x)| (found - x).abs() < 1e-12), "{found:?}");
    }

    #[test]
    fn a_line_is_found_and_a_penalty_shrinks_its_slope() {
        let rows: Vec<Sparse> = (0..20).map(|i| vec![(0, 1.0), (1, f64::from(i) / 10.0)]).collect();
        let y: Vec<f64> = rows.iter().map(|row| 0.5 - 3.0 * row[1].1).collect();
        let exact = ridge(&rows, &y, &[1e-9, 1e-9]);
        assert!((exact[0] - 0.5).abs() < 1e-6 && (exact[1] + 3.0).abs() < 1e-6, "{exact:?}");
        let shrunk = ridge(&rows, &y, &[1e-9, 100.0]);
        assert!(shrunk[1].abs() < 1.0, "{shrunk:?}");
    }

    #[test]
    fn equal_columns_share_a_coefficient() {
        let rows: Vec<Sparse> = (1..9).map(|i| vec![(0, f64::from(i)), (1, f64::from(i))]).collect();
        let y: Vec<f64> = (1..9).map(|i| 2.0 * f64::from(i)).collect();
        let found = ridge(&rows, &y, &[1e-6, 1e-6]);
        assert!((found[0] - 1.0).abs() < 1e-3 && (found[1] - 1.0).abs() < 1e-3, "{found:?}");
    }
}
