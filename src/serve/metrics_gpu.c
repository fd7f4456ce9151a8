/* metrics_gpu: writes identity, state, quantities, MIG instances and processes of the GPUs, and
 * the same figures under the names of dcgm-exporter.
 *
 * Processes with the same name and user are one program; pids and command lines are not labels.
 * Each of the programs with the most memory has its own series; metrics.processes is the
 * maximum number of these programs. All other programs, and those beyond the first GROUPS, are
 * summed as "other". */
#include "guard_view.h"
#include "metrics_page.h"
#include "metrics_text.h"

#include "base/array.h"
#include "base/utf8.h"
#include "measure/workload_energy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void put_info(struct page *p, unsigned i)
{
	const struct gw_device *d = page_gpu(p, i);
	static const struct {
		const char *label;
		enum gw_text text;
	} texts[] = {
		{ "pci", GW_T_PCI },          { "serial", GW_T_SERIAL },
		{ "part", GW_T_PART_NUMBER }, { "vbios", GW_T_VBIOS },
		{ "driver", GW_T_DRIVER },
	};
	char architecture[32] = "";
	struct labels l;
	double v;

	if (gw_device_value(d, GW_Q_ARCHITECTURE, &v) == GW_HAVE)
		gw_quantity_name(GW_Q_ARCHITECTURE, v, architecture, sizeof(architecture));
	labels_clear(&l);
	labels_add(&l, "name", gw_device_text(d, GW_T_NAME));
	labels_add(&l, "vendor", gw_vendor_name(d->vendor));
	for (size_t k = 0; k < COUNT(texts); k++)
		labels_add(&l, texts[k].label, gw_device_text(d, texts[k].text));
	labels_add(&l, "architecture", architecture);
	labels_add(&l, "backend", d->backend);
	labels_add(&l, "provenance", gw_provenance_name(d->provenance));
	labels_add(&l, "simulated", d->provenance == GW_FROM_SIMULATOR ? "true" : "false");
	metrics_sample(&p->t, p->base[i], l.text, 1);
}

static double is_up(const struct page *p, unsigned i, unsigned family)
{
	(void)family;
	return page_responds(p, i);
}

static void write_states(struct page *p)
{
	bool wanted = page_family(p, M_GPU);

	for (unsigned i = 0; wanted && i < p->gpus; i++)
		put_info(p, i);
	page_gpus(p, M_GPU_UP, is_up);
	wanted = page_family(p, M_GPU_STATE);
	for (unsigned i = 0; wanted && i < p->gpus; i++)
		for (unsigned s = GW_DEVICE_OK; s <= GW_DEVICE_CLOSED; s++)
			page_word(p, p->base[i], "state", gw_device_state_name(s),
				  page_gpu(p, i)->state == s);
}

/* Returns the wall time of the last response of the GPU. The response has a monotonic time; the
 * two clock readings of the snapshot convert it to wall time. */
static double last_seen(const struct page *p, const struct view_device *k)
{
	uint64_t now = gw_snapshot_mono_ns(p->v->snap), wall = gw_snapshot_wall_ns(p->v->snap);

	if (!k->seen_ns)
		return NAN;
	return page_seconds(k->seen_ns < now ? wall - (now - k->seen_ns) : wall);
}

/* Returns one of the figures that the service itself counts for a GPU. These figures are known
 * even if the GPU does not respond. */
static double counted_figure(const struct page *p, unsigned i, unsigned family)
{
	const struct view_device *k = page_known(p, i);

	if (k && family == M_GPU_SEEN)
		return last_seen(p, k);
	if (!k || !p->v->self.counts_known)
		return NAN;
	switch (family) {
	case M_GPU_CHANGES: return (double)k->state_changes;
	case M_ENERGY: return page_micro(k->energy_joules);
	default: return isnan(k->energy_joules) ? NAN : page_micro(k->energy_seconds);
	}
}

static void query_errors(struct page *p)
{
	if (!p->v->self.counts_known || !page_family(p, M_QUERY_ERRORS))
		return;
	for (unsigned a = GW_HAVE + 1; a < GW_ABSENCES; a++)
		for (unsigned i = 0; view_is_error(a) && i < p->gpus; i++)
			if (page_known(p, i))
				page_labelled(p, p->base[i], "reason", gw_absence_key(a),
					      (double)page_known(p, i)->errors[a]);
}

