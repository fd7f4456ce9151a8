/* policy: the configuration of the guard, as plain data.
 *
 * A policy has the workers that may be evicted, the rules that classify processes, and times
 * and sizes ("knobs"). daemon/guard_config.h makes a policy from a configuration, and api.c
 * makes one from the options of a program. The guard never changes a policy. A policy owns its
 * strings. */
#ifndef GW_GUARD_POLICY_H
#define GW_GUARD_POLICY_H

#include <gpuward.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLICY_WORKERS 32
#define POLICY_RULES   64
#define POLICY_GPUS    16 /* maximum number of GPUs per worker */
#define POLICY_SPANS   8  /* maximum number of spans in the schedule of a worker */

enum guard_mode { GUARD_OBSERVE, GUARD_DRY_RUN, GUARD_ENFORCE };
extern const char *const guard_modes[]; /* "observe", ...; NULL after the last mode */

/* What a rule says about the processes that it matches. */
enum guard_action { GUARD_IGNORE, GUARD_WATCH, GUARD_CONTEND, GUARD_CONTEND_NOW };
extern const char *const guard_actions[]; /* "ignore", ...; NULL after the last action */

/* The structs below are generated from lists of members. policy.c generates the functions that
 * compare and copy them from the same lists.
 *   V(type, name)                   a value or a string
 *   W(name)                         a string that says where something is configured; it is
 *                                   copied, but not compared
 *   S(of, name)                     a struct policy_OF
 *   A(type, of, name, most, count)  an array of at most `most` strings (of: text) or structs
 *                                   policy_OF; the member count has the number of elements */
#define POLICY_V(type, name) type name;
#define POLICY_W(name)       const char *name;
#define POLICY_S(of, name)   struct policy_##of name;
#define POLICY_A(type, of, name, most, count) \
	type name[most];                      \
	unsigned count;
#define POLICY_FIELDS(LIST) LIST(POLICY_V, POLICY_W, POLICY_S, POLICY_A)

/* How a process is recognised: every member that is set must match. A member that is NULL, 0 or
 * negative is not set. */
/* clang-format off */
#define POLICY_MATCH(V, W, S, A) \
	V(const char *, name)      /* name of the process (comm), with wildcards * and ?    */ \
	V(const char *, exe)       /* real path of the program, with wildcards              */ \
	V(const char *, command)   /* extended regular expression over the joined arguments */ \
	V(const char *, cgroup)    /* path of the control group, with wildcards             */ \
	V(const char *, container) /* name or id of the container, or the beginning of the id */ \
	V(const char *, pidfile)   /* only for workers: path of a file with the pid         */ \
	V(const char *, unit)      /* only for workers: the systemd unit                    */ \
	V(unsigned, port)          /* only for workers: the process listens on this TCP port */ \
	V(int64_t, uid)            /* user of the process; -1: any user                     */ \
	V(unsigned, type)          /* set of enum gw_process_type; 0: any type              */ \
	V(uint64_t, vram_ge)       /* the process holds at least this many bytes of GPU memory */ \
	V(double, util_ge)         /* the process uses at least this ratio of the GPU */ \
	V(const char *, gpu)       /* the process is on this GPU: a selector of gw_device_matches() */

#define POLICY_RULE(V, W, S, A) \
	S(match, match) \
	V(enum guard_action, action) \
	W(text) /* such as "rule 3 (gpuward.toml:41)", for explanations */
/* clang-format on */

struct policy_match {
	POLICY_FIELDS(POLICY_MATCH)
};

struct policy_rule {
	POLICY_FIELDS(POLICY_RULE)
};

/* Levels of eviction, from mild to hard. An eviction tries one level after the other. */
enum guard_level {
	LEVEL_NONE,
	LEVEL_CLOSE,      /* the worker refuses new work */
	LEVEL_UNLOAD,     /* the worker frees its memory */
	LEVEL_CHECKPOINT, /* the driver moves the worker's memory to the host */
	LEVEL_STOP,       /* the worker's unit or container is stopped */
	LEVEL_TERM,       /* the worker's processes get SIGTERM */
	LEVEL_KILL,       /* the worker's processes get SIGTERM, and then SIGKILL */
	GUARD_LEVELS
};

enum policy_kind {
#define K(symbol, name, url, level, stop_s, traits, help) WORKER_##symbol,
#include "kind.def"
	WORKER_KINDS
};

/* Properties of a kind, in addition to its address and its level. In the comments of this enum,
 * "it" is a worker of the kind. */
