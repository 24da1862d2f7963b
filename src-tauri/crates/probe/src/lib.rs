//! What a machine can do at most (reading memory, multiply-adds, reading a file past the system's cache), and how near the products of
//! [`fastar_kernels`] come to it.
//!
//! A machine's speed changes by the minute, so every figure here is a ratio of two things measured right after each other in one process;
//! [`median`] of several such rounds is what is worth quoting. Models and files of models are not known here.

pub mod direct;
pub mod machine;
mod memory;
pub mod products;
mod threads;

pub use memory::Memory;
pub use threads::Threads;

/// The middle of some numbers, the upper one of two. Not a number when there are none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 3.0, 2.0]), 3.0);
        assert!(median([]).is_nan());
    }
}