static double quantity_figure(const struct page *p, unsigned i, unsigned family)
{
	return page_figure(p, i, family - METRIC_OF_QUANTITY(0));
}

/* Writes the word for the value `at` of an enum quantity, or if mask is true, for the bit `at`
 * of a bit set. Returns false if there is no word. */
static bool value_word(unsigned q, bool mask, unsigned at, char out[static 48])
{
	double value = mask ? ldexp(1, (int)at) : at;

	return gw_quantity_name(q, value, out, 48) == 0 && strncmp(out, "unknown", 7) != 0;
}

static void write_words(struct page *p, unsigned q)
{
	bool mask = gw_quantity_info(q)->kind == GW_KIND_MASK;
	const char *label = mask ? "reason" : "state";
	uint64_t all = 0;
	char name[48];
	bool set;
	double v;

	for (unsigned at = 0; at < 32; at++) {
		struct labels l;

		if (!value_word(q, mask, at, name))
			continue;
		all |= UINT64_C(1) << at;
		labels_clear(&l);
		labels_add(&l, label, name);
		for (unsigned i = 0; i < p->gpus; i++) {
			if (isnan(v = page_figure(p, i, q)))
				continue;
			set = mask ? (uint64_t)v >> at & 1 : v == at;
			if (set || p->a->metrics.zeros)
				metrics_sample(&p->t, p->base[i], l.text, set);
		}
	}
	/* Values without a word get the word "unknown". */
	for (unsigned i = 0; i < p->gpus; i++) {
		v = page_figure(p, i, q);
		if (isnan(v) ||
		    (mask ? !((uint64_t)v & ~all) : v < 32 && all >> (unsigned)v & 1))
			continue;
		page_labelled(p, p->base[i], label, "unknown", 1);
	}
}

static void write_figures(struct page *p)
{
	enum metric_how how;

	for (unsigned q = 0; q < GW_QUANTITIES; q++) {
		if (!metrics_quantity(q, &how).name)
			continue;
		if (how != WORDS)
			page_gpus(p, METRIC_OF_QUANTITY(q), quantity_figure);
		else if (page_family(p, METRIC_OF_QUANTITY(q)))
			write_words(p, q);
	}
}

static void instance_number(struct labels *l, const char *name, int number)
{
	if (number < 0)
		labels_add(l, name, NULL);
	else
		labels_add_number(l, name, (unsigned)number);
}

static void instance_labels(struct labels *l, const struct gw_mig *g)
{
	const char *profile = strstr(g->name, "MIG ");

	labels_clear(l);
	labels_add(l, "mig_uuid", g->uuid);
	instance_number(l, "gi", g->gpu_instance);
	instance_number(l, "ci", g->compute_instance);
	labels_add(l, "profile", profile ? profile + 4 : "");
}

static void instances_of(struct page *p, unsigned i, unsigned metric)
{
	const struct gw_device *d = page_gpu(p, i);
	struct labels l;

	for (unsigned k = 0; page_responds(p, i) && k < d->mig_count; k++) {
		const struct gw_mig *g = d->mig[k];

		if (g->memory_absence != GW_HAVE ||
		    /* Skip an instance that no label would identify. */
		    (!*g->uuid && g->gpu_instance < 0))
			continue;
		instance_labels(&l, g);
		metrics_sample(&p->t, p->base[i], l.text,
			       (double)(metric == M_MIG_TOTAL  ? g->memory_total_bytes
					: metric == M_MIG_USED ? g->memory_used_bytes
							       : g->memory_free_bytes));
	}
}

static void write_instances(struct page *p)
{
	static const unsigned rows[] = { M_MIG_TOTAL, M_MIG_USED, M_MIG_FREE };

	for (size_t r = 0; r < COUNT(rows); r++) {
		bool wanted = page_family(p, rows[r]);

		for (unsigned i = 0; wanted && i < p->gpus; i++)
			instances_of(p, i, rows[r]);
	}
}