enum policy_trait {
	KIND_LOADS_ON_REQUEST =
		1, /* it loads its model again with the next request of a client */
	/* a resume loads no model, so the guard does not wait for the worker's memory */
	KIND_CANNOT_LOAD = 1 << 1,
	KIND_STOPS_PROCESS = 1 << 2, /* an eviction may end the process; a resume starts it */
	KIND_UNIT = 1 << 3,          /* it is a systemd unit */
	KIND_CONTAINER = 1 << 4,     /* it is a container */
	KIND_COMMANDS = 1 << 5,      /* configured programs evict and resume it */
	KIND_SIGNALS = 1 << 6,       /* configured signals evict and resume it */
	KIND_LEVELS = 1 << 7,        /* policy_worker.level selects how it is evicted */
	KIND_NEEDS_MODEL =
		1 << 8,        /* it cannot report what is loaded; needs policy_worker.model */
	KIND_TO_HOST = 1 << 9, /* an eviction moves its memory to the host */
	/* an eviction with policy_worker.level 2 frees the memory instead of moving it to the
	 * host */
	KIND_DROPS_AT_2 = 1 << 10,
	KIND_ATOMIC = 1 << 11, /* an interrupted order would break the worker */
	KIND_SELF = 1 << 12,   /* the worker is the process of the guard itself */
	/* requests of clients do not wake it, so the guard resumes it even with RESUME_LAZY */
	KIND_NEEDS_WAKE = 1 << 13,
	/* when it loads a model, a manager process replaces the process that has the port */
	KIND_REPLACES_PROCESS = 1 << 14,
};

const char *policy_kind_name(unsigned kind); /* "ollama", ...; NULL after the last kind */
int policy_kind_find(const char *name);      /* -GW_E_NOENT: unknown */
const char *policy_kind_url(unsigned kind);  /* the default address; NULL: no HTTP */
unsigned policy_kind_level(unsigned kind);   /* the eviction level at which the kind acts */
/* Returns how long the server takes at most to free memory after it answered; 0: no limit. */
uint64_t policy_kind_stop_ns(unsigned kind);
/* True if the kind has one of these traits. */
bool policy_kind_is(unsigned kind, enum policy_trait traits);
extern const char policy_kind_choices[]; /* "|ollama|llamacpp...", for a configuration */

/* How an evicted worker returns: the guard loads its models again; the worker loads a model
 * with the next request of a client; or it returns only if a person requests it. */
enum policy_resume { RESUME_RESTORE, RESUME_LAZY, RESUME_NEVER };

/* A part of the week in which a worker is evicted: "Fri-Sun 18:00-23:00". */
/* clang-format off */
#define POLICY_SPAN(V, W, S, A) \
	V(unsigned, days)     /* bit 0: Monday */ \
	/* begin and end, in minutes since midnight, local time; if to_min <= from_min, the span \
	 * ends on the next day */ \
	V(unsigned, from_min) \
	V(unsigned, to_min)

/* Times and sizes of a worker. NAN or UINT64_MAX means the value in policy.standard. max_level
 * and allow_kill are always the worker's own. gpuward.toml(5) explains each member. */
#define POLICY_KNOBS(V, W, S, A) \
	V(uint64_t, debounce_ns) \
	V(uint64_t, quiet_ns) \
	V(uint64_t, resident_ns) \
	V(uint64_t, drain_ns) \
	V(uint64_t, verify_ns) \
	V(uint64_t, budget_ns) \
	V(uint64_t, post_ns) \
	V(uint64_t, headroom_bytes) /* bytes to keep free */ \
	V(double, headroom_ratio)   /* share of the memory to keep free, if that is more */ \
	V(uint64_t, min_vram_bytes) /* a contender that holds at least this many bytes needs the GPU */ \
	V(double, util_ratio) \
	V(uint64_t, util_ns) \
	V(unsigned, max_level) \
	V(bool, allow_kill)

