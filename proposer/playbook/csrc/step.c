/* One pass of a Llama-architecture model over a few tokens, in one parallel region.
 *
 * Six phases a layer, a barrier after each: query, key and value rows; keys and values into the
 * cache; attention; output rows; gate and up rows; down rows. Rows of a matrix are shared out in
 * equal, contiguous parts, so that each thread streams. LAYER_ and HEAD_ say how weights lie (rows_*.c). */
#include <omp.h>

#define MAX_ROWS 32
#define ROW_BLOCK 32
#define PAIRS_FROM 4 /* tokens */
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

/* part[t] = row . x[t] for any number of tokens; their block sums lie behind each x. */
#define DEFINE_DOTS(NAME, DOT)                                                                    \
    static void NAME(const char *row, int n, const float *x, int stride, int count, float *part) { \
        for (; count >= 8; count -= 8, x += 8 * stride, part += 8) DOT(row, n, x, x + n, stride, 8, part); \
        for (; count >= 4; count -= 4, x += 4 * stride, part += 4) DOT(row, n, x, x + n, stride, 4, part); \
        if (count == 3) DOT(row, n, x, x + n, stride, 3, part);                                   \
        else if (count == 2) DOT(row, n, x, x + n, stride, 2, part);                              \
        else if (count == 1) DOT(row, n, x, x + n, stride, 1, part);                              \
    }
DEFINE_DOTS(layer_dots, LAYER_KIND(dot))
DEFINE_DOTS(head_dots, HEAD_KIND(dot))

static void pairs_dots(const char *row, int n, const uint16_t *x, int count, float *part) {
    for (; count >= 8; count -= 8, x += 8 * n, part += 8) pairs_dot(row, n, x, 8, part);
    for (; count >= 4; count -= 4, x += 4 * n, part += 4) pairs_dot(row, n, x, 4, part);
    if (count == 3) pairs_dot(row, n, x, 3, part);
    else if (count == 2) pairs_dot(row, n, x, 2, part);
    else if (count == 1) pairs_dot(row, n, x, 1, part);
}

/* Activations as rows see them: split float32 with their block sums behind, and for many tokens
 * (else null) bfloat16 in order. `room` [tokens][n] is this thread's own. */
typedef struct {
    const float *x;
    const uint16_t *pairs;
    int n, stride, count;
} input_t;

static input_t input_of(const float *x, int n, int stride, int count, uint16_t *room, int in_pairs) {
    input_t input = {x, NULL, n, stride, count};
    if (!HAS_PAIRS || !in_pairs || count < PAIRS_FROM) return input;
    for (int t = 0; t < count; t++)
        for (int k = 0; k < n; k += BLOCK) {
            vu even = (vu)load(x + (size_t)t * stride + k), odd = (vu)load(x + (size_t)t * stride + k + LANES);
            even = (even + 0x7fff + ((even >> 16) & 1)) >> 16;
            odd = (odd + 0x7fff + ((odd >> 16) & 1)) & 0xffff0000u;
            *(vu *)(room + (size_t)t * n + k) = even | odd;
        }
    input.pairs = room;
    return input;
}

/* Tokens to take at once so that their activations stay in the nearest cache. */
INLINE int tokens_at_once(const input_t *in) { return in->pairs || in->n <= 1024 ? 8 : 4; }

/* out[token][r] = rows [from, to) of w times the input, or added to it. Many tokens go in groups
 * over blocks of rows, so that a block comes from memory once and from a near cache after. */
INLINE void rows(const char *w, const input_t *in, int from, int to, float *out, int out_stride, const int add) {
    const int group = tokens_at_once(in), n = in->n;
    for (int block = from; block < to; block += ROW_BLOCK) {
        const int end = block + ROW_BLOCK < to ? block + ROW_BLOCK : to;
        for (int first = 0; first < in->count; first += group) {
            const int some = in->count - first < group ? in->count - first : group;
            for (int r = block; r < end; r++) {
                float part[MAX_TOKENS], *y = out + (size_t)first * out_stride + r;
                const char *row = w + (size_t)r * ROW_BYTES(n);
                if (in->pairs) pairs_dots(row, n, in->pairs + (size_t)first * n, some, part);
                else layer_dots(row, n, in->x + (size_t)first * in->stride, in->stride, some, part);
                for (int t = 0; t < some; t++) y[(size_t)t * out_stride] = part[t] + (add ? y[(size_t)t * out_stride] : 0.0f);
            }
        }
    }
}

