//! The small trained model that ships inside the app, as a container in memory.

#[repr(C, align(4096))]
struct PageAligned<T: ?Sized>(T);

// The build script makes the container from `demo/`. Page alignment in memory gives its records the alignment they have in a file.
static DEMO: &PageAligned<[u8]> =
    &PageAligned(*include_bytes!(concat!(env!("OUT_DIR"), "/demo.fst")));

/// The embedded demo model, a whole `.fst` container.
pub fn bytes() -> &'static [u8] {
    &DEMO.0
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_demo_is_a_container_of_at_most_16_mb() {
        assert!(bytes().len() <= 16_000_000, "{} bytes", bytes().len());
        assert!(bytes().as_ptr().addr().is_multiple_of(4096));
        let container = fastar_fst::Container::from_static(bytes()).expect("opens");
        assert!(container.tokenizer_bytes().is_some());
        assert_eq!(container.config()["hidden_size"], 256);
    }
}
