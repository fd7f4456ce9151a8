/* hold: a CUDA process that holds memory, for tests/gpu/guard.
 *
 *	hold contender MIB SECONDS      takes the memory, waits, ends
 *	hold plain MIB                  fills the memory with a pattern and always runs a kernel; checks the pattern at SIGTERM
 *	hold managed MIB                like plain, in managed memory, which cannot be checkpointed
 *	hold pair MIB                   like plain, with a child that does the same
 *	hold rate SECONDS               short kernels; prints the kernels per second every quarter of a second
 *
 * Prints a line with the time of CLOCK_MONOTONIC for each action. */
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cuda_runtime.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile sig_atomic_t ended;

static void on_end(int)
{
	ended = 1;
}

static double now_s()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void say(const char *word, double value)
{
	printf("%.6f %s %.6g\n", now_s(), word, value);
	fflush(stdout);
}

static void check(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return;
	printf("%.6f error %s: %s\n", now_s(), what, cudaGetErrorString(e));
	fflush(stdout);
	_exit(1);
}

__global__ void fill(uint64_t *p, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		p[i] = i * 0x9E3779B97F4A7C15ull;
}

__global__ void compare(const uint64_t *p, size_t n, unsigned long long *wrong)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		if (p[i] != i * 0x9E3779B97F4A7C15ull)
			atomicAdd(wrong, 1ull);
}

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

static uint64_t *take(size_t bytes, bool managed)
{
	uint64_t *p;

	check(managed ? cudaMallocManaged(&p, bytes) : cudaMalloc(&p, bytes), "malloc");
	fill<<<256, 256>>>(p, bytes / sizeof(*p));
	check(cudaDeviceSynchronize(), "fill");
	return p;
}

/* Works on the memory until SIGTERM, and prints the time of each round that took more than 0.5 s. */
static int work(size_t bytes, bool managed)
{
	unsigned long long wrong = 0, *dev_wrong;
	uint64_t *p = take(bytes, managed);
	float *out;
	double last;

	check(cudaMalloc(&out, 4096), "malloc");
	check(cudaMalloc(&dev_wrong, sizeof(*dev_wrong)), "malloc");
	check(cudaMemset(dev_wrong, 0, sizeof(*dev_wrong)), "memset");
	say("holds", (double)bytes);
	for (last = now_s(); !ended; last = now_s()) {
		spin<<<1, 32>>>(out, 10000000);
		check(cudaDeviceSynchronize(), "work");
		if (now_s() - last > 0.5)
			say("gap", now_s() - last);
	}
	compare<<<256, 256>>>(p, bytes / sizeof(*p), dev_wrong);
	check(cudaMemcpy(&wrong, dev_wrong, sizeof(wrong), cudaMemcpyDeviceToHost), "compare");
	say("end", (double)wrong);
	return wrong != 0;
}

static int rate(double seconds)
{
	double end, begin;
	long rounds = 0;
	float *out;

	check(cudaMalloc(&out, 4096), "malloc");
	spin<<<1024, 256>>>(out, 1000000);
	check(cudaDeviceSynchronize(), "warm");
	begin = now_s();
	for (end = begin + seconds; !ended && now_s() < end;) {
		spin<<<132, 256>>>(out, 100000);
		check(cudaDeviceSynchronize(), "work");
		rounds++;
		if (now_s() - begin >= 0.25) {
			say("rate", (double)rounds / (now_s() - begin));
			rounds = 0;
			begin = now_s();
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 2 ? argv[1] : "";
	double amount = argc > 2 ? atof(argv[2]) : 0;
	size_t bytes = (size_t)(amount * 1048576) & ~(size_t)7;

	signal(SIGTERM, on_end);
	say("start", (double)getpid());
	if (strcmp(kind, "rate") == 0)
		return rate(amount);
	if (strcmp(kind, "contender") == 0) {
		take(bytes, false);
		say("holds", (double)bytes);
		for (double end = now_s() + (argc > 3 ? atof(argv[3]) : 1); !ended && now_s() < end;)
			usleep(2000);
		say("ends", 0);
		_exit(0);
	}
	if (strcmp(kind, "pair") == 0 && fork() == 0)
		prctl(PR_SET_PDEATHSIG, SIGTERM);
	return work(bytes, strcmp(kind, "managed") == 0);
}
