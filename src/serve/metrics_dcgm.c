/* metrics_dcgm: writes the metrics of dcgm-exporter, so that dashboards and alerts for
 * dcgm-exporter work with this service. dcgm.def has the names.
 *
 * Only NVIDIA GPUs have these metrics. A figure of the whole board is written once even if the
 * board has MIG instances, because a copy per instance would multiply sums; memory is written
 * per instance. */
#include "metrics_page.h"

#include "base/utf8.h"

#include "guard_view.h"
#include "workload_energy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
	unsigned source;
	double factor;
} dcgm_rows[METRIC_DCGM_ROWS] = {
#define DCGM(name, type, source, factor, help) { source, factor },
#include "dcgm.def"
#undef DCGM
};

/* ---- labels ---- */

/* Writes 0000:0f:00.0 as DCGM does: eight digits of the domain, capital letters. */
static void dcgm_address(const char *pci, char out[static 32])
{
	unsigned domain, bus, device, function;

	out[0] = '\0';
	if (pci && sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &device, &function) == 4)
		snprintf(out, 32, "%08X:%02X:%02X.%X", domain, bus, device, function);
}

/* Like dcgm-exporter, prefers the name of the Kubernetes node. */
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

/* Finds the workload of a GPU that has processes of one workload only; NULL: none or several.
 * one_part: all these processes are in the same part, such as one container of a pod. */
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

/* Adds the labels of a pod or a job, if the whole GPU belongs to it. An id in place of a name
 * is left out: the labels would change when the name becomes known. */
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
	/* Releases of dcgm-exporter up to 4.5.3 write the first form, later releases the
	 * second. */
	labels_add(l, "Hostname", host);
	labels_add(l, "hostname", host);
	labels_add(l, "DCGM_FI_DRIVER_VERSION", gw_device_text(d, GW_T_DRIVER));
	dcgm_owner(p, i, l);
}

/* ---- samples ---- */

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

/* Converts to the unit of DCGM. Rounds, because 0.29 times 100 is 28.999999999999996. */
static double dcgm_value(double v, double factor)
{
	return rint(v * factor * 1e6) / 1e6;
}

/* Writes the memory of each MIG instance. Returns false if the GPU has no instance, or if the
 * figure is not about memory. */
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
			       dcgm_value(bytes, dcgm_rows[row].factor));
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
		metrics_sample(&p->t, base[i].text, NULL, dcgm_value(v, dcgm_rows[row].factor));
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
				return; /* out of memory: this page has no such series */
			dcgm_host(host, sizeof(host));
			for (unsigned i = 0; i < p->gpus; i++)
				dcgm_labels(p, i, host, &base[i]);
		}
		dcgm_family(p, row, base);
	}
	free(base);
}
