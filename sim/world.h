/* world: the simulated machine as a function of time; it knows nothing about NVML.
 *
 * Time is in ns since the world began. A query first advances its device to the current time
 * (device_advance), so nothing runs in the background. A jump of one hour computes 36000
 * control steps. Not thread-safe: the caller must hold a lock. */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
	unsigned lists;             /* set of enum process_list; 0: in no list */
	uint64_t from_ns, until_ns; /* start and end of the process; until_ns 0: no end */
	uint64_t bytes;             /* memory at the start of the process */
	double bytes_per_s;         /* growth of the memory, up to max_bytes */
	uint64_t max_bytes;         /* the memory does not grow above this; 0: no limit */
	double share;               /* share of the GPU's load, for utilisation */
	double encoder, decoder;    /* share of the encoder and decoder, 0..1 */
	/* Utilisation that is reported instead of the true one. 0: the true one is reported. */
	unsigned sm_percent;
	bool hidden;     /* The process uses memory but is in no list, as in a pid namespace. */
	bool followed;   /* The memory of the process is read from a file (device.follow). */
	bool no_memory;  /* The memory of the process is reported as not available. */
	unsigned copies; /* how often the process is listed */
	/* MIG instance on which the process runs; UINT32_MAX: none */
	uint32_t gpu_instance, compute_instance;
};

struct mig {
	uint32_t gpu_instance, compute_instance, index, slices;
	uint64_t bytes; /* memory of the instance */
	char uuid[64];
	char profile[16]; /* such as "1g.18gb" */
};

/* What can limit the clocks. The device counts for how long each of these limited the
 * clocks. */
enum limited {
	LIMITED_POWER,
	LIMITED_THERMAL,
	LIMITED_SYNC_BOOST,
	LIMITED_SOFTWARE_THERMAL,
	LIMITED_HARDWARE_THERMAL,
	LIMITED_BRAKE,
	N_LIMITED,
};

struct identity {
	unsigned index, minor;
	char name[96], uuid[64], serial[32];
	unsigned domain, bus, slot; /* PCI address */
};

/* Error counts and flags that show the health of the hardware. */
struct errors {
	unsigned ecc_corrected, ecc_uncorrected, remapped, remap_pending, remap_failed;
	/* Number of errors when the counter was last cleared. First index: 0 volatile, 1
	 * aggregate counter. Second index: 0 corrected, 1 uncorrected errors. */
	unsigned ecc_cleared[2][2];
	unsigned replays;         /* PCIe replays */
	unsigned recovery_action; /* value of field 230 */
};

/* The settings that NVML calls can change. */
struct settings {
	double limit_w;
	bool persistence;
	unsigned compute_mode;
	double lock_sm_mhz[2], lock_memory_mhz[2]; /* lowest and highest clock; 0: not locked */
	bool accounting;                           /* accounting mode is on */
	/* when accounting was switched on or cleared */
	uint64_t accounting_ns;
};

/* How the board limits its power now. */
struct control {
	bool capping;          /* The power limit reduces the power now. */
	double thermal_factor; /* Heat reduces the power range to this share. 1: it does not. */
	uint64_t reasons;      /* NVML bits of the reasons that limit the clocks */
	uint64_t limited_ns[N_LIMITED]; /* time during which each reason limited the clocks */
};

struct device {
	struct profile p; /* copy of the profile, with the changes of the scenario */
	struct identity id;
	double noise;        /* random variation of the power, as a share of the power */
	uint64_t base_bytes; /* memory in use that belongs to no listed process */
	bool follows;        /* The folder `follow` was read before. */
	char follow[256];    /* folder in which real processes report their memory; "": none */
	struct {
		unsigned growth; /* number of entries that each refused list adds */
		unsigned grown;  /* number of entries that were added so far */
	} lists;
	struct errors errors;

	struct load *loads;
	size_t n_loads;
	struct process *processes;
	size_t n_processes;
	struct mig migs[WORLD_MIGS_MAX];
	unsigned n_migs;
	bool mig_enabled;
	unsigned mig_generation; /* generation of the handles of its MIG instances */

	/* The state at now_ns. */
	struct history history;
	struct sensor sensor;
	uint64_t now_ns;    /* the device is computed up to this time */
	uint64_t change_ns; /* power and clocks are valid until this time */
	size_t next_action; /* index in world.actions */
	bool lost;          /* Calls return the code "GPU is lost". */
	struct {
		bool frozen;
		uint64_t frozen_mj;
	} counter;
	struct settings set;
	struct control control;
};

/* What happens at a time of the timeline, and which members of struct action it uses. */
enum action_kind {
	ACTION_EVENT,   /* The driver sends the NVML event `type` with `data`. */
	ACTION_LOSE,    /* The GPU is lost. */
	ACTION_HEAL,    /* The GPU is back. */
	ACTION_RELOAD,  /* The driver is absent for length_ns and returns with `version`. */
	ACTION_WALL,    /* The wall clock changes by step_ns. */
	ACTION_COUNTER, /* The energy counter changes by step_j. */
	ACTION_RESET,   /* The energy counter restarts at 0. */
	ACTION_FREEZE,  /* The energy counter stops. */
	ACTION_THAW,    /* The energy counter continues. */
	ACTION_ECC, /* `data` corrected (type 1) or uncorrected (type 2) errors are added. */
	/* The handles of MIG instances become invalid, and `data` instances are left; 0: all
	 * are left. */
	ACTION_MIG,
	ACTION_RECOVERY, /* Field 230 gets the value `data`. */
};

