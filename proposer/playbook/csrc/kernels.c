/* Single operations of one decoding row, each callable by itself. bfloat16 in and out, float32
 * within. Sizes are multiples of 32; `threads` shares rows or heads out where it pays. */
#include <omp.h>

/* y[row] = x[row] / rms(x[row]) * gain, rows of n. */
void rms_norm(const uint16_t *x, const uint16_t *gain, uint16_t *y, int rows, int n, float eps) {
    for (int r = 0; r < rows; r++, x += n, y += n) {
        vf squares = {0};
        for (int k = 0; k < n; k += BLOCK) {
            vu pairs = load_pairs(x + k);
            vf even = even_of(pairs), odd = odd_of(pairs);
            squares += even * even + odd * odd;
        }
        float inverse = 1.0f / sqrtf(sum_of(squares) / n + eps);
        for (int k = 0; k < n; k++) y[k] = narrow(widen(x[k]) * inverse * widen(gain[k]));
    }
}

/* Rotate heads [heads][d] of one row in the two-halves layout; cosines and sines [d]. */
void rotate(const uint16_t *x, const uint16_t *c, const uint16_t *s, uint16_t *y, int heads, int d) {
    const int half = d / 2;
    for (int h = 0; h < heads; h++, x += d, y += d)
        for (int i = 0; i < half; i++) {
            float a = widen(x[i]), b = widen(x[i + half]);
            y[i] = narrow(a * widen(c[i]) - b * widen(s[i]));
            y[i + half] = narrow(b * widen(c[i + half]) + a * widen(s[i + half]));
        }
}

/* y = silu(gate) * up, n elements. */
void silu_mul(const uint16_t *gate, const uint16_t *up, uint16_t *y, int n) {
    for (int k = 0; k < n; k += LANES) {
        float g[LANES], u[LANES], out[LANES];
        for (int j = 0; j < LANES; j++) { g[j] = widen(gate[k + j]); u[j] = widen(up[k + j]); }
        store(out, silu_of(load(g)) * load(u));
        for (int j = 0; j < LANES; j++) y[k + j] = narrow(out[j]);
    }
}

static void split_row(const uint16_t *x, float *y, int n) {
    for (int k = 0; k < n; k += BLOCK) {
        vu pairs = load_pairs(x + k);
        store(y + k, even_of(pairs));
        store(y + k + LANES, odd_of(pairs));
    }
}

/* y = w x for one row x [n] and w [rows][n]; y is bfloat16, or float32 if `wide`. */
void matvec(const uint16_t *w, const uint16_t *x, void *y, int rows, int n, int wide, int threads) {
    float split_x[n] __attribute__((aligned(64)));
    split_row(x, split_x, n);
#pragma omp parallel num_threads(threads)
    {
        int from, to;
        share(rows, omp_get_thread_num(), omp_get_num_threads(), &from, &to);
        for (int r = from; r < to; r++) {
            float out;
            bf16_dot(w + (size_t)r * n, n, split_x, NULL, 0, 1, &out);
            if (wide) ((float *)y)[r] = out;
            else ((uint16_t *)y)[r] = narrow(out);
        }
    }
}

/* Attention of one query row q [heads][d] over keys and values [positions][kv_heads][d] with the
 * given strides in elements. y [heads][d]. */
void attention(const uint16_t *q, const uint16_t *keys, const uint16_t *values, uint16_t *y, int heads,
               int kv_heads, int d, int positions, int64_t position_stride, int64_t head_stride,
               float scale, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int h = 0; h < heads; h++) {
        const uint16_t *k = keys + h / (heads / kv_heads) * head_stride;
        const uint16_t *v = values + h / (heads / kv_heads) * head_stride;
        const int padded = (positions + LANES - 1) / LANES * LANES;
        float row[d] __attribute__((aligned(64))), scores[padded] __attribute__((aligned(64)));
        float top = -INFINITY;
        split_row(q + h * d, row, d);
        for (int i = 0; i < positions; i++) {
            bf16_dot(k + i * position_stride, d, row, NULL, 0, 1, scores + i);
            scores[i] *= scale;
            top = scores[i] > top ? scores[i] : top;
        }
        for (int i = positions; i < padded; i++) scores[i] = -INFINITY;
        vf total = {0};
        for (int i = 0; i < padded; i += LANES) {
            vf e = exp_of(load(scores + i) - top);
            store(scores + i, e);
            total += e;
        }
        for (int i = positions; i < padded; i++) total[i % LANES] -= scores[i];
        float inverse = 1.0f / sum_of(total);
        for (int j = 0; j < d; j += BLOCK) {
            vf even = {0}, odd = {0};
            for (int i = 0; i < positions; i++) {
                vu pairs = load_pairs(v + i * position_stride + j);
                even += even_of(pairs) * scores[i];
                odd += odd_of(pairs) * scores[i];
            }
            for (int i = 0; i < LANES; i++) {
                y[h * d + j + 2 * i] = narrow(even[i] * inverse);
                y[h * d + j + 2 * i + 1] = narrow(odd[i] * inverse);
            }
        }
    }
}
