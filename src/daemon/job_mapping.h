/* job_mapping: reads the directory in which a batch system's prolog records the jobs of a GPU.
 *
 * The same directory that dcgm-exporter reads with --hpc-job-mapping-dir: a file per GPU, named
 * by its index ("0") or by GPU and MIG GPU instance ("0.7"), with one job id per line. A file is
 * read at most once per second, or again after inotify reported a change. Runs on one thread,
 * which waits for the open and the read of one regular file, at most 4 KiB; the caller makes sure
 * that the directory is on a local file system, where this is short. */
#ifndef GW_DAEMON_JOB_MAPPING_H
#define GW_DAEMON_JOB_MAPPING_H

#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>

struct job_mapping;

/* log: called when the directory cannot be read, and again only after it could be read
 * meanwhile. Returns NULL if out of memory. */
struct job_mapping *job_mapping_new(const char *folder, const struct clock *clock,
				    void (*log)(void *arg, const char *sentence), void *arg);
void job_mapping_free(struct job_mapping *m); /* NULL is allowed */

/* Writes the ids of the jobs on a GPU, joined by commas, each once. gpu_instance: of MIG, -1:
 * none; an instance without a file of its own has the jobs of its GPU. Ids that do not fit are
 * left out. Returns false if no job is recorded. */
bool job_mapping_find(struct job_mapping *m, unsigned gpu, int gpu_instance, char *out,
		      size_t size);

#endif
