/* Sixteen floats at a time, in the compiler's portable vectors: AVX-512, AVX2 and NEON all take them.
 *
 * bfloat16 weights are read as 32-bit pairs: the even element is the low half, the odd one the high
 * half, so widening costs one shift or one mask. Activations are kept "split" to match: of every 32
 * elements, first the 16 even ones, then the 16 odd ones. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define BLOCK 32
#define INLINE static inline __attribute__((always_inline))
typedef float vf __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t vu __attribute__((vector_size(64), aligned(2), may_alias));
typedef float vf8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float vf4 __attribute__((vector_size(16), aligned(4), may_alias));

INLINE vf load(const float *p) { return *(const vf *)p; }
INLINE void store(float *p, vf v) { *(vf *)p = v; }
INLINE vu load_pairs(const uint16_t *p) { return *(const vu *)p; }
INLINE vf even_of(vu pairs) { return (vf)(pairs << 16); }
INLINE vf odd_of(vu pairs) { return (vf)(pairs & 0xffff0000u); }
INLINE vf choose(vi mask, vf a, vf b) { return (vf)((mask & (vi)a) | (~mask & (vi)b)); }

INLINE float sum_of(vf v) {
    const vf8 *half = (const vf8 *)&v;
    vf8 a = half[0] + half[1];
    const vf4 *quarter = (const vf4 *)&a;
    vf4 b = quarter[0] + quarter[1];
    return (b[0] + b[2]) + (b[1] + b[3]);
}

INLINE float widen(uint16_t bits) {
    union { uint32_t bits; float value; } both = {(uint32_t)bits << 16};
    return both.value;
}

/* Round to nearest, ties to even. Finite values only. */
INLINE uint16_t narrow(float value) {
    union { float value; uint32_t bits; } both = {value};
    return (uint16_t)((both.bits + 0x7fffu + ((both.bits >> 16) & 1)) >> 16);
}

/* Where element k of a row lies in the split order. */
INLINE int split(int k) { return (k & ~31) | ((k & 1) << 4) | ((k & 31) >> 1); }

/* exp to 1e-7 relative: x = n ln 2 + r, a polynomial for exp(r), n added to the exponent. */
INLINE vf exp_of(vf x) {
    x = choose(x < -87.0f, (vf){0} - 87.0f, x);
    x = choose(x > 87.0f, (vf){0} + 87.0f, x);
    vf shifted = x * 1.44269504f + 12582912.0f;
    vf n = shifted - 12582912.0f;
    vf r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vf p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * (vf)(((vi)shifted - 0x4b400000 + 127) << 23);
}

INLINE vf silu_of(vf x) { return x / (exp_of(-x) + 1.0f); }

/* Share `part` of `parts` equal shares of n. */
INLINE void share(int n, int part, int parts, int *from, int *to) {
    *from = (int)((int64_t)n * part / parts);
    *to = (int)((int64_t)n * (part + 1) / parts);
}
