/* One pass of a Llama-architecture model over a few tokens, in one parallel region.
 *
 * Six phases a layer, a barrier after each: query, key and value rows; keys and values into the
 * cache; attention; output rows; gate and up rows; down rows. Rows of a matrix are shared out in equal, contiguous
 * parts, so that each thread streams. LAYER_ and HEAD_ say how weights lie (rows_*.c). */
#include <omp.h>

#define MAX_ROWS 32
#define MAX_THREADS 64
#define ROW_BYTES(n) LAYER_KIND(row_bytes)(n)

typedef struct {
    const float *attention_norm, *mlp_norm;
    const char *q, *k, *v, *o, *gate, *up, *down;
    uint16_t *keys, *values; /* [slots][kv_heads][head_dim] with the strides below */
} layer_t;

typedef struct {
    int32_t layers, hidden, mlp, heads, kv_heads, head_dim, vocab, threads;
    int64_t slot_stride, head_stride; /* elements */
    float eps, scale;
    const float *cos, *sin; /* [positions][head_dim / 2] */
    const uint16_t *embedding;
    const char *head;
    const float *final_norm;
    const layer_t *layer;
    float *x, *qkv, *attended, *active; /* [tokens][...], working memory */
} model_t;

typedef struct {
    int32_t token, position;
    const int64_t *slots; /* cache slot of every position, or null: first, first + 1, ... */
    int64_t first;
} token_t;

INLINE void block_sums(const float *x, float *sums, int n) {
    for (int k = 0; k < n; k += BLOCK) sums[k / BLOCK] = sum_of(load(x + k) + load(x + k + LANES));
}

/* Normed rows, split, then (for kinds that want them) their block sums. */
INLINE void norm_split(const float *x, const float *gain, float *y, int n, float eps) {
    vf squares = {0};
    for (int k = 0; k < n; k += LANES) squares += load(x + k) * load(x + k);
    float inverse = 1.0f / sqrtf(sum_of(squares) / n + eps);
    for (int k = 0; k < n; k += BLOCK)
        for (int j = 0; j < LANES; j++) {
            y[k + j] = x[k + 2 * j] * inverse * gain[k + 2 * j];
            y[k + LANES + j] = x[k + 2 * j + 1] * inverse * gain[k + 2 * j + 1];
        }
}

#define FOR_TOKENS(DOT, row, n, x, sums, stride, count, out, out_stride)                          \
    for (int t0 = 0; t0 < (count); t0 += MAX_TOKENS) {                                            \
        float part[MAX_TOKENS];                                                                   \
        const float *xt = (x) + (size_t)t0 * (stride), *st = (sums) + (size_t)t0 * (stride);      \
        int left = (count) - t0 < MAX_TOKENS ? (count) - t0 : MAX_TOKENS;                         \
        if (left == 1) DOT(row, n, xt, st, stride, 1, part);                                      \
        else if (left == 2) DOT(row, n, xt, st, stride, 2, part);                                 \
        else if (left == 3) DOT(row, n, xt, st, stride, 3, part);                                 \
        else DOT(row, n, xt, st, stride, 4, part);                                                \
        for (int t = 0; t < left; t++) (out)[(size_t)(t0 + t) * (out_stride)] = part[t];          \
    }

/* Rows [from, to) of the matrix that starts at virtual row `base`, into out[token][base + row]. */
static void rows(const char *w, int base, int count_rows, int n, const float *x, int stride, int count,
                 int from, int to, float *out, int out_stride) {
    from = from > base ? from - base : 0;
    to = to - base < count_rows ? to - base : count_rows;
    for (int r = from; r < to; r++) {
        const char *row = w + (size_t)r * ROW_BYTES(n);
        float *y = out + base + r;
        FOR_TOKENS(LAYER_KIND(dot), row, n, x, x + n, stride, count, y, out_stride)
    }
}

static void add_rows(const char *w, int n, const float *x, int stride, int count, int from, int to,
                     float *out, int out_stride) {
    for (int r = from; r < to; r++) {
        const char *row = w + (size_t)r * ROW_BYTES(n);
        float y[MAX_ROWS];
        FOR_TOKENS(LAYER_KIND(dot), row, n, x, x + n, stride, count, y, 1)
        for (int t = 0; t < count; t++) out[(size_t)t * out_stride + r] += y[t];
    }
}

INLINE int64_t slot_of(const token_t *token, int position) {
    return token->slots ? token->slots[position] : token->first + position;
}

