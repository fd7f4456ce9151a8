/* render: one JSON for the command line, the service and files.
 *
 * Every document begins with schema_version and time_utc.  A figure that is not known is null
 * where it would stand, and its reason is in the "absent" object beside it, under the same
 * key; one that nobody asked for is left out.  Adding a key keeps schema_version; changing or removing one raises it. */
#ifndef GW_SERVE_RENDER_H
#define GW_SERVE_RENDER_H

#include "base/json.h"

#include <gpuward.h>

#define RENDER_SCHEMA_VERSION 1

/* Which devices to show; NULL: all. */
struct render_filter {
	bool selected[256];
};

bool render_shows(const struct render_filter *filter, unsigned device);

/* What every document begins with (its object stays open), and the object "source". */
void render_head(struct json *j, const struct gw_snapshot *snap);
/* Likewise of one that is kept: what it is of, and by what and when it was made.  version NULL: by this program. */
void render_kept_head(struct json *j, const char *kind, const char *version, uint64_t wall_ns,
		      bool simulated);
void render_source(struct json *j, const struct gw_snapshot *snap);

/* A GPU; its object stays open. */
void render_device(struct json *j, const struct gw_device *d);
/* The keys "processes" and "processes_absent". */
void render_processes(struct json *j, const struct gw_process_list *list,
		      const struct gw_snapshot *snap, const struct render_filter *filter);

/* A figure of a GPU under its key; null when it is absent. */
void render_figure(struct json *j, const struct gw_device *d, unsigned quantity);

/* Each writes one whole document. */
void render_list(struct json *j, const struct gw_snapshot *snap,
		 const struct render_filter *filter);
void render_snapshot(struct json *j, const struct gw_snapshot *snap,
		     const struct gw_process_list *processes,
		     const struct render_filter *filter);
void render_environment(struct json *j, const struct gw_environment *env,
			const struct gw_snapshot *snap, const struct render_filter *filter);
/* A right that a part of the guard needs. */
struct render_privilege {
	const char *key, *feature, *remedy; /* remedy: where it is missing */
	bool have;
	char message[500];
};

/* n 0: nobody looked at privileges. */
void render_diagnosis(struct json *j, const struct gw_diagnosis *diagnosis,
		      const struct gw_snapshot *snap, const struct render_privilege *p,
		      unsigned n);

#endif
