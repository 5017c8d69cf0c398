/* Rows of bfloat16 weights, as they lie in the file. `x` [tokens][stride] is split (lanes.c). */
#define MAX_TOKENS 8

INLINE size_t bf16_row_bytes(int n) { return (size_t)n * 2; }

/* out[t] = w . x[t] for 1 to MAX_TOKENS tokens; n is a multiple of 32. `sums` isn't used. */
INLINE void bf16_dot(const void *row, int n, const float *x, const float *sums, int stride,
                     const int tokens, float *out) {
    const uint16_t *w = row;
    vf a[MAX_TOKENS] = {0}, b[MAX_TOKENS] = {0};
    (void)sums;
#pragma GCC unroll 2
    for (int k = 0; k < n; k += BLOCK) {
        vu pairs = load_pairs(w + k);
        vf even = even_of(pairs), odd = odd_of(pairs);
#pragma GCC unroll 8
        for (int t = 0; t < tokens; t++) {
            a[t] += even * load(x + t * stride + k);
            b[t] += odd * load(x + t * stride + k + LANES);
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < tokens; t++) out[t] = sum_of(a[t] + b[t]);
}

/* Where the machine multiplies pairs of bfloat16 itself, many tokens are faster with activations
 * rounded to pairs too. */
#ifdef __AVX512BF16__
#include <immintrin.h>
#define HAS_PAIRS 1

/* out[t] = w . x[t], x [tokens][n] in bfloat16 and in order. */
INLINE void pairs_dot(const void *row, int n, const uint16_t *x, const int tokens, float *out) {
    const uint16_t *w = row;
    __m512 a[MAX_TOKENS];
#pragma GCC unroll 8
    for (int t = 0; t < tokens; t++) a[t] = _mm512_setzero_ps();
    for (int k = 0; k < n; k += BLOCK) {
        const __m512bh both = (__m512bh)_mm512_loadu_si512(w + k);
#pragma GCC unroll 8
        for (int t = 0; t < tokens; t++)
            a[t] = _mm512_dpbf16_ps(a[t], both, (__m512bh)_mm512_loadu_si512(x + (size_t)t * n + k));
    }
#pragma GCC unroll 8
    for (int t = 0; t < tokens; t++) out[t] = sum_of((vf)a[t]);
}
#else
#define HAS_PAIRS 0
INLINE void pairs_dot(const void *row, int n, const uint16_t *x, const int tokens, float *out) {
    (void)row, (void)n, (void)x, (void)tokens, (void)out;
}
#endif
