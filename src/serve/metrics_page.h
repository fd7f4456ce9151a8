/* metrics_page: data that the parts of a metrics page share: the view, the labels of each GPU,
 * and the chosen families. Only metrics*.c includes it. */
#ifndef GW_SERVE_METRICS_PAGE_H
#define GW_SERVE_METRICS_PAGE_H

#include "metrics_text.h"

#include <math.h>

#define PAGE_GPUS 256
/* Maximum bytes of the labels of a GPU. These are an index and a UUID of 95 bytes; each byte of
 * the UUID takes at most three bytes after escaping. */
#define PAGE_BASE 320

struct page {
	struct metrics_text t;
	const struct api *a;
	const struct view *v;
	unsigned gpus;                   /* number of GPUs; 0: there is no snapshot */
	bool current;                    /* The snapshot is at most two intervals old. */
	bool workers;                    /* The guard has a worker. */
	struct metric family;            /* The family that page_family() began. */
	char base[PAGE_GPUS][PAGE_BASE]; /* labels of each GPU */
};

static inline const struct gw_device *page_gpu(const struct page *p, unsigned i)
{
	return gw_snapshot_device(p->v->snap, i);
}

/* True if the GPU responded in the latest reading and this reading is current. */
static inline bool page_responds(const struct page *p, unsigned i)
{
	return p->current && page_gpu(p, i)->state == GW_DEVICE_OK;
}

/* Returns the figures that the service itself counts for a GPU, such as its energy; NULL: none
 * yet. */
static inline const struct view_device *page_known(const struct page *p, unsigned i)
{
	return p->v->device && i < p->v->devices ? &p->v->device[i] : NULL;
}

/* Converts to seconds, truncated to milliseconds, because further digits are noise. */
static inline double page_seconds(uint64_t wall_ns)
{
	return (double)(wall_ns / NS_PER_MS) / 1e3;
}

/* Rounds to six decimal places, because 0.29 times 100 is 28.999999999999996. A rounded counter
 * still never decreases. */
static inline double page_micro(double v)
{
	return rint(v * 1e6) / 1e6;
}

/* Returns v, or NAN if v is 0. For the figures that use this function, 0 means unknown. */
static inline double page_above_zero(double v)
{
	return v > 0 ? v : (double)NAN;
}

/* Begins the family with this number (metrics_family.h). Returns false if the family is not
 * served. The caller must then not compute or write the samples of the family. */
__attribute__((warn_unused_result)) bool page_family(struct page *p, unsigned family);
/* Writes a family with one sample per GPU. `of` returns the value for GPU i; NAN: no sample. */
void page_gpus(struct page *p, unsigned family,
	       double (*of)(const struct page *p, unsigned i, unsigned family));
/* Begins a family and writes its only sample. */
void page_one(struct page *p, unsigned family, double value);

/* Writes a sample with the labels of base and one more label. */
void page_labelled(struct page *p, const char *base, const char *name, const char *value,
		   double v);

/* Writes the sample of one word of an enumeration. The value is 1 if the word applies (set is
 * true), else 0. A sample with the value 0 is written only if the configuration includes the
 * group "states". */
void page_word(struct page *p, const char *base, const char *name, const char *value, bool set);

/* Returns the value of quantity q of GPU i. Returns NAN if the value is unknown or not current,
 * or if the GPU does not respond. */
double page_figure(const struct page *p, unsigned i, unsigned q);

/* True if the process list of this GPU is current. */
bool page_listed(const struct page *p, unsigned i);

/* Writes the number of processes on each GPU. If not_ours is true, does not count the process
 * of the service itself and the workers of the guard. */
void page_processes(struct page *p, bool not_ours);

/* Parts of the page. metrics_gpus() needs a snapshot. */
void metrics_gpus(struct page *p); /* metrics_gpu.c */
void metrics_dcgm(struct page *p);
void metrics_guard(struct page *p); /* metrics_guard.c */
/* Returns the number of processes on a GPU that belong neither to this program nor to a worker;
 * -1: no guard has observed the GPU. */
int metrics_guard_others(const struct page *p, unsigned i);

#endif
