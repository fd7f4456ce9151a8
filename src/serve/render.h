/* render: writes the JSON documents that the command line and the service show and that files
 * contain.
 *
 * Every document begins with schema_version and time_utc. An unknown value is null, and its
 * reason is in the "absent" object next to it, under the same key; a value that was not
 * requested is omitted. If a key is added, schema_version stays the same; if a key is changed
 * or removed, schema_version increases. */
#ifndef GW_SERVE_RENDER_H
#define GW_SERVE_RENDER_H

#include "base/json.h"

#include <gpuward.h>

#define RENDER_SCHEMA_VERSION 1

struct json_doc;
struct view_process;
struct workload;

/* The devices to show. If a function gets NULL instead of a filter, it shows all devices. */
struct render_filter {
	bool selected[256];
};

bool render_shows(const struct render_filter *filter, unsigned device);

/* Writes a string; writes null if text is NULL or "". */
void render_text(struct json *j, const char *key, const char *text);

/* Writes the keys that identify a workload, into an open object. */
void render_workload_keys(struct json *j, const struct workload *w);

/* Reads the keys of render_workload_keys(). Returns false if the kind is unknown; the workload
 * then has the kind WORKLOAD_NONE. d may be NULL. */
bool render_read_workload(const struct json_doc *d, struct workload *ret);

/* Writes the array "types" of a process; type is a set of enum gw_process_type. */
void render_process_types(struct json *j, unsigned type);
/* Reads an array "types" (NULL: an empty one). Returns false if the array has an unknown word;
 * *ret then has the known types. */
bool render_read_types(const struct json_doc *types, unsigned *ret);
/* Returns the absence with this key. If there is no such absence, or if key is NULL, returns
 * GW_ABSENT_NO_DATA. */
enum gw_absence render_read_absence(const char *key);

/* Begins a document: writes its first keys. The object stays open. */
void render_head(struct json *j, const struct gw_snapshot *snap);
/* Begins a stored document: writes its kind, the tool and the time. If version is NULL, writes
 * the version of this program. */
void render_kept_head(struct json *j, const char *kind, const char *version, uint64_t wall_ns,
		      bool simulated);
/* Writes the object "source": backend, driver and the cause of a problem. */
void render_source(struct json *j, const struct gw_snapshot *snap);

/* Writes the object of a GPU without its closing brace. */
void render_device(struct json *j, const struct gw_device *d);
/* The processes on the GPUs. energy and workload have one row per process of the list. Only the
 * service determines energy and workload of a process. If energy is NULL, both are unknown for
 * all processes. If a row has the absence GW_ABSENT_NEEDS_SERVICE, both are unknown for this
 * process. */
struct render_process_list {
	const struct gw_process_list *list;
	const struct view_process *energy;
	const struct workload *workload; /* NULL: not known yet */
};

/* Writes the keys "processes" and "processes_absent". A process has every key: a figure that
 * was not requested is null, with the reason "not_read". */
void render_processes(struct json *j, struct render_process_list processes,
		      const struct gw_snapshot *snap, const struct render_filter *filter);

/* Memory for the data that a service has about the processes of a list. */
struct render_process_rows {
	struct view_process *energy;
	struct workload *workload;
	unsigned rows;
};
void render_process_rows_done(struct render_process_rows *r);

/* For a program that reads the driver itself: reads the document /api/v1/processes of a
 * service. Fills `rows` with one row per process in known->list, and sets known->energy and
 * known->workload to these rows. The rows are valid until the next call. A process that the
 * document does not list has the absence GW_ABSENT_NEEDS_SERVICE. Returns 0 or -GW_E_NOMEM; on
 * an error, *known is unchanged. */
int render_read_processes(const struct json_doc *doc, const struct gw_snapshot *snap,
			  struct render_process_rows *rows, struct render_process_list *known);

/* Writes the value of a quantity of a GPU under the key of the quantity; null if the value is
 * absent. */
void render_figure(struct json *j, const struct gw_device *d, unsigned quantity);

/* Each of these functions writes one whole document. */
void render_list(struct json *j, const struct gw_snapshot *snap,
		 const struct render_filter *filter);
/* processes.list NULL: the document has no processes. */
void render_snapshot(struct json *j, const struct gw_snapshot *snap,
		     struct render_process_list processes, const struct render_filter *filter);
void render_environment(struct json *j, const struct gw_environment *env,
			const struct gw_snapshot *snap, const struct render_filter *filter);

/* Writes {low, best, high}, or null if unknown. */
void render_interval(struct json *j, const char *key, const struct gw_interval *v);

/* Maximum bytes of the name of a currency, with its NUL. */
#define ENERGY_COST_CURRENCY 17
#define ENERGY_COST_TEXT     160

/* The cost of energy in money and CO2, as the user has configured it. If nothing is configured,
 * no cost is shown. The energy is the energy of the GPU boards, not of the whole machine. */
struct energy_cost {
	double price_per_kwh;                /* price in the currency; 0: not configured */
	double gco2_per_kwh;                 /* grams of CO2; 0: not configured */
	char currency[ENERGY_COST_CURRENCY]; /* "": not given */
};

/* Writes a text such as "0.00222 kWh, 0.000689 EUR, 0.844 g CO2". Writes "" if nothing is
 * configured or the energy is unknown. */
void energy_cost_text(const struct energy_cost *c, double joules,
		      char out[static ENERGY_COST_TEXT]);

/* Writes the object "cost", or null if nothing is configured. Each figure has its coverage
 * interval. */
void energy_cost_render(struct json *j, const struct energy_cost *c,
			const struct gw_interval *joules);

/* Writes the configured price, currency and carbon intensity as the object "energy_cost"; null
 * if nothing is configured. */
void energy_cost_render_rates(struct json *j, const struct energy_cost *c);

enum privilege_state {
	PRIVILEGE_MISSING,
	PRIVILEGE_THERE,
	PRIVILEGE_USELESS, /* The feature does not work with any privileges of this user. */
};

/* A privilege that a part of the guard needs. */
struct render_privilege {
	const char *key, *feature,
		*remedy; /* remedy: what to do if the feature does not work */
	enum privilege_state state;
	char message[500];
};

/* Writes the document of a diagnosis with n privileges. If n is 0, the privileges were not
 * checked. */
void render_diagnosis(struct json *j, const struct gw_diagnosis *diagnosis,
		      const struct gw_snapshot *snap, const struct render_privilege *p,
		      unsigned n);

#endif
