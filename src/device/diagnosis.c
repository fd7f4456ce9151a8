/* diagnosis: finds what is wrong on this machine. The table cause.def says how to fix it. */
#include "context.h"
#include "environment.h"
#include "proc.h"
#include "rapl.h"

#include "base/array.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FINDINGS_MAX 256
#define RAPL_MAX     32

struct gw_diagnosis {
	struct gw_finding finding[FINDINGS_MAX];
	unsigned count;
};

static void diagnosis_add(struct gw_diagnosis *g, enum gw_cause cause, int device,
			  const char *fmt, ...) __attribute__((format(printf, 4, 5)));

static void diagnosis_add(struct gw_diagnosis *g, enum gw_cause cause, int device,
			  const char *fmt, ...)
{
	struct gw_finding *f = &g->finding[g->count];
	va_list ap;

	if (g->count == FINDINGS_MAX)
		return;
	g->count++;
	f->cause = cause;
	f->severity = gw_cause_info(cause)->severity;
	f->device = device;
	va_start(ap, fmt);
	vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
	va_end(ap);
}

/* Values that are 0 on a healthy GPU, and the cause to report if one is not 0. */
static const struct {
	unsigned quantity;
	enum gw_cause cause;
} zeroes[] = {
	{ GW_Q_RECOVERY_ACTION, GW_CAUSE_RECOVERY },
	{ GW_Q_ROWS_PENDING, GW_CAUSE_MEMORY_WORN },
	{ GW_Q_ROWS_FAILED, GW_CAUSE_MEMORY_WORN },
	{ GW_Q_PAGES_PENDING, GW_CAUSE_MEMORY_WORN },
	{ GW_Q_REPAIR_CHANNEL, GW_CAUSE_MEMORY_WORN },
};

static void check_health(struct gw_diagnosis *g, const struct gw_device *d, int at)
{
	for (size_t i = 0; i < COUNT(zeroes); i++) {
		const struct gw_cause_info *c = gw_cause_info(zeroes[i].cause);
		char word[64] = "";
		double v;

		if (gw_device_value(d, zeroes[i].quantity, &v) != GW_HAVE || v == 0)
			continue;
		gw_quantity_name(zeroes[i].quantity, v, word, sizeof(word));
		diagnosis_add(g, zeroes[i].cause, at, "%s: %s%s%s", c->sentence,
			      gw_quantity_info(zeroes[i].quantity)->key, *word ? " " : "",
			      word);
	}
}

static void check_devices(struct gw_diagnosis *g, const struct gw_snapshot *snap)
{
	for (unsigned i = 0; i < gw_snapshot_device_count(snap); i++) {
		const struct gw_device *d = gw_snapshot_device(snap, i);
		double mig;

		if (d->state != GW_DEVICE_OK)
			diagnosis_add(g, d->cause, (int)i, "%s", d->message);
		if (gw_device_value(d, GW_Q_MIG_MODE, &mig) == GW_HAVE && mig != 0)
			diagnosis_add(g, GW_CAUSE_MIG, (int)i, "%s (%u instances)",
				      gw_cause_info(GW_CAUSE_MIG)->sentence, d->mig_count);
		check_health(g, d, (int)i);
	}
}

static void check_host(struct gw_diagnosis *g, const struct root *root)
{
	struct rapl_domain rapl[RAPL_MAX];
	unsigned n = rapl_list(root, rapl, RAPL_MAX);

	if (environment_is_wsl(root))
		diagnosis_add(g, GW_CAUSE_WSL, -1, "%s", gw_cause_info(GW_CAUSE_WSL)->sentence);
	if (proc_in_child_namespace(root) == 1)
		diagnosis_add(g, GW_CAUSE_PID_NAMESPACE, -1, "%s",
			      gw_cause_info(GW_CAUSE_PID_NAMESPACE)->sentence);
	for (unsigned i = 0; i < n && i < RAPL_MAX; i++) {
		if (rapl[i].why != GW_ABSENT_NO_PERMISSION)
			continue;
		diagnosis_add(g, GW_CAUSE_RAPL_PERMISSION, -1, "%s: /%s/energy_uj",
			      gw_cause_info(GW_CAUSE_RAPL_PERMISSION)->sentence, rapl[i].path);
		break;
	}
}

int gw_diagnosis_new(struct gw_snapshot *snap, struct gw_diagnosis **ret_diagnosis)
{
	const struct gw_status *st;
	struct gw_diagnosis *g;

	if (!snap || !ret_diagnosis)
		return context_fail_null(snap ? snapshot_context(snap) : NULL,
					 snap ? "ret_diagnosis" : "snap");
	st = gw_snapshot_status(snap);
	g = calloc(1, sizeof(*g));
	if (!g)
		return context_fail(snapshot_context(snap), -GW_E_NOMEM, NULL);
	if (st->cause != GW_CAUSE_NONE)
		diagnosis_add(g, st->cause, -1, "%s", st->message);
	if (*st->missing_symbols)
		diagnosis_add(g, GW_CAUSE_MISSING_SYMBOLS, -1, "%s: %s",
			      gw_cause_info(GW_CAUSE_MISSING_SYMBOLS)->sentence,
			      st->missing_symbols);
	check_devices(g, snap);
	check_host(g, &snapshot_context(snap)->root);
	*ret_diagnosis = g;
	return 0;
}

void gw_diagnosis_free(struct gw_diagnosis *diagnosis)
{
	free(diagnosis);
}

unsigned gw_diagnosis_count(const struct gw_diagnosis *diagnosis)
{
	return diagnosis->count;
}

const struct gw_finding *gw_diagnosis_get(const struct gw_diagnosis *diagnosis, unsigned i)
{
	return i < diagnosis->count ? &diagnosis->finding[i] : NULL;
}
