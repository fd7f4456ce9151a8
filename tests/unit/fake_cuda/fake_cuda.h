/* fake_cuda: what the test's libcuda.so.1 was asked (its symbol fake_cuda). */
#ifndef TESTS_FAKE_CUDA_H
#define TESTS_FAKE_CUDA_H

#include <stdint.h>

struct fake_cuda {
	char pci[32];
	int contexts; /* open now              */
	int running;  /* a kernel, until waited for */
	unsigned launches, blocks, threads;
	uint64_t for_ns; /* of the last launch */
};

#endif
