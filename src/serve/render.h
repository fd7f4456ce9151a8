/* render: the JSON documents of the command line, the service and files.
 *
 * Every document begins with schema_version and time_utc. An unknown value is null, and its
 * reason is in the "absent" object next to it, under the same key; a value that was not
 * requested is omitted. Adding a key keeps schema_version; changing or removing one increases
 * it. */
#ifndef GW_SERVE_RENDER_H
#define GW_SERVE_RENDER_H

#include "base/json.h"

#include <gpuward.h>

#define RENDER_SCHEMA_VERSION 1

/* The devices to show; NULL: all. */
struct render_filter {
	bool selected[256];
};

bool render_shows(const struct render_filter *filter, unsigned device);

/* The begin of every document (its object stays open), and the object "source". */
void render_head(struct json *j, const struct gw_snapshot *snap);
/* The begin of a stored document: its kind, tool and time. version NULL: this program. */
void render_kept_head(struct json *j, const char *kind, const char *version, uint64_t wall_ns,
		      bool simulated);
void render_source(struct json *j, const struct gw_snapshot *snap);

/* A GPU; its object stays open. */
void render_device(struct json *j, const struct gw_device *d);
/* The keys "processes" and "processes_absent". */
void render_processes(struct json *j, const struct gw_process_list *list,
		      const struct gw_snapshot *snap, const struct render_filter *filter);

/* A value of a GPU under its key; absent: null. */
void render_figure(struct json *j, const struct gw_device *d, unsigned quantity);

/* Each writes one whole document. */
void render_list(struct json *j, const struct gw_snapshot *snap,
		 const struct render_filter *filter);
void render_snapshot(struct json *j, const struct gw_snapshot *snap,
		     const struct gw_process_list *processes,
		     const struct render_filter *filter);
void render_environment(struct json *j, const struct gw_environment *env,
			const struct gw_snapshot *snap, const struct render_filter *filter);
/* A privilege that a part of the guard needs. */
struct render_privilege {
	const char *key, *feature, *remedy; /* remedy: if it is missing */
	bool have;
	char message[500];
};

/* n 0: privileges were not checked. */
void render_diagnosis(struct json *j, const struct gw_diagnosis *diagnosis,
		      const struct gw_snapshot *snap, const struct render_privilege *p,
		      unsigned n);

#endif
