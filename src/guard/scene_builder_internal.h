/* Data that scene_builder.c (builds a scene, reads the machine) and scene_builder_rows.c (what
 * drivers report, and the processes behind it) share. No other file includes this header. */
#ifndef GW_GUARD_SCENE_BUILDER_INTERNAL_H
#define GW_GUARD_SCENE_BUILDER_INTERNAL_H

#include "scene_builder.h"

#include "device_node_watch.h"
#include "worker_finder.h"
#include "process_cache.h"

#include "device/process_list.h"
#include "device/context.h"

struct row { /* one line of a driver's process lists */
	unsigned gpu;
	int64_t listed_pid;
	int instance;
	unsigned type;
	uint64_t bytes;
	bool bytes_known;
	double sm_ratio;
	char name[32]; /* name of a simulated process */
};

/* Where the utilisation of a scene comes from. */
enum use_source { USE_NONE, USE_DRIVER, USE_LAST };

struct scene_builder {
	struct gw_ctx *ctx;
	const struct policy *policy;
	struct classifier *classifier;
	struct worker_finder *finder;
	struct gw_snapshot *snap;
	struct process_cache *cache;
	struct pidfd_set pidfds;
	struct device_node_watch watch;
	/* This process. */
	int64_t self;         /* 0: unknown */
	char own_cgroup[256]; /* "" if other programs are in it too */
	bool hidden;          /* this process is in a namespace or WSL: others are invisible */

	/* The scene that is being built. */
	struct scene *scene;
	struct row row[SCENE_PROCESSES];
	unsigned rows, left_out;
	struct cached_process *cached[SCENE_PROCESSES]; /* NULL: the process is not cached */
	int instance[SCENE_PROCESSES];
	bool memory_failed[SCENE_GPUS];
	bool several_rows; /* a process may have several rows: threads, or instances of a GPU */
	bool changed;      /* something is new: a full scene is needed */
	enum use_source use_from;

	/* From the last full scene. */
	uint64_t full_ns; /* 0: the next scene must be full */
	unsigned generation;
	bool foreign_pids; /* the driver lists pids of another namespace */
	struct scene_gpu gpu[SCENE_GPUS];
	unsigned gpus;
	int utc_offset_s;
	uint64_t host_free_bytes;
	bool on_battery;

	/* Kept from scene to scene. */
	unsigned errors[SCENE_GPUS];
	bool device_opened; /* a device was opened since the last scene */
	uint64_t battery_read_ns;
	struct {
		unsigned gpu;
		int64_t listed_pid;
		double sm_ratio;
	} use[SCENE_PROCESSES]; /* utilisation, as the driver last reported it */
	unsigned uses;
	uint64_t use_ns;
	uint64_t scenes, vanished, all_left_out;
};

/* Fills b->gpu from the snapshot. */
void scene_builder_gpus(struct scene_builder *b);
/* Callbacks of gpu_usage_read(): add the rows of one GPU to a full or a light scene.
 * scene_builder_add_light() sets b->changed and adds nothing more as soon as anything differs
 * from the last full scene. */
void scene_builder_add_full(void *arg, const struct gpu_usage *u);
void scene_builder_add_light(void *arg, const struct gpu_usage *u);
void scene_builder_keep_use(struct scene_builder *b);
/* True if the driver lists pids of the host while this process is in a namespace. Such pids
 * mean nothing here, or belong to other processes. */
bool scene_builder_lists_foreign_pids(const struct scene_builder *b);
/* Makes processes from the rows, and then marks the processes of this program. */
void scene_builder_add_processes(struct scene_builder *b);
void scene_builder_mark_own(struct scene_builder *b);

#endif
