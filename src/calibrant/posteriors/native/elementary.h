/* exp and log in single precision, as polynomials (those of the Cephes library, Moshier) of which compilers make vector
   instructions. Only operations that IEEE 754 rounds correctly are used, which the compiler may not contract, so the
   results are the same bits everywhere. */

#include <stdint.h>

typedef union {
    float real;
    int32_t bits;
} Word;

static float from_bits(int32_t bits) { return ((Word){.bits = bits}).real; }
static int32_t to_bits(float real) { return ((Word){.real = real}).bits; }

/* exp(x) to 2 ulp; beyond +-87 that of the bound, so that no step overflows, and NaN stays NaN. */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;
    float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to an integer, in the low bits */
    float whole = shifted - 12582912.0f;
    float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f; /* log 2 in two parts */
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return p * from_bits((int32_t)((uint32_t)(to_bits(shifted) - 0x4B400000 + 127) << 23));
}

/* log(1 + m), plus e log 2, for m in [sqrt(1/2) - 1, sqrt(2) - 1]. */
static inline float logarithm_near_one(float m, float e) {
    float z = m * m, p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    p = p * m * z - e * 2.12194440e-4f - 0.5f * z;
    return (m + p) + e * 0.693359375f;
}

/* The e with which 2^-e x lies in [sqrt(1/2), sqrt(2)), for a normal number x > 0. */
static inline int32_t exponent_of(float x) { return (to_bits(x) - 0x3F3504F3) >> 23; }

static inline float logarithm(float x) {
    int32_t e = exponent_of(x);
    return logarithm_near_one(from_bits(to_bits(x) - (int32_t)((uint32_t)e << 23)) - 1.0f, (float)e);
}

/* log(1 + x) for x > -1, to the last digits also where x is small: what 1 + x rounds off is added to the remainder. */
static inline float logarithm_of_one_plus(float x) {
    float sum = 1.0f + x, lost = x - (sum - 1.0f);
    int32_t e = exponent_of(sum);
    float scale = from_bits((int32_t)((uint32_t)(127 - e) << 23));
    return logarithm_near_one((sum * scale - 1.0f) + lost * scale, (float)e);
}
