#include "guard_learn.h"

#include "base/clock.h"
#include "base/toml_write.h"
#include "base/json_doc.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SEEN_MAX    128
#define EVERY_NS    NS_PER_S
#define GPUS_MAX    64
#define ABSENT_MAX  64
#define MODEL_LEAST (512 * 1048576.0) /* bytes that a model takes at least */

/* Somebody whom no rule knows, by name. */
struct seen {
	char name[32], exe[512];
	double most_bytes;
	char worker[64]; /* that is absent and that it may be; "": none */
};

struct absent {
	char name[64], kind[16];
};

struct learning {
	struct seen seen[SEEN_MAX];
	unsigned count, left_out;
	char gpu[GPUS_MAX][96];
	unsigned gpus;
	struct absent absent[ABSENT_MAX];
	unsigned absents;
};

static struct seen *find(struct learning *l, const char *name)
{
	for (unsigned i = 0; i < l->count; i++)
		if (strcmp(l->seen[i].name, name) == 0)
			return &l->seen[i];
	if (l->count == SEEN_MAX) {
		l->left_out++;
		return NULL;
	}
	snprintf(l->seen[l->count].name, sizeof(l->seen[0].name), "%s", name);
	return &l->seen[l->count++];
}

/* The service does not tell paths of others' programs; on this machine we may look.  Where the
 * service may not, a rule with the path would never hold for it. */
static void look_up(struct seen *s, long long pid)
{
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/%lld/exe", pid);
	n = readlink(link, s->exe, sizeof(s->exe) - 1);
	s->exe[n > 0 ? n : 0] = '\0';
	if (strchr(s->exe, ' ')) /* "PATH (deleted)" */
		s->exe[0] = '\0';
}

/* Does it hold as much as a model, and compute?  A browser and the like only draw. */
static bool computes(const struct json_doc *p)
{
	for (size_t i = 0; i < json_doc_count(p, "types"); i++) {
		const char *type = json_doc_string(json_doc_at(p, "types", i), "");

		if (type && strcmp(type, "graphics") != 0)
			return json_doc_number(p, "memory_bytes") >= MODEL_LEAST;
	}
	return false;
}

/* A worker that is not found may be who is on the GPU: ignored, it would be nobody's for ever.
 * By its own name or its kind's, by what it does there, or because the service may not see that
 * it is not. */
static const char *may_be(const struct learning *l, const struct json_doc *p, const char *name)
{
	for (unsigned i = 0; i < l->absents; i++)
		if (strcasestr(name, l->absent[i].name) || strcasestr(name, l->absent[i].kind))
			return l->absent[i].name;
	return l->absents && (json_doc_true(p, "may_be_worker") || computes(p))
		       ? l->absent[0].name
		       : "";
}

static void take_process(struct learning *l, const struct json_doc *p)
{
	const char *class = json_doc_string(p, "class"), *name = json_doc_string(p, "name");
	double bytes = json_doc_number(p, "memory_bytes");
	struct seen *s;

	if (!class || !name ||
	    (strcmp(class, "contender") != 0 && strcmp(class, "unknown") != 0))
		return;
	s = find(l, name);
	if (!s)
		return;
	if (!*s->worker)
		snprintf(s->worker, sizeof(s->worker), "%s", may_be(l, p, name));
	if (!*s->exe && json_doc_true(p, "program_seen"))
		look_up(s, (long long)json_doc_number(p, "pid"));
	s->most_bytes = bytes > s->most_bytes ? bytes : s->most_bytes;
}

static int list_gpus(struct learning *l, struct remote *r)
{
	int code = remote_want(r, "GET", "/api/v1/capacity", NULL);

	for (size_t i = 0; code == EXIT_OK && i < json_doc_count(r->reply, "gpus"); i++) {
		const char *uuid = json_doc_string(json_doc_at(r->reply, "gpus", i), "uuid");

		if (uuid && l->gpus < GPUS_MAX)
			snprintf(l->gpu[l->gpus++], sizeof(l->gpu[0]), "%s", uuid);
	}
	return code;
}

