/* policy: what the guard was told, as plain data.
 *
 * Workers may be moved, rules say who is what, knobs say how patient to be.  Made by whoever reads a
 * configuration (daemon/guard_config.h) or by a program through the library; never changed by what is
 * decided.  Texts are the policy's own and live as long as it. */
#ifndef GW_GUARD_POLICY_H
#define GW_GUARD_POLICY_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_WORKERS 32
#define POLICY_RULES   64
#define POLICY_GPUS    16 /* of one worker */
#define POLICY_SPANS   8  /* likewise */

enum guard_mode { GUARD_OBSERVE, GUARD_DRY_RUN, GUARD_ENFORCE };

enum guard_action { GUARD_IGNORE, GUARD_WATCH, GUARD_CONTEND, GUARD_CONTEND_NOW };

/* How a process is known; what is NULL, 0 or negative is not looked at, the rest must all hold. */
struct policy_match {
	const char *name;      /* comm, 15 bytes, may have * and ?                    */
	const char *exe;       /* real path, may have * and ?                         */
	const char *command;   /* extended regular expression over the joined arguments */
	const char *cgroup;    /* may have * and ?                                    */
	const char *container; /* id or its beginning                                 */
	const char *pidfile;   /* of a worker: the process whose number is in it      */
	const char *unit;      /* of a worker: systemd's; its cgroup                  */
	unsigned port;         /* of a worker: who listens on it                      */
	int64_t uid;           /* -1: any                                             */
	unsigned type;         /* set of enum gw_process_type; 0: any                 */
	uint64_t vram_ge;      /* bytes */
	double util_ge;        /* ratio */
	const char *gpu;       /* a selector as of gw_device_matches()                */
};

struct policy_rule {
	struct policy_match match;
	enum guard_action action;
	const char *text; /* "rule 3 (gpuward.toml:41)", for explanations */
};

enum policy_kind {
#define K(symbol, name, url, level, traits, help) WORKER_##symbol,
#include "kind.def"
	WORKER_KINDS
};

/* What a kind is like, beside its address and its level. */
enum policy_trait {
	KIND_WAKES = 1,          /* loads again by itself when somebody asks it             */
	KIND_UNTOLD = 1 << 1,    /* cannot be told to load: there are no bytes to wait for  */
	KIND_ENDS = 1 << 2,      /* evicting may end its process, resuming starts it        */
	KIND_UNIT = 1 << 3,      /* is a unit of systemd                                    */
	KIND_CONTAINER = 1 << 4, /* is a container                                          */
	KIND_COMMANDS = 1 << 5,  /* is moved by programs that the configuration names       */
	KIND_SIGNALS = 1 << 6,   /* likewise by signals                                     */
	KIND_DEPTHS = 1 << 7,    /* has several ways to be put away: policy_worker.level    */
	KIND_FORGETS = 1 << 8,   /* cannot tell what it has loaded: policy_worker.model     */
};

const char *policy_kind_name(unsigned kind); /* "ollama", ...; NULL past the last */
int policy_kind_find(const char *name);      /* -GW_E_NOENT: no such  */
const char *policy_kind_url(unsigned kind);  /* where it listens unless told; NULL: no HTTP */
unsigned policy_kind_level(unsigned kind); /* of the ladder (guard.md §9), at which it acts */
bool policy_kind_is(unsigned kind, enum policy_trait trait);
extern const char policy_kind_choices[]; /* "|ollama|llamacpp...": those of a configuration */

enum policy_resume { RESUME_RESTORE, RESUME_LAZY, RESUME_NEVER };

/* Moments of a week in which a worker is out: "Fri-Sun 18:00-23:00". */
struct policy_span {
	unsigned days; /* bit 0: Monday */
	unsigned from_min,
		to_min; /* since midnight, local time; to <= from: into the next day */
};

/* A worker's numbers; what is NAN or UINT64_MAX is as in policy.standard.  max_level and allow_kill are
 * always its own. */
