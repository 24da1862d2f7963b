//! One source, compiled for several instruction sets, chosen at run time.
//!
//! Rust never contracts `a * b + c` into a fused operation on its own; where one is wanted it is written as such, and a fused operation
//! rounds once wherever it runs. So the wide versions compute the very same bits as the baseline; they are only faster. A processor or a
//! virtual machine may still promise what it does not do, so the first call tries each set on small products and takes the best
//! that agrees with the baseline ([`selftest`](crate::selftest)).

use std::sync::OnceLock;

use crate::selftest;

/// Defines a function whose body is compiled for the baseline, AVX2 and AVX-512. Its first argument is the [`Level`] to run; `wide!` makes
/// one that takes the level of this process. Inside the body the type parameter is the [`Lanes`](crate::lanes::Lanes) of that set.
macro_rules! wide_at {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$lanes:ident>($($arg:ident : $t:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$doc])*
        #[inline]
        $vis fn $name(level: $crate::dispatch::Level, $($arg: $t),*) $(-> $ret)? {
            #[allow(clippy::extra_unused_type_parameters)]
            #[inline(always)]
            fn body<$lanes: $crate::lanes::Lanes>($($arg: $t),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2($($arg: $t),*) $(-> $ret)? { body::<$crate::lanes::Avx2>($($arg),*) }
                #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq")]
                fn avx512($($arg: $t),*) $(-> $ret)? { body::<$crate::lanes::Avx512>($($arg),*) }

                match level.available() {
                    // SAFETY: an available level means that this processor has the features the function is compiled for.
                    $crate::dispatch::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::dispatch::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::dispatch::Level::Baseline => {}
                }
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = level;
            body::<$crate::lanes::Plain>($($arg),*)
        }
    };
}
pub(crate) use wide_at;

/// [`wide_at`] at the [`level`](crate::dispatch::level) of this process; `name::at` takes the level.
macro_rules! wide {
    ($(#[$doc:meta])* $vis:vis fn $name:ident<$lanes:ident>($($arg:ident : $t:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        pub(crate) mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::dispatch::wide_at! {
                pub(crate) fn at<$lanes>($($arg: $t),*) $(-> $ret)? $body
            }
        }
        $(#[$doc])*
        #[inline]
        $vis fn $name($($arg: $t),*) $(-> $ret)? {
            $name::at($crate::dispatch::level(), $($arg),*)
        }
    };
}
pub(crate) use wide;

/// Instruction sets a function may be compiled for, each including the ones before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What the compiler's target guarantees.
    Baseline,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// The same and AVX-512 F, BW, VL, DQ, VBMI and VNNI (Intel from Ice Lake, AMD from Zen 4). Run and measured on Zen 4 only; on Zen 5 and on Intel's
    /// processors it has not been run yet, and the self-test decides.
    Avx512,
}

impl Level {
    /// All of them, the plainest first.
    pub const ALL: [Level; 3] = [Level::Baseline, Level::Avx2, Level::Avx512];

    /// This level or, where the processor has not got it, the best below.
    #[inline]
    pub fn available(self) -> Level {
        self.min(supported())
    }
}

/// The best level this processor says it has. Asked of it once: every product looks here.
#[inline]
pub fn supported() -> Level {
    static SUPPORTED: OnceLock<Level> = OnceLock::new();
    *SUPPORTED.get_or_init(detect)
}

fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! all {
            ($($feature:tt)*) => { $(std::arch::is_x86_feature_detected!($feature))&&* };
        }
        if all!("avx2" "fma" "f16c") {
            if all!("avx512f" "avx512bw" "avx512vl" "avx512dq" "avx512vbmi" "avx512vnni") {
                return Level::Avx512;
            }
            return Level::Avx2;
        }
    }
    Level::Baseline
}

static LEVEL: OnceLock<Level> = OnceLock::new();

/// The level everything runs at: the best that is supported and passes the self-test, which the first call runs.
#[inline]
pub fn level() -> Level {
    *LEVEL.get_or_init(|| choose(supported(), selftest::agrees))
}

/// Keeps this process to levels up to `most`, for measuring one on a machine that has more. False once a level has been chosen: it
/// stays what it is.
#[must_use]
pub fn limit(most: Level) -> bool {
    let mut chosen = false;
    LEVEL.get_or_init(|| {
        chosen = true;
        choose(most.available(), selftest::agrees)
    });
    chosen
}

/// The best level up to `best` that `agrees` with the baseline, which always agrees with itself.
fn choose(best: Level, agrees: impl Fn(Level) -> bool) -> Level {
    Level::ALL
        .into_iter()
        .rev()
        .filter(|level| *level <= best)
        .find(|level| *level == Level::Baseline || agrees(*level))
        .unwrap_or(Level::Baseline)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_does_not_agree_with_the_baseline_is_passed_over() {
        assert_eq!(choose(Level::Avx512, |_| true), Level::Avx512);
        assert_eq!(choose(Level::Avx2, |_| true), Level::Avx2);
        assert_eq!(choose(Level::Avx512, |l| l == Level::Avx2), Level::Avx2);
        assert_eq!(choose(Level::Avx512, |_| false), Level::Baseline);
    }

    #[test]
    fn what_this_processor_has_passes_the_self_test() {
        assert_eq!(level(), supported());
        assert!(selftest::agrees(supported()));
    }
}
