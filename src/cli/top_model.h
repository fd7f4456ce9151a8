/* top_model: the data that `gpuward top` shows: the machine, its GPUs with their history, the
 * processes on the GPUs, and the workers of the guard.
 *
 * top_reader.c fills a model from a service or from the driver, and top_screen.c draws it. An
 * unknown number is NAN, and an unknown text is "". */
#ifndef GW_CLI_TOP_MODEL_H
#define GW_CLI_TOP_MODEL_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The figures of a GPU, in the order in which the zoom (the view of one GPU with all its
 * figures) shows them. A row contains the name in enum top_figure, the quantity, and the label
 * on the screen. */
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
	F(TEMPERATURE_LIMIT, TEMPERATURE_GPU_MAX, "temperature limit") \
	F(MARGIN, TEMPERATURE_MARGIN, "below temperature limit") \
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

#define TOP_SAMPLES 512 /* samples per graph in the history of a GPU */

#define TOP_MIG 8 /* MIG instances per GPU; an H200 has at most seven */

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
	char message[256]; /* what is wrong with the GPU; "": nothing */
	double value[TOP_FIGURES];
	uint8_t absence[TOP_FIGURES]; /* enum gw_absence */
	char held[96]; /* why the clocks are limited, in words; "": they are not */
	char pstate[16];
	/* The GPU used energy_j joules in energy_s seconds, the time that was measured. This
	 * time ended energy_age_s seconds before the other figures were read. */
	double energy_j, energy_s, energy_age_s;
	uint8_t energy_absence;
	struct top_mig mig[TOP_MIG];
	unsigned migs;
	/* Seconds from the GPU's last response to the reply of the service; 0: read from the
	 * driver; NAN: it never responded. */
	double age_s;
	/* Ring buffers with the last samples of each graph. history[...][next] is the oldest
	 * sample. */
	float history[TOP_GRAPHS][TOP_SAMPLES];
	unsigned next;
};

struct top_process {
	int64_t pid;
	uint64_t start_ticks; /* 0: unknown */
	int64_t uid;          /* -1: unknown */
	unsigned gpu;         /* index in top_model.gpu[] */
	unsigned type;        /* bits of enum gw_process_type */
	double sm_ratio, memory_bytes, energy_j, cpu_ratio, run_s;
	char user[32], name[64], command[256];
	char where[72]; /* container or systemd unit in which the process runs */
	/* class of the process in the guard, such as "contender"; "": unknown */
	char class[16];
	char guard[48]; /* text of the column GUARD: the class, or the worker and its state */
};

struct top_worker {
	char name[48], state[16], reasons[64];
	double since_s;    /* how long the worker has been in this state */
	bool hypothetical; /* the worker is in this state only in a dry run */
};

struct top_host {
	double cpu_ratio, cpus, ram_used, ram_total;
};

struct top_model {
	char source[160]; /* "driver" or "service ADDRESS" */
	char driver[64];  /* version of the driver */
	/* why there is no GPU; "": there is a GPU, or the reason is unknown */
	char status[512];
	char remedy[512];    /* what the user can do about it */
	char guard_mode[16]; /* mode of the guard; "": the guard has no workers */
	bool simulated;      /* the GPUs are simulated */
	bool local;          /* the GPUs are in this machine */
	struct top_host host;
	uint64_t read_ns;     /* monotonic time when the figures were last updated; 0: never */
	uint64_t interval_ns; /* time between two readings */
	char problem[400];    /* why the last reading failed; "": it succeeded */
	unsigned gpus, gpu_cap, processes, process_cap, workers, worker_cap;
	struct top_gpu *gpu;
	struct top_process *process;
	struct top_worker *worker;
};

void top_model_init(struct top_model *m);
void top_model_done(struct top_model *m);

/* Adds a MIG instance to the GPU and returns it, or NULL if there is no room. `name` is the
 * driver's name of the instance; the name of the board at its beginning is left out. */
struct top_mig *top_gpu_add_mig(struct top_gpu *g, int instance, const char *name);

/* Copies the model with all its arrays. Returns 0 or -GW_E_NOMEM. */
int top_model_copy(struct top_model *to, const struct top_model *from);

/* Sets the number of GPUs to n. New GPUs have no figures and no history. Returns 0 or
 * -GW_E_NOMEM. */
int top_model_set_gpus(struct top_model *m, unsigned n);

/* Adds an empty process.  Returns NULL if there is no memory. */
struct top_process *top_model_add_process(struct top_model *m);

/* Prepares a GPU for its next reading: sets all figures to unknown. If the uuid differs from
 * that of the last reading, also clears the history. */
void top_gpu_begin(struct top_gpu *g, const char *uuid);

/* Adds the current figures to the history. */
void top_gpu_remember(struct top_gpu *g);

/* If readings were missed since the last one, adds unknown samples for them to the history of
 * all GPUs. Call this before top_gpu_remember(). */
void top_model_add_gap(struct top_model *m, uint64_t now_ns);

/* Returns sample i of a graph. Sample 0 is the newest; an unknown sample is NAN. */
double top_gpu_sample(const struct top_gpu *g, enum top_graph graph, unsigned i);

/* Returns the text for a clock reason, such as "power limit" for "sw_power_cap". An unknown
 * word is returned unchanged. */
const char *top_held_words(const char *word);

/* The columns of the process table, from left to right. */
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

/* Which processes are shown, and how they are sorted. */
struct top_order {
	enum top_column column;
	bool reverse;    /* reverse the order; unknown values still come last */
	int gpu;         /* show only processes on this GPU; -1: on all GPUs */
	char filter[64]; /* show only processes that contain this text; "": show all */
};

/* Writes the indices of the processes that are shown to row[], in their order, and returns
 * their number. row[] must have room for m->processes elements. */
unsigned top_order_apply(const struct top_order *o, const struct top_model *m, unsigned *row);

/* The functions below fill the model from documents of the service. If a key is missing or has
 * another type, the value is unknown, because the service may be older or newer than this
 * program. */
struct json_doc;

/* Each function takes the document of one route. Returns 0 or -GW_E_NOMEM. */
int top_read_devices(struct top_model *m, const struct json_doc *doc);   /* /api/v1/devices */
int top_read_processes(struct top_model *m, const struct json_doc *doc); /* /api/v1/processes */
int top_read_guard(struct top_model *m, const struct json_doc *doc);     /* /api/v1/guard */

/* Reads the CPU and memory of the machine from /api/v1/snapshot. */
void top_read_host(struct top_model *m, const struct json_doc *doc);

/* Sets the class of each process from /api/v1/guard/gpus/{uuid}. Call it after
 * top_read_processes() and top_read_guard(). */
void top_read_guard_gpu(struct top_model *m, const struct json_doc *doc);

/* Replaces the history with the samples of /api/v1/series. */
void top_read_series(struct top_model *m, const struct json_doc *doc);

#endif