struct policy_knobs {
	uint64_t debounce_ns, quiet_ns, resident_ns, drain_ns, verify_ns, budget_ns, post_ns;
	uint64_t headroom_bytes; /* at least this ...           */
	double headroom_ratio;   /* ... and this of the board   */
	uint64_t min_vram_bytes; /* a contender below it is none, unless it works */
	double util_ratio;
	uint64_t util_ns;
	unsigned max_level;
	bool allow_kill;
};

struct policy_worker {
	const char *name;
	enum policy_kind kind;
	const char *url;        /* "http://127.0.0.1:11434" */
	const char *token_file; /* NULL: none */
	const char *model;      /* what to load again, where the worker cannot tell; NULL */
	const char *const *evict_argv, *const *resume_argv; /* of exec; NULL-terminated   */
	int evict_signal, resume_signal;                    /* of signal                  */
	const char *gpus[POLICY_GPUS]; /* selectors; none: wherever it is */
	unsigned gpu_count;
	struct policy_match match;
	int priority; /* lowest leaves first */
	enum policy_resume resume;
	bool managed;   /* started when it is gone */
	unsigned level; /* of vLLM sleep and the like; 0: the adapter's own choice */
	struct policy_span schedule[POLICY_SPANS];
	unsigned schedules;
	bool ac_only;
	/* Idle economy: unloaded when it idles (guard/economy.h). */
	bool idle_economy;       /* when that saves energy */
	uint64_t idle_after_ns;  /* after so long; 0: not by time */
	double idle_w, reload_j; /* until they are learned; reload_j NAN: not known */
	struct policy_knobs knobs;
	const char *text; /* "[[worker]] ollama (gpuward.toml:12)" */
};

struct policy {
	enum guard_mode mode;
	bool any;              /* demand: any other process, as the original rule had it */
	bool unknown_contends; /* profile desktop: who no rule knows may contend      */
	bool by_unattributed;  /* profile container: memory that nobody owns contends */
	uint64_t unattributed_bytes;
	bool evict_when_blind;
	bool restore_on_stop;
	unsigned user_evictions; /* that one user may cause in an hour; 0: no limit */
	uint64_t poll_ns;        /* 0: as guard.md §8 has it */
	struct policy_knobs standard;
	struct policy_rule rule[POLICY_RULES];
	unsigned rules;
	struct policy_worker worker[POLICY_WORKERS];
	unsigned workers;
	bool simulated_too;    /* act on simulated GPUs: tests */
	const char *companion; /* socket of gpuward-companion; NULL: acts are our own */
	void *memory;          /* of texts; policy_done() */
};

/* Defaults of guard.md §8: observes, knows no rule and no worker. */
void policy_init(struct policy *p);
/* A worker that has all numbers from the standard, and no name yet. */
void policy_worker_init(struct policy_worker *w);

/* Texts.  What policy_keep() returns lives until policy_done(); NULL without memory.  A policy whose texts
 * are all borrowed from elsewhere needs no policy_done(), but it may be called. */
const char *policy_keep(struct policy *p, const char *text, size_t n);
/* *ret owns copies of all texts of p.  0, or -GW_E_NOMEM and *ret is empty. */
int policy_copy(struct policy *ret, const struct policy *p);
void policy_done(struct policy *p);

/* Do they say the same?  Where it was said (the members named text) does not matter. */
bool policy_same(const struct policy *a, const struct policy *b);

/* Likewise of how a process is known. */
bool policy_match_same(const struct policy_match *a, const struct policy_match *b);

/* A worker's number, or the standard's. */
uint64_t policy_number(uint64_t own, uint64_t standard);

/* "Fri-Sun 18:00-23:00", several parted by ';'.  Days: Mon to Sun, ranges, lists with commas, "daily"; none
 * is daily.  How many were added to the n of span[POLICY_SPANS], or -GW_E_PARSE with a sentence. */
int policy_spans_read(const char *text, struct policy_span *span, unsigned n, char *message,
		      size_t size);

/* Is local time t (as of localtime_r) in one of the worker's spans?  Only the clock on the wall counts:
 * a span whose end was skipped is over after the jump, an hour that comes twice is in it both times. */
struct tm;
bool policy_in_schedule(const struct policy_worker *w, const struct tm *local);

#endif
