/* guard_learn: the subcommand `gpuward guard learn`. It asks the service which processes use
 * the GPUs of an idle machine, and prints rules with which the guard ignores these
 * processes. */
#include "guard_subcommand.h"

#include "output.h"

#include "base/clock.h"
#include "base/toml_write.h"
#include "base/json_doc.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CANDIDATES_MAX 128
#define EVERY_NS       NS_PER_S
#define GPUS_MAX       64
#define WORKERS_MAX    64
#define CONTENDERS_MAX 256
#define MODEL_LEAST    (512 * 1048576.0) /* bytes of GPU memory that a small model needs */

/* What guard_learn() does with a process: FATE_IGNORE means that it prints a rule for the
 * process; the other values say why it prints no rule. */
enum fate {
	FATE_IGNORE,
	FATE_MAY_BE_WORKER, /* the process may be a worker that the guard cannot find */
	FATE_CONTENDS,      /* a worker is off its GPU now because of this process */
	FATE_HAS_RULE,      /* a rule in the configuration says that it is a contender */
};

/* A process for which there may be a new rule. */
struct candidate {
	char name[32];
	char exe[512];     /* path of the program; "": unknown, so the rule uses the name */
	double most_bytes; /* largest GPU memory of the process in all polls */
	enum fate fate;
	char worker[64]; /* for FATE_MAY_BE_WORKER and FATE_CONTENDS */
	char rule[160];  /* for FATE_HAS_RULE */
};

/* A worker that the guard cannot find. */
struct absent {
	char name[64], kind[16];
};

/* One worker that is off its GPU, and one process that needs this GPU. */
struct evicted {
	char name[64];       /* name of the worker */
	long long contender; /* pid of the contender */
};

struct learning {
	struct candidate candidate[CANDIDATES_MAX];
	unsigned count;
	/* Number of processes for which candidate[] had no room: `dropped` is the largest
	 * number in any poll, `dropped_now` is the number in the current poll. */
	unsigned dropped;
	unsigned dropped_now;
	char gpu[GPUS_MAX][96];
	unsigned gpus;
	struct absent absent[WORKERS_MAX];
	unsigned absent_count;
	/* All pairs of a worker that is off its GPU and a process that needs this GPU. */
	struct evicted evicted[CONTENDERS_MAX];
	unsigned evicted_count;
};

/* Returns the candidate with this name; adds it if it is new. Returns NULL if there is no
 * room. */
static struct candidate *learn_find(struct learning *l, const char *name)
{
	for (unsigned i = 0; i < l->count; i++)
		if (strcmp(l->candidate[i].name, name) == 0)
			return &l->candidate[i];
	if (l->count == CANDIDATES_MAX) {
		l->dropped_now++;
		return NULL;
	}
	snprintf(l->candidate[l->count].name, sizeof(l->candidate[0].name), "%s", name);
	return &l->candidate[l->count++];
}

/* Reads the path of the process's program from /proc, because the service does not publish it.
 * Call this only if the service can read the path, too: otherwise a rule with the path would
 * never match. */
static void learn_read_exe(struct candidate *s, long long pid)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%lld/exe", pid);
	n = readlink(link, s->exe, sizeof(s->exe) - 1);
	s->exe[n > 0 ? n : 0] = '\0';
	/* "PATH (deleted)": the program was deleted; a path that contains a blank is ignored,
	 * too */
	if (strchr(s->exe, ' '))
		s->exe[0] = '\0';
}

/* Returns true if the process does more than graphics and uses at least as much GPU memory as a
 * small model. A browser, for example, does only graphics. */
static bool is_computing(const struct json_doc *p)
{
	for (size_t i = 0; i < json_doc_count(p, "types"); i++)
		if (!reply_is(json_doc_at(p, "types", i), "", "graphics"))
			return json_doc_number(p, "memory_bytes") >= MODEL_LEAST;
	return false;
}

/* Returns the name of the absent worker that this process may be, or "". The process may be the
 * worker if its name contains the worker's name or kind, if the process computes, or if the
 * service does not know enough about it. guard_learn() prints no rule for such a process. */
static const char *possible_worker(const struct learning *l, const struct json_doc *p,
				   const char *name)
{
	for (unsigned i = 0; i < l->absent_count; i++)
		if (strcasestr(name, l->absent[i].name) || strcasestr(name, l->absent[i].kind))
			return l->absent[i].name;
	return l->absent_count && (json_doc_true(p, "may_be_worker") || is_computing(p))
		       ? l->absent[0].name
		       : "";
}

/* Returns the worker that is off its GPU because of this process, or NULL. */
static const char *learn_evicted_by(const struct learning *l, long long pid)
{
	for (unsigned i = 0; i < l->evicted_count; i++)
		if (l->evicted[i].contender == pid)
			return l->evicted[i].name;
	return NULL;
}

