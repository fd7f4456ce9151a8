/* model_energy: counts the tokens and the energy of each model on the inference servers.
 *
 * The energy of a server's processes waits until the server reports its models and its token
 * counters. Then the energy is charged to the models, so that energy and tokens of a model
 * cover the same time. Charged and waiting joules always add up to the energy of the server.
 * The functions are pure, and memory is bounded: models without a row of their own are summed
 * in one row. */
#ifndef GW_MEASURE_MODEL_ENERGY_H
#define GW_MEASURE_MODEL_ENERGY_H

#include "base/proc_id.h"

#include <stdbool.h>
#include <stdint.h>

/* Number of models with a row of their own. One more row sums all others. */
#define MODEL_ENERGY_ROWS    64
#define MODEL_ENERGY_GPUS    64
#define MODEL_ENERGY_WORKERS 32
#define MODEL_ENERGY_PENDING 64 /* maximum number of pairs of process and GPU per worker */
#define MODEL_ENERGY_MARKS   8
#define MODEL_NAME           256
#define MODEL_WORKER         64

enum model_direction { MODEL_PROMPT, MODEL_GENERATED, MODEL_DIRECTIONS };
const char *model_direction_name(unsigned d); /* "prompt", "generated" */

/* How energy was charged to a model. */
enum model_method {
	MODEL_NOTHING, /* Nothing was charged to the model yet. */
	MODEL_ONLY,    /* The model is the server's only one without a process of its own. */
	MODEL_PROCESS, /* The model has a process of its own. */
	/* The energy of a process is divided among its models by their tokens. */
	MODEL_SPLIT,
	/* Charged to no model: none is loaded, or several run in one process and no tokens show
	 * which of them worked. */
	MODEL_NO_MODEL,
	MODEL_SUM, /* The row is the sum of several models. */
	MODEL_METHODS
};
const char *model_method_name(unsigned m); /* "only model", ...; NULL for MODEL_NOTHING */

/* The totals of a model at one time. */
struct model_mark {
	uint64_t ns;
	double generated, joules;
};

struct model_row {
	char worker[MODEL_WORKER];
	/* "": the row has the part of the worker's energy that no model caused */
	char model[MODEL_NAME];
	/* Totals, including earlier runs of this service and of the server. */
	double tokens[MODEL_DIRECTIONS];
	double joules[MODEL_ENERGY_GPUS]; /* same indices as model_energy.gpu */
	bool counted;                     /* The tokens are known. */
	enum model_method method;         /* method of the last charge */
	/* `share` of the last charge, as passed to model_energy_add(). NULL: nothing was
	 * charged yet. */
	const char *share;
	bool listed; /* The last list of the server contains the model. */
	/* Last values of the server's token counters. NAN: not read. */
	double counter[MODEL_DIRECTIONS];
	struct model_mark begin; /* totals when this run of the service began */
	/* Totals at recent times, oldest first. */
	struct model_mark mark[MODEL_ENERGY_MARKS];
	unsigned marks;
	uint64_t seen_ns; /* monotonic time of the last charge or reading */
	bool changed;     /* The row has changed since the caller cleared this flag. */
};

struct model_worker {
	char name[MODEL_WORKER];
	bool present; /* The current configuration has this worker. */
	/* The worker has reported its models at least once since the service started. */
	bool reported;
	char why[240]; /* why the tokens are unknown; "": they are known, or not read yet */
	struct model_pending {
		int64_t pid; /* 0: sum of several processes */
		unsigned gpu;
		double joules;
		const char *share; /* how the energy of the process was determined */
	} pending[MODEL_ENERGY_PENDING];
	unsigned pendings;
};

struct model_energy {
	struct model_row row[MODEL_ENERGY_ROWS + 1];
	/* Number of rows in use. The last row, which sums the other models, is not included. */
	unsigned rows;
	struct model_worker worker[MODEL_ENERGY_WORKERS];
	unsigned workers;
	char gpu[MODEL_ENERGY_GPUS][96]; /* UUIDs of the GPUs */
	unsigned gpus;
};

/* A model as its server reports it. */
struct model_report {
	char model[MODEL_NAME];
	/* id of the process that runs only this model; 0: no such process is known */
	int64_t pid;
	double tokens[MODEL_DIRECTIONS]; /* counters of the server; NAN: not read */
};

/* The models that are loaded in a server. */
struct model_list {
	struct model_report of[MODEL_ENERGY_ROWS];
	unsigned count;
	/* The server started after this service, so its counters began with 0. */
	bool fresh;
};

/* Finds or adds the worker. Returns NULL if MODEL_ENERGY_WORKERS are in use. */
struct model_worker *model_energy_worker(struct model_energy *m, const char *name);

/* Adds energy that a process of the worker used on a GPU. The energy waits until
 * model_energy_settle() charges it to models. `share` is a constant string that says how the
 * energy of the process was determined. */
void model_energy_add(struct model_energy *m, struct model_worker *w, int64_t pid,
		      const char *uuid, double joules, const char *share);

/* Charges the waiting energy of the worker to the models of the list, and counts their tokens.
 * If a counter decreased, the server has restarted, and the counter's value is the increase
 * since the restart. */
void model_energy_settle(struct model_energy *m, struct model_worker *w,
			 const struct model_list *l, uint64_t now_ns);

/* Returns the row for a model from the store; NULL: all rows are in use. The caller sets its
 * totals, then calls model_energy_restored(). */
struct model_row *model_energy_restore(struct model_energy *m, const char *worker,
				       const char *model);
void model_energy_restored(struct model_row *r);
/* Finds or adds a GPU. Returns its index, or -1 if MODEL_ENERGY_GPUS are in use. */
int model_energy_gpu(struct model_energy *m, const char *uuid);

/* Returns the i-th row that has figures; the last one sums the other models. NULL after the
 * last row. */
const struct model_row *model_energy_row(const struct model_energy *m, unsigned i);
double model_row_joules(const struct model_row *r);
/* Returns the joules of the worker that are not charged to models yet. */
double model_worker_pending(const struct model_worker *w);
/* Returns the worker of a row; NULL: the worker is not in the current configuration. */
const struct model_worker *model_energy_worker_of(const struct model_energy *m,
						  const struct model_row *r);

/* Energy and generated tokens of a model in a time span. */
struct model_span {
	double seconds, tokens, joules;
	double joules_per_token; /* NAN: unknown; `why` says why */
	const char *why;         /* why joules_per_token is unknown; NULL: it is known */
};
/* Gets the span of the last minute, or less if the service has not run that long. */
void model_span_minute(const struct model_row *r, struct model_span *ret);
/* Gets the span since the service started. */
void model_span_start(const struct model_row *r, struct model_span *ret);

#endif
