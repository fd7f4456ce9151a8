#include "cuda.h"

#include <gpuward.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Types and constants of the CUDA driver API. */
typedef int cu_result; /* 0 is success */
typedef void *cu_object;

#define CU_MULTIPROCESSORS            16
#define CU_THREADS_PER_MULTIPROCESSOR 39
#define CU_SCHEDULE_BLOCKING          4 /* sleep instead of spinning while waiting */

/* clang-format off */
#define CU_CALLS(C)                                                                            \
	C(init, "cuInit", (unsigned flags))                                                    \
	C(device_by_pci, "cuDeviceGetByPCIBusId", (int *device, const char *pci))              \
	C(attribute, "cuDeviceGetAttribute", (int *value, int which, int device))              \
	C(context_new, "cuCtxCreate_v2", (cu_object *context, unsigned flags, int device))     \
	C(context_free, "cuCtxDestroy_v2", (cu_object context))                                \
	C(context_wait, "cuCtxSynchronize", (void))                                            \
	C(module_load, "cuModuleLoadData", (cu_object *module, const void *image))             \
	C(module_function, "cuModuleGetFunction",                                              \
	  (cu_object *function, cu_object module, const char *name))                           \
	C(launch, "cuLaunchKernel",                                                            \
	  (cu_object function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,\
	   unsigned bz, unsigned shared, cu_object stream, void **parameters, void **extra))   \
	C(error_name, "cuGetErrorName", (cu_result code, const char **name))
/* clang-format on */

struct cuda_load {
#define POINTER(name, symbol, args) cu_result(*name) args;
	CU_CALLS(POINTER)
#undef POINTER
	void *library;
	const struct clock *clock;
	cu_object context, function;
	unsigned blocks;
};

#define THREADS 256u

/* Runs sixteen independent chains of multiply-adds until the time is up. The sum is stored only
 * if it has an impossible value, so that the compiler cannot remove the chains. */
/* clang-format off */
#define FMA(n)           "\tfma.rn.f32 %f" #n ",%f" #n ",%f17,%f18;\n"
#define FMA4(a, b, c, d) FMA(a) FMA(b) FMA(c) FMA(d)
#define FMA16            FMA4(1, 2, 3, 4) FMA4(5, 6, 7, 8) FMA4(9, 10, 11, 12) FMA4(13, 14, 15, 16)
#define FMA64            FMA16 FMA16 FMA16 FMA16
#define START(n, v)      "\tadd.f32 %f" #n ",%f1," v ";\n"
#define SUM(n)           "\tadd.f32 %f1,%f1,%f" #n ";\n"

static const char ptx[] =
	".version 6.0\n"
	".target sm_50\n"
	".address_size 64\n"
	".visible .entry spin(.param .u64 for_ns, .param .u64 out)\n"
	"{\n"
	"\t.reg .pred %p<4>;\n"
	"\t.reg .f32 %f<19>;\n"
	"\t.reg .u32 %r<3>;\n"
	"\t.reg .u64 %d<5>;\n"
	"\tld.param.u64 %d1, [for_ns];\n"
	"\tld.param.u64 %d2, [out];\n"
	"\tmov.u64 %d3, %globaltimer;\n"
	"\tadd.u64 %d4, %d3, %d1;\n"
	"\tmov.u32 %r1, %tid.x;\n"
	"\tcvt.rn.f32.u32 %f1, %r1;\n"
	"\tmov.f32 %f17, 0f3F7FF972;\n" /* the factor 0.9999 keeps the values finite */
	"\tmov.f32 %f18, 0f3F000000;\n" /* the summand 0.5 */
	START(2, "0f3F800000") START(3, "0f40000000") START(4, "0f40400000")
	START(5, "0f40800000") START(6, "0f40A00000") START(7, "0f40C00000")
	START(8, "0f40E00000") START(9, "0f41000000") START(10, "0f41100000")
	START(11, "0f41200000") START(12, "0f41300000") START(13, "0f41400000")
	START(14, "0f41500000") START(15, "0f41600000") START(16, "0f41700000")
	"again:\n"
	"\tmov.u32 %r2, 16;\n"
	"inner:\n"
	FMA64
	"\tsub.u32 %r2, %r2, 1;\n"
	"\tsetp.ne.u32 %p1, %r2, 0;\n"
	"\t@%p1 bra inner;\n"
	"\tmov.u64 %d3, %globaltimer;\n"
	"\tsetp.lt.u64 %p2, %d3, %d4;\n"
	"\t@%p2 bra again;\n"
	SUM(2) SUM(3) SUM(4) SUM(5) SUM(6) SUM(7) SUM(8) SUM(9) SUM(10)
	SUM(11) SUM(12) SUM(13) SUM(14) SUM(15) SUM(16)
	/* Compare with -100000. The sum is positive, so it never has this value. */
	"\tsetp.neu.f32 %p3, %f1, 0fC7C35000;\n"
	"\t@%p3 bra done;\n"
	"\tst.global.f32 [%d2], %f1;\n"
	"done:\n"
	"\tret;\n"
	"}\n";
/* clang-format on */

static int cuda_failed(const struct cuda_load *c, const char *call, cu_result code,
		       char *message, size_t size)
{
	const char *name = NULL;

	if (!c->error_name || c->error_name(code, &name) != 0 || !name)
		name = "an unknown error";
	snprintf(message, size, "the CUDA call %s failed: %s (%d)", call, name, code);
	return -GW_E_IO;
}

