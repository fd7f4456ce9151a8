/* clang-format off: the commands must stay on one line */
/* A worker that leaves the GPU while another process needs it, and returns afterwards.
 *
 *     cc guarded.c $(pkg-config --cflags --libs gpuward) -o guarded && ./guarded 4096
 *
 * Arguments: MIB [SECONDS [FOLDER]]. Allocates MIB mebibytes on the first GPU, through the CUDA
 * driver, which it loads at run time. Uses the memory ten times per second, for SECONDS or until
 * Ctrl-C. To see an eviction, start another program that needs more memory than is free.
 *
 * FOLDER is for a simulated GPU: this program writes the number of bytes that it uses to a file
 * in FOLDER, and the simulated GPU reads this file. In the build tree the program is
 * build/examples/guarded. A package contains only the source: compile it as above, and use
 * ./guarded and the installed folder gpuward/sim instead of build/sim.
 *
 *     mkdir /tmp/held
 *     printf '[[gpu]]\nprofile = "rtx4090"\nfollow = "/tmp/held"\n' >/tmp/card.toml
 *     LD_LIBRARY_PATH=build/sim GPUWARD_SIM=/tmp/card.toml build/examples/guarded 8192 60 /tmp/held
 *
 * To simulate another process with memory on this GPU:
 *
 *     echo 12884901888 >/tmp/held/$(pidof firefox) */
/* clang-format on */
#define _POSIX_C_SOURCE 200809L
#include <gpuward-guard.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MIB    ((uint64_t)1 << 20)
#define SECOND UINT64_C(1000000000)

struct worker {
	uint64_t bytes;
	pthread_mutex_t lock; /* a step holds it, so evict() waits for the end of the step */
	int loaded;
	unsigned steps;
	const char *held; /* FOLDER, for a simulated GPU; NULL: use CUDA */
	/* Functions of the CUDA driver API, which has had them since 2010. */
	void *context;
	unsigned long long memory;
	int (*set_current)(void *context);
	int (*allocate)(unsigned long long *memory, size_t bytes);
	int (*release)(unsigned long long memory);
	int (*fill)(unsigned long long memory, unsigned char value, size_t bytes);
	int (*finish)(void);
};

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

/* ---- memory ---- */

static int open_cuda(struct worker *w)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned), (*retain)(void **, int);

	if (!cuda)
		return -1;
	*(void **)&init = dlsym(cuda, "cuInit");
	*(void **)&retain = dlsym(cuda, "cuDevicePrimaryCtxRetain");
	*(void **)&w->set_current = dlsym(cuda, "cuCtxSetCurrent");
	*(void **)&w->allocate = dlsym(cuda, "cuMemAlloc_v2");
	*(void **)&w->release = dlsym(cuda, "cuMemFree_v2");
	*(void **)&w->fill = dlsym(cuda, "cuMemsetD8_v2");
	*(void **)&w->finish = dlsym(cuda, "cuCtxSynchronize");
	if (!init || !retain || !w->set_current || !w->allocate || !w->release || !w->fill ||
	    !w->finish)
		return -1;
	return init(0) || retain(&w->context, 0) ? -1 : 0;
}

/* Writes how much memory the process uses to the file that the simulated GPU reads. The file is
 * written under another name and renamed, so that the GPU never reads half a number. */
static int write_held(const struct worker *w, uint64_t bytes)
{
	char path[512], part[520];
	FILE *f;

	snprintf(path, sizeof(path), "%.400s/%d", w->held, (int)getpid());
	if (bytes == 0)
		return unlink(path);
	snprintf(part, sizeof(part), "%.500s.new", path);
	f = fopen(part, "w");
	if (!f)
		return -1;
	fprintf(f, "%llu\n", (unsigned long long)bytes);
	return fclose(f) || rename(part, path) ? -1 : 0;
}

static int load(struct worker *w)
{
	int err = w->held ? write_held(w, w->bytes)
			  : w->set_current(w->context) || w->allocate(&w->memory, w->bytes);

	w->loaded = !err;
	return err ? -1 : 0;
}

static int unload(struct worker *w)
{
	int err = w->held ? write_held(w, 0)
			  : w->set_current(w->context) || w->release(w->memory);

	w->loaded = w->loaded && err;
	return err ? -1 : 0;
}

