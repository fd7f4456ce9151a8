/* policy: the configuration of the guard, as plain data.
 *
 * A policy has the workers that may be moved, the rules that classify processes, and the knobs:
 * times and sizes. The reader of a configuration (daemon/guard_config.h) or a program that uses
 * the library makes the policy; decisions never change it. A policy owns its strings. */
#ifndef GW_GUARD_POLICY_H
#define GW_GUARD_POLICY_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_WORKERS 32
#define POLICY_RULES   64
#define POLICY_GPUS    16 /* per worker */
#define POLICY_SPANS   8  /* per worker */

enum guard_mode { GUARD_OBSERVE, GUARD_DRY_RUN, GUARD_ENFORCE };
extern const char *const guard_modes[]; /* "observe", ...; NULL after the last mode */

enum guard_action { GUARD_IGNORE, GUARD_WATCH, GUARD_CONTEND, GUARD_CONTEND_NOW };

/* The members of the structs below are lists. From these lists policy.c also generates
 * comparison and copy.
 *   V(type, name)                   a value, or a string
 *   W(name)                         where something is configured: copied, not compared
 *   S(of, name)                     a struct policy_of
 *   A(type, of, name, most, count)  an array with count elements; of: text, or policy_of */
#define POLICY_V(type, name) type name;
#define POLICY_W(name)       const char *name;
#define POLICY_S(of, name)   struct policy_##of name;
#define POLICY_A(type, of, name, most, count) \
	type name[most];                      \
	unsigned count;
#define POLICY_FIELDS(LIST) LIST(POLICY_V, POLICY_W, POLICY_S, POLICY_A)

/* How a process is recognised: every member that is not NULL, 0 or negative must match. */
/* clang-format off */
#define POLICY_MATCH(V, W, S, A) \
	V(const char *, name)      /* comm, 15 bytes, with wildcards * and ?                */ \
	V(const char *, exe)       /* real path, with wildcards                             */ \
	V(const char *, command)   /* extended regular expression over the joined arguments */ \
	V(const char *, cgroup)    /* with wildcards                                        */ \
	V(const char *, container) /* id, or its beginning */ \
	V(const char *, pidfile)   /* worker: a file with the pid                           */ \
	V(const char *, unit)      /* worker: the systemd unit                              */ \
	V(unsigned, port)          /* worker: the process listens on this port */ \
	V(int64_t, uid)            /* -1: any                                               */ \
	V(unsigned, type)          /* set of enum gw_process_type; 0: any                   */ \
	V(uint64_t, vram_ge)       /* bytes */ \
	V(double, util_ge)         /* ratio */ \
	V(const char *, gpu)       /* a selector as for gw_device_matches() */

#define POLICY_RULE(V, W, S, A) \
	S(match, match) \
	V(enum guard_action, action) \
	W(text) /* "rule 3 (gpuward.toml:41)", for explanations */
/* clang-format on */

struct policy_match {
	POLICY_FIELDS(POLICY_MATCH)
};

struct policy_rule {
	POLICY_FIELDS(POLICY_RULE)
};

enum policy_kind {
#define K(symbol, name, url, level, stop_s, traits, help) WORKER_##symbol,
#include "kind.def"
	WORKER_KINDS
};

/* Properties of a kind, in addition to its address and its level. */
enum policy_trait {
	KIND_LOADS_ON_REQUEST = 1, /* loads again with the next request */
	/* a resume loads no model, so the guard does not wait for the worker's memory */
	KIND_CANNOT_LOAD = 1 << 1,
	KIND_STOPS_PROCESS = 1 << 2, /* an eviction may end the process; a resume starts it */
	KIND_UNIT = 1 << 3,          /* is a systemd unit */
	KIND_CONTAINER = 1 << 4,     /* is a container */
	KIND_COMMANDS = 1 << 5,      /* configured programs evict and resume it */
	KIND_SIGNALS = 1 << 6,       /* configured signals evict and resume it */
	KIND_LEVELS = 1 << 7,        /* has several ways to evict: policy_worker.level */
	KIND_NEEDS_MODEL = 1 << 8,   /* cannot report what is loaded: policy_worker.model */
	KIND_TO_HOST = 1 << 9,       /* an eviction moves its memory to the host */
	/* an eviction with policy_worker.level 2 frees the memory instead of moving it to the
	 * host */
	KIND_DROPS_AT_2 = 1 << 10,
	KIND_ATOMIC = 1 << 11, /* an interrupted order would break the worker */
	KIND_SELF = 1 << 12,   /* is the process of the guard itself */
	/* no request wakes the worker: RESUME_LAZY would leave it asleep */
	KIND_NEEDS_WAKE = 1 << 13,
	/* for each load, a manager process replaces the process that has the port */
	KIND_REPLACES_PROCESS = 1 << 14,
};

