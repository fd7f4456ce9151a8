#include "device_events.h"

#include "base/array.h"
#include "device/nvml_reader.h"
#include "serve/view.h"

#include <stdio.h>
#include <string.h>

/* The NVML call that returns each figure, made from the backend's own table. */
static const struct query_call {
	uint8_t call, older;
	uint8_t count, figure[4];
} query_calls[] = {
#define READ(tier, shape, call, which, scale, most, older, ...) \
	{ CALL_##call, CALL_##older, sizeof((uint8_t[]){ __VA_ARGS__ }), { __VA_ARGS__ } },
#define FIELD(quantity, id, scope, scale, max) \
	{ CALL_fields, CALL_none, 1, { GW_Q_##quantity } },
#define GPM(quantity, metric) { CALL_gpm_get, CALL_none, 1, { GW_Q_##quantity } },
#include "device/nvml_readers.def"
#undef READ
#undef FIELD
#undef GPM
	{ CALL_compute_v3, CALL_compute_v2, 1, { QUERY_PROCESSES } },
};
/* In the backend's table, NO means "no quantity". It has the same number as the process
 * list. */
_Static_assert(NO == QUERY_PROCESSES, "the row of the process list is the last one");
_Static_assert(QUERY_FIGURES < UINT8_MAX, "a figure fits in a byte");

static const char *query_call_name(const struct gw_device *d, unsigned figure,
				   bool (*called)(void *arg, unsigned call), void *arg)
{
	const struct query_call *row = &query_calls[COUNT(query_calls) - 1];

	if (strcmp(d->backend, "nvml") != 0)
		return d->backend;
	for (unsigned i = 0; i < COUNT(query_calls) && figure != QUERY_PROCESSES; i++)
		if (memchr(query_calls[i].figure, (int)figure, query_calls[i].count)) {
			row = &query_calls[i];
			break;
		}
	return nvml_symbol[row->older != CALL_none && !called(arg, row->call) ? row->older
									      : row->call];
}

static const char *query_figure_key(unsigned figure)
{
	return figure == QUERY_PROCESSES ? "processes" : gw_quantity_info(figure)->key;
}

/* Counts one reading. Returns 1 if the figure begins to fail, -1 if it works again, else 0. */
static int query_count(struct query_errors *q, unsigned figure, bool fails)
{
	if (fails) {
		q->good[figure] = 0;
		return ++q->failed[figure] == 1;
	}
	return q->failed[figure] && ++q->good[figure] >= QUERY_GOOD_TICKS ? -1 : 0;
}

static void query_add_figure(struct query_change *c, unsigned figure)
{
	size_t used = strlen(c->figures);

	snprintf(c->figures + used, sizeof(c->figures) - used, "%s%s", used ? ", " : "",
		 query_figure_key(figure));
}

void query_errors_follow(struct query_errors *q, const struct gw_device *d,
			 enum gw_absence processes, bool (*called)(void *arg, unsigned call),
			 void (*change)(void *arg, const struct query_change *c), void *arg)
{
	int8_t news[QUERY_FIGURES] = { 0 };
	uint8_t why[QUERY_FIGURES] = { 0 };

	if (d->state != GW_DEVICE_OK)
		return;
	for (unsigned i = 0; i < QUERY_FIGURES; i++) {
		why[i] = i == QUERY_PROCESSES ? (uint8_t)processes
			 : i < d->value_count ? d->value_absence[i]
					      : GW_HAVE;
		news[i] = (int8_t)query_count(q, i, view_is_error(why[i]));
	}
	for (unsigned i = 0; i < QUERY_FIGURES; i++) {
		struct query_change c = { .fails = news[i] > 0, .why = why[i] };

		if (!news[i])
			continue;
		c.failed = q->failed[i];
		c.call = query_call_name(d, i, called, arg);
		for (unsigned k = i; k < QUERY_FIGURES; k++) {
			if (news[k] != (c.fails ? 1 : -1) ||
			    query_call_name(d, k, called, arg) != c.call)
				continue;
			query_add_figure(&c, k);
			news[k] = 0;
			if (!c.fails)
				q->failed[k] = q->good[k] = 0;
		}
		change(arg, &c);
	}
}