#define POLICY_WORKER(V, W, S, A) \
	V(const char *, name) \
	V(enum policy_kind, kind) \
	V(const char *, url)                /* such as "http://127.0.0.1:11434" */ \
	V(const char *, token_file)         /* path of a file with the token for the url; NULL: none */ \
	V(const char *, model)              /* model to load if the server reports none; or NULL */ \
	V(const char *const *, evict_argv)  /* for kind exec: program and arguments; NULL ends the list */ \
	V(const char *const *, resume_argv) \
	V(int, evict_signal)                /* for kind signal: numbers of signals */ \
	V(int, resume_signal) \
	A(const char *, text, gpus, POLICY_GPUS, gpu_count) /* selectors of the worker's GPUs; none: any GPU */ \
	S(match, match) \
	V(int, priority)                    /* the worker with the lowest number leaves first */ \
	V(enum policy_resume, resume) \
	V(bool, managed)                    /* the guard starts the worker if it does not run */ \
	V(unsigned, level)                  /* depends on the kind, such as vLLM's sleep level; 0: default */ \
	A(struct policy_span, span, schedule, POLICY_SPANS, schedules) \
	V(bool, ac_only) \
	/* Idle economy: unload the worker while it is idle (guard/idle.h). */ \
	V(bool, idle_economy)               /* unload if that saves energy */ \
	V(uint64_t, idle_after_ns)          /* unload after this time; 0: the time is not fixed */ \
	V(double, idle_w)                   /* power of an idle model, used until it is learned */ \
	V(double, reload_j)                 /* energy of a load, used until it is learned; NAN: unknown */ \
	S(knobs, knobs) \
	W(text)                             /* such as "[[worker]] ollama (gpuward.toml:12)" */

#define POLICY_ALL(V, W, S, A) \
	V(enum guard_mode, mode) \
	V(bool, any)               /* a process without a rule contends, even the desktop's */ \
	V(bool, unknown_contends)  /* profile desktop: a process without a rule is a contender */ \
	V(bool, by_unattributed)   /* profile container: memory without a process is a demand */ \
	V(uint64_t, unattributed_bytes) \
	V(bool, evict_when_blind) \
	V(bool, restore_on_stop) \
	V(unsigned, user_evictions) /* how often per hour one user may cause evictions; 0: no limit */ \
	V(uint64_t, poll_ns)        /* time between scenes; 0: as in GUARD-MACHINE.md, Numbers */ \
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
	void *memory; /* the strings that the policy owns */
};

/* Sets the defaults of [guard] and [guard.defaults] (config.def): observe, no rules, no
 * workers. */
void policy_init(struct policy *p);
/* Sets the defaults of a worker: no name, and all times, sizes and ratios from
 * policy.standard. */
void policy_worker_init(struct policy_worker *w);

/* Copies a string. The copy lives until policy_done(). Returns NULL if out of memory. A policy
 * that only borrows strings does not need policy_done(). */
const char *policy_keep(struct policy *p, const char *text, size_t n);
/* Copies p; *ret owns copies of all strings. Returns 0, or -GW_E_NOMEM with an empty *ret. */
int policy_copy(struct policy *ret, const struct policy *p);
void policy_done(struct policy *p);

/* True if both policies are equal, apart from where they are configured (the members named
 * text). */
bool policy_same(const struct policy *a, const struct policy *b);

/* Returns the position of the worker with this name; -1: there is none. */
int policy_find_worker(const struct policy *p, const char *name);
bool policy_match_same(const struct policy_match *a, const struct policy_match *b);

/* True if the match says which program, container or unit a process belongs to. */
static inline bool policy_match_names(const struct policy_match *m)
{
	return m->name || m->exe || m->command || m->cgroup || m->container || m->unit;
}

/* True if a worker with this match is found by a search of all processes, because the match has
 * neither a pidfile nor a port. */
static inline bool policy_match_searches(const struct policy_match *m)
{
	return policy_match_names(m) && !m->pidfile && !m->port;
}

/* Returns the worker's own value; if it is not set (UINT64_MAX), returns the standard value. */
uint64_t policy_number(uint64_t own, uint64_t standard);
/* Gives each value of k that is not set the value in standard. */
void policy_knobs_resolve(struct policy_knobs *k, const struct policy_knobs *standard);

/* Reads spans such as "Fri-Sun 18:00-23:00", separated by ';'. Days are Mon to Sun, ranges of
 * days, lists with commas, or "daily"; no day means daily. span[POLICY_SPANS] already has n
 * spans. Returns the number of spans that were added, or -GW_E_PARSE with a sentence. */
int policy_spans_read(const char *text, struct policy_span *span, unsigned n, char *message,
		      size_t size);

/* True if this local time is in one of the worker's spans. Only the weekday and the time of day
 * count, not the time that has passed: if the clock is set forward over the end of a span, the
 * span has ended. */
struct tm;
bool policy_in_schedule(const struct policy_worker *w, const struct tm *local);
/* Returns how many seconds after local_s the worker's span ends; -1: not within a week. */
int64_t policy_schedule_left_s(const struct policy_worker *w, int64_t local_s);
/* Writes the span that contains local_s, such as "Fri,Sat 18:00-23:00"; "" if no span contains
 * local_s. */
void policy_schedule_text(const struct policy_worker *w, int64_t local_s, char *out,
			  size_t size);

#endif