/* Rotate one key of one token and store it with its value. */
static void remember(const model_t *m, const layer_t *l, const token_t *token, const float *qkv, int g) {
    const int d = m->head_dim, half = d / 2;
    const float *c = m->cos + (size_t)token->position * half, *s = m->sin + (size_t)token->position * half;
    const float *k = qkv + (m->heads + g) * d, *v = qkv + (m->heads + m->kv_heads + g) * d;
    const int64_t at = slot_of(token, token->position) * m->slot_stride + g * m->head_stride;
    for (int i = 0; i < half; i++) {
        l->keys[at + i] = narrow(k[i] * c[i] - k[i + half] * s[i]);
        l->keys[at + i + half] = narrow(k[i + half] * c[i] + k[i] * s[i]);
    }
    for (int i = 0; i < d; i++) l->values[at + i] = narrow(v[i]);
}

/* One head of one token attends to all positions up to its own. */
static void attend(const model_t *m, const layer_t *l, const token_t *token, const float *qkv, int h,
                   float *scores, float *out) {
    const int d = m->head_dim, half = d / 2, g = h / (m->heads / m->kv_heads), n = token->position + 1;
    const float *c = m->cos + (size_t)token->position * half, *s = m->sin + (size_t)token->position * half;
    const uint16_t *keys = l->keys + g * m->head_stride, *values = l->values + g * m->head_stride;
    const float *p = qkv + h * d;
    float q[d] __attribute__((aligned(64))), top = -INFINITY;
    for (int i = 0; i < half; i++) {
        q[split(i)] = (p[i] * c[i] - p[i + half] * s[i]) * m->scale;
        q[split(i + half)] = (p[i + half] * c[i] + p[i] * s[i]) * m->scale;
    }
    for (int i = 0; i < n; i++) {
        bf16_dot(keys + slot_of(token, i) * m->slot_stride, d, q, NULL, 0, 1, scores + i);
        top = scores[i] > top ? scores[i] : top;
    }
    vf total = {0};
    int padded = (n + LANES - 1) / LANES * LANES;
    for (int i = n; i < padded; i++) scores[i] = -INFINITY;
    for (int i = 0; i < padded; i += LANES) {
        vf e = exp_of(load(scores + i) - top);
        store(scores + i, e);
        total += e;
    }
    for (int i = n; i < padded; i++) total[i % LANES] -= scores[i];
    float inverse = 1.0f / sum_of(total);
    for (int j = 0; j < d; j += BLOCK) {
        vf a = {0}, b = {0};
        for (int i = 0; i < n; i++) {
            vu pairs = load_pairs(values + slot_of(token, i) * m->slot_stride + j);
            a += even_of(pairs) * scores[i];
            b += odd_of(pairs) * scores[i];
        }
        store(out + j, a * inverse);
        store(out + j + LANES, b * inverse);
    }
}

static void sums_of_tokens(float *x, int n, int stride, int count) {
    for (int t = 0; t < count; t++) block_sums(x + (size_t)t * stride, x + (size_t)t * stride + n, n);
}

