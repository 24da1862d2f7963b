//! The stored number formats: BF16, FP8 e4m3fn, e8m0 scales and FP4 e2m1, to `f32` and back.
//!
//! Source of the definitions: the OCP 8-bit floating point and microscaling (MX) specifications.

/// BF16 bits to `f32`, exactly.
#[inline(always)]
pub fn bf16(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// e4m3fn code to value: bias 7, subnormal step 2^-9, largest 448, 0x7F and 0xFF are NaN, no infinities.
pub const fn e4m3(code: u8) -> f32 {
    let exponent = (code >> 3) & 15;
    let mantissa = (code & 7) as u32;
    if code & 0x7F == 0x7F {
        return f32::NAN;
    }
    let magnitude = if exponent == 0 {
        mantissa as f32 * (1.0 / 512.0)
    } else {
        // (1 + m/8) * 2^(e-7), written as bits: the exponent's bias goes from 7 to 127, three mantissa bits to the top of 23.
        f32::from_bits(((exponent as u32 + 120) << 23) | (mantissa << 20))
    };
    if code & 0x80 != 0 {
        -magnitude
    } else {
        magnitude
    }
}

/// All 256 values of e4m3fn.
pub static E4M3: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = e4m3(code as u8);
        code += 1;
    }
    table
};

/// Where the first NaN among e4m3 codes is. Products do not look for them (three more operations on every sixteen weights) and would take
/// them for +-480, so whoever loads weights asks once.
pub fn e4m3_nan(codes: &[u8]) -> Option<usize> {
    const CHUNK: usize = 4096;
    let is_nan = |code: &u8| code & 0x7F == 0x7F;
    let chunk = codes
        .chunks(CHUNK)
        // Without an early end the compiler looks at many codes at once.
        .position(|c| c.iter().fold(false, |found, code| found | is_nan(code)))?;
    let start = chunk * CHUNK;
    codes[start..].iter().position(is_nan).map(|i| start + i)
}

/// Half-precision bits to `f32`, exactly.
#[inline(always)]
pub fn f16(bits: u16) -> f32 {
    let (exponent, mantissa) = (u32::from(bits >> 10 & 31), u32::from(bits & 0x3FF));
    let magnitude = match exponent {
        0 => mantissa as f32 * (1.0 / 16_777_216.0), // 2^-24
        31 => f32::from_bits(0x7F80_0000 | mantissa << 13),
        _ => f32::from_bits((exponent + 112) << 23 | mantissa << 13),
    };
    f32::from_bits(magnitude.to_bits() | u32::from(bits & 0x8000) << 16)
}

/// e8m0 scale to value: 2^(b - 127); 255 is NaN. Code 0 is 2^-127, a subnormal `f32`.
#[inline(always)]
pub const fn e8m0(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(0x0040_0000),
        255 => f32::NAN,
        _ => f32::from_bits((code as u32) << 23),
    }
}

/// All 256 values of e8m0.
pub static E8M0: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = e8m0(code as u8);
        code += 1;
    }
    table
};

/// The 16 values of e2m1; bit 3 is the sign.
pub static E2M1: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// The two values of each packed byte: low nibble first.
pub static E2M1_PAIRS: [[f32; 2]; 256] = {
    let mut table = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = [E2M1[byte & 15], E2M1[byte >> 4]];
        byte += 1;
    }
    table
};

/// Nearest e4m3 code, ties to the even code, saturating at 448. NaN stays NaN.
pub fn e4m3_encode(x: f32) -> u8 {
    if x.is_nan() {
        return 0x7F;
    }
    let sign = ((x.to_bits() >> 31) as u8) << 7;
    sign | nearest_code(x.abs().min(448.0), &E4M3[..127])
}

/// Nearest e2m1 code, ties to the even code, saturating at 6. NaN becomes the largest magnitude.
pub fn e2m1_encode(x: f32) -> u8 {
    let sign = ((x.to_bits() >> 31) as u8) << 3;
    let magnitude = if x.is_nan() { 6.0 } else { x.abs().min(6.0) };
    sign | nearest_code(magnitude, &E2M1[..8])
}

/// Index of the nearest entry of an ascending table, ties to the even index. `magnitude` lies within the table.
fn nearest_code(magnitude: f32, table: &[f32]) -> u8 {
    let above = table
        .partition_point(|&v| v < magnitude)
        .clamp(1, table.len() - 1);
    let below = above - 1;
    let to_below = magnitude - table[below];
    let to_above = table[above] - magnitude;
    let take_above = to_above < to_below || (to_above == to_below && above % 2 == 0);
    (if take_above { above } else { below }) as u8
}
