/* scene: who is on the GPUs at one moment, and how much room there is: all that the guard decides on.
 *
 * Plain data, made by whoever looked (guard/scene_builder.h) or read from a line of a recording: the same scenes
 * give the same decisions.  Sizes are fixed so that a storm of processes cannot grow it; what does
 * not fit is counted. */
#ifndef GW_GUARD_SCENE_H
#define GW_GUARD_SCENE_H

#include "policy.h"

struct buf;

#define SCENE_GPUS      64
#define SCENE_PROCESSES 1024
#define SCENE_ANCESTORS 12
#define SCENE_ROOTS     128

enum scene_health { SCENE_OK, SCENE_BLIND, SCENE_HUNG, SCENE_LOST, SCENE_ASLEEP };
const char *scene_health_name(enum scene_health h); /* "ok", "blind", ... */

struct scene_gpu {
	char uuid[96];
	char pci[16]; /* "0000:01:00.0"; "" unknown */
	unsigned index;
	int cuda; /* CUDA's number for it; -1: unknown, or GW_CUDA_NOT_VISIBLE */
	enum scene_health health;
	bool simulated, display;
	bool hidden; /* others may be there whom we cannot see (namespace) */
	uint64_t total_bytes, used_bytes, free_bytes; /* v2: the reserve is not in used    */
	bool memory_known;
	double temperature_c; /* NAN: unknown */
	double margin_c;      /* as the driver tells it, for looking at; NAN: unknown */
	unsigned errors;      /* readings in a row that failed */
};

struct scene_process {
	int64_t pid;
	uint64_t start_ticks; /* with pid the identity; 0: unknown */
	int64_t uid;          /* -1: unknown */
	unsigned gpu;         /* position in scene.gpu */
	unsigned type;        /* set of enum gw_process_type */
	uint64_t bytes;
	bool bytes_known;
	double sm_ratio; /* over the last seconds; NAN: not asked or not told */
	bool orphan;     /* the driver lists it, the kernel does not */
	bool self;       /* of our own tree or cgroup */
	bool veiled; /* its program is hidden from us, and so is who of its user a worker is */
	char name[16], exe[160], command[160], cgroup[160], container[64];
	int64_t ancestor[SCENE_ANCESTORS]; /* nearest first; 0 ends */
};

enum scene_how {
	ROOT_FOUND,  /* by its port, pidfile, unit or name */
	ROOT_KEPT,   /* it was below one that ended */
	ROOT_FORMER, /* it was found, lives, and is not found any more: it is no worker's now */
};

/* A process known to be a worker's, on a GPU or not. */
struct scene_root {
	unsigned worker; /* position in the policy */
	enum scene_how how;
	int64_t pid;
	uint64_t start_ticks;
	uint64_t
		print; /* of a found one: process_cache_fingerprint(), for whoever acts; 0: unknown.  Not recorded */
};

struct scene {
	uint64_t mono_ns, wall_ns;
	int utc_offset_s; /* of local time, then */
	bool on_battery;
	uint64_t host_free_bytes;
	struct scene_gpu gpu[SCENE_GPUS];
	unsigned gpus;
	struct scene_process process[SCENE_PROCESSES];
	unsigned processes;
	unsigned left_out; /* that did not fit */
	struct scene_root root[SCENE_ROOTS];
	unsigned roots;
	unsigned game_clients; /* of GameMode; 0 also where it is not asked */
	bool reading;          /* of scene_read(): its last line is still to come */
	bool whole;            /* likewise, and of scene_write_change(): changes may follow */
};

/* Does the selector name this GPU?  The rules are those of gw_device_matches(). */
bool scene_gpu_matches(const struct scene_gpu *g, const char *selector);

static inline bool scene_root_of(const struct scene_root *r, unsigned worker)
{
	return r->worker == worker && r->how != ROOT_FORMER;
}

/* Is process p the one of this root? */
static inline bool scene_is(const struct scene_process *p, const struct scene_root *r)
{
	return p->pid == r->pid &&
	       (p->start_ticks == r->start_ticks || !p->start_ticks || !r->start_ticks);
}

/* As lines of words parted by tabs (base/tsv.h): a scene, its GPUs, processes and roots,
 * and a line that ends it.  Numbers read back to the same bits (of NAN there is one: unknown), texts have
 * their tabs and line breaks escaped. */
#define SCENE_LINE_MAX 4096
void scene_write(struct buf *out, const struct scene *s);

/* Writes what is other than in last as one line, which is short: most looks are as the one before but for the time.
 * All of it where last->whole is not set, others are there, or too much changed for a line.  last becomes s; zeroed by
 * the caller before the first. */
void scene_write_change(struct buf *out, const struct scene *s, struct scene *last);

/* Takes the next line without its newline; ret is zeroed by the caller before the first, and is left as it is between
 * scenes: a line of changes is about the one before.  1: the scene is whole; 0: more is to come; -GW_E_PARSE, and then
 * lines are refused until one begins a scene. */
int scene_read(struct scene *ret, const char *line);

#endif
