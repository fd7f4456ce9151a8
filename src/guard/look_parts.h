/* What the files of a look share; nobody else includes this.
 *
 *   look.c           a look from its beginning to its end; the machine; ourselves
 *   look_list.c      what drivers tell: GPUs, and the lists of who is on them
 *   look_process.c   whose each line of these lists is
 *   look_worker.c    where workers are (look_worker.h); look_watch.c: who opens a GPU (look_watch.h)
 */
#ifndef GW_GUARD_LOOK_PARTS_H
#define GW_GUARD_LOOK_PARTS_H

#include "look.h"

#include "look_watch.h"
#include "look_worker.h"
#include "who.h"

#include "device/census.h"
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

struct look {
	struct gw_ctx *ctx;
	const struct policy *policy;
	struct classifier *classifier;
	struct finder *finder;
	struct gw_snapshot *snap;
	struct who_table *who;
	struct alive alive;
	struct nodes watch;
	int64_t self;            /* 0: unknown */
	char cgroup[256];        /* ours, where it is ours alone; else "" */
	bool hidden;             /* a namespace, or WSL: others are invisible */
	bool failed[SCENE_GPUS]; /* of this look: memory could not be read */
	bool threads;            /* of this look: a number was a thread's or an instance's */
	unsigned errors[SCENE_GPUS];
	struct row row[SCENE_PROCESSES];
	struct who *of[SCENE_PROCESSES]; /* of each process of the scene; NULL: nobody's */
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

/* look_list.c */
void look_gpus(struct look *l);                         /* of the snapshot */
void look_take_list(void *arg, const struct census *c); /* of a whole look */
void look_take_light(
	void *arg, const struct census *c); /* of a light one: nothing where anything is new */
void look_keep_uses(struct look *l);
/* In a namespace, numbers of the host mean nothing, and may be somebody else's here. */
bool look_tells_foreign(const struct look *l);

/* look_process.c */
void look_name_rows(struct look *l);
void look_mark_ours(struct look *l);

#endif
