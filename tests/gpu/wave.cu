/* wave: a CUDA load with known phases.
 *
 *	wave ON_MS OFF_MS SECONDS [spin|gemm] [bursts]
 *	wave 0 0 ITERATIONS work          a fixed amount of work: this number of matrix products
 *
 * Keeps every multiprocessor busy for ON_MS and idle for OFF_MS, again and again; OFF_MS 0 is a
 * constant load.  Phases are timed on the CPU's monotonic clock.  spin is plain arithmetic (about
 * 320 W on an H200); gemm is bfloat16 matrix products (the power limit of an H200).  Prints, with
 * CLOCK_MONOTONIC in seconds:
 *
 *	pid 1234
 *	ready 12.345678     the first kernel is done, the load begins
 *	on 12.345678 12.395678    one line per burst, with "bursts"
 *	rate 1234.5         products per second, for gemm
 *	done 22.345678 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <unistd.h>

static double now_s()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void until(double s)
{
	struct timespec t;

	t.tv_sec = (time_t)s;
	t.tv_nsec = (long)((s - (double)t.tv_sec) * 1e9);
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void check(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return;
	fprintf(stderr, "wave: %s: %s\n", what, cudaGetErrorString(e));
	exit(1);
}

/* Does arithmetic for this time, measured with the GPU's own clock. */
__global__ void spin(float *out, unsigned long long ns)
{
	unsigned long long start, now;
	float a = (float)threadIdx.x, b = 1.0001f;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
	do {
		for (int i = 0; i < 256; i++)
			a = a * b + 0.5f;
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
	} while (now - start < ns);
	if (a == 12345.678f)
		out[0] = a;
}

struct gemm {
	cublasHandle_t handle;
	__nv_bfloat16 *a, *b, *c;
	int n;
};

static void gemm_once(struct gemm *g)
{
	float one = 1, zero = 0;

	if (cublasGemmEx(g->handle, CUBLAS_OP_N, CUBLAS_OP_N, g->n, g->n, g->n, &one, g->a,
			 CUDA_R_16BF, g->n, g->b, CUDA_R_16BF, g->n, &zero, g->c, CUDA_R_16BF,
			 g->n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) != CUBLAS_STATUS_SUCCESS) {
		fprintf(stderr, "wave: cublasGemmEx failed\n");
		exit(1);
	}
}

__global__ void fill(__nv_bfloat16 *p, size_t n)
{
	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
	     i += (size_t)gridDim.x * blockDim.x)
		p[i] = __float2bfloat16((float)((i * 2654435761u) % 1024) / 512.0f - 1.0f);
}

static void gemm_init(struct gemm *g, int n)
{
	size_t count = (size_t)n * n;

	g->n = n;
	check(cudaMalloc(&g->a, count * 2), "cudaMalloc");
	check(cudaMalloc(&g->b, count * 2), "cudaMalloc");
	check(cudaMalloc(&g->c, count * 2), "cudaMalloc");
	fill<<<256, 256>>>(g->a, count);
	fill<<<256, 256>>>(g->b, count);
	if (cublasCreate(&g->handle) != CUBLAS_STATUS_SUCCESS) {
		fprintf(stderr, "wave: cublasCreate failed\n");
		exit(1);
	}
	gemm_once(g);
	check(cudaDeviceSynchronize(), "first product");
}

int main(int argc, char **argv)
{
	double on = argc > 1 ? atof(argv[1]) * 1e-3 : 1, off = argc > 2 ? atof(argv[2]) * 1e-3 : 0;
	double seconds = argc > 3 ? atof(argv[3]) : 10, begin, next;
	const char *kind = argc > 4 ? argv[4] : "spin";
	bool gemm = strcmp(kind, "spin") != 0, work = strcmp(kind, "work") == 0;
	bool bursts = argc > 5;
	long done = 0;
	cudaDeviceProp about;
	struct gemm g = {};
	float *out;

	printf("pid %d\n", (int)getpid());
	fflush(stdout);
	check(cudaGetDeviceProperties(&about, 0), "cudaGetDeviceProperties");
	check(cudaMalloc(&out, 4096), "cudaMalloc");
	spin<<<1, 32>>>(out, 1000);
	check(cudaDeviceSynchronize(), "spin");
	if (gemm)
		gemm_init(&g, work ? 4096 : off > 0 ? 4096 : 8192);
	begin = next = now_s();
	printf("ready %.6f\n", begin);
	fflush(stdout);
	if (work) {
		for (long i = 0; i < (long)seconds; i++) {
			gemm_once(&g);
			if (i % 64 == 63)
				check(cudaDeviceSynchronize(), "gemm");
		}
		check(cudaDeviceSynchronize(), "gemm");
		printf("rate %.3f\ndone %.6f\n", seconds / (now_s() - begin), now_s());
		return 0;
	}
	while (now_s() < begin + seconds) {
		double start = now_s(), end = off > 0 ? next + on : start + 0.05;

		if (gemm) {
			do {
				gemm_once(&g);
				done++;
				if (off > 0 || done % 8 == 0)
					check(cudaDeviceSynchronize(), "gemm");
			} while (now_s() < end);
		} else if (off > 0) {
			spin<<<about.multiProcessorCount * 4, 512>>>(
				out, (unsigned long long)((end - start) * 1e9));
			check(cudaDeviceSynchronize(), "spin");
		} else { /* two kernels are always queued: no gaps */
			spin<<<about.multiProcessorCount * 4, 512>>>(out, 50000000ULL);
			if (++done % 2 == 0)
				check(cudaStreamSynchronize(0), "spin");
		}
		if (bursts)
			printf("on %.6f %.6f\n", start, now_s());
		if (off > 0) {
			next += on + off;
			until(next);
		}
	}
	check(cudaDeviceSynchronize(), "end");
	if (gemm)
		printf("rate %.3f\n", (double)done / (now_s() - begin));
	printf("done %.6f\n", now_s());
	return 0;
}
