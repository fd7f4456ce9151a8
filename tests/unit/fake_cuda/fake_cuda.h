/* fake_cuda: the calls that the test's libcuda.so.1 has received (its symbol fake_cuda). */
#ifndef TESTS_FAKE_CUDA_H
#define TESTS_FAKE_CUDA_H

#include <stdint.h>

struct fake_cuda {
	char pci[32];
	int contexts; /* open now              */
	int running;  /* 1 from the launch of a kernel until the program waits for it */
	unsigned launches, blocks, threads;
	uint64_t for_ns; /* duration of the last kernel */
};

#endif
