/* Read n floats by all threads, eight vectors at a time: the memory bandwidth that the poolings are compared with. */
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
