"""PTX's scalar instructions as pure NumPy functions.

Functions take arrays or NumPy scalars of the instruction's own dtype and return its result's: ``s32`` int32, ``u32``
uint32, ``f32`` float32, ``f16`` float16, ``bf16`` uint16 bits, ``f16x2``/``bf16x2``/``b32`` a 32-bit integer,
``pred`` bool. They never change an argument and are called under ``np.errstate(all="ignore")``.

============ =====================================================================================================
module       instructions
============ =====================================================================================================
integers     mul.hi, mul.wide, mul24, mad24, mad.hi{.sat}, add/sub.sat, div, rem, shl, shr, shf, abs, neg, sad, min,
             max {.relu}, add/min/max .s16x2 .u16x2, add/sub/mad {c}{.cc}, dp4a, dp2a
bits         popc, clz, bfind, brev, bfe, bfi, bmsk, szext, prmt, lop3, cnot, fns, mov between widths
floats       add, sub, mul, fma, div, rcp, sqrt of f32, f64 in rn rz rm rp; .ftz .sat; .f32x2; abs, neg, copysign
compare      setp, set, slct, testp, min, max {.NaN}{.xorsign.abs}, three operands
halves       add, sub, mul, fma, min, max, abs, neg, setp, set of f16, bf16, f16x2, bf16x2; .ftz .sat .relu
approx       ex2, lg2, rcp, sqrt, rsqrt, sin, cos, tanh .approx, div.approx, div.full; jitter
convert      cvt between integers, f16, bf16, f32, f64; f16x2, bf16x2, tf32; cvt.pack
small        cvt to and from e4m3x2, e5m2x2, e3m2x2, e2m3x2, e2m1x2, ue8m0x2
rounding     what these share: error-free sums and products, round to odd, narrowing in a rounding mode
============ =====================================================================================================

Not covered: video instructions, ``cvt.rs`` (random rounding), ``fma.oob``, the x4 formats, ``s2f6x2``.
"""
