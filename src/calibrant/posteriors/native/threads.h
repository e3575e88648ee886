/* Work on elements 0, ..., n - 1 in chunks, which threads take one after the other until none is left. What becomes of
   a chunk must not depend on the thread. */

#include <pthread.h>
#include <stddef.h>

enum { BLOCK = 1024, CHUNK = 32 * BLOCK, THREADS = 256 };

/* Runs a function in threads: GOMP_parallel of the OpenMP that PyTorch uses, so that there is one set of threads. NULL
   where it cannot be found. */
typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);

typedef struct {
    void (*of_chunk)(void *job, size_t chunk, size_t at, size_t end);
    void *job;
    size_t n, next;
} Work;

static size_t chunks_of(size_t n) { return (n + CHUNK - 1) / CHUNK; }

static void take_chunks(void *shared) {
    Work *work = shared;
    for (size_t chunk; (chunk = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED)) < chunks_of(work->n);) {
        size_t at = chunk * CHUNK;
        work->of_chunk(work->job, chunk, at, work->n - at < CHUNK ? work->n : at + CHUNK);
    }
}

static void *run(void *work) {
    take_chunks(work);
    return NULL;
}

static void share(Work work, unsigned threads, Parallel parallel) {
    pthread_t others[THREADS];
    unsigned started = 0, worthwhile = (unsigned)(chunks_of(work.n) / 2); /* less is not worth waking a thread */
    if (threads > worthwhile) threads = worthwhile;
    if (threads > THREADS) threads = THREADS;
    if (threads > 1 && parallel) {
        parallel(take_chunks, &work, threads, 0);
        return;
    }
    while (started + 1 < threads && !pthread_create(&others[started], NULL, run, &work)) started++;
    take_chunks(&work);
    while (started) pthread_join(others[--started], NULL);
}
