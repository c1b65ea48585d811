//! Loops that the compiler vectorises, for each instruction set apart.

/// Defines a function that calls its body as it was compiled for the best instruction set here.
macro_rules! vectorized {
    ($(#[$attribute:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block) => {
        $(#[$attribute])*
        fn $name($($argument: $kind),*) {
            #[inline(always)]
            fn body($($argument: $kind),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,f16c")]
                fn avx512($($argument: $kind),*) { body($($argument),*) }
                #[target_feature(enable = "avx2,f16c")]
                fn avx2($($argument: $kind),*) { body($($argument),*) }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("f16c")
                {
                    // SAFETY: the processor has these instructions.
                    return unsafe { avx512($($argument),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
                    // SAFETY: the processor has these instructions.
                    return unsafe { avx2($($argument),*) };
                }
            }
            body($($argument),*);
        }
    };
}
pub(super) use vectorized;
