/* scene: the GPUs, the processes on them and the workers' root processes at one moment.
 *
 * A scene is the only observation from which the guard decides, so the same scenes give the
 * same decisions. A scene is plain data from guard/scene_builder.h or from a recording. All
 * sizes are fixed; processes that do not fit are counted. */
#ifndef GW_GUARD_SCENE_H
#define GW_GUARD_SCENE_H

#include "policy.h"

#include "base/proc_id.h"

struct buf;

#define SCENE_GPUS      64
#define SCENE_PROCESSES 1024
#define SCENE_ANCESTORS 12
#define SCENE_ROOTS     128
/* after more than this many failed readings in a row, a GPU is blind */
#define SCENE_BLIND_ERRORS 10
#define SCENE_NAME_BYTES   15 /* longest name of a process (comm) in the kernel */

enum scene_health {
	SCENE_OK,
	SCENE_BLIND, /* more than SCENE_BLIND_ERRORS readings in a row failed */
	SCENE_HUNG,  /* a driver call has not returned */
	SCENE_LOST,  /* the driver reports that the GPU is gone */
	/* the kernel suspended the GPU; it is not read, because a reading would wake it */
	SCENE_ASLEEP,
};
const char *scene_health_name(enum scene_health h); /* "ok", "blind", ... */

struct scene_gpu {
	char uuid[96];
	char pci[16];   /* PCI address, such as "0000:01:00.0"; "": unknown */
	unsigned index; /* the driver's number of the GPU */
	int cuda;       /* CUDA's number of the GPU; -1: unknown; or GW_CUDA_NOT_VISIBLE */
	enum scene_health health;
	bool simulated;
	bool display;      /* a display is active on the GPU */
	bool hidden;       /* the GPU may have processes that are not visible (pid namespace) */
	bool memory_known; /* total_bytes, free_bytes and used_bytes are set */
	uint64_t total_bytes, free_bytes;
	uint64_t used_bytes;  /* used memory, without the memory that the driver reserves */
	double temperature_c; /* NAN: unknown */
	/* degrees below the temperature limit, only to show to people; NAN: unknown */
	double margin_c;
	unsigned errors; /* failed readings in a row */
};

/* Whether scene_process.patterns holds the results of classifier_match_command(). */
enum scene_command_match {
	COMMAND_UNMATCHED, /* no results: the classification compares the command line itself */
	COMMAND_MATCHED,
	/* no results, because the policy is new: no pattern matches until the next scene */
	COMMAND_PENDING,
};

struct scene_process {
	struct proc_id id;
	int64_t uid;   /* -1: unknown */
	unsigned gpu;  /* position in scene.gpu */
	unsigned type; /* set of enum gw_process_type */
	uint64_t bytes;
	bool bytes_known;
	/* utilisation over the last three seconds; NAN: not requested or not reported */
	double sm_ratio;
	bool orphan; /* the driver lists the process, but the kernel does not */
	bool self;   /* the process belongs to the process tree or cgroup of this program */
	/* the path of the program cannot be read, so the process may be a worker that was not
	 * found */
	bool veiled;
	char name[SCENE_NAME_BYTES + 1]; /* the kernel's name (comm) */
	char exe[160];                   /* path of the program; "": unknown */
	char command[160];  /* the arguments, joined with blanks and cut; "": unknown */
	char cgroup[160];   /* path of the control group; "": unknown */
	char container[64]; /* id of the container; "": none */
	int64_t ancestor[SCENE_ANCESTORS]; /* nearest first; 0 ends the list */
	/* The members below are not recorded. */
	enum scene_command_match command_match;
	/* patterns that match the command line: one bit per rule, then one per worker */
	uint64_t patterns[2];
};

/* A process that is registered as a game. */
struct scene_game {
	int64_t pid;                     /* 0: unknown */
	char name[SCENE_NAME_BYTES + 1]; /* the kernel's name (comm); "": unknown */
};

