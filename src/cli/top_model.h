/* top_model: what `gpuward top` shows, as plain data: the machine, its GPUs with their history,
 * the processes on them, and the workers of the guard.
 *
 * top_reader.c fills a model from a service or from the driver; top_screen.c draws it.  An
 * unknown number is NAN, an unknown text is "". */
#ifndef GW_CLI_TOP_MODEL_H
#define GW_CLI_TOP_MODEL_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The figures of a GPU, in the order of the view of one GPU: name in this enum, quantity, text
 * for people. */
/* clang-format off */
#define TOP_FIGURE_ROWS(F) \
	F(POWER, POWER, "power") \
	F(POWER_LIMIT, POWER_LIMIT, "power limit") \
	F(POWER_LIMIT_MAX, POWER_LIMIT_MAX, "highest power limit") \
	F(UTILIZATION, UTILIZATION_GPU, "utilisation") \
	F(MEMORY_USED, MEMORY_USED, "memory used") \
	F(MEMORY_TOTAL, MEMORY_TOTAL, "memory") \
	F(MEMORY_ACTIVITY, UTILIZATION_MEMORY, "memory activity") \
	F(TEMPERATURE, TEMPERATURE_GPU, "temperature") \
	F(MARGIN, TEMPERATURE_MARGIN, "left to slowdown") \
	F(MEMORY_TEMPERATURE, TEMPERATURE_MEMORY, "memory temperature") \
	F(CLOCK_SM, CLOCK_SM, "SM clock") \
	F(CLOCK_SM_MAX, CLOCK_SM_MAX, "highest SM clock") \
	F(CLOCK_MEMORY, CLOCK_MEMORY, "memory clock") \
	F(FAN, FAN_SPEED, "fan") \
	F(ENCODER, UTILIZATION_ENCODER, "encoder") \
	F(DECODER, UTILIZATION_DECODER, "decoder") \
	F(PCIE_GENERATION, PCIE_GENERATION, "PCIe generation") \
	F(PCIE_WIDTH, PCIE_WIDTH, "PCIe lanes") \
	F(ECC_UNCORRECTED, ECC_UNCORRECTED, "uncorrected ECC errors") \
	F(PERFORMANCE_STATE, PERFORMANCE_STATE, "performance state") \
	F(CLOCK_REASONS, CLOCK_REASONS, "clocks limited by")
/* clang-format on */
enum top_figure {
#define F(name, quantity, label) TOP_##name,
	TOP_FIGURE_ROWS(F)
#undef F
		TOP_FIGURES
};

struct top_figure_info {
	unsigned quantity; /* enum gw_quantity */
	const char *label;
};
extern const struct top_figure_info top_figure_info[TOP_FIGURES];

/* The graphs of a GPU. */
enum top_graph {
	TOP_GRAPH_UTILIZATION,
	TOP_GRAPH_POWER,
	TOP_GRAPH_MEMORY,
	TOP_GRAPH_TEMPERATURE,
	TOP_GRAPHS
};

/* Returns the figure that a graph shows. */
enum top_figure top_graph_figure(enum top_graph graph);

#define TOP_SAMPLES 512 /* samples of the history */

#define TOP_MIG 8 /* an H200 has at most seven GPU instances */

/* A MIG instance.  Power and utilisation are known only for the whole GPU. */
struct top_mig {
	int instance; /* -1: unknown */
	char name[32];
	double memory_used, memory_total;
};

struct top_gpu {
	unsigned index;
	enum gw_device_state state;
	char name[64], uuid[64], pci[24];
	char message[256]; /* what is wrong; "": nothing */
	double value[TOP_FIGURES];
	uint8_t absence[TOP_FIGURES]; /* enum gw_absence */
	char held[96];                /* reasons that limit the clocks, in words; "": none */
	char pstate[16];
	/* energy_j: energy that was measured during energy_s seconds */
	double energy_j, energy_s;
	uint8_t energy_absence;
	struct top_mig mig[TOP_MIG];
	unsigned migs;
	double age_s; /* age of the figures when the model was read */
	/* the last samples of each graph, a ring; `next` is the oldest */
	float history[TOP_GRAPHS][TOP_SAMPLES];
	unsigned next;
};

struct top_process {
	int64_t pid;
	uint64_t start_ticks; /* 0: unknown */
	int64_t uid;          /* -1: unknown */
	unsigned gpu;         /* position in the model */
	unsigned type;        /* set of enum gw_process_type */
	double sm_ratio, memory_bytes, energy_j, cpu_ratio, run_s;
	char user[32], name[64], command[256];
	char where[72]; /* container or unit */
	char class[16]; /* class that the guard gives to the process; "": unknown */
	char guard[48]; /* for display: the class of the process, or the worker and its state */
};

