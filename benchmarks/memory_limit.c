/* What the memory allows: read n floats, or write them past the caches, by all threads, eight vectors at a time. */
#ifdef __AVX512F__
#include <immintrin.h>
#define STORE(place, value) _mm512_stream_ps(place, (__m512)(value))
#else
#define STORE(place, value) (*(vector *)(place) = (value))
#endif

typedef float vector __attribute__((vector_size(64), aligned(4)));

float read_memory(const float *x, long n) {
    float found = 0;
#pragma omp parallel reduction(+ : found)
    {
        vector total[8] = {0};
#pragma omp for schedule(static)
        for (long i = 0; i < n / 128; i++)
            for (int k = 0; k < 8; k++)
                total[k] += ((const vector *)(x + 128 * i))[k];
        for (int k = 0; k < 8; k++)
            for (int j = 0; j < 16; j++)
                found += total[k][j];
    }
    return found;
}

void write_memory(float *y, long n) {
    vector ones = {0};
    ones += 1;
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n / 128; i++)
        for (int k = 0; k < 8; k++)
            STORE(y + 128 * i + 16 * k, ones);
}
