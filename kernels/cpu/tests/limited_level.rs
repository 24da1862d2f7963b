//! A process of its own, because a level is chosen once.

use fastar_kernels::dispatch::{Level, level, limit};

#[test]
fn a_limit_holds_for_the_process_and_comes_first_or_not_at_all() {
    assert!(limit(Level::Baseline));
    assert_eq!(level(), Level::Baseline);
    assert!(!limit(Level::Avx512));
    assert_eq!(level(), Level::Baseline);
}