static void write_processes(struct page *p)
{
	static const unsigned rows[METRICS_PROCESS_FIGURES] = {
		[METRICS_PROCESS_MEMORY] = M_PROCESS_MEMORY,
		[METRICS_PROCESS_SM] = M_PROCESS_SM,
		[METRICS_PROCESS_POWER] = M_PROCESS_POWER,
		[METRICS_PROCESS_ENERGY] = M_PROCESS_ENERGY,
	};

	if (page_family(p, M_PROCESSES))
		page_processes(p, false);
	for (unsigned f = 0; f < METRICS_PROCESS_FIGURES; f++) {
		bool wanted = p->a->top && page_family(p, rows[f]);

		for (unsigned i = 0; wanted && i < p->gpus; i++)
			if (page_listed(p, i))
				metrics_processes(&p->t, p->base[i], p->v, i, p->a->top, f);
	}
}

void metrics_gpus(struct page *p)
{
	write_states(p);
	page_gpus(p, M_GPU_SEEN, counted_figure);
	page_gpus(p, M_GPU_CHANGES, counted_figure);
	page_gpus(p, M_ENERGY, counted_figure);
	page_gpus(p, M_ENERGY_SECONDS, counted_figure);
	query_errors(p);
	write_figures(p);
	write_instances(p);
	write_processes(p);
}

#define GROUPS 256

struct group {
	const char *name, *user;
	uint64_t bytes;
	double value; /* sum over the processes of the program; NAN: unknown */
	bool shown;
};

struct groups {
	struct group row[GROUPS];
	unsigned count;
	struct group other;
};

static struct group *find_group(struct groups *g, const char *name, const char *user)
{
	for (unsigned i = 0; i < g->count; i++)
		if (strcmp(g->row[i].name, name) == 0 && strcmp(g->row[i].user, user) == 0)
			return &g->row[i];
	if (g->count == GROUPS)
		return NULL;
	g->row[g->count] = (struct group){ .name = name, .user = user, .value = NAN };
	return &g->row[g->count++];
}

static double figure_of(const struct gw_process *p, const struct view_process *e,
			enum metrics_process_figure figure)
{
	const bool shared = e && e->absence == GW_HAVE;

	switch (figure) {
	case METRICS_PROCESS_MEMORY: return (double)p->memory_bytes;
	case METRICS_PROCESS_SM: return p->sm_absence == GW_HAVE ? p->sm_ratio : (double)NAN;
	case METRICS_PROCESS_POWER: return shared ? e->power_w : (double)NAN;
	case METRICS_PROCESS_ENERGY: return shared ? e->energy_joules : (double)NAN;
	case METRICS_PROCESS_FIGURES: break;
	}
	return NAN;
}

/* Returns a + b. If one of them is NAN, returns the other. */
static double sum_known(double a, double b)
{
	return isnan(a) ? b : isnan(b) ? a : a + b;
}

static void add_process(struct groups *g, const struct gw_process *p, double value)
{
	const char *name = p->name && *p->name ? p->name : "unknown";
	const char *user = p->user ? p->user : "";
	struct group *row;

	/* If a program is named "other" and has no user, its labels would be the same as those
	 * of the remainder. So add such a program to the remainder. */
	row = strcmp(name, "other") == 0 && !*user ? NULL : find_group(g, name, user);
	row = row ? row : &g->other;
	row->bytes += (uint64_t)p->memory_bytes;
	row->value = sum_known(row->value, value);
}

static struct group *largest(struct groups *g)
{
	struct group *best = NULL;

	for (unsigned i = 0; i < g->count; i++)
		if (!g->row[i].shown && (!best || g->row[i].bytes > best->bytes))
			best = &g->row[i];
	return best;
}

static void put_row(struct metrics_text *t, const char *base, const char *name,
		    const char *user, double value)
{
	struct labels l;

	labels_clear(&l);
	labels_add(&l, "name", name);
	labels_add(&l, "user", user);
	metrics_sample(t, base, l.text, value);
}

