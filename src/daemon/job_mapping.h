/* job_mapping: reads the directory in which a batch system's prolog records the jobs of a
 * GPU.
 *
 * dcgm-exporter reads the same directory with --hpc-job-mapping-dir. The directory has one file
 * per GPU, named by the index of the GPU ("0") or by GPU and MIG GPU instance ("0.7"), with one
 * job id per line. A file is read at most once per second, or earlier if inotify reports a
 * change. Only one thread may use a job_mapping. A call blocks while it reads one regular file
 * of at most 4 KiB, so the caller makes sure that the directory is on a local file system. */
#ifndef GW_DAEMON_JOB_MAPPING_H
#define GW_DAEMON_JOB_MAPPING_H

#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>

struct job_mapping;

/* log is called once each time the directory becomes unreadable. Returns NULL if out of
 * memory. */
struct job_mapping *job_mapping_new(const char *folder, const struct clock *clock,
				    void (*log)(void *arg, const char *sentence), void *arg);
void job_mapping_free(struct job_mapping *m); /* m may be NULL. */

/* Writes the ids of the jobs on a GPU, joined by commas. Each id is written once. gpu_instance
 * is the MIG GPU instance, or -1 if there is none. If an instance has no file, its jobs are
 * those of its GPU. Ids that do not fit are left out. Returns false if no job is recorded. */
bool job_mapping_find(struct job_mapping *m, unsigned gpu, int gpu_instance, char *out,
		      size_t size);

#endif
