/* windows_impl: what the files of the windows share; nobody else includes it.
 *
 *   windows.c      their life: opening, cutting, ending, forgetting
 *   windows_keep.c what outlives us, and what is told when one begins or ends
 *   windows_doc.c  what is told of them: sums over GPUs and documents */
#ifndef GW_SERVE_WINDOWS_IMPL_H
#define GW_SERVE_WINDOWS_IMPL_H

#include "windows.h"

#include "measure/sensor.h"

enum windows_state { WINDOWS_IS_OPEN, WINDOWS_IS_ENDING, WINDOWS_HAS_ENDED };

struct windows_device {  /* a GPU that is measured, as it was called then */
	unsigned number; /* in the meter */
	unsigned index;
	char uuid[96], name[96], driver[96];
	enum gw_provenance provenance;
	double power_limit_w; /* as it began; NAN: unknown */
	struct sensor sensor; /* as it began, and as it ended once it has */
};

struct windows_part {
	struct windows_part *next;
	char label[WINDOWS_LABEL];
	bool labelled; /* false: what was before the first mark */
	uint64_t begin_ns, end_ns;
	struct gw_window *window; /* NULL: worked out */
	struct buf devices;       /* the array, once it is */
};

/* Over the devices, as a run adds them up.  NAN: unknown, as one of them is. */
struct windows_sum {
	struct gw_interval joules, relative;
	double power_w;
	uint64_t codes;
	enum gw_validity validity;
};

struct windows_entry {
	struct windows_entry *next;
	char id[20], label[WINDOWS_LABEL];
	char key[65], request[65]; /* hashes; "": none */
	enum windows_state state;
	const char *ended_by; /* "request", "limit", "lease", "meter", "crash"; NULL: open */
	uint64_t begin_ns, begin_wall_ns, end_ns, limit_ns, give_up_ns;
	uint64_t lease_ns, asked_ns; /* 0: no lease; somebody asked for it last */
	bool simulated;
	char *tags; /* JSON */
	struct windows_device *device;
	unsigned devices;
	unsigned marks;

	/* Of one that has not ended: on the meter. */
	struct gw_window *window;
	struct windows_part *parts, *last;

	/* Of one that has. */
	struct windows_sum sum;
	char *document; /* with it nothing above but id and hashes is looked at; NULL: no memory */
	size_t head_bytes; /* of the document, before its parts; 0: it has none of that */
	bool cut;          /* it has parts */
};

struct windows {
	struct windows_entry *first; /* the latest first */
	struct gw_meter *meter;      /* that the open ones live on */
	unsigned parts;
	bool loaded; /* what was kept was read */
	struct stream *stream;
};

/* ---- windows_doc.c ---- */

/* Joules and the rest over its devices, as the meter has them now. */
void windows_sum_up(const struct windows_entry *e, struct windows_sum *ret);

/* Works a part out once and for all, and lets its window on the meter go. */
void windows_settle_part(const struct windows_entry *e, struct windows_part *p);

/* Makes the document of one that has ended.  0, or what the buf says went wrong. */
int windows_make_document(struct windows_entry *e);
/* Takes over a document. */
void windows_set_document(struct windows_entry *e, char *document);

/* What is to be told of one that is open should we never come to its end, as JSON. */
void windows_crash_json(struct json *j, const struct windows_entry *e);

double windows_seconds(uint64_t from_ns, uint64_t to_ns);

/* ---- windows_keep.c ---- */

/* Of one that has ended the document, of an open one that it began.  0, or why not. */
int windows_keep(const struct view *v, const struct windows_entry *e);
void windows_unkeep(const struct view *v, const struct windows_entry *e);

/* Tells that it began, or how it ended and whether it is kept. */
void windows_announce(struct windows *w, const struct view *v, const struct windows_entry *e,
		      bool kept);

/* Once: what was kept, and those that were open when we were killed, which is told. */
void windows_load(struct windows *w, const struct view *v);

#endif