static void learn_choose_fate(struct learning *l, struct candidate *s, const struct json_doc *p,
			      const char *class)
{
	const char *rule = json_doc_string(p, "rule");
	const char *maybe = possible_worker(l, p, s->name);
	const char *evicted = learn_evicted_by(l, (long long)json_doc_number(p, "pid"));

	if (s->fate != FATE_IGNORE)
		return;
	if (strcmp(class, "contender") == 0 && rule && json_doc_true(p, "by_rule")) {
		s->fate = FATE_HAS_RULE;
		snprintf(s->rule, sizeof(s->rule), "%s", rule);
	} else if (evicted || *maybe) {
		s->fate = evicted ? FATE_CONTENDS : FATE_MAY_BE_WORKER;
		snprintf(s->worker, sizeof(s->worker), "%s", evicted ? evicted : maybe);
	}
}

static void learn_add_process(struct learning *l, const struct json_doc *p)
{
	const char *class = json_doc_string(p, "class"), *name = json_doc_string(p, "name");
	double bytes = json_doc_number(p, "memory_bytes");
	struct candidate *s;

	if (!class || !name ||
	    (strcmp(class, "contender") != 0 && strcmp(class, "unknown") != 0))
		return;
	s = learn_find(l, name);
	if (!s)
		return;
	learn_choose_fate(l, s, p, class);
	if (!*s->exe && json_doc_true(p, "program_seen"))
		learn_read_exe(s, (long long)json_doc_number(p, "pid"));
	s->most_bytes = bytes > s->most_bytes ? bytes : s->most_bytes;
}

static int learn_list_gpus(struct learning *l, struct remote *r)
{
	int code = remote_request_ok(r, "GET", "/api/v1/capacity", NULL);

	for (size_t i = 0; code == EXIT_OK && i < json_doc_count(r->reply, "gpus"); i++) {
		const char *uuid = json_doc_string(json_doc_at(r->reply, "gpus", i), "uuid");

		if (uuid && l->gpus < GPUS_MAX)
			snprintf(l->gpu[l->gpus++], sizeof(l->gpu[0]), "%s", uuid);
	}
	return code;
}

static void learn_add_contender(struct learning *l, const char *worker, long long pid)
{
	struct evicted *e = &l->evicted[l->evicted_count];

	if (l->evicted_count == CONTENDERS_MAX)
		return;
	e->contender = pid;
	snprintf(e->name, sizeof(e->name), "%s", worker);
	l->evicted_count++;
}

/* If the worker is off its GPU because of other processes, stores these processes: the one
 * because of which the worker left, and all that need the worker's GPU now. */
static void learn_add_evicted(struct learning *l, const struct json_doc *w, const char *name)
{
	bool contention = false;
	int64_t pid;

	for (size_t i = 0; i < json_doc_count(w, "reasons"); i++) {
		const struct json_doc *x = json_doc_at(w, "reasons", i);

		if (!reply_is(x, "reason", "contention") || json_doc_true(x, "masked") ||
		    json_doc_true(w, "hypothetical"))
			continue;
		contention = true;
		if (json_doc_integer(x, "contender.pid", &pid))
			learn_add_contender(l, name, pid);
	}
	for (size_t i = 0; contention && i < json_doc_count(w, "contenders"); i++)
		if (json_doc_integer(json_doc_at(w, "contenders", i), "pid", &pid))
			learn_add_contender(l, name, pid);
}

/* Finds the absent workers, and the evicted workers with their contenders. */
static int learn_list_workers(struct learning *l, struct remote *r)
{
	int code = remote_request_ok(r, "GET", "/api/v1/guard", NULL);

	l->absent_count = l->evicted_count = 0;
	for (size_t i = 0; code == EXIT_OK && i < json_doc_count(r->reply, "workers"); i++) {
		const struct json_doc *w = json_doc_at(r->reply, "workers", i);
		const char *name = json_doc_string(w, "name"),
			   *kind = json_doc_string(w, "kind"),
			   *state = json_doc_string(w, "state");
		struct absent *a = &l->absent[l->absent_count];

		if (!name || !kind || !state)
			continue;
		learn_add_evicted(l, w, name);
		if (strcmp(state, "absent") != 0 || l->absent_count == WORKERS_MAX)
			continue;
		snprintf(a->name, sizeof(a->name), "%s", name);
		snprintf(a->kind, sizeof(a->kind), "%s", kind);
		l->absent_count++;
	}
	return code;
}

/* Reads the workers and the processes on all GPUs once. */
static int learn_poll(struct learning *l, struct remote *r)
{
	if (learn_list_workers(l, r) != EXIT_OK)
		return EXIT_FAILED;
	l->dropped_now = 0;
	for (unsigned i = 0; i < l->gpus; i++) {
		char path[160];

		snprintf(path, sizeof(path), "/api/v1/guard/gpus/%s", l->gpu[i]);
		if (remote_request_ok(r, "GET", path, NULL) != EXIT_OK)
			return EXIT_FAILED;
		for (size_t k = 0; k < json_doc_count(r->reply, "processes"); k++)
			learn_add_process(l, json_doc_at(r->reply, "processes", k));
	}
	if (l->dropped_now > l->dropped)
		l->dropped = l->dropped_now;
	return EXIT_OK;
}

