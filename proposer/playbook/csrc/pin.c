/* Put every thread of the parallel pool on a core of its own. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>

void pin(int threads, int cores, const int *core) {
#pragma omp parallel num_threads(threads)
    {
        cpu_set_t only;
        CPU_ZERO(&only);
        CPU_SET(core[omp_get_thread_num() % cores], &only);
        sched_setaffinity(0, sizeof only, &only);
    }
}