/* Those of rows [from, to) of several matrices in a row that fall into the one from `base` on. */
static void rows_within(const char *w, int base, int height, const input_t *in, int from, int to,
                        float *out, int out_stride) {
    from = from > base ? from - base : 0;
    to = to - base < height ? to - base : height;
    rows(w, in, from, to, out + base, out_stride, 0);
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

/* Layer i for this thread. `normed`, `pairs` and `scores` are its own. */
static void layer_step(const model_t *m, int i, const token_t *tokens, int count, int me, int all,
                       float *normed, uint16_t *pairs, float *scores) {
    const layer_t *l = m->layer + i;
    const int H = m->hidden, M = m->mlp, D = m->head_dim, width = m->heads * D, kv = m->kv_heads * D;
    const int qkv_rows = width + 2 * kv, nx = H + H / BLOCK, wx = width + width / BLOCK, mx = M + M / BLOCK;
    int from, to;
    for (int t = 0; t < count; t++) norm_split(m->x + (size_t)t * H, l->attention_norm, normed + (size_t)t * nx, H, m->eps);
    if (WANTS_SUMS) sums_of_tokens(normed, H, nx, count);
    input_t in = input_of(normed, H, nx, count, pairs, LAYER_PAIRS);
    share(qkv_rows, me, all, &from, &to);
    rows_within(l->q, 0, width, &in, from, to, m->qkv, qkv_rows);
    rows_within(l->k, width, kv, &in, from, to, m->qkv, qkv_rows);
    rows_within(l->v, width + kv, kv, &in, from, to, m->qkv, qkv_rows);
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
    in = input_of(m->attended, width, wx, count, pairs, LAYER_PAIRS);
    share(H, me, all, &from, &to);
    rows(l->o, &in, from, to, m->x, H, 1);
#pragma omp barrier
    for (int t = 0; t < count; t++) norm_split(m->x + (size_t)t * H, l->mlp_norm, normed + (size_t)t * nx, H, m->eps);
    if (WANTS_SUMS) sums_of_tokens(normed, H, nx, count);
    in = input_of(normed, H, nx, count, pairs, LAYER_PAIRS);
    share(M / LANES, me, all, &from, &to);
    float gate[MAX_ROWS * LANES], up[MAX_ROWS * LANES];
    for (int r = from * LANES; r < to * LANES; r += LANES) {
        rows(l->gate + (size_t)r * ROW_BYTES(H), &in, 0, LANES, gate, LANES, 0);
        rows(l->up + (size_t)r * ROW_BYTES(H), &in, 0, LANES, up, LANES, 0);
        for (int t = 0; t < count; t++) {
            vf a = silu_of(load(gate + t * LANES)) * load(up + t * LANES);
            for (int j = 0; j < LANES; j++) m->active[(size_t)t * mx + split(r + j)] = a[j];
        }
    }
#pragma omp barrier
    if (WANTS_SUMS) sums_of_tokens(m->active, M, mx, count);
    in = input_of(m->active, M, mx, count, pairs, LAYER_PAIRS);
    share(H, me, all, &from, &to);
    rows(l->down, &in, from, to, m->x, H, 1);
#pragma omp barrier
}

/* This thread's share of the output rows: logits unless null, and its most likely tokens. */
static void head_step(const model_t *m, int count, int me, int all, float *normed, uint16_t *pairs,
                      float *logits, float *top, int32_t *index) {
    const int H = m->hidden, nx = H + H / BLOCK;
    int from, to;
    for (int t = 0; t < count; t++) {
        norm_split(m->x + (size_t)t * H, m->final_norm, normed + (size_t)t * nx, H, m->eps);
        top[t] = -INFINITY;
        index[t] = 0;
    }
    if (WANTS_SUMS) sums_of_tokens(normed, H, nx, count);
    const input_t in = input_of(normed, H, nx, count, pairs, HEAD_PAIRS);
    share(m->vocab, me, all, &from, &to);
    for (int r = from; r < to; r++) {
        const char *row = m->head + (size_t)r * HEAD_KIND(row_bytes)(H);
        float y[MAX_ROWS];
        if (in.pairs) pairs_dots(row, H, in.pairs, count, y);
        else head_dots(row, H, normed, nx, count, y);
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
    const int H = m->hidden, nx = H + H / BLOCK, width = m->heads * m->head_dim;
    const int widest = m->mlp > H ? (m->mlp > width ? m->mlp : width) : (H > width ? H : width);
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
        uint16_t pairs[count * widest] __attribute__((aligned(64)));
        float scores[longest + 1 + LANES] __attribute__((aligned(64)));
        for (int i = 0; tokens && i < m->layers; i++) layer_step(m, i, tokens, count, me, all, normed, pairs, scores);
        if (best) head_step(m, count, me, all, normed, pairs, logits, top[me], index[me]);
        if (me == 0) used = all;
    }
    for (int t = 0; best && t < count; t++) {
        int winner = 0;
        for (int i = 1; i < used; i++)
            if (top[i][t] > top[winner][t]) winner = i;
        best[t] = index[winner][t];
    }
}
