/* Data that two files share. scene_builder.c builds a scene and reads the machine.
 * scene_builder_rows.c reads what drivers report and finds the processes. No other file
 * includes this header. */
#ifndef GW_GUARD_SCENE_BUILDER_INTERNAL_H
#define GW_GUARD_SCENE_BUILDER_INTERNAL_H

#include "scene_builder.h"

#include "device_node_watch.h"
#include "worker_finder.h"
#include "process_cache.h"

#include "device/process_list.h"
#include "device/context.h"

struct row {                /* one entry of a driver's process lists */
	unsigned gpu;       /* position in scene.gpu */
	int64_t listed_pid; /* pid as the driver lists it: a process or one of its threads */
	int instance;       /* GPU instance (MIG); -1: the whole GPU */
	unsigned type;      /* set of enum gw_process_type */
	uint64_t bytes;
	bool bytes_known;
	double sm_ratio; /* utilisation; NAN: unknown */
	char name[32];   /* name of a simulated process */
};

/* Where the utilisation in a scene comes from: it is not read, it is read from the driver, or
 * last_use is used. */
enum use_source { USE_NONE, USE_DRIVER, USE_LAST };

/* Facts about this process, which builds the scenes. */
struct scene_builder_own {
	int64_t pid; /* 0: unknown */
	/* control group of this process; "" if other programs are in it too */
	char cgroup[sizeof(((struct proc *)0)->cgroup)];
	bool hidden; /* other processes may be invisible, because of a namespace or WSL */
};

/* Data that is needed to build a scene and is not part of the scene. */
struct scene_builder_draft {
	struct row row[SCENE_PROCESSES];
	unsigned rows;
	unsigned left_out;                              /* number of rows that did not fit */
	struct cached_process *cached[SCENE_PROCESSES]; /* NULL: the process is not cached */
	int instance[SCENE_PROCESSES];  /* row.instance of each process of the scene */
	bool memory_failed[SCENE_GPUS]; /* the memory of the GPU could not be read */
	bool several_rows; /* a process may have several rows: threads, or instances of a GPU */
	/* something differs from the last full scene, so a full scene is needed */
	bool changed;
	enum use_source use_from;
};

/* The last full scene. */
struct scene_builder_full {
	uint64_t mono_ns;    /* time of the last full scene; 0: the next scene must be full */
	unsigned generation; /* version number of the context's list of GPUs */
	bool foreign_pids;   /* the driver lists pids of another namespace */
	struct scene_gpu gpu[SCENE_GPUS];
	unsigned gpus;
	int utc_offset_s;
	uint64_t host_free_bytes;
	bool on_battery;
};

/* The utilisation that the driver last reported. */
struct scene_builder_use {
	struct {
		unsigned gpu;
		int64_t listed_pid;
		double sm_ratio;
	} of[SCENE_PROCESSES];
	unsigned count;
	uint64_t mono_ns; /* when the driver reported the utilisation */
};

/* Counts since the start. */
struct scene_builder_totals {
	uint64_t scenes, vanished, left_out; /* as in struct scene_builder_stats */
};

struct scene_builder {
	struct gw_ctx *ctx;
	const struct policy *policy;
	struct classifier *classifier;
	struct worker_finder *finder;
	struct gw_snapshot *snap;
	struct process_cache *cache;
	struct pidfd_set pidfds;
	struct device_node_watch watch;
	struct scene_builder_own own;
	struct scene *scene; /* the scene that is being built */
	struct scene_builder_draft draft;
	struct scene_builder_full full;

	/* The members below stay from scene to scene. */
	unsigned errors[SCENE_GPUS]; /* failed readings in a row, per GPU */
	bool device_opened;          /* a device was opened since the last scene */
	uint64_t battery_read_ns;
	struct scene_builder_use last_use;
	struct scene_builder_totals total;
};

/* Fills b->full.gpu from the snapshot. */
void scene_builder_gpus(struct scene_builder *b);
/* Callbacks of gpu_usage_read(): add the rows of one GPU to a full or a light scene.
 * As soon as anything differs from the last full scene, scene_builder_add_light() sets
 * b->draft.changed and adds nothing more. */
void scene_builder_add_full(void *arg, const struct gpu_usage *u);
void scene_builder_add_light(void *arg, const struct gpu_usage *u);
void scene_builder_keep_use(struct scene_builder *b);
/* True if the driver lists pids of the host although the calling process is in a namespace. In
 * the namespace, such a pid names no process, or the wrong process. */
bool scene_builder_lists_foreign_pids(const struct scene_builder *b);
/* Makes processes from the rows, and then marks the processes of this program. */
void scene_builder_add_processes(struct scene_builder *b);
void scene_builder_mark_own(struct scene_builder *b);

#endif
