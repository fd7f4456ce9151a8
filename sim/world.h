/* world: the simulated machine as a function of time; knows nothing of NVML.
 *
 * Time is ns since the world began.  A device is brought up to date by whoever asks about it
 * (device_advance), so nothing runs in the background and a jump of an hour costs what its
 * 36000 control steps cost.  Not thread-safe: the caller holds one lock around it. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fault.h"
#include "history.h"
#include "load.h"
#include "profile.h"
#include "sensor.h"

#define WORLD_DEVICES_MAX 64
#define WORLD_MIGS_MAX    8
#define WORLD_NEVER       UINT64_MAX

enum time_mode { TIME_REAL, TIME_SCALED, TIME_STEPPED };

enum process_list { LIST_COMPUTE = 1, LIST_GRAPHICS = 2, LIST_MPS = 4 };

struct process {
	uint32_t pid;
	char name[64];
	unsigned lists;             /* enum process_list; 0: in none                */
	uint64_t from_ns, until_ns; /* until 0: for ever                            */
	uint64_t bytes;             /* at its beginning                             */
	double bytes_per_s;         /* grows by this ...                            */
	uint64_t max_bytes;         /* ... up to this; 0: no end                    */
	double share;               /* of the load of its GPU, for utilisation      */
	double encoder, decoder;
	unsigned sm_percent;   /* reported utilisation in place of the true; 0: true */
	bool hidden;           /* holds memory, is in no list (namespaces)     */
	bool followed;         /* a file says what it holds (device.follow)    */
	bool no_memory;        /* memory is reported as not available          */
	unsigned copies;       /* how often it is listed                       */
	uint32_t gpu_instance; /* UINT32_MAX: none                             */
	uint32_t compute_instance;
};

struct mig {
	uint32_t gpu_instance, compute_instance, index, slices;
	uint64_t bytes;
	char uuid[64];
	char profile[16]; /* "1g.18gb" */
};

enum limited {
	LIMITED_POWER,
	LIMITED_THERMAL,
	LIMITED_SYNC_BOOST,
	LIMITED_SOFTWARE_THERMAL,
	LIMITED_HARDWARE_THERMAL,
	LIMITED_BRAKE,
	N_LIMITED,
};

struct device {
	struct profile p; /* a copy, with what the scenario changed */
	unsigned index, minor;
	char name[96], uuid[64], serial[32];
	unsigned domain, bus, slot;
	double noise;        /* share of power that wobbles        */
	uint64_t base_bytes; /* used by nobody in the lists        */
	char follow[256];    /* folder in which real processes say what they hold; "": none */
	unsigned list_growth, grown; /* entries more after each refused list; so far */
	unsigned ecc_corrected, ecc_uncorrected, remapped, remap_pending, remap_failed;
	unsigned ecc_cleared[2][2]; /* of volatile and aggregate: counts that were cleared */
	unsigned replays, recovery_action;

	struct load *loads;
	size_t n_loads;
	struct process *processes;
	size_t n_processes;
	struct mig migs[WORLD_MIGS_MAX];
	unsigned n_migs;
	bool mig_enabled;
	unsigned mig_generation; /* of the handles of its instances */

	/* State. */
	struct history history;
	struct sensor sensor;
	uint64_t now_ns, change_ns;
	size_t next_action;
	bool lost, counter_frozen;
	uint64_t frozen_mj;
	double limit_w;
	bool persistence;
	unsigned compute_mode;
	double lock_sm_mhz[2], lock_memory_mhz[2]; /* 0: none */
	bool accounting;
	uint64_t accounting_ns; /* since when */
	bool capping;
	double thermal_factor;
	uint64_t reasons;
	uint64_t limited_ns[N_LIMITED];
};

enum action_kind {
	ACTION_EVENT, /* type, data              */
	ACTION_LOSE,
	ACTION_HEAL,
	ACTION_RELOAD,  /* length_ns, version      */
	ACTION_WALL,    /* step_ns                 */
	ACTION_COUNTER, /* step_j: what the counter is moved by */
	ACTION_RESET,   /* the counter starts again at 0 */
	ACTION_FREEZE,
	ACTION_THAW,
	ACTION_ECC,      /* data: corrected (type 1) or uncorrected (type 2) errors more */
	ACTION_MIG,      /* handles of instances end; data: so many are left, 0: all */
	ACTION_RECOVERY, /* data: field 230 from now on */
};

struct action {
	uint64_t at_ns;
	enum action_kind kind;
	int device; /* -1: all */
	uint64_t type, data, length_ns;
	int64_t step_ns;
	double step_j;
	char version[32], nvml[32];
};

struct world {
	enum time_mode mode;
	double rate;
	uint64_t start_ns;   /* of CLOCK_MONOTONIC; real and scaled   */
	uint64_t stepped_ns; /* stepped                                */
	uint64_t wall_ns;    /* at the beginning                       */
	uint64_t begin_ns;   /* world time when it is first looked at: loads have run so long */

	char driver[32], nvml[32];
	int cuda;
	unsigned stride; /* of nvmlDeviceGet...Processes_v3: 16, 24 or 32 */
	bool privileged; /* setters work                                  */
	bool stub;
	bool measured_latency;
	unsigned utilization_entries; /* room that the call insists on                  */
	unsigned utilization_history; /* samples that are kept                          */
	unsigned utilization_copies;  /* each row is given so often                     */
	bool utilization_ignores_since;
	char **missing;
	size_t n_missing;

	struct device *devices;
	unsigned n_devices;
	struct action *actions; /* sorted by time */
	size_t n_actions;
	struct fault *faults;
	size_t n_faults;
};

/* An empty world in real time, driver 580.  NULL: no memory. */
struct world *world_new(void);
void world_free(struct world *w);

/* Adds n GPUs of that profile; their first, or NULL (too many, no memory).  The others move. */
struct device *world_add(struct world *w, const struct profile *p, unsigned n);

/* To be called once all is described: sorts actions, starts devices and time. */
int world_start(struct world *w);

uint64_t world_now_ns(const struct world *w);
uint64_t world_wall_ns(const struct world *w, uint64_t t_ns);

/* How often the driver has been loaded anew at t; whether it is absent just then; the versions
 * of that time. */
unsigned world_boots(const struct world *w, uint64_t t_ns, bool *gap);
const char *world_driver(const struct world *w, uint64_t t_ns, bool nvml);

/* Brings a device to t.  Every question below is about the time it was brought to. */
void device_advance(struct world *w, struct device *d, uint64_t t_ns);

/* Something was set: power, clocks and reasons are worked out anew at the next advance. */
void device_changed(struct device *d);

bool process_alive(const struct process *p, uint64_t t_ns);
uint64_t process_bytes(const struct process *p, uint64_t t_ns);

/* Used bytes without the reserved part, of the board or of one MIG instance. */
uint64_t device_used_bytes(const struct device *d, const struct mig *mig);
uint64_t device_total_bytes(const struct device *d);
uint64_t device_reserved_bytes(const struct device *d);

/* Sets what pid holds now, as gpuward_sim_process(). */
int device_set_process(struct device *d, uint32_t pid, uint64_t bytes, bool graphics);

/* Reads the folder of its real processes, if it has one. */
void device_follow(struct device *d);

uint64_t device_counter_mj(struct device *d);
double device_memory_mhz(const struct device *d);
unsigned device_pstate(const struct device *d);

#endif