/* A placeholder for one request. */
static void step(struct worker *w)
{
	const struct timespec tenth = { .tv_nsec = 100000000 };

	if (!w->held)
		(void)(w->set_current(w->context) ||
		       w->fill(w->memory, (unsigned char)w->steps, w->bytes) || w->finish());
	w->steps++;
	nanosleep(&tenth, NULL);
}

/* ---- callbacks, on a thread of the guard ---- */

static int evict(void *arg, uint64_t bytes, uint64_t deadline_ns)
{
	struct worker *w = arg;
	int err = 0;

	(void)deadline_ns; /* not needed: a step holds the lock for a tenth of a second */
	pthread_mutex_lock(&w->lock);
	if (w->loaded)
		err = unload(w);
	pthread_mutex_unlock(&w->lock);
	printf("evict: %llu MiB, %s after %u steps\n", (unsigned long long)(bytes / MIB),
	       err ? "failed" : "freed", w->steps);
	return err ? -GW_E_IO : 0;
}

static int resume(void *arg, uint64_t deadline_ns)
{
	struct worker *w = arg;
	int err = 0;

	(void)deadline_ns;
	pthread_mutex_lock(&w->lock);
	if (!w->loaded)
		err = load(w);
	pthread_mutex_unlock(&w->lock);
	printf("resume: %s\n", err ? "no memory" : "loaded");
	return err ? -GW_E_NOMEM : 0;
}

static void decided(void *arg, const struct gw_guard_decision *d)
{
	(void)arg;
	printf("guard: %s\n", d->text);
}

/* ---- the worker ---- */

static void serve(struct worker *w, struct gw_guard *guard, double seconds)
{
	struct timespec t;
	double until;

	clock_gettime(CLOCK_MONOTONIC, &t);
	until = (double)t.tv_sec + (double)t.tv_nsec * 1e-9 + seconds;
	do {
		/* While the worker may run, this call is a single atomic read. */
		if (gw_guard_wait(guard, SECOND / 5) == 0) {
			pthread_mutex_lock(&w->lock);
			if (w->loaded) /* evict() may have run in between */
				step(w);
			pthread_mutex_unlock(&w->lock);
		}
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while (!stop &&
		 (seconds == 0 || (double)t.tv_sec + (double)t.tv_nsec * 1e-9 < until));
}

static int guarded(struct gw_ctx *ctx, struct worker *w, double seconds)
{
	struct gw_guard_options o = { .size = sizeof(o),
				      .name = "guarded",
				      .evict = evict,
				      .resume = resume,
				      .decided = decided,
				      .arg = w,
				      .quiet_ns = 5 * SECOND,
				      .flags = w->held ? GW_GUARD_SIMULATED : 0 };
	struct gw_guard *guard;
	int err = gw_guard_start(ctx, &o, &guard);

	if (err) {
		fprintf(stderr, "guarded: %s\n", gw_ctx_error(ctx));
		return err;
	}
	serve(w, guard, seconds);
	return gw_guard_stop(guard, 10 * SECOND);
}

int main(int argc, char **argv)
{
	struct worker w = { .bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1024) * MIB,
			    .held = argc > 3 ? argv[3] : NULL };
	struct gw_options o = { .size = sizeof(o), .deadline_ns = 2 * SECOND };
	struct gw_ctx *ctx;
	int err;

	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	pthread_mutex_init(&w.lock, NULL);
	if ((!w.held && open_cuda(&w)) || load(&w)) {
		fprintf(stderr,
			"guarded: CUDA is missing, the first GPU does not have %llu MiB free, "
			"or FOLDER cannot be written\n",
			(unsigned long long)(w.bytes / MIB));
		return 1;
	}
	err = gw_open(&o, &ctx);
	if (err) {
		fprintf(stderr, "guarded: %s\n", gw_ctx_error(NULL));
		return 1;
	}
	err = guarded(ctx, &w, argc > 2 ? atof(argv[2]) : 0);
	if (w.loaded)
		unload(&w);
	printf("%u steps\n", w.steps);
	if (err == 0) /* an error means that a callback or driver call still uses ctx */
		gw_close(ctx);
	return err ? 1 : 0;
}