void metrics_processes(struct metrics_text *t, const char *base, const struct view *v,
		       unsigned device, unsigned top, enum metrics_process_figure figure)
{
	const struct gw_process_list *list = v->processes;
	/* The memory of all series must add up to the total, so an empty remainder is 0. */
	struct groups g = { .other.value = figure == METRICS_PROCESS_MEMORY ? 0 : NAN };
	struct group *row;

	if (!list || gw_process_list_absence(list, device) != GW_HAVE)
		return;
	for (unsigned i = 0; i < gw_process_list_count(list); i++) {
		const struct gw_process *p = gw_process_list_get(list, i);

		if (p->device == device && p->memory_absence == GW_HAVE)
			add_process(&g, p,
				    figure_of(p, v->process ? &v->process[i] : NULL, figure));
	}
	for (unsigned i = 0; i < top && (row = largest(&g)); i++) {
		row->shown = true;
		put_row(t, base, row->name, row->user, row->value);
	}
	for (row = g.row; row < g.row + g.count; row++)
		if (!row->shown)
			g.other.value = sum_known(g.other.value, row->value);
	put_row(t, base, "other", "", g.other.value);
}

/* The metrics of dcgm-exporter, so that dashboards and alerts for it work with this service.
 * dcgm.def has the names.
 *
 * Only NVIDIA GPUs have these metrics. If a board has MIG instances, memory is written per
 * instance. A figure of the whole board is still written only once, because sums would count
 * one copy per instance. */

static const struct {
	unsigned source;
	double factor;
} dcgm_rows[METRIC_DCGM_ROWS] = {
#define DCGM(name, type, source, factor, help) { source, factor },
#include "dcgm.def"
#undef DCGM
};

/* Writes a PCI address such as 0000:0f:00.0 in the form of DCGM: eight digits of the domain,
 * capital letters. */
static void dcgm_address(const char *pci, char out[static 32])
{
	unsigned domain, bus, device, function;

	out[0] = '\0';
	if (pci && sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &function) == 4)
		snprintf(out, 32, "%08X:%02X:%02X.%X", domain, bus, device, function);
}

/* Writes the host name. Like dcgm-exporter, prefers the name of the Kubernetes node. */
static void dcgm_host(char *out, size_t size)
{
	const char *node = getenv("NODE_NAME");
	char name[256] = "";

	if (node && *node)
		snprintf(name, sizeof(name), "%s", node);
	else if (gethostname(name, sizeof(name) - 1) != 0)
		name[0] = '\0';
	utf8_clean(out, size, name);
}

/* Returns the workload of a GPU if all its processes belong to one workload, else NULL. Sets
 * *one_part to true if all these processes also belong to the same part of the workload, such
 * as one container of a pod. */
static const struct workload *dcgm_workload(const struct page *p, unsigned i, bool *one_part)
{
	const struct workload_energy *e = p->v->workloads;
	const struct workload *found = NULL;

	*one_part = true;
	for (unsigned k = 0; e && k < e->count; k++) {
		const struct workload_row *row = &e->row[k];

		if (row->gpu != i || row->processes == 0)
			continue;
		if (found && !workload_equal(found, &row->workload))
			return NULL;
		*one_part = !found;
		found = &row->workload;
	}
	return found;
}

/* Adds the labels of a pod or a job if the whole GPU belongs to it. If the name for an id is
 * not known yet, omits these labels, because they would change when the name becomes known. */
static void dcgm_owner(const struct page *p, unsigned i, struct labels *l)
{
	bool one_part;
	const struct workload *w = dcgm_workload(p, i, &one_part);

	if (!w || !workload_is_named(w))
		return;
	if (w->kind == WORKLOAD_KUBERNETES) {
		labels_add(l, "pod", w->name);
		labels_add(l, "namespace", w->space);
		if (one_part && *w->part)
			labels_add(l, "container", w->part);
	} else if (w->kind == WORKLOAD_SLURM) {
		labels_add(l, "hpc_job", w->name);
	}
}