/* Why a process is a root. */
enum scene_how {
	ROOT_FOUND, /* the match of the worker finds it */
	ROOT_KEPT,  /* a descendant of a root that ended */
	/* was a root of this worker; it still runs, but the worker's match no longer finds
	 * it */
	ROOT_FORMER,
};

/* A process that belongs to a worker, or belonged to it before. It need not be on a GPU. */
struct scene_root {
	unsigned worker; /* position of the worker in the policy */
	enum scene_how how;
	struct proc_id id;
	/* For ROOT_FOUND: process_cache_fingerprint() when the process was found; 0: unknown.
	 * It is compared again before an order is carried out. It is not recorded. */
	uint64_t print;
};

struct scene {
	uint64_t mono_ns, wall_ns;
	int utc_offset_s; /* local time minus UTC when the scene was taken */
	bool on_battery;
	uint64_t host_free_bytes; /* memory of the machine that programs can use; 0: unknown */
	struct scene_gpu gpu[SCENE_GPUS];
	unsigned gpus;
	struct scene_process process[SCENE_PROCESSES];
	unsigned processes;
	unsigned left_out; /* number of processes that did not fit into process[] */
	struct scene_root root[SCENE_ROOTS];
	unsigned roots;
	unsigned game_clients; /* number of registered games */
	/* the game that was registered last. The guard sets it, so it is not recorded with the
	 * scene. */
	struct scene_game game;
	bool reading; /* scene_read() has not read the last line of the scene yet */
	/* The scene is complete: scene_read() accepts a line of changes, and
	 * scene_write_change() writes one. */
	bool whole;
};

/* Copies the observation, but only the used part of each array, because a scene is large, and
 * scenes are frequent. Does not change to->reading and to->whole. */
void scene_copy(struct scene *to, const struct scene *s);

/* True if the selector names this GPU. The rules are those of gw_device_matches(). */
bool scene_gpu_matches(const struct scene_gpu *g, const char *selector);

/* True if r is a root of this worker and not a former root. */
static inline bool scene_root_of(const struct scene_root *r, unsigned worker)
{
	return r->worker == worker && r->how != ROOT_FORMER;
}

/* True if p is the process of this root. A start time of 0 is unknown and fits any start
 * time. */
static inline bool scene_is(const struct scene_process *p, const struct scene_root *r)
{
	const uint64_t a = p->id.start_ticks, b = r->id.start_ticks;

	return p->id.pid == r->id.pid && (a == b || !a || !b);
}

/* Returns how many generations p is below the process with this pid; 0: p is that process;
 * SCENE_FAR: p is not below it. */
#define SCENE_FAR (SCENE_ANCESTORS + 1u)
static inline unsigned scene_generations(const struct scene_process *p, int64_t pid)
{
	if (p->id.pid == pid)
		return 0;
	for (unsigned i = 0; i < SCENE_ANCESTORS && p->ancestor[i]; i++)
		if (p->ancestor[i] == pid)
			return i + 1;
	return SCENE_FAR;
}

/* Writes the scene as lines of fields separated by tabs (base/number.h): a head, one line per
 * GPU, process and root, and an end line. Numbers read back to the same bits; every NAN becomes
 * the same NAN. Tabs and line breaks in strings are escaped. */
#define SCENE_LINE_MAX 4096
void scene_write(struct buf *out, const struct scene *s);

/* Writes how s differs from last, as one line, and then copies s to last. Most lines are short,
 * because most scenes differ from the one before only in their time. Writes the whole scene if
 * last->whole is not set, if there are more or fewer GPUs, processes or roots, or if the
 * changes do not fit on one line. The caller zeroes last before the first call. */
void scene_write_change(struct buf *out, const struct scene *s, struct scene *last);

/* Reads the next line, without its newline. The caller zeroes ret before the first line and
 * does not change it between scenes, because a line of changes refers to the previous scene.
 * Returns 1 if the scene is complete, 0 if more lines follow, or -GW_E_PARSE; after an error
 * every line is refused until a line begins a new scene. */
int scene_read(struct scene *ret, const char *line);

#endif
