/* Rows of int8 weights with one float32 scale for 32 of them.
 * A row: n bytes, then n/32 scales, up to whole cache lines. Of each 64 bytes, 32-bit word j holds the elements that meet
 * activations j, 16 + j, 32 + j and 48 + j of the split order (lanes.c): no shuffle to unpack. */
INLINE size_t int8_row_bytes(int n) { return (n + n / BLOCK * sizeof(float) + 63) / 64 * 64; }

/* Where split position k of a row lies. */
INLINE int int8_place(int k) { return (k & ~63) + (k & 15) * 4 + ((k & 63) >> 4); }

/* out[t] = w . x[t] for 1 to MAX_TOKENS tokens; n is a multiple of 64. `sums` isn't used. */
INLINE void int8_dot(const void *row, int n, const float *x, const float *sums, int stride,
                     const int tokens, float *out) {
    const int8_t *w = row;
    const float *scale = (const float *)(w + n);
    vf a[MAX_TOKENS] = {0}, b[MAX_TOKENS] = {0};
    (void)sums;
    for (int k = 0; k < n; k += 64) {
        vi words = *(const vi *)(w + k);
        vf p0 = __builtin_convertvector(words << 24 >> 24, vf);
        vf p1 = __builtin_convertvector(words << 16 >> 24, vf);
        vf p2 = __builtin_convertvector(words << 8 >> 24, vf);
        vf p3 = __builtin_convertvector(words >> 24, vf);
        float s = scale[k / BLOCK], u = scale[k / BLOCK + 1];
#pragma GCC unroll 8
        for (int t = 0; t < tokens; t++) {
            const float *xt = x + t * stride + k;
            a[t] += (p0 * load(xt) + p1 * load(xt + 16)) * s;
            b[t] += (p2 * load(xt + 32) + p3 * load(xt + 48)) * u;
        }
    }
#pragma GCC unroll 8
    for (int t = 0; t < tokens; t++) out[t] = sum_of(a[t] + b[t]);
}

/* Quantise rows of bfloat16 to the nearest of 255 symmetric steps a block. Returns the largest
 * error as a share of its block's largest weight. */
float int8_pack(const uint16_t *w, int rows, int n, void *packed) {
    float worst = 0.0f;
#pragma omp parallel for reduction(max : worst)
    for (int r = 0; r < rows; r++) {
        const uint16_t *from = w + (size_t)r * n;
        int8_t *to = (int8_t *)packed + (size_t)r * int8_row_bytes(n);
        float *scale = (float *)(to + n);
        for (int k = 0; k < n; k += BLOCK) {
            float top = 0.0f;
            for (int i = 0; i < BLOCK; i++) top = fmaxf(top, fabsf(widen(from[k + i])));
            float step = top / 127.0f, inverse = top > 0.0f ? 127.0f / top : 0.0f;
            scale[k / BLOCK] = step;
            for (int i = 0; i < BLOCK; i++) {
                float value = widen(from[k + i]), index = nearbyintf(value * inverse);
                to[int8_place(split(k + i))] = (int8_t)index;
                if (top > 0.0f) worst = fmaxf(worst, fabsf(index * step - value) / top);
            }
        }
    }
    return worst;
}

/* The same rows as bfloat16 again: what the packed weights mean. */
void int8_unpack(const void *packed, int rows, int n, uint16_t *w) {
#pragma omp parallel for
    for (int r = 0; r < rows; r++) {
        const int8_t *from = (const int8_t *)packed + (size_t)r * int8_row_bytes(n);
        const float *scale = (const float *)(from + n);
        for (int k = 0; k < n; k++)
            w[(size_t)r * n + k] = narrow(from[int8_place(split(k))] * scale[k / BLOCK]);
    }
}
