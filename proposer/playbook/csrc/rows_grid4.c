/* Rows whose every 32 weights lie on a line of 16 steps, as after a 4-bit checkpoint was widened.
 *
 * A weight is base + slope * (1 + index / 16): the index goes straight into a float's mantissa, so
 * unpacking is a shift and a mask. A row: 64 bytes for each 128 weights (for a last 64 too, whose
 * upper halves are unused), n/32 slopes, n/32 bases, up to whole cache lines. Of each 64 bytes,
 * nibble p of word j meets activation 16 p + j of the split order. `sums`: of each 32 activations,
 * for the bases. */
INLINE size_t grid4_index_bytes(int n) { return (size_t)(n + 127) / 128 * 64; }
INLINE size_t grid4_row_bytes(int n) {
    return (grid4_index_bytes(n) + n / BLOCK * 2 * sizeof(float) + 63) / 64 * 64;
}

INLINE vf grid4_plane(vu words, const int p) {
    vu at = p < 5 ? words << (19 - 4 * p) : words >> (4 * p - 19);
    return (vf)((at & 0x780000u) | 0x3f800000u);
}

/* out[t] = w . x[t] for 1 to MAX_TOKENS tokens; n is a multiple of 64. */
INLINE void grid4_dot(const void *row, int n, const float *x, const float *sums, int stride,
                      const int tokens, float *out) {
    const char *w = row;
    const float *slope = (const float *)(w + grid4_index_bytes(n)), *base = slope + n / BLOCK;
    vf a[MAX_TOKENS] = {0}, b[MAX_TOKENS] = {0};
    float rest[MAX_TOKENS] = {0};
    int k = 0;
    for (; k < n; k += 128, w += 64) {
        vu words = *(const vu *)w;
        const float *s = slope + k / BLOCK;
        vf p0 = grid4_plane(words, 0), p1 = grid4_plane(words, 1);
        vf p2 = grid4_plane(words, 2), p3 = grid4_plane(words, 3);
#pragma GCC unroll 8
        for (int t = 0; t < tokens; t++) {
            const float *xt = x + t * stride + k;
            a[t] += (p0 * load(xt) + p1 * load(xt + 16)) * s[0];
            b[t] += (p2 * load(xt + 32) + p3 * load(xt + 48)) * s[1];
        }
        if (k + 64 == n) break;
        p0 = grid4_plane(words, 4), p1 = grid4_plane(words, 5);
        p2 = grid4_plane(words, 6), p3 = grid4_plane(words, 7);
#pragma GCC unroll 8
        for (int t = 0; t < tokens; t++) {
            const float *xt = x + t * stride + k + 64;
            a[t] += (p0 * load(xt) + p1 * load(xt + 16)) * s[2];
            b[t] += (p2 * load(xt + 32) + p3 * load(xt + 48)) * s[3];
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < tokens; t++) {
        for (k = 0; k + LANES <= n / BLOCK; k += LANES) a[t] += load(base + k) * load(sums + t * stride + k);
        for (; k < n / BLOCK; k++) rest[t] += base[k] * sums[t * stride + k];
        out[t] = sum_of(a[t] + b[t]) + rest[t];
    }
}

/* One try: with this many steps between the smallest and the largest weight, then least squares.
 * Returns the largest error in half bfloat16 steps of the block's larger weights. */
INLINE float grid4_try(const float *w, float least, float most, int steps, float *step, float *low, float *index) {
    float d = (most - least) / steps, m = least, sq = 0, sqq = 0, sw = 0, sqw = 0, worst = 0.0f;
    float inverse = d > 0.0f ? 1.0f / d : 0.0f;
    for (int i = 0; i < BLOCK; i++) {
        index[i] = fminf(fmaxf(nearbyintf((w[i] - m) * inverse), 0.0f), 15.0f);
        sq += index[i]; sqq += index[i] * index[i]; sw += w[i]; sqw += index[i] * w[i];
    }
    float det = BLOCK * sqq - sq * sq;
    if (det > 0.0f) { d = (BLOCK * sqw - sq * sw) / det; m = (sw - d * sq) / BLOCK; }
    for (int i = 0; i < BLOCK; i++) worst = fmaxf(worst, fabsf(m + d * index[i] - w[i]));
    *step = d;
    *low = m;
    return worst / (fmaxf(fabsf(least), fabsf(most)) / 256.0f + 1e-30f);
}

/* Pack rows of bfloat16. Returns the worst error of any weight, in half bfloat16 steps of its
 * block's largest: beyond 1 the weights don't lie on such lines and the result must not be used. */
float grid4_pack(const uint16_t *w, int rows, int n, void *packed) {
    float worst = 0.0f;
#pragma omp parallel for reduction(max : worst)
    for (int r = 0; r < rows; r++) {
        uint8_t *to = (uint8_t *)packed + (size_t)r * grid4_row_bytes(n);
        float *slope = (float *)(to + grid4_index_bytes(n)), *base = slope + n / BLOCK;
        memset(to, 0, grid4_index_bytes(n));
        for (int k = 0; k < n; k += BLOCK) {
            float value[BLOCK], index[BLOCK], kept[BLOCK], best = INFINITY, d, m, least = INFINITY, most = -INFINITY;
            for (int i = 0; i < BLOCK; i++) {
                value[i] = widen(w[(size_t)r * n + k + i]);
                least = fminf(least, value[i]);
                most = fmaxf(most, value[i]);
            }
            for (int steps = 15; steps >= 1 && best > 1.0f; steps--) {
                float error = grid4_try(value, least, most, steps, &d, &m, index);
                if (error < best) {
                    best = error;
                    slope[k / BLOCK] = d * 16.0f;
                    base[k / BLOCK] = m - d * 16.0f;
                    memcpy(kept, index, sizeof kept);
                }
            }
            worst = fmaxf(worst, best);
            for (int i = 0; i < BLOCK; i++) {
                int at = split(k + i) & 127, place = (k / 128) * 64 + (at & 15) * 4 + (at >> 5);
                to[place] |= (uint8_t)((int)kept[i] << (at >> 4 & 1) * 4);
            }
        }
    }
    return worst;
}
