/* The draw of theta with its KL term, and their gradient, each in one pass: the formulas of `reparametrization`.

   Random bits: xoshiro128++ (Blackman and Vigna), LANES independent generators side by side so that the compiler can
   use vector instructions, seeded by splitmix64 as its authors advise. Normals: Box and Muller. Loops are split where
   one would keep the compiler from vectorizing the other's functions. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 16, BLOCK = 1024, HALF = BLOCK / 2 };

typedef struct {
    uint32_t word[4][LANES];
} Lanes;

static uint32_t rotate(uint32_t x, int by) { return x << by | x >> (32 - by); }

static void seed_lanes(Lanes *lanes, uint64_t seed) {
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
    uint32_t bits[BLOCK];
    float radius[HALF], angle[HALF];
    fill_bits(bits, lanes);
    for (int i = 0; i < HALF; i++) {
        /* Uniform on (0, 1) in steps of 2^-31, finest near 0, which is the tail: up to 6.6 standard deviations. */
        float u = (float)(int32_t)(bits[i] >> 1) * 0x1p-31f + 0x1p-32f;
        radius[i] = sqrtf(-2.0f * logf(u));
        angle[i] = (float)(int32_t)bits[HALF + i] * 1.4629180792671596e-9f; /* pi / 2^31 */
    }
    for (int i = 0; i < HALF; i++) out[i] = radius[i] * cosf(angle[i]);
    for (int i = 0; i < HALF; i++) out[HALF + i] = radius[i] * sinf(angle[i]);
}

/* Fills theta (n) and returns KL. The prior's mean is centre (n), or where that is NULL the number shift. */
double calibrant_draw(float *restrict theta, const float *restrict mean, const float *restrict rho, size_t n,
                      uint64_t seed, const float *restrict centre, float shift, float prior_rho) {
    Lanes lanes;
    float noise[BLOCK], precision = expf(-prior_rho);
    double twice_kl = 0;
    seed_lanes(&lanes, seed);
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t count = n - at < BLOCK ? n - at : BLOCK;
        float sum = 0;
        fill_normals(noise, &lanes);
        for (size_t i = at; i < at + count; i++) {
            float std = expf(0.5f * rho[i]);
            theta[i] = mean[i] + std * noise[i - at];
            /* Term by term, which is small where q is near the prior; sums apart would cancel in float32. */
            sum += std * std * precision - 1.0f - (rho[i] - prior_rho);
        }
        if (centre)
            for (size_t i = at; i < at + count; i++) sum += (mean[i] - centre[i]) * (mean[i] - centre[i]) * precision;
        else
            for (size_t i = at; i < at + count; i++) sum += (mean[i] - shift) * (mean[i] - shift) * precision;
        twice_kl += sum;
    }
    return 0.5 * twice_kl;
}

/* Fills to_mean and to_rho (n) from grad = dL/dtheta (n) and weight = dL/dKL. */
void calibrant_draw_backward(float *restrict to_mean, float *restrict to_rho, const float *restrict grad, float weight,
                             const float *restrict theta, const float *restrict mean, const float *restrict rho,
                             size_t n, const float *restrict centre, float shift, float prior_rho) {
    float pull = weight * expf(-prior_rho);
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t end = n - at < BLOCK ? n : at + BLOCK;
        for (size_t i = at; i < end; i++)
            to_rho[i] = 0.5f * (grad[i] * (theta[i] - mean[i]) + pull * expf(rho[i]) - weight);
        if (centre)
            for (size_t i = at; i < end; i++) to_mean[i] = grad[i] + pull * (mean[i] - centre[i]);
        else
            for (size_t i = at; i < end; i++) to_mean[i] = grad[i] + pull * (mean[i] - shift);
    }
}
