/* The step of IVON in one pass: the formulas of `ivon`. */

#include "elementary.h"
#include "threads.h"

typedef struct {
    float *mean, *average, *rho;
    const float *grad, *product, *center;
    float shift, fresh_gradient, correction, decay, rate, of_product, of_variance, fresh;
} Job;

static void step_chunk(void *shared, size_t chunk, size_t at, size_t end) {
    const Job job = *(const Job *)shared;
    (void)chunk;
    for (; at < end; at += BLOCK) {
        _Alignas(64) float from_center[BLOCK];
        size_t count = end - at < BLOCK ? end - at : BLOCK;
        float *restrict mean = job.mean + at, *restrict average = job.average + at, *restrict rho = job.rho + at;
        const float *restrict grad = job.grad + at, *restrict product = job.product + at;
        if (job.center)
            for (size_t i = 0; i < count; i++) from_center[i] = mean[i] - job.center[at + i];
        else
            for (size_t i = 0; i < count; i++) from_center[i] = mean[i] - job.shift;
        for (size_t i = 0; i < count; i++) {
            float std = exponential(0.5f * rho[i]), variance = std * std;
            float x = product[i] * job.of_product + (variance * job.of_variance - job.fresh);
            float growth = x + 0.5f * x * x; /* of the precision, less 1; at least -1/2, so that it stays positive */
            rho[i] -= logarithm_of_one_plus(growth);
            average[i] += job.fresh_gradient * (grad[i] - average[i]);
            float direction = average[i] * job.correction + job.decay * from_center[i];
            mean[i] -= job.rate * (variance / (growth + 1.0f)) * direction;
        }
    }
}

/* Moves mean and rho (n) by their gradients grad and product, and the running average of grad. */
void calibrant_newton(float *mean, float *average, float *rho, const float *grad, const float *product, size_t n,
                      const float *center, float shift, float fresh_gradient, float correction, float decay, float rate,
                      float of_product, float of_variance, float fresh, unsigned threads, Parallel parallel) {
    Job job = {mean,       average, rho,  grad,       product,     center, shift, fresh_gradient,
               correction, decay,   rate, of_product, of_variance, fresh};
    share((Work){.of_chunk = step_chunk, .job = &job, .n = n}, threads, parallel);
}