const char *policy_kind_name(unsigned kind); /* "ollama", ...; NULL after the last kind */
int policy_kind_find(const char *name);      /* -GW_E_NOENT: unknown */
const char *policy_kind_url(unsigned kind);  /* the default address; NULL: no HTTP */
unsigned policy_kind_level(unsigned kind);   /* the eviction level at which the kind acts */
/* time that the server takes to free memory after its answer */
uint64_t policy_kind_stop_ns(unsigned kind);
bool policy_kind_is(unsigned kind, enum policy_trait trait);
extern const char policy_kind_choices[]; /* "|ollama|llamacpp...", for a configuration */

enum policy_resume { RESUME_RESTORE, RESUME_LAZY, RESUME_NEVER };

/* A part of the week in which a worker is evicted: "Fri-Sun 18:00-23:00". */
/* clang-format off */
#define POLICY_SPAN(V, W, S, A) \
	V(unsigned, days)     /* bit 0: Monday */ \
	V(unsigned, from_min) /* since midnight, local time */ \
	V(unsigned, to_min) /* to_min <= from_min: the span ends on the next day */

/* Times and sizes of a worker; NAN or UINT64_MAX means the value of policy.standard.  max_level
 * and allow_kill are always the worker's own. */
#define POLICY_KNOBS(V, W, S, A) \
	V(uint64_t, debounce_ns) \
	V(uint64_t, quiet_ns) \
	V(uint64_t, resident_ns) \
	V(uint64_t, drain_ns) \
	V(uint64_t, verify_ns) \
	V(uint64_t, budget_ns) \
	V(uint64_t, post_ns) \
	V(uint64_t, headroom_bytes) /* memory kept free: at least this */ \
	V(double, headroom_ratio)   /* and at least this share of the board's memory */ \
	V(uint64_t, min_vram_bytes) /* a contender with at least this much is demand */ \
	V(double, util_ratio) \
	V(uint64_t, util_ns) \
	V(unsigned, max_level) \
	V(bool, allow_kill)

#define POLICY_WORKER(V, W, S, A) \
	V(const char *, name) \
	V(enum policy_kind, kind) \
	V(const char *, url)                /* "http://127.0.0.1:11434" */ \
	V(const char *, token_file)         /* NULL: none */ \
	V(const char *, model)              /* model to load if the server reports none; or NULL */ \
	V(const char *const *, evict_argv)  /* kind exec; NULL-terminated */ \
	V(const char *const *, resume_argv) \
	V(int, evict_signal)                /* kind signal */ \
	V(int, resume_signal) \
	A(const char *, text, gpus, POLICY_GPUS, gpu_count) /* selectors of the worker's GPUs; none: any GPU */ \
	S(match, match) \
	V(int, priority)                    /* the worker with the lowest number leaves first */ \
	V(enum policy_resume, resume) \
	V(bool, managed)                    /* the guard starts the worker if it does not run */ \
	V(unsigned, level)                  /* such as vLLM's sleep level; 0: default */ \
	A(struct policy_span, span, schedule, POLICY_SPANS, schedules) \
	V(bool, ac_only) \
	/* Idle economy: unload the worker while it is idle (guard/idle.h). */ \
	V(bool, idle_economy)               /* unload if that saves energy */ \
	V(uint64_t, idle_after_ns)          /* unload after this time; 0: not by time */ \
	V(double, idle_w)                   /* used until it is learned */ \
	V(double, reload_j)                 /* used until it is learned; NAN: unknown */ \
	S(knobs, knobs) \
	W(text)                             /* "[[worker]] ollama (gpuward.toml:12)" */

