//! Number formats and arithmetic on the CPU.