struct top_worker {
	char name[48], state[16], reasons[64];
	double since_s;
	bool dry_run;
};

struct top_host {
	double cpu_ratio, cpus, ram_used, ram_total;
};

struct top_model {
	char source[160]; /* "driver" or "service ADDRESS" */
	char driver[64];  /* version */
	/* why there is no GPU; "": there is a GPU, or the reason is unknown */
	char status[512];
	char remedy[512];      /* what to do about it */
	char guard_mode[16];   /* "": no guard with workers */
	bool simulated, local; /* local: the processes are on this machine */
	struct top_host host;
	uint64_t read_ns;     /* monotonic time of the last reading; 0: none */
	uint64_t interval_ns; /* time between readings of the source */
	char problem[400];    /* why the last attempt to read failed; "": it succeeded */
	unsigned gpus, gpu_cap, processes, process_cap, workers, worker_cap;
	struct top_gpu *gpu;
	struct top_process *process;
	struct top_worker *worker;
};

void top_model_init(struct top_model *m);
void top_model_done(struct top_model *m);

/* Adds a MIG instance to the GPU and returns it; NULL: there is no room.  name: of the instance,
 * as the driver has it; the name of the board in it is left out. */
struct top_mig *top_gpu_add_mig(struct top_gpu *g, int instance, const char *name);

/* Copies everything.  Returns 0 or -GW_E_NOMEM. */
int top_model_copy(struct top_model *to, const struct top_model *from);

/* Makes room for n GPUs.  New GPUs are empty, with an empty history.  Returns 0 or
 * -GW_E_NOMEM. */
int top_model_set_gpus(struct top_model *m, unsigned n);

/* Adds an empty process.  Returns NULL if there is no memory. */
struct top_process *top_model_add_process(struct top_model *m);

/* Prepares a GPU for its next reading: the figures become unknown.  A GPU with another uuid
 * starts a new history. */
void top_gpu_begin(struct top_gpu *g, const char *uuid);

/* Adds the current values to the history. */
void top_gpu_remember(struct top_gpu *g);

/* Adds unknown samples to all histories for the time since the last reading, if readings were
 * missed until now.  Call it before the next values are remembered. */
void top_model_add_gap(struct top_model *m, uint64_t now_ns);

/* Returns sample i of a graph, where 0 is the newest; NAN: unknown. */
double top_gpu_sample(const struct top_gpu *g, enum top_graph graph, unsigned i);

/* Returns the text for a reason that limits the clocks: "power limit" for the driver's word
 * "sw_power_cap".  Returns an unknown word unchanged. */
const char *top_held_words(const char *word);

/* The columns of the process table, in their order. */
enum top_column {
	TOP_PID,
	TOP_USER,
	TOP_GPU,
	TOP_TYPE,
	TOP_SM,
	TOP_MEMORY,
	TOP_ENERGY,
	TOP_CPU,
	TOP_TIME,
	TOP_WHERE,
	TOP_GUARD,
	TOP_COMMAND,
	TOP_COLUMNS
};

/* Which processes are shown, and in which order. */
struct top_order {
	enum top_column column;
	bool reverse;    /* numbers: smallest first; texts: from Z to A */
	int gpu;         /* only this GPU; -1: all */
	char filter[64]; /* only processes that contain this text; "": all */
};

/* Fills row[] with the positions of the processes that are shown, in order.  row has room for
 * m->processes elements.  Returns their number. */
unsigned top_order_apply(const struct top_order *o, const struct top_model *m, unsigned *row);

/* The functions below fill the model from documents of the service.  A key that is missing or
 * has another type is an unknown value, because the service may be older or newer than this
 * program. */
struct json_doc;

/* Each takes the document of one route and returns 0 or -GW_E_NOMEM. */
int top_read_devices(struct top_model *m, const struct json_doc *doc);   /* /api/v1/devices */
int top_read_processes(struct top_model *m, const struct json_doc *doc); /* /api/v1/processes */
int top_read_guard(struct top_model *m, const struct json_doc *doc);     /* /api/v1/guard */

/* Reads the machine from /api/v1/snapshot. */
void top_read_host(struct top_model *m, const struct json_doc *doc);

/* Adds the class of each process from /api/v1/guard/gpus/{uuid}.  Call it after
 * top_read_processes() and top_read_guard(). */
void top_read_guard_gpu(struct top_model *m, const struct json_doc *doc);

/* Replaces the history by that of /api/v1/series. */
void top_read_series(struct top_model *m, const struct json_doc *doc);

#endif