static void dcgm_labels(const struct page *p, unsigned i, const char *host, struct labels *l)
{
	const struct gw_device *d = page_gpu(p, i);
	char address[32], device[32] = "";
	double minor;

	dcgm_address(gw_device_text(d, GW_T_PCI), address);
	if (gw_device_value(d, GW_Q_MINOR_NUMBER, &minor) == GW_HAVE)
		snprintf(device, sizeof(device), "nvidia%.0f", minor);
	labels_clear(l);
	labels_add_number(l, "gpu", d->index);
	labels_add(l, "UUID", gw_device_text(d, GW_T_UUID));
	labels_add(l, "pci_bus_id", address);
	labels_add(l, "device", device);
	labels_add(l, "modelName", gw_device_text(d, GW_T_NAME));
	/* dcgm-exporter up to 4.5.3 writes "Hostname"; later releases write "hostname". */
	labels_add(l, "Hostname", host);
	labels_add(l, "hostname", host);
	labels_add(l, "DCGM_FI_DRIVER_VERSION", gw_device_text(d, GW_T_DRIVER));
	dcgm_owner(p, i, l);
}

/* Returns the number of the GPU's last Xid; NAN: the guard does not monitor the GPU. */
static double dcgm_last_xid(const struct page *p, unsigned i)
{
	const struct guard_view *g = p->v->guard;
	struct health_status h;

	if (!g || i >= g->devices || !g->health[i] || !page_responds(p, i))
		return NAN;
	health_status(g->health[i], gw_snapshot_mono_ns(p->v->snap), &h);
	return h.last_xid;
}

static double dcgm_figure(const struct page *p, unsigned i, unsigned source)
{
	const struct view_device *k = page_known(p, i);

	if (source == DCGM_LAST_XID)
		return dcgm_last_xid(p, i);
	if (source == DCGM_ENERGY)
		return k && p->v->self.counts_known ? k->energy_joules : (double)NAN;
	return page_figure(p, i, source);
}

/* Writes the memory of each MIG instance. Returns false, and writes nothing, if the GPU has no
 * instance or the figure is not about memory. */
static bool dcgm_instances(struct page *p, unsigned i, const struct labels *base, unsigned row)
{
	const struct gw_device *d = page_gpu(p, i);
	unsigned source = dcgm_rows[row].source;

	if (d->mig_count == 0 || (source != GW_Q_MEMORY_USED && source != GW_Q_MEMORY_FREE))
		return false;
	for (unsigned k = 0; page_responds(p, i) && k < d->mig_count; k++) {
		const struct gw_mig *g = d->mig[k];
		const char *profile = strstr(g->name, "MIG ");
		double bytes = (double)(source == GW_Q_MEMORY_USED ? g->memory_used_bytes
								   : g->memory_free_bytes);
		struct labels l;

		if (g->memory_absence != GW_HAVE || g->gpu_instance < 0)
			continue;
		labels_clear(&l);
		labels_add(&l, "GPU_I_PROFILE", profile ? profile + 4 : "");
		labels_add_number(&l, "GPU_I_ID", (unsigned)g->gpu_instance);
		metrics_sample(&p->t, base->text, l.text,
			       page_micro(bytes * dcgm_rows[row].factor));
	}
	return true;
}

static void dcgm_family(struct page *p, unsigned row, const struct labels *base)
{
	for (unsigned i = 0; i < p->gpus; i++) {
		double v;

		if (page_gpu(p, i)->vendor != GW_VENDOR_NVIDIA ||
		    dcgm_instances(p, i, &base[i], row))
			continue;
		v = dcgm_figure(p, i, dcgm_rows[row].source);
		metrics_sample(&p->t, base[i].text, NULL,
			       page_micro(v * dcgm_rows[row].factor));
	}
}

void metrics_dcgm(struct page *p)
{
	struct labels *base = NULL;
	char host[256];

	for (unsigned row = 0; row < METRIC_DCGM_ROWS && p->gpus; row++) {
		if (!page_family(p, METRIC_OF_DCGM(row)))
			continue;
		if (!base) {
			base = calloc(p->gpus, sizeof(*base));
			if (!base)
				return; /* Out of memory: the page omits these series. */
			dcgm_host(host, sizeof(host));
			for (unsigned i = 0; i < p->gpus; i++)
				dcgm_labels(p, i, host, &base[i]);
		}
		dcgm_family(p, row, base);
	}
	free(base);
}
