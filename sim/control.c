/* gpuward_sim_*: the control functions for tests, and the creation of the first world. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"
#include "gpuward-sim.h"
#include "hide.h"
#include "scenario.h"

#include "base/file.h"
#include "base/suggest.h"

#define FILE_MAX (1u << 20)

/* gpuward-sim.h is for users of the library, so its declarations do not export the symbols. The
 * declarations below export them. */
extern __typeof__(gpuward_simulator) gpuward_simulator SIM_EXPORT;
extern __typeof__(gpuward_sim_load) gpuward_sim_load SIM_EXPORT;
extern __typeof__(gpuward_sim_load_text) gpuward_sim_load_text SIM_EXPORT;
extern __typeof__(gpuward_sim_scenarios) gpuward_sim_scenarios SIM_EXPORT;
extern __typeof__(gpuward_sim_describe) gpuward_sim_describe SIM_EXPORT;
extern __typeof__(gpuward_sim_now_ns) gpuward_sim_now_ns SIM_EXPORT;
extern __typeof__(gpuward_sim_wall_ns) gpuward_sim_wall_ns SIM_EXPORT;
extern __typeof__(gpuward_sim_stepped) gpuward_sim_stepped SIM_EXPORT;
extern __typeof__(gpuward_sim_step) gpuward_sim_step SIM_EXPORT;
extern __typeof__(gpuward_sim_calls) gpuward_sim_calls SIM_EXPORT;
extern __typeof__(gpuward_sim_fault) gpuward_sim_fault SIM_EXPORT;
extern __typeof__(gpuward_sim_hang) gpuward_sim_hang SIM_EXPORT;
extern __typeof__(gpuward_sim_unhang) gpuward_sim_unhang SIM_EXPORT;
extern __typeof__(gpuward_sim_true_watts) gpuward_sim_true_watts SIM_EXPORT;
extern __typeof__(gpuward_sim_true_joules) gpuward_sim_true_joules SIM_EXPORT;
extern __typeof__(gpuward_sim_process) gpuward_sim_process SIM_EXPORT;

const char gpuward_simulator[] = "gpuward-sim " GPUWARD_VERSION;

static void sim_lock(void)
{
	pthread_mutex_lock(&sim.lock);
}

static void sim_unlock(void)
{
	pthread_mutex_unlock(&sim.lock);
}

/* Replaces the world by w. Older handles become invalid, and clients must call nvmlInit
 * again. */
static void replace_world(struct world *w)
{
	struct world *old;
	bool gap;

	sim_lock();
	old = sim.world;
	sim.generation += 1 + (old != NULL ? world_boots(old, world_now_ns(old), &gap) : 0);
	sim.world = w;
	sim.error[0] = 0;
	memset(sim.calls, 0, sizeof(sim.calls));
	hide_symbols(w->missing, w->n_missing);
	pthread_cond_broadcast(&sim.moved);
	sim_unlock();
	world_free(old);
}

static int load_text(const char *name, const char *text, size_t n, char *error, size_t size)
{
	struct world *w = scenario_parse(name, text, n, error, size);

	if (w == NULL)
		return -1;
	replace_world(w);
	return 0;
}

int gpuward_sim_load_text(const char *name, const char *text, char *error, size_t size)
{
	return load_text(name, text, strlen(text), error, size);
}

