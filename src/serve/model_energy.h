/* model_energy: counts the tokens and the energy of each model on the inference servers.
 *
 * The energy of a server's processes waits until the server reports its models and its token
 * counters. Then the energy is charged to the models, so that the energy and the tokens of a
 * model cover the same time. Charged and waiting joules always add up to the energy of the
 * server. The functions are pure, and memory is bounded: models without a row of their own are
 * summed in one row. */
#ifndef GW_SERVE_MODEL_ENERGY_H
#define GW_SERVE_MODEL_ENERGY_H

#include "base/proc_id.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_ENERGY_ROWS    64 /* a further row has the sum of all other models */
#define MODEL_ENERGY_GPUS    64
#define MODEL_ENERGY_WORKERS 32
#define MODEL_ENERGY_PENDING 64 /* pairs of process and GPU of one worker */
#define MODEL_ENERGY_MARKS   8
#define MODEL_NAME           256
#define MODEL_WORKER         64

enum model_direction { MODEL_PROMPT, MODEL_GENERATED, MODEL_DIRECTIONS };
const char *model_direction_name(unsigned d); /* "prompt", "generated" */

/* How energy was charged to a model. */
enum model_method {
	MODEL_NOTHING, /* nothing was charged yet */
	MODEL_ONLY,    /* the server has only this model */
	MODEL_PROCESS, /* the model has a process of its own */
	MODEL_SPLIT,   /* the models of a process share its energy by their tokens */
	/* charged to no model: none is loaded, or several share a process and it is unknown
	 * which of them worked */
	MODEL_NO_MODEL,
	MODEL_SUM, /* the sum of several models */
	MODEL_METHODS
};
const char *model_method_name(unsigned m); /* "only model", ...; NULL for MODEL_NOTHING */

/* Totals of a model at one moment. */
struct model_mark {
	uint64_t ns;
	double generated, joules;
};

struct model_row {
	char worker[MODEL_WORKER];
	char model[MODEL_NAME]; /* "": energy of the worker that no model caused */
	/* Totals; they continue across restarts of this service and of the server. */
	double tokens[MODEL_DIRECTIONS];
	double joules[MODEL_ENERGY_GPUS]; /* by position in model_energy.gpu */
	bool counted;                     /* the tokens are known */
	enum model_method method;         /* method of the last charge */
	/* how the share of the process was determined; NULL: nothing was charged yet */
	const char *share;
	bool listed;                      /* the model is in the server's last list */
	double counter[MODEL_DIRECTIONS]; /* the server's last values; NAN: not read */
	struct model_mark begin;          /* totals when this run of the service began */
	struct model_mark mark[MODEL_ENERGY_MARKS]; /* recent, oldest first */
	unsigned marks;
	uint64_t seen_ns; /* time of the last charge or reading */
	bool changed;     /* the row changed since the caller cleared this flag */
};

struct model_worker {
	char name[MODEL_WORKER];
	bool present;  /* the worker is in the current configuration */
	bool reported; /* reported its models at least once in this run */
	char why[240]; /* why the tokens are unknown; "": known, or not asked yet */
	struct model_pending {
		int64_t pid; /* 0: several processes */
		unsigned gpu;
		double joules;
		const char *share; /* as in model_row */
	} pending[MODEL_ENERGY_PENDING];
	unsigned pendings;
};

struct model_energy {
	struct model_row row[MODEL_ENERGY_ROWS + 1];
	unsigned rows; /* without the last row */
	struct model_worker worker[MODEL_ENERGY_WORKERS];
	unsigned workers;
	char gpu[MODEL_ENERGY_GPUS][96]; /* UUIDs */
	unsigned gpus;
};

/* A model as its server reports it. */
struct model_report {
	char model[MODEL_NAME];
	int64_t pid;                     /* the model's own process; 0: none is known */
	double tokens[MODEL_DIRECTIONS]; /* counters of the server; NAN: not read */
};

/* The models that are loaded in a server. */
struct model_list {
	struct model_report of[MODEL_ENERGY_ROWS];
	unsigned count;
	/* the server started after this service, so its counters began with 0 */
	bool fresh;
};

/* Finds or adds the worker. Returns NULL if there is no room. */
struct model_worker *model_energy_worker(struct model_energy *m, const char *name);

/* Adds energy that a process of the worker used on a GPU. The energy waits until
 * model_energy_settle() charges it to models. share: how the energy of the process was
 * determined; a constant string. */
void model_energy_add(struct model_energy *m, struct model_worker *w, int64_t pid,
		      const char *uuid, double joules, const char *share);

/* Charges the waiting energy of the worker to the models of the list, and counts their tokens.
 * A counter that fell was reset, as after a restart of the server; it then counts from 0. */
void model_energy_settle(struct model_energy *m, struct model_worker *w,
			 const struct model_list *l, uint64_t now_ns);

/* Returns the row for a stored model; NULL: there is no room. Set its totals, then call
 * model_energy_restored(). */
struct model_row *model_energy_restore(struct model_energy *m, const char *worker,
				       const char *model);
void model_energy_restored(struct model_row *r);
/* Finds or adds a GPU. Returns its position, or -1 if there is no room. */
int model_energy_gpu(struct model_energy *m, const char *uuid);

/* Returns row i of all rows with figures, including the sum of the other models; NULL after the
 * last row. */
const struct model_row *model_energy_row(const struct model_energy *m, unsigned i);
double model_row_joules(const struct model_row *r);
/* Returns the worker's energy that is not charged to models yet. */
double model_worker_pending(const struct model_worker *w);
/* Returns the worker of a row; NULL: the worker is not in the current configuration. */
const struct model_worker *model_energy_worker_of(const struct model_energy *m,
						  const struct model_row *r);

/* Energy and generated tokens in a time span. */
struct model_span {
	double seconds, tokens, joules;
	double joules_per_token; /* NAN: see why */
	const char *why;         /* NULL: joules_per_token is known */
};
/* The last minute, or less if the service has not run that long. */
void model_span_minute(const struct model_row *r, struct model_span *ret);
/* Since the start of this run of the service. */
void model_span_start(const struct model_row *r, struct model_span *ret);

#endif
