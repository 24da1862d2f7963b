//! One source, compiled for several instruction sets, chosen at run time.
//!
//! Rust never contracts `a * b + c` into a fused operation on its own, so the wide versions compute the very same bits as the
//! baseline; they are only faster.

/// Defines a function whose body is compiled for the baseline, AVX2 and AVX-512, and picks the best one at each call (the detection
/// is a cached load). Inside the body the type parameter is the [`Lanes`] of that instruction set.
macro_rules! wide {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$lanes:ident>($($arg:ident : $t:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[inline]
        $vis fn $name($($arg: $t),*) $(-> $ret)? {
            #[allow(clippy::extra_unused_type_parameters)]
            #[inline(always)]
            fn body<$lanes: $crate::lanes::Lanes>($($arg: $t),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn avx2($($arg: $t),*) $(-> $ret)? { body::<$crate::lanes::Avx2>($($arg),*) }
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
                fn avx512($($arg: $t),*) $(-> $ret)? { body::<$crate::lanes::Avx512>($($arg),*) }

                match $crate::dispatch::level() {
                    // SAFETY: the level says that this processor has the features the function is compiled for.
                    $crate::dispatch::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::dispatch::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::dispatch::Level::Baseline => {}
                }
            }
            body::<$crate::lanes::Plain>($($arg),*)
        }
    };
}
pub(crate) use wide;

/// Instruction sets a function may be compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What the compiler's target guarantees.
    Baseline,
    /// x86-64 with AVX2.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL and DQ.
    Avx512,
}

/// The best level of this processor.
#[inline]
pub fn level() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512dq")
        {
            return Level::Avx512;
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return Level::Avx2;
        }
    }
    Level::Baseline
}