/* Layer i for this thread. `normed` and `scores` are its own. */
static void layer_step(const model_t *m, int i, const token_t *tokens, int count, int me, int all,
                       float *normed, float *scores) {
    const layer_t *l = m->layer + i;
    const int H = m->hidden, M = m->mlp, D = m->head_dim, width = m->heads * D, kv = m->kv_heads * D;
    const int qkv_rows = width + 2 * kv, nx = H + H / BLOCK, wx = width + width / BLOCK, mx = M + M / BLOCK;
    int from, to;
    for (int t = 0; t < count; t++) norm_split(m->x + (size_t)t * H, l->attention_norm, normed + (size_t)t * nx, H, m->eps);
    if (WANTS_SUMS) sums_of_tokens(normed, H, nx, count);
    share(qkv_rows, me, all, &from, &to);
    rows(l->q, 0, width, H, normed, nx, count, from, to, m->qkv, qkv_rows);
    rows(l->k, width, kv, H, normed, nx, count, from, to, m->qkv, qkv_rows);
    rows(l->v, width + kv, kv, H, normed, nx, count, from, to, m->qkv, qkv_rows);
#pragma omp barrier
    share(count * m->kv_heads, me, all, &from, &to);
    for (int j = from; j < to; j++)
        remember(m, l, tokens + j / m->kv_heads, m->qkv + (size_t)(j / m->kv_heads) * qkv_rows, j % m->kv_heads);
#pragma omp barrier
    share(count * m->heads, me, all, &from, &to);
    for (int j = from; j < to; j++) {
        int t = j / m->heads, h = j % m->heads;
        attend(m, l, tokens + t, m->qkv + (size_t)t * qkv_rows, h, scores, m->attended + (size_t)t * wx + h * D);
    }
#pragma omp barrier
    if (WANTS_SUMS) sums_of_tokens(m->attended, width, wx, count); /* all threads write the same */
    share(H, me, all, &from, &to);
    add_rows(l->o, width, m->attended, wx, count, from, to, m->x, H);
#pragma omp barrier
    for (int t = 0; t < count; t++) norm_split(m->x + (size_t)t * H, l->mlp_norm, normed + (size_t)t * nx, H, m->eps);
    if (WANTS_SUMS) sums_of_tokens(normed, H, nx, count);
    share(M / LANES, me, all, &from, &to);
    float gate[MAX_ROWS * LANES], up[MAX_ROWS * LANES];
    for (int r = from * LANES; r < to * LANES; r += LANES) {
        rows(l->gate + (size_t)r * ROW_BYTES(H), 0, LANES, H, normed, nx, count, 0, LANES, gate, LANES);
        rows(l->up + (size_t)r * ROW_BYTES(H), 0, LANES, H, normed, nx, count, 0, LANES, up, LANES);
        for (int t = 0; t < count; t++) {
            vf a = silu_of(load(gate + t * LANES)) * load(up + t * LANES);
            for (int j = 0; j < LANES; j++) m->active[(size_t)t * mx + split(r + j)] = a[j];
        }
    }
#pragma omp barrier
    if (WANTS_SUMS) sums_of_tokens(m->active, M, mx, count);
    share(H, me, all, &from, &to);
    add_rows(l->down, M, m->active, mx, count, from, to, m->x, H);
#pragma omp barrier
}

/* This thread's share of the output rows: logits unless null, and its most likely tokens. */
static void head_step(const model_t *m, int count, int me, int all, float *normed, float *logits,
                      float *top, int32_t *index) {
    const int H = m->hidden, nx = H + H / BLOCK;
    int from, to;
    for (int t = 0; t < count; t++) {
        norm_split(m->x + (size_t)t * H, m->final_norm, normed + (size_t)t * nx, H, m->eps);
        top[t] = -INFINITY;
        index[t] = 0;
    }
    if (WANTS_SUMS) sums_of_tokens(normed, H, nx, count);
    share(m->vocab, me, all, &from, &to);
    for (int r = from; r < to; r++) {
        const char *row = m->head + (size_t)r * HEAD_KIND(row_bytes)(H);
        float y[MAX_ROWS];
        FOR_TOKENS(HEAD_KIND(dot), row, H, normed, normed + H, nx, count, y, 1)
        for (int t = 0; t < count; t++) {
            if (logits) logits[(size_t)t * m->vocab + r] = y[t];
            if (y[t] > top[t]) { top[t] = y[t]; index[t] = r; }
        }
    }
}

/* Compute `count` (1 to MAX_ROWS) tokens. Those of one sequence come in order of position.
 * With `tokens`, all layers: the hidden states are then in m->x [count][hidden]; without, they are
 * taken from there. With `best`, best[t] becomes the most likely next token (the first of equals),
 * and logits [count][vocab] are filled unless null. Dimensions are multiples of 32. */
void fused_step(const model_t *m, const token_t *tokens, int count, int32_t *best, float *logits) {
    const int H = m->hidden, nx = H + H / BLOCK;
    int longest = 0, used = 1;
    for (int t = 0; tokens && t < count; t++) {
        if (tokens[t].position > longest) longest = tokens[t].position;
        for (int k = 0; k < H; k++) m->x[(size_t)t * H + k] = widen(m->embedding[(size_t)tokens[t].token * H + k]);
    }
    float top[MAX_THREADS][MAX_ROWS];
    int32_t index[MAX_THREADS][MAX_ROWS];
#pragma omp parallel num_threads(m->threads)
    {
        const int me = omp_get_thread_num(), all = omp_get_num_threads();
        float normed[count * nx] __attribute__((aligned(64)));
        float scores[longest + 1 + LANES] __attribute__((aligned(64)));
        for (int i = 0; tokens && i < m->layers; i++) layer_step(m, i, tokens, count, me, all, normed, scores);
        if (best) head_step(m, count, me, all, normed, logits, top[me], index[me]);
        if (me == 0) used = all;
    }
    for (int t = 0; best && t < count; t++) {
        int winner = 0;
        for (int i = 1; i < used; i++)
            if (top[i][t] > top[winner][t]) winner = i;
        best[t] = index[winner][t];
    }
}
