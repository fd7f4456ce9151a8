/* load: a CUDA program with known phases.
 *
 *	load SECONDS MIB idle|spin
 *
 * Holds MIB of device memory (one plain cudaMalloc) and either does nothing or keeps every
 * multiprocessor busy.  Prints one line for each event, with the time of CLOCK_MONOTONIC:
 *
 *	pid 1234
 *	ready 12.345        the memory is held and the first kernel is done
 *	done 22.345
 *
 * Ends by itself after SECONDS, or when its standard input is closed. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cuda_runtime.h>
#include <poll.h>
#include <unistd.h>

static double now_s()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return;
	fprintf(stderr, "load: %s: %s\n", what, cudaGetErrorString(e));
	exit(1);
}

/* About 20 ms of arithmetic that the compiler cannot leave out. */
__global__ void spin(float *out, long long cycles)
{
	long long start = clock64();
	float a = (float)threadIdx.x, b = 1.0001f;

	while (clock64() - start < cycles)
		for (int i = 0; i < 64; i++)
			a = a * b + 0.5f;
	if (a == 12345.678f)
		out[0] = a;
}

static bool stop_requested()
{
	struct pollfd p = { 0, POLLIN, 0 };
	char c;

	return poll(&p, 1, 0) > 0 && read(0, &c, 1) <= 0;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 10, end;
	size_t bytes = (size_t)(argc > 2 ? atol(argv[2]) : 256) << 20;
	bool busy = argc > 3 && strcmp(argv[3], "spin") == 0;
	cudaDeviceProp about;
	void *memory = NULL;

	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	check(cudaGetDeviceProperties(&about, 0), "cudaGetDeviceProperties");
	check(cudaMalloc(&memory, bytes), "cudaMalloc");
	spin<<<1, 32>>>((float *)memory, 1000);
	check(cudaGetLastError(), "spin");
	check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
	printf("ready %.3f\n", now_s());
	fflush(stdout);
	end = now_s() + seconds;
	while (now_s() < end && !stop_requested()) {
		if (busy) {
			spin<<<about.multiProcessorCount * 4, 512>>>((float *)memory, 40000000LL);
			check(cudaGetLastError(), "spin");
			check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
		} else {
			usleep(50000);
		}
	}
	printf("done %.3f\n", now_s());
	cudaFree(memory);
	return 0;
}