static int list_absent(struct learning *l, struct remote *r)
{
	int code = remote_want(r, "GET", "/api/v1/guard", NULL);

	l->absents = 0;
	for (size_t i = 0; code == EXIT_OK && i < json_doc_count(r->reply, "workers"); i++) {
		const struct json_doc *w = json_doc_at(r->reply, "workers", i);
		const char *name = json_doc_string(w, "name"),
			   *kind = json_doc_string(w, "kind"),
			   *state = json_doc_string(w, "state");
		struct absent *a = &l->absent[l->absents];

		if (!name || !kind || !state || strcmp(state, "absent") != 0 ||
		    l->absents == ABSENT_MAX)
			continue;
		snprintf(a->name, sizeof(a->name), "%s", name);
		snprintf(a->kind, sizeof(a->kind), "%s", kind);
		l->absents++;
	}
	return code;
}

static int look(struct learning *l, struct remote *r)
{
	if (list_absent(l, r) != EXIT_OK)
		return EXIT_FAILED;
	for (unsigned i = 0; i < l->gpus; i++) {
		char path[160];

		snprintf(path, sizeof(path), "/api/v1/guard/gpus/%s", l->gpu[i]);
		if (remote_want(r, "GET", path, NULL) != EXIT_OK)
			return EXIT_FAILED;
		for (size_t k = 0; k < json_doc_count(r->reply, "processes"); k++)
			take_process(l, json_doc_at(r->reply, "processes", k));
	}
	return EXIT_OK;
}

/* Said even where little is: it is why a rule is missing. */
static void tell_left_out(const struct learning *l)
{
	for (unsigned i = 0; i < l->count; i++)
		if (*l->seen[i].worker)
			fprintf(stderr,
				"gpuward: no rule for %s: it may be worker %s, which is "
				"absent; \"gpuward guard explain %s\" says more, then learn "
				"again\n",
				l->seen[i].name, l->seen[i].worker, l->seen[i].worker);
}

static void print_rules(const struct learning *l)
{
	unsigned n = 0;
	struct buf out;

	buf_init(&out, 1u << 20);
	for (unsigned i = 0; i < l->count; i++) {
		const struct seen *s = &l->seen[i];
		char bytes[16];

		if (*s->worker)
			continue;
		cli_bytes(bytes, s->most_bytes);
		buf_addf(&out, "%s[[rule]]\n# %s at most\n", n++ ? "\n" : "", bytes);
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
	json_int(&doc.json, "schema_version", 1);
	json_array(&doc.json, "rules");
	for (unsigned i = 0; i < l->count; i++) {
		const struct seen *s = &l->seen[i];

		if (*s->worker)
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
		if (!*l->seen[i].worker)
			continue;
		json_object(&doc.json, NULL);
		json_string(&doc.json, "name", l->seen[i].name);
		json_string(&doc.json, "worker", l->seen[i].worker);
		json_object_end(&doc.json);
	}
	json_array_end(&doc.json);
	json_uint(&doc.json, "left_out", l->left_out);
	json_object_end(&doc.json);
	return cli_document_end(&doc);
}

int guard_learn(const struct cli *c, struct remote *r, uint64_t for_ns)
{
	static struct learning l; /* too large for a stack */
	uint64_t next = clock_mono_ns(clock_real()), end = next + for_ns;
	int code = list_gpus(&l, r);

	if (code == EXIT_OK && !c->quiet)
		fprintf(stderr,
			"gpuward: leave the machine idle, with what always runs, for %.0f s\n",
			(double)for_ns * 1e-9);
	while (code == EXIT_OK) {
		code = look(&l, r);
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
	tell_left_out(&l);
	if (!c->quiet && !l.count)
		fprintf(stderr, "gpuward: nobody is there whom no rule knows\n");
	if (!c->quiet && l.left_out)
		fprintf(stderr, "gpuward: %u more are left out\n", l.left_out);
	return EXIT_OK;
}
