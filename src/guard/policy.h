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

/* The structs below have their members from lists, and policy.c makes of the same lists how they are compared and
 * copied, so that none can be forgotten there.
 *   V(type, name)                   a value, or a text
 *   W(name)                         a text that says where something was said: copied, and not compared
 *   S(of, name)                     a struct policy_of
 *   A(type, of, name, most, count)  an array of which count are there; of: text, or of struct policy_of */
#define POLICY_V(type, name) type name;
#define POLICY_W(name)       const char *name;
#define POLICY_S(of, name)   struct policy_##of name;
#define POLICY_A(type, of, name, most, count) \
	type name[most];                      \
	unsigned count;
#define POLICY_FIELDS(LIST) LIST(POLICY_V, POLICY_W, POLICY_S, POLICY_A)

/* How a process is known; what is NULL, 0 or negative is not looked at, the rest must all hold. */
/* clang-format off */
#define POLICY_MATCH(V, W, S, A) \
	V(const char *, name)      /* comm, 15 bytes, may have * and ?                      */ \
	V(const char *, exe)       /* real path, may have * and ?                           */ \
	V(const char *, command)   /* extended regular expression over the joined arguments */ \
	V(const char *, cgroup)    /* may have * and ?                                      */ \
	V(const char *, container) /* id or its beginning                                   */ \
	V(const char *, pidfile)   /* of a worker: the process whose number is in it        */ \
	V(const char *, unit)      /* of a worker: systemd's; its cgroup                    */ \
	V(unsigned, port)          /* of a worker: who listens on it                        */ \
	V(int64_t, uid)            /* -1: any                                               */ \
	V(unsigned, type)          /* set of enum gw_process_type; 0: any                   */ \
	V(uint64_t, vram_ge)       /* bytes */ \
	V(double, util_ge)         /* ratio */ \
	V(const char *, gpu)       /* a selector as of gw_device_matches()                  */

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
	KIND_KEEPS = 1 << 9,     /* what it had goes to host memory, and comes from there   */
	KIND_DROPS = 1 << 10,    /* ... but for policy_worker.level 2, which lets go of it  */
	KIND_WHOLE = 1 << 11,    /* an order that is cut short would break it               */
	KIND_SELF = 1 << 12,     /* is the process of the guard itself                      */
	KIND_SLEEPS = 1 << 13,   /* no request wakes it: RESUME_LAZY would leave it asleep  */
};

const char *policy_kind_name(unsigned kind); /* "ollama", ...; NULL past the last */
int policy_kind_find(const char *name);      /* -GW_E_NOENT: no such  */
const char *policy_kind_url(unsigned kind);  /* where it listens unless told; NULL: no HTTP */
unsigned
policy_kind_level(unsigned kind); /* of the ladder (GUARD-MACHINE.md), at which it acts */
bool policy_kind_is(unsigned kind, enum policy_trait trait);
extern const char policy_kind_choices[]; /* "|ollama|llamacpp...": those of a configuration */

enum policy_resume { RESUME_RESTORE, RESUME_LAZY, RESUME_NEVER };

/* Moments of a week in which a worker is out: "Fri-Sun 18:00-23:00". */
/* clang-format off */
#define POLICY_SPAN(V, W, S, A) \
	V(unsigned, days)     /* bit 0: Monday */ \
	V(unsigned, from_min) /* since midnight, local time */ \
	V(unsigned, to_min)   /* likewise; to <= from: into the next day */

/* A worker's numbers; what is NAN or UINT64_MAX is as in policy.standard.  max_level and allow_kill are
 * always its own. */
#define POLICY_KNOBS(V, W, S, A) \
	V(uint64_t, debounce_ns) \
	V(uint64_t, quiet_ns) \
	V(uint64_t, resident_ns) \
	V(uint64_t, drain_ns) \
	V(uint64_t, verify_ns) \
	V(uint64_t, budget_ns) \
	V(uint64_t, post_ns) \
	V(uint64_t, headroom_bytes) /* at least this ...           */ \
	V(double, headroom_ratio)   /* ... and this of the board   */ \
	V(uint64_t, min_vram_bytes) /* a contender below it is none, unless it works */ \
	V(double, util_ratio) \
	V(uint64_t, util_ns) \
	V(unsigned, max_level) \
	V(bool, allow_kill)

#define POLICY_WORKER(V, W, S, A) \
	V(const char *, name) \
	V(enum policy_kind, kind) \
	V(const char *, url)                /* "http://127.0.0.1:11434" */ \
	V(const char *, token_file)         /* NULL: none */ \
	V(const char *, model)              /* what to load again, where the worker cannot tell; NULL */ \
	V(const char *const *, evict_argv)  /* of exec; NULL-terminated */ \
	V(const char *const *, resume_argv) \
	V(int, evict_signal)                /* of signal */ \
	V(int, resume_signal) \
	A(const char *, text, gpus, POLICY_GPUS, gpu_count) /* selectors; none: wherever it is */ \
	S(match, match) \
	V(int, priority)                    /* lowest leaves first */ \
	V(enum policy_resume, resume) \
	V(bool, managed)                    /* started when it is gone */ \
	V(unsigned, level)                  /* of vLLM sleep and the like; 0: the adapter's own choice */ \
	A(struct policy_span, span, schedule, POLICY_SPANS, schedules) \
	V(bool, ac_only) \
	/* Idle economy: unloaded when it idles (guard/economy.h). */ \
	V(bool, idle_economy)               /* when that saves energy */ \
	V(uint64_t, idle_after_ns)          /* after so long; 0: not by time */ \
	V(double, idle_w)                   /* until they are learned */ \
	V(double, reload_j)                 /* likewise; NAN: not known */ \
	S(knobs, knobs) \
	W(text)                             /* "[[worker]] ollama (gpuward.toml:12)" */

#define POLICY_ALL(V, W, S, A) \
	V(enum guard_mode, mode) \
	V(bool, any)               /* demand: any other process, as the original rule had it */ \
	V(bool, unknown_contends)  /* profile desktop: who no rule knows may contend      */ \
	V(bool, by_unattributed)   /* profile container: memory that nobody owns contends */ \
	V(uint64_t, unattributed_bytes) \
	V(bool, evict_when_blind) \
	V(bool, restore_on_stop) \
	V(unsigned, user_evictions) /* that one user may cause in an hour; 0: no limit */ \
	V(uint64_t, poll_ns)        /* 0: as GUARD-MACHINE.md has it, Numbers */ \
	S(knobs, standard) \
	A(struct policy_rule, rule, rule, POLICY_RULES, rules) \
	A(struct policy_worker, worker, worker, POLICY_WORKERS, workers) \
	V(bool, simulated_too)      /* act on simulated GPUs: tests */ \
	V(const char *, companion)  /* socket of gpuward-companion; NULL: acts are our own */
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
	void *memory; /* of texts; policy_done() */
};

/* The defaults of [guard] and [guard.defaults] (config.def): observes, knows no rule and no worker. */
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
/* At local time local_s (seconds): how long it is still in a span; -1: for more than a week. */
int64_t policy_schedule_left_s(const struct policy_worker *w, int64_t local_s);
/* The span that local_s is in: "Fri,Sat 18:00-23:00". */
void policy_schedule_text(const struct policy_worker *w, int64_t local_s, char *out,
			  size_t size);

#endif