#define POLICY_ALL(V, W, S, A) \
	V(enum guard_mode, mode) \
	V(bool, any)               /* every other process is a contender */ \
	V(bool, unknown_contends)  /* profile desktop: a process without a rule is a contender */ \
	V(bool, by_unattributed)   /* profile container: memory without a process is demand */ \
	V(uint64_t, unattributed_bytes) \
	V(bool, evict_when_blind) \
	V(bool, restore_on_stop) \
	V(unsigned, user_evictions) /* maximum evictions per user and hour; 0: no limit */ \
	V(uint64_t, poll_ns)        /* interval of scenes; 0: see GUARD-MACHINE.md, Numbers */ \
	S(knobs, standard) \
	A(struct policy_rule, rule, rule, POLICY_RULES, rules) \
	A(struct policy_worker, worker, worker, POLICY_WORKERS, workers) \
	V(bool, simulated_too)      /* act on simulated GPUs, for tests */ \
	V(const char *, companion) /* socket of gpuward-companion; NULL: act without it */
/* clang-format on */

struct policy_span {
	POLICY_FIELDS(POLICY_SPAN)
};

struct policy_knobs {
	POLICY_FIELDS(POLICY_KNOBS)
};

struct policy_worker {
	POLICY_FIELDS(POLICY_WORKER)
};

struct policy {
	POLICY_FIELDS(POLICY_ALL)
	void *memory; /* memory of the strings */
};

/* Sets the defaults of [guard] and [guard.defaults] (config.def): observe, no rules, no
 * workers. */
void policy_init(struct policy *p);
/* Sets the defaults of a worker: no name, and all times, sizes and ratios from
 * policy.standard. */
void policy_worker_init(struct policy_worker *w);

/* Copies a string, which lives until policy_done(); NULL: out of memory. A policy that only
 * borrows strings does not need policy_done(). */
const char *policy_keep(struct policy *p, const char *text, size_t n);
/* Copies p; *ret owns copies of all strings. Returns 0, or -GW_E_NOMEM with an empty *ret. */
int policy_copy(struct policy *ret, const struct policy *p);
void policy_done(struct policy *p);

/* True if both policies are equal, apart from where they are configured (the members named
 * text). */
bool policy_same(const struct policy *a, const struct policy *b);

int policy_find_worker(const struct policy *p, const char *name); /* -1: none */
bool policy_match_same(const struct policy_match *a, const struct policy_match *b);

/* Return the worker's own value if it is set, else the value in policy.standard. */
uint64_t policy_number(uint64_t own, uint64_t standard);
/* Replaces each value of k that is not set by the value in standard. */
void policy_knobs_resolve(struct policy_knobs *k, const struct policy_knobs *standard);

/* Reads "Fri-Sun 18:00-23:00"; several spans are separated by ';'. Days are Mon to Sun, ranges,
 * lists with commas, or "daily"; no day means daily. span[POLICY_SPANS] already has n spans.
 * Returns how many were added, or -GW_E_PARSE with a sentence. */
int policy_spans_read(const char *text, struct policy_span *span, unsigned n, char *message,
		      size_t size);

/* True if the local time (of localtime_r) is in one of the worker's spans. Only the wall clock
 * counts: if the clock jumps over the end of a span, the span has ended. If an hour of a span
 * occurs twice, the span holds both times. */
struct tm;
bool policy_in_schedule(const struct policy_worker *w, const struct tm *local);
/* Returns in how many seconds after local time local_s the worker's span ends; -1: more than a
 * week. */
int64_t policy_schedule_left_s(const struct policy_worker *w, int64_t local_s);
/* Writes the span that local_s is in: "Fri,Sat 18:00-23:00". */
void policy_schedule_text(const struct policy_worker *w, int64_t local_s, char *out,
			  size_t size);

#endif