static void fail_unknown(const char *path, char *error, size_t size)
{
	unsigned n = 0;
	const char *near;

	while (scenario_names[n] != NULL)
		n++;
	near = suggest(path, scenario_names, n, sizeof(scenario_names[0]));
	snprintf(error, size,
		 "%s: no such scenario: there is neither a built-in scenario nor a file with "
		 "this name%s%s%s",
		 path, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static int load_file(const char *path, char *error, size_t size)
{
	FILE *f = file_fopen(path);
	char *text = f != NULL ? malloc(FILE_MAX) : NULL;
	size_t n = 0;
	int code = -1;

	if (text != NULL)
		n = fread(text, 1, FILE_MAX, f);
	if (f == NULL && errno == ETIMEDOUT)
		snprintf(error, size, "%s: %s", path, file_strerror(errno));
	else if (text == NULL)
		fail_unknown(path, error, size);
	else if (ferror(f))
		snprintf(error, size, "%s: cannot be read: %s", path, strerror(errno));
	else if (n == FILE_MAX)
		snprintf(error, size, "%s: the file is larger than 1 MiB", path);
	else
		code = load_text(path, text, n, error, size);
	if (f != NULL)
		fclose(f);
	free(text);
	return code;
}

int gpuward_sim_load(const char *scenario, char *error, size_t size)
{
	size_t n;
	const char *text = scenario_text(scenario, &n);

	return text == NULL ? load_file(scenario, error, size)
			    : load_text(scenario, text, n, error, size);
}

const char *const *gpuward_sim_scenarios(void)
{
	return scenario_names;
}

const char *gpuward_sim_describe(const char *scenario)
{
	static _Thread_local char line[160];
	size_t n = 0, size;
	const char *text = scenario_text(scenario, &size);

	if (text == NULL)
		return NULL;
	while (*text == '#' || *text == ' ')
		text++;
	while (text[n] != 0 && text[n] != '\n' && n < sizeof(line) - 1)
		n++;
	memcpy(line, text, n);
	line[n] = 0;
	return line;
}

/* Makes a world without GPUs, in which init fails and nvmlErrorString() returns the reason. It
 * is used if a scenario cannot be read, because a library cannot refuse to be loaded. */
static void make_empty(const char *reason)
{
	struct world *w = world_new();

	if (w == NULL || world_start(w) != 0)
		abort();
	replace_world(w);
	snprintf(sim.error, sizeof(sim.error), "%s", reason);
}

__attribute__((constructor)) static void sim_begin(void)
{
	const char *scenario = getenv("GPUWARD_SIM"), *calls = getenv("GPUWARD_SIM_CALLS");
	pthread_condattr_t attributes;
	char error[300], reason[sizeof(sim.error)];

	pthread_condattr_init(&attributes);
	pthread_cond_init(&sim.moved, &attributes);
	pthread_condattr_destroy(&attributes);
	if (calls != NULL && calls[0] != 0)
		sim.calls_fd = open(calls, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (scenario == NULL || scenario[0] == 0)
		scenario = "demo";
	if (gpuward_sim_load(scenario, error, sizeof(error)) == 0)
		return;
	/* The library recognises the name of the variable in this message (nvml.c). */
	snprintf(reason, sizeof(reason), "GPUWARD_SIM: %s", error);
	fprintf(stderr, "gpuward-sim: %s%s\n", reason,
		strstr(error, "no such scenario") != NULL
			? "; gpuward list --simulate=help lists the built-in scenarios"
			: "");
	make_empty(reason);
}

__attribute__((destructor)) static void sim_end(void)
{
	static struct world nothing;
	struct world *old;

	/* When the program ends, other threads may still call the library. They then find a
	 * world without GPUs and without clients. */
	sim_lock();
	old = sim.world;
	sim.world = &nothing;
	sim.inits = 0;
	if (sim.calls_fd >= 0)
		close(sim.calls_fd);
	sim.calls_fd = -1;
	sim_unlock();
	world_free(old);
}

uint64_t gpuward_sim_now_ns(void)
{
	uint64_t now_ns;

	sim_lock();
	now_ns = world_now_ns(sim.world);
	sim_unlock();
	return now_ns;
}

uint64_t gpuward_sim_wall_ns(void)
{
	uint64_t wall_ns;

	sim_lock();
	wall_ns = world_wall_ns(sim.world, world_now_ns(sim.world));
	sim_unlock();
	return wall_ns;
}

void gpuward_sim_stepped(void)
{
	sim_lock();
	sim.world->stepped_ns = sim.world->begin_ns;
	sim.world->mode = TIME_STEPPED;
	pthread_cond_broadcast(&sim.moved);
	sim_unlock();
}

void gpuward_sim_step(uint64_t ns)
{
	sim_lock();
	sim.world->stepped_ns += ns;
	pthread_cond_broadcast(&sim.moved);
	sim_unlock();
}

uint64_t gpuward_sim_calls(const char *symbol)
{
	uint64_t n = 0;

	sim_lock();
	for (int i = 0; i < N_CALLS; i++)
		if (symbol == NULL || strcmp(symbol, call_symbols[i]) == 0)
			n += sim.calls[i];
	sim_unlock();
	return n;
}

static bool is_same_fault(const struct fault *f, int call, int device)
{
	return f->by_hand && f->call == call && f->device == device;
}

static void remove_faults(bool (*gone)(const struct fault *f, int call, int device), int call,
			  int device)
{
	struct world *w = sim.world;
	size_t kept = 0;

	for (size_t i = 0; i < w->n_faults; i++)
		if (!gone(&w->faults[i], call, device))
			w->faults[kept++] = w->faults[i];
	w->n_faults = kept;
}

static bool fault_hangs(const struct fault *f, int call, int device)
{
	(void)call, (void)device;
	return f->hang;
}

static void add_fault(const char *symbol, struct fault f)
{
	struct world *w;
	struct fault *grown;

	f.by_hand = true;
	f.call = symbol != NULL ? call_find(symbol) : -1;
	if (symbol != NULL && f.call < 0)
		return;
	sim_lock();
	w = sim.world;
	remove_faults(is_same_fault, f.call, f.device);
	if (f.hang || f.code != 0) {
		grown = reallocarray(w->faults, w->n_faults + 1, sizeof(*grown));
		if (grown != NULL) {
			/* The new fault is first, so that it overrides the faults of the
			 * scenario. */
			w->faults = grown;
			memmove(grown + 1, grown, w->n_faults * sizeof(*grown));
			grown[0] = f;
			w->n_faults++;
		}
	}
	pthread_cond_broadcast(&sim.moved);
	sim_unlock();
}

void gpuward_sim_fault(const char *symbol, int device, int code)
{
	add_fault(symbol, (struct fault){ .device = device, .has_code = true, .code = code });
}

void gpuward_sim_hang(const char *symbol, int device)
{
	add_fault(symbol, (struct fault){ .device = device, .hang = true });
}

void gpuward_sim_unhang(void)
{
	sim_lock();
	remove_faults(fault_hangs, 0, 0);
	sim.hang_round++;
	pthread_cond_broadcast(&sim.moved);
	sim_unlock();
}

/* Returns a device, advanced to the current time, or NULL. The lock is held in both cases. */
static struct device *current_device(unsigned index)
{
	struct device *d;

	sim_lock();
	if (index >= sim.world->n_devices)
		return NULL;
	d = &sim.world->devices[index];
	device_advance(sim.world, d, world_now_ns(sim.world));
	return d;
}

double gpuward_sim_true_watts(unsigned device)
{
	const struct device *d = current_device(device);
	double watts = d != NULL ? history_last(&d->history)->watts : 0;

	sim_unlock();
	return watts;
}

double gpuward_sim_true_joules(unsigned device)
{
	const struct device *d = current_device(device);
	double joules = d != NULL ? history_joules(&d->history, d->now_ns) : 0;

	sim_unlock();
	return joules;
}

int gpuward_sim_process(unsigned device, uint32_t pid, uint64_t bytes, int graphics)
{
	struct device *d = current_device(device);
	int result = d != NULL ? device_set_process(d, pid, bytes, graphics != 0) : -1;

	sim_unlock();
	return result;
}