struct action {
	uint64_t at_ns;
	enum action_kind kind;
	int device; /* index of the GPU; -1: all GPUs */
	uint64_t type, data, length_ns;
	int64_t step_ns;
	double step_j;
	char version[32], nvml[32];
};

/* A fault of a call: a return code, a delay, a hang or a wrong value. */
struct fault {
	int call;   /* enum call; -1: every call except init and shutdown */
	int device; /* index of the GPU; -1: all GPUs */
	/* Field id. The fault then affects only this field of nvmlDeviceGetFieldValues. 0: the
	 * fault affects the call itself. */
	unsigned field;
	uint64_t from_ns, until_ns; /* time of the fault; until_ns 0: no end */
	char file[256]; /* The fault applies only while this file exists. "": always. */
	bool has_code, hang, has_value;
	bool by_hand; /* gpuward_sim_fault() or gpuward_sim_hang() made the fault. */
	int code;
	uint64_t delay_ns;
	uint64_t value; /* the call returns this value instead of the true one */
};

struct world {
	enum time_mode mode;
	double rate;         /* TIME_SCALED: seconds of the world per real second */
	uint64_t start_ns;   /* CLOCK_MONOTONIC at the start; not for TIME_STEPPED */
	uint64_t stepped_ns; /* TIME_STEPPED: the time of the world */
	uint64_t wall_ns;    /* wall clock at the start */
	/* World time at the start. The loads then behave as if they had run since time 0. */
	uint64_t begin_ns;

	char driver[32], nvml[32];
	int cuda;
	unsigned stride; /* entry size of nvmlDeviceGet...Processes_v3: 16, 24 or 32 bytes */
	bool privileged; /* The caller may change settings. */
	bool stub;       /* The library behaves like the stub of the CUDA toolkit. */
	bool measured_latency; /* Calls take as long as on an H200. */
	/* The members utilization_* are about nvmlDeviceGetProcessUtilization. */
	unsigned utilization_entries; /* number of entries that the caller's buffer must have */
	unsigned utilization_history; /* number of samples that are stored per process */
	unsigned utilization_copies;  /* how often each row is returned */
	bool utilization_ignores_since; /* The call also returns rows that are too old. */
	char **missing; /* symbols that the library does not export in this world */
	size_t n_missing;

	struct device *devices;
	unsigned n_devices;
	struct action *actions; /* sorted by time */
	size_t n_actions;
	struct fault *faults;
	size_t n_faults;
};

/* Returns an empty world in real time with driver 580, or NULL if there is no memory. */
struct world *world_new(void);
void world_free(struct world *w);

/* Adds n GPUs of this profile. Returns the first of them, or NULL if there are too many GPUs or
 * if there is no memory. Pointers to other devices may become invalid. */
struct device *world_add(struct world *w, const struct profile *p, unsigned n);

/* Sorts the actions and starts the devices and the time. Call it when the world is complete. */
int world_start(struct world *w);

uint64_t world_now_ns(const struct world *w);
uint64_t world_wall_ns(const struct world *w, uint64_t t_ns);

/* world_boots() returns how often the driver was reloaded until t; *gap says whether the driver
 * is absent at t. world_driver() returns the version of the driver or of NVML at t. */
unsigned world_boots(const struct world *w, uint64_t t_ns, bool *gap);
const char *world_driver(const struct world *w, uint64_t t_ns, bool nvml);

/* Returns the combination of all faults of a call at t: any hang, the longest delay, the first
 * code and the first value. If field is not 0, the faults are those of this field value. */
struct fault world_fault(const struct world *w, int call, bool lifecycle, int device,
			 unsigned field, uint64_t t_ns);

/* Advances a device to t. All queries below are about that time. */
void device_advance(struct world *w, struct device *d, uint64_t t_ns);

/* Call this after a change of a setting, so that the next advance computes power, clocks and
 * throttle reasons again. */
void device_changed(struct device *d);

bool process_alive(const struct process *p, uint64_t t_ns);
uint64_t process_bytes(const struct process *p, uint64_t t_ns);

/* Returns the number of used bytes of the board (mig is NULL) or of one MIG instance, without
 * the memory that the driver reserves. */
uint64_t device_used_bytes(const struct device *d, const struct mig *mig);
uint64_t device_total_bytes(const struct device *d);
uint64_t device_reserved_bytes(const struct device *d);

/* Does the work of gpuward_sim_process(). Returns 0, or -1 if there is no memory. */
int device_set_process(struct device *d, uint32_t pid, uint64_t bytes, bool graphics);

/* Reads the folder in which real processes report their memory, if the device has one. */
void device_follow(struct device *d);

uint64_t device_counter_mj(struct device *d);
double device_memory_mhz(const struct device *d);
unsigned device_pstate(const struct device *d);

#endif
