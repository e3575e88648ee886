/* The draw of theta with its KL term, and their gradient, each in one pass: the formulas of `reparametrization`.

   The results are the same bits on every processor, with every compiler and with any number of threads:
   elementary.h says why, and every chunk has its own generators and its own sum.

   Random bits: xoshiro128++ (Blackman and Vigna), LANES independent generators side by side so that the compiler can
   use vector instructions, seeded by splitmix64 as its authors advise. Normals: Box and Muller. Loops are split where
   one would keep the compiler from vectorizing the other. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "elementary.h"
#include "threads.h"

enum { LANES = 16, HALF = BLOCK / 2 };

typedef struct {
    uint32_t word[4][LANES];
} Lanes;

static uint32_t rotate(uint32_t x, int by) { return x << by | x >> (32 - by); }

/* The generators of one chunk: the next 2 LANES numbers of splitmix64 for each. */
static void seed_lanes(Lanes *lanes, uint64_t seed, uint64_t chunk) {
    seed += 2 * LANES * chunk * 0x9E3779B97F4A7C15u;
    for (int lane = 0; lane < LANES; lane++)
        for (int half = 0; half < 2; half++) {
            uint64_t z = seed += 0x9E3779B97F4A7C15u;
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
            z = (z ^ z >> 27) * 0x94D049BB133111EBu;
            z ^= z >> 31;
            lanes->word[2 * half][lane] = (uint32_t)z;
            lanes->word[2 * half + 1][lane] = (uint32_t)(z >> 32);
        }
}

static void fill_bits(uint32_t *restrict bits, Lanes *restrict lanes) {
    Lanes s = *lanes;
    for (int at = 0; at < BLOCK; at += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            uint32_t a = s.word[0][lane], b = s.word[1][lane], c = s.word[2][lane], d = s.word[3][lane];
            bits[at + lane] = rotate(a + d, 7) + a;
            c ^= a;
            d ^= b;
            s.word[0][lane] = a ^ d;
            s.word[1][lane] = b ^ c;
            s.word[2][lane] = c ^ b << 9;
            s.word[3][lane] = rotate(d, 11);
        }
    *lanes = s;
}

static void fill_normals(float *restrict out, Lanes *restrict lanes) {
    _Alignas(64) uint32_t bits[BLOCK];
    fill_bits(bits, lanes);
    for (int i = 0; i < HALF; i++) {
        /* Uniform on (0, 1) in steps of 2^-31, finest near 0, which is the tail: up to 6.6 standard deviations. */
        float u = (float)(int32_t)(bits[i] >> 1) * 0x1p-31f + 0x1p-32f;
        float radius = sqrtf(-2.0f * logarithm(u));
        /* The angle in units of pi / 2^31, as a quarter and what is left of it, at most pi / 4. */
        uint32_t angle = bits[HALF + i], quarter = (angle + 0x20000000u) >> 30;
        float x = (float)(int32_t)(angle - (quarter << 30)) * 1.4629180792671596e-9f, z = x * x;
        float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
        float cosine = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * (z * z);
        cosine = cosine - 0.5f * z + 1.0f;
        int32_t swap = -(int32_t)(quarter & 1), s = to_bits(sine), c = to_bits(cosine);
        int32_t first = (swap & s) | (~swap & c), second = (swap & c) | (~swap & s);
        first ^= (int32_t)((quarter + 1) << 30) & INT32_MIN; /* cosine is negative in quarters 1 and 2 */
        second ^= (int32_t)(quarter << 30) & INT32_MIN;      /* sine in 2 and 3 */
        out[i] = radius * from_bits(first);
        out[HALF + i] = radius * from_bits(second);
    }
}

typedef struct {
    float *theta, *to_mean, *to_rho;
    const float *mean, *rho, *grad, *center;
    float shift, prior_rho, weight;
    uint64_t seed;
    double *sums;
} Job;