static int load_library(struct cuda_load *c, char *message, size_t size)
{
	const char *missing = NULL;
	void *p;

	c->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!c->library) {
		snprintf(message, size,
			 "the driver's libcuda.so.1 cannot be used, so no load can be started: "
			 "%s",
			 dlerror());
		return -GW_E_NOSUPPORT;
	}
#define LOOK_UP(name, symbol, args)      \
	p = dlsym(c->library, symbol);   \
	memcpy(&c->name, &p, sizeof(p)); \
	if (!p)                          \
		missing = symbol;
	CU_CALLS(LOOK_UP)
#undef LOOK_UP
	if (missing) {
		snprintf(message, size,
			 "the driver's libcuda.so.1 has no function %s; update the driver",
			 missing);
		return -GW_E_NOSUPPORT;
	}
	return 0;
}

/* Returns half of the number of blocks that the GPU can hold. This number of blocks runs at
 * once, even if each block needs many registers, and keeps all arithmetic units busy. */
static unsigned blocks_of(const struct cuda_load *c, int device)
{
	int processors = 0, threads = 0;

	if (c->attribute(&processors, CU_MULTIPROCESSORS, device) != 0 || processors <= 0)
		processors = 1;
	if (c->attribute(&threads, CU_THREADS_PER_MULTIPROCESSOR, device) != 0 || threads <= 0)
		threads = 1024;
	threads /= 2;
	return (unsigned)processors *
	       ((unsigned)threads < THREADS ? 1 : (unsigned)threads / THREADS);
}

static int cuda_prepare(struct cuda_load *c, const char *pci, char *message, size_t size)
{
	cu_object module;
	cu_result code = c->init(0);
	int device;

	if (code)
		return cuda_failed(c, "cuInit", code, message, size);
	code = c->device_by_pci(&device, pci);
	if (code) {
		snprintf(message, size,
			 "CUDA does not see the GPU at %s; check CUDA_VISIBLE_DEVICES", pci);
		return -GW_E_NOSUPPORT;
	}
	code = c->context_new(&c->context, CU_SCHEDULE_BLOCKING, device);
	if (code) {
		c->context = NULL; /* the failed call may have written garbage */
		return cuda_failed(c, "cuCtxCreate", code, message, size);
	}
	code = c->module_load(&module, ptx);
	if (code)
		return cuda_failed(c, "cuModuleLoadData", code, message, size);
	code = c->module_function(&c->function, module, "spin");
	if (code)
		return cuda_failed(c, "cuModuleGetFunction", code, message, size);
	c->blocks = blocks_of(c, device);
	return 0;
}

int cuda_load_open(const char *pci, const struct clock *clock, struct cuda_load **ret,
		   char *message, size_t size)
{
	struct cuda_load *c = calloc(1, sizeof(*c));
	uint64_t begin_ns;
	int err;

	if (!c) {
		snprintf(message, size, "%s", gw_strerror(-GW_E_NOMEM));
		return -GW_E_NOMEM;
	}
	c->clock = clock;
	err = load_library(c, message, size);
	if (!err)
		err = cuda_prepare(c, pci, message, size);
	/* Launch once now, because the first launch takes long: the driver loads the kernel
	 * onto the GPU. */
	if (!err && (cuda_load_on(c, NS_PER_MS, &begin_ns) != 0 || cuda_load_idle(c) != 0)) {
		snprintf(message, size, "the CUDA load cannot be started on this GPU");
		err = -GW_E_IO;
	}
	if (err) {
		cuda_load_close(c);
		return err;
	}
	*ret = c;
	return 0;
}

void cuda_load_close(struct cuda_load *c)
{
	if (!c)
		return;
	if (c->context)
		c->context_free(c->context);
	/* Do not close the library: its own threads may still run in it. */
	free(c);
}

int cuda_load_on(struct cuda_load *c, uint64_t for_ns, uint64_t *ret_begin_ns)
{
	uint64_t nowhere = 0, before;
	void *parameters[] = { &for_ns, &nowhere };

	if (cuda_load_idle(c) != 0)
		return -GW_E_IO;
	before = clock_mono_ns(c->clock);
	if (c->launch(c->function, c->blocks, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL) !=
	    0)
		return -GW_E_IO;
	*ret_begin_ns = before + (clock_mono_ns(c->clock) - before) / 2;
	return 0;
}

int cuda_load_idle(struct cuda_load *c)
{
	return c->context_wait() == 0 ? 0 : -GW_E_IO;
}

static int drive_open(void *ctx, const char *pci, char *message, size_t size)
{
	struct cuda_drive *d = ctx;

	return cuda_load_open(pci, d->clock, &d->load, message, size);
}

static int drive_on(void *ctx, uint64_t until_ns, uint64_t *ret_begin_ns)
{
	struct cuda_drive *d = ctx;
	uint64_t now = clock_mono_ns(d->clock);

	*ret_begin_ns = now;
	return until_ns > now ? cuda_load_on(d->load, until_ns - now, ret_begin_ns) : 0;
}

static void drive_close(void *ctx)
{
	struct cuda_drive *d = ctx;

	cuda_load_close(d->load);
	d->load = NULL;
}

void cuda_drive_init(struct cuda_drive *d, const struct clock *clock)
{
	*d = (struct cuda_drive){ { drive_open, drive_on, drive_close, d }, clock, NULL };
}