/* Prints why there is no rule for a process, even with --quiet. */
static void print_left_out(const struct candidate *s)
{
	switch (s->fate) {
	case FATE_IGNORE: break;
	case FATE_MAY_BE_WORKER:
		cli_error("no rule for %s: this process may be the worker %s, which the guard "
			  "cannot find; see gpuward guard explain %s, then run learn again",
			  s->name, s->worker, s->worker);
		break;
	case FATE_CONTENDS:
		cli_error("no rule for %s: worker %s is off its GPU now because of this "
			  "process; end the process and run learn again, or write the rule "
			  "yourself if %s must not move workers",
			  s->name, s->worker, s->name);
		break;
	case FATE_HAS_RULE:
		cli_error("no rule for %s: %s already makes it a contender; change this rule "
			  "if %s must not move workers",
			  s->name, s->rule, s->name);
		break;
	}
}

static void print_rules(const struct learning *l)
{
	unsigned n = 0;
	struct buf out;

	buf_init(&out, 1u << 20);
	for (unsigned i = 0; i < l->count; i++) {
		const struct candidate *s = &l->candidate[i];
		char bytes[16];

		if (s->fate != FATE_IGNORE)
			continue;
		figure_bytes(bytes, s->most_bytes);
		buf_addf(&out, "%s[[rule]]\n# used at most %s\n", n++ ? "\n" : "", bytes);
		toml_write_text(&out, *s->exe ? "match.exe" : "match.name",
				*s->exe ? s->exe : s->name);
		toml_write_text(&out, "action", "ignore");
	}
	fputs(out.p, stdout);
	buf_done(&out);
}

static int print_json(const struct learning *l)
{
	struct cli_document doc;

	cli_document_begin(&doc, true);
	json_object(&doc.json, NULL);
	json_int(&doc.json, "schema_version", RENDER_SCHEMA_VERSION);
	json_array(&doc.json, "rules");
	for (unsigned i = 0; i < l->count; i++) {
		const struct candidate *s = &l->candidate[i];

		if (s->fate != FATE_IGNORE)
			continue;
		json_object(&doc.json, NULL);
		json_string(&doc.json, "match.exe", *s->exe ? s->exe : NULL);
		json_string(&doc.json, "match.name", *s->exe ? NULL : s->name);
		json_string(&doc.json, "action", "ignore");
		json_double(&doc.json, "memory_bytes_max", s->most_bytes);
		json_object_end(&doc.json);
	}
	json_array_end(&doc.json);
	json_array(&doc.json, "may_be_workers");
	for (unsigned i = 0; i < l->count; i++) {
		if (l->candidate[i].fate != FATE_MAY_BE_WORKER)
			continue;
		json_object(&doc.json, NULL);
		json_string(&doc.json, "name", l->candidate[i].name);
		json_string(&doc.json, "worker", l->candidate[i].worker);
		json_object_end(&doc.json);
	}
	json_array_end(&doc.json);
	json_array(&doc.json, "contenders");
	for (unsigned i = 0; i < l->count; i++) {
		const struct candidate *s = &l->candidate[i];

		if (s->fate != FATE_CONTENDS && s->fate != FATE_HAS_RULE)
			continue;
		json_object(&doc.json, NULL);
		json_string(&doc.json, "name", s->name);
		json_string(&doc.json, "worker", *s->worker ? s->worker : NULL);
		json_string(&doc.json, "rule", *s->rule ? s->rule : NULL);
		json_object_end(&doc.json);
	}
	json_array_end(&doc.json);
	json_uint(&doc.json, "left_out", l->dropped);
	json_object_end(&doc.json);
	return cli_document_end(&doc);
}

int guard_learn(const struct cli *c, struct remote *r, uint64_t for_ns)
{
	static struct learning l; /* static, because it is too large for the stack */
	uint64_t next = clock_mono_ns(clock_real()), end = next + for_ns;
	int code = learn_list_gpus(&l, r);

	if (code == EXIT_OK && !c->quiet)
		cli_error("leave the machine idle for %.0f s, with only the programs that "
			  "always run",
			  (double)for_ns * 1e-9);
	while (code == EXIT_OK) {
		code = learn_poll(&l, r);
		next += EVERY_NS;
		if (next > end)
			break;
		clock_sleep_until(clock_real(), next);
	}
	if (code != EXIT_OK)
		return code;
	if (c->json)
		return print_json(&l);
	print_rules(&l);
	for (unsigned i = 0; i < l.count; i++)
		print_left_out(&l.candidate[i]);
	if (!c->quiet && !l.count)
		cli_error("no new rule is needed: the rules already match every process");
	if (!c->quiet && l.dropped)
		cli_error("%u more processes use the GPUs, but learn handles at most %d; add "
			  "the rules above and run learn again",
			  l.dropped, CANDIDATES_MAX);
	return EXIT_OK;
}