/* Twice the KL term of elements at, ..., at + count - 1, which are one block or the end of it; draws them. */
static float draw_block(const Job *job, size_t at, size_t count, const float *restrict noise) {
    _Alignas(64) float terms[BLOCK];
    float *restrict theta = job->theta + at;
    const float *restrict mean = job->mean + at, *restrict rho = job->rho + at;
    float shift = job->shift, prior_rho = job->prior_rho, precision = exponential(-prior_rho);
    if (count < BLOCK) memset(terms, 0, sizeof terms);
    if (job->center) {
        const float *restrict center = job->center + at;
        for (size_t i = 0; i < count; i++) terms[i] = (mean[i] - center[i]) * (mean[i] - center[i]);
    } else
        for (size_t i = 0; i < count; i++) terms[i] = (mean[i] - shift) * (mean[i] - shift);
    for (size_t i = 0; i < count; i++) {
        float std = exponential(0.5f * rho[i]);
        theta[i] = mean[i] + std * noise[i];
        /* Term by term, which is small where q is near the prior; sums apart would cancel in float32. */
        terms[i] = terms[i] * precision + (std * std * precision - 1.0f - (rho[i] - prior_rho));
    }
    for (int half = HALF; half; half /= 2)
        for (int i = 0; i < half; i++) terms[i] += terms[half + i];
    return terms[0];
}

static void draw_chunk(void *shared, size_t chunk, size_t at, size_t end) {
    Job *job = shared;
    _Alignas(64) float noise[BLOCK];
    Lanes lanes;
    double sum = 0;
    seed_lanes(&lanes, job->seed, chunk);
    for (; at < end; at += BLOCK) {
        fill_normals(noise, &lanes);
        sum += draw_block(job, at, end - at < BLOCK ? end - at : BLOCK, noise);
    }
    job->sums[chunk] = sum;
}

static void differentiate_block(const Job *job, size_t at, size_t count) {
    float *restrict to_rho = job->to_rho + at;
    const float *restrict grad = job->grad + at, *restrict theta = job->theta + at;
    const float *restrict mean = job->mean + at, *restrict rho = job->rho + at;
    float shift = job->shift, weight = job->weight, pull = weight * exponential(-job->prior_rho);
    for (size_t i = 0; i < count; i++) {
        float std = exponential(0.5f * rho[i]);
        to_rho[i] = 0.5f * (grad[i] * (theta[i] - mean[i]) + (pull * (std * std) - weight));
    }
    if (!job->to_mean) return;
    float *restrict to_mean = job->to_mean + at;
    if (job->center) {
        const float *restrict center = job->center + at;
        for (size_t i = 0; i < count; i++) to_mean[i] = grad[i] + pull * (mean[i] - center[i]);
    } else
        for (size_t i = 0; i < count; i++) to_mean[i] = grad[i] + pull * (mean[i] - shift);
}

static void differentiate_chunk(void *shared, size_t chunk, size_t at, size_t end) {
    (void)chunk;
    for (; at < end; at += BLOCK) differentiate_block(shared, at, end - at < BLOCK ? end - at : BLOCK);
}

/* Fills theta (n) and returns KL, or NaN without memory. The prior's mean is center (n), or where that is NULL the
   number shift. */
double calibrant_draw(float *theta, const float *mean, const float *rho, size_t n, uint64_t seed, const float *center,
                      float shift, float prior_rho, unsigned threads, Parallel parallel) {
    Job job = {.theta = theta, .mean = mean, .rho = rho, .center = center, .shift = shift, .prior_rho = prior_rho};
    double twice_kl = 0;
    job.seed = seed;
    job.sums = malloc((chunks_of(n) + 1) * sizeof(double));
    if (!job.sums) return NAN;
    share((Work){.of_chunk = draw_chunk, .job = &job, .n = n}, threads, parallel);
    for (size_t chunk = 0; chunk < chunks_of(n); chunk++) twice_kl += job.sums[chunk];
    free(job.sums);
    return 0.5 * twice_kl;
}

/* Fills to_mean, unless it is NULL, and to_rho (n) from grad = dL/dtheta (n) and weight = dL/dKL. */
void calibrant_draw_backward(float *to_mean, float *to_rho, const float *grad, float weight, const float *theta,
                             const float *mean, const float *rho, size_t n, const float *center, float shift,
                             float prior_rho, unsigned threads, Parallel parallel) {
    Job job = {.theta = (float *)theta, .to_mean = to_mean, .to_rho = to_rho, .mean = mean, .rho = rho, .grad = grad};
    job.center = center;
    job.shift = shift;
    job.prior_rho = prior_rho;
    job.weight = weight;
    share((Work){.of_chunk = differentiate_chunk, .job = &job, .n = n}, threads, parallel);
}
