/* What the files of a look share; nobody else includes this.
 *
 *   scene_builder.c           a look from its beginning to its end; the machine; ourselves
 *   scene_builder_list.c      what drivers tell: GPUs, and the lists of who is on them
 *   scene_builder_process.c   whose each line of these lists is
 *   worker_finder.c    where workers are (worker_finder.h); device_node_watch.c: who opens a GPU (device_node_watch.h)
 */
#ifndef GW_GUARD_SCENE_BUILDER_PARTS_H
#define GW_GUARD_SCENE_BUILDER_PARTS_H

#include "scene_builder.h"

#include "device_node_watch.h"
#include "worker_finder.h"
#include "process_cache.h"

#include "device/gpu_usage.h"
#include "device/context.h"

struct row { /* one line of the driver's lists */
	unsigned gpu;
	int64_t listed;
	int instance;
	unsigned type;
	uint64_t bytes;
	bool bytes_known;
	double sm_ratio;
	char name[32]; /* of a simulated process */
};

struct scene_builder {
	struct gw_ctx *ctx;
	const struct policy *policy;
	struct classifier *classifier;
	struct worker_finder *finder;
	struct gw_snapshot *snap;
	struct who_table *who;
	struct pidfd_set alive;
	struct device_node_watch watch;
	int64_t self;            /* 0: unknown */
	char cgroup[256];        /* ours, where it is ours alone; else "" */
	bool hidden;             /* a namespace, or WSL: others are invisible */
	bool failed[SCENE_GPUS]; /* of this look: memory could not be read */
	bool threads;            /* of this look: a number was a thread's or an instance's */
	unsigned errors[SCENE_GPUS];
	struct row row[SCENE_PROCESSES];
	struct process_cache
		*of[SCENE_PROCESSES]; /* of each process of the scene; NULL: nobody's */
	int instance[SCENE_PROCESSES];
	unsigned rows, left_out;
	struct scene *scene; /* under way */
	/* How busy each was when that was last asked. */
	struct {
		unsigned gpu;
		int64_t listed;
		double sm_ratio;
	} use[SCENE_PROCESSES];
	unsigned uses;
	uint64_t use_ns;
	bool ask_use, reuse; /* of this look: ask, or say what was said last */
	/* As of the last whole look. */
	uint64_t whole_ns; /* 0: there was none, or something is not as it was */
	unsigned generation;
	bool odd;    /* of this look: a light one is not enough */
	bool afresh; /* somebody opened a GPU since the last look */
	bool foreign;
	struct scene_gpu gpu[SCENE_GPUS];
	unsigned gpus;
	int utc_offset_s;
	uint64_t host_free_bytes;
	uint64_t power_ns;
	bool on_battery;
	uint64_t looks, vanished, all_left_out;
};

/* scene_builder_list.c */
void scene_builder_gpus(struct scene_builder *l);                   /* of the snapshot */
void scene_builder_take_list(void *arg, const struct gpu_usage *c); /* of a whole look */
void scene_builder_take_light(
	void *arg,
	const struct gpu_usage *c); /* of a light one: nothing where anything is new */
void scene_builder_keep_uses(struct scene_builder *l);
/* In a namespace, numbers of the host mean nothing, and may be somebody else's here. */
bool scene_builder_tells_foreign(const struct scene_builder *l);

/* scene_builder_process.c */
void scene_builder_name_rows(struct scene_builder *l);
void scene_builder_mark_ours(struct scene_builder *l);

#endif
