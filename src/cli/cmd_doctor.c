/* doctor: what is wrong and how to fix it; the sentences come from cause.def. */
#include "privileges.h"

#include <stdarg.h>
#include <stdio.h>

#define REMEDY_COLUMN 9

static void print_finding(const struct cli *c, const struct gw_finding *f)
{
	static const struct {
		const char *word;
		enum term_style style;
	} severities[] = { { "ok", TERM_GOOD },
			   { "note", TERM_WARN },
			   { "PROBLEM", TERM_BAD } };
	const char *remedy = gw_cause_info(f->cause)->remedy;
	char left[64], where[24] = "", text[sizeof(f->detail) + sizeof(where)];

	if (f->device >= 0)
		snprintf(where, sizeof(where),
			 "GPU %u: ", gw_snapshot_device(c->snap, (unsigned)f->device)->index);
	snprintf(left, sizeof(left), "%s%s%s", term_on(severities[f->severity].style),
		 severities[f->severity].word, term_off());
	snprintf(text, sizeof(text), "%s%s", where, f->detail);
	term_wrap(left, REMEDY_COLUMN, text, term_width());
	if (*remedy)
		term_wrap("", REMEDY_COLUMN, remedy, term_width());
}

static void print_fact(const char *key, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void print_fact(const char *key, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	term_wrap(key, 10, text, term_width());
}

static void print_facts(const struct cli *c)
{
	const struct gw_status *s = gw_snapshot_status(c->snap);

	print_fact("gpuward", "%s", gw_version());
	print_fact("backend", "%s, %u GPU%s", s->backend, gw_snapshot_device_count(c->snap),
		   gw_snapshot_device_count(c->snap) == 1 ? "" : "s");
	if (s->library_path)
		print_fact("library", "%s%s", s->library_path,
			   s->simulated ? " (simulator)" : "");
	if (s->driver_version && (s->cuda_version || s->nvml_version))
		print_fact("driver", "%s, CUDA up to %s, NVML %s", s->driver_version,
			   s->cuda_version ? s->cuda_version : "-",
			   s->nvml_version ? s->nvml_version : "-");
	else if (s->driver_version)
		print_fact("driver", "%s", s->driver_version);
	putchar('\n');
}

static unsigned count_problems(const struct gw_diagnosis *g)
{
	unsigned n = 0;

	for (unsigned i = 0; i < gw_diagnosis_count(g); i++)
		n += gw_diagnosis_get(g, i)->severity == GW_SEVERITY_ERROR;
	return n;
}

/* A permission that is present takes one line; a missing one also shows the remedy. */
static void print_privileges(const struct render_privilege *p, unsigned n)
{
	char text[700];

	if (n > 0)
		printf("\nPermissions of the guard, if it runs as this user:\n");
	for (unsigned i = 0; i < n; i++) {
		const char *word = p[i].have ? "ok" : "missing";
		char left[64];

		snprintf(left, sizeof(left), "%s%s%s",
			 term_on(p[i].have ? TERM_GOOD : TERM_WARN), word, term_off());
		snprintf(text, sizeof(text), "%s: %s", p[i].feature, p[i].message);
		term_wrap(left, REMEDY_COLUMN, text, term_width());
		if (!p[i].have)
			term_wrap("", REMEDY_COLUMN, p[i].remedy, term_width());
	}
}

/* Prints the last line.  Missing permissions are no problem, but they disable features. */
static void print_end(const struct render_privilege *p, unsigned n)
{
	char text[700];
	unsigned missing = 0;
	size_t len = 0;

	for (unsigned i = 0; i < n; i++)
		missing += !p[i].have;
	if (!missing) {
		printf("%s%s%s\n", term_on(TERM_GOOD), "Nothing to fix.", term_off());
		return;
	}
	len = (size_t)snprintf(text, sizeof(text),
			       "No problems found. %u permission%s missing: ", missing,
			       missing == 1 ? " is" : "s are");
	for (unsigned i = 0, said = 0; i < n && len < sizeof(text); i++)
		if (!p[i].have)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s",
						said++ ? ", " : "", p[i].key);
	snprintf(text + (len < sizeof(text) ? len : sizeof(text) - 2), 2, ".");
	putchar('\n');
	term_wrap("", 0, text, term_width());
}

static int print_text(const struct cli *c, const struct gw_diagnosis *g)
{
	struct render_privilege row[PRIVILEGES];
	unsigned n;

	if (gw_snapshot_status(c->snap)->simulated)
		term_print_simulated(stdout);
	print_facts(c);
	for (unsigned i = 0; i < gw_diagnosis_count(g); i++) {
		const struct gw_finding *f = gw_diagnosis_get(g, i);

		print_finding(c, f);
	}
	n = privileges_check(c, row);
	print_privileges(row, n);
	if (count_problems(g) == 0)
		print_end(row, n);
	return EXIT_OK;
}

static int print_diagnosis(const struct cli *c, const struct gw_diagnosis *g)
{
	struct render_privilege row[PRIVILEGES];
	struct cli_document doc;

	if (!c->json)
		return print_text(c, g);
	cli_document_begin(&doc, true);
	render_diagnosis(&doc.json, g, c->snap, row, privileges_check(c, row));
	return cli_document_end(&doc);
}

static int doctor_run(struct cli *c)
{
	struct gw_diagnosis *g;
	int code = cli_open(c, GW_TIERS_COMMON);

	if (code != EXIT_OK)
		return code;
	if (gw_diagnosis_new(c->snap, &g) != 0) {
		cli_error("%s", gw_strerror(-GW_E_NOMEM));
		return EXIT_FAILED;
	}
	code = print_diagnosis(c, g);
	if (code == EXIT_OK)
		code = cli_device_exit_code(c);
	if (code == EXIT_OK && count_problems(g))
		code = EXIT_PARTIAL;
	gw_diagnosis_free(g);
	return code;
}

const struct command command_doctor = {
	.name = "doctor",
	.summary = "find problems on this machine and say how to fix them",
	.description =
		"Checks the library, the driver, the devices, permissions, containers, "
		"sensors, and what the guard may do as this user. For each problem it prints "
		"how to fix it. Exit status: 0 if nothing is broken (a machine without a GPU "
		"is not broken), 3 if a problem hides all GPUs, 4 if some GPU has a problem.",
	.examples = "  gpuward doctor\n"
		    "  gpuward doctor --simulate=version-mismatch\n",
	.run = doctor_run,
};
