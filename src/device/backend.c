#include "backend.h"

#include "base/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct backend_ops *const backend_table[BACKENDS + 1] = {
#define GW_BACKEND(symbol, name, modules, help) &backend_##symbol,
#include <gpuward/backend.def>
};

static bool slot_is(const struct device *d, const char *uuid, const char *pci)
{
	if (uuid && d->r.text_why[GW_T_UUID] == GW_HAVE)
		return strcmp(d->r.text[GW_T_UUID], uuid) == 0;
	return pci && d->r.text_why[GW_T_PCI] == GW_HAVE &&
	       strcmp(d->r.text[GW_T_PCI], pci) == 0;
}

static struct device *slot_new(struct backend *b)
{
	struct device *d;

	if (b->count == b->cap) {
		unsigned cap = b->cap ? 2 * b->cap : 4;
		struct device **slot = realloc(b->slot, cap * sizeof(*slot));

		if (!slot)
			return NULL;
		b->slot = slot;
		b->cap = cap;
	}
	d = calloc(1, sizeof(*d));
	if (!d)
		return NULL;
	d->backend = b;
	d->call = &b->call;
	report_init(&d->r, b->ops->vendor, GW_FROM_DRIVER);
	d->r.index = b->count;
	b->slot[b->count++] = d;
	return d;
}

struct device *backend_find(const struct backend *b, const char *uuid, const char *pci)
{
	for (unsigned i = 0; i < b->count; i++)
		if (slot_is(b->slot[i], uuid, pci))
			return b->slot[i];
	return NULL;
}

struct device *backend_slot(struct backend *b, const char *uuid, const char *pci)
{
	struct device *d = backend_find(b, uuid, pci);

	if (d)
		return d;
	d = slot_new(b);
	if (d) {
		report_text(&d->r, GW_T_UUID, uuid, GW_ABSENT_NOT_READ);
		report_text(&d->r, GW_T_PCI, pci, GW_ABSENT_NOT_READ);
	}
	return d;
}

void backend_fail(struct backend *b, enum gw_cause cause, const char *fmt, ...)
{
	int n = snprintf(b->message, sizeof(b->message), "%s", gw_cause_info(cause)->sentence);
	char detail[sizeof(b->message)];
	va_list ap;

	b->cause = cause;
	if (cause == GW_CAUSE_NONE)
		b->message[0] = '\0';
	if (!fmt || n < 0 || (size_t)n + 3 >= sizeof(b->message))
		return;
	n += snprintf(b->message + n, sizeof(b->message) - (size_t)n, ": ");
	va_start(ap, fmt);
	vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	utf8_clean(b->message + n, sizeof(b->message) - (size_t)n, detail);
}

void backend_done(struct backend *b)
{
	for (unsigned i = 0; i < b->count; i++)
		free(b->slot[i]);
	free(b->slot);
	b->slot = NULL;
	b->count = b->cap = 0;
}

int usage_add(struct usage_list *l, const struct usage *u)
{
	for (unsigned i = 0; i < l->count; i++) {
		struct usage *have = &l->p[i];

		if (have->pid != u->pid || have->gpu_instance != u->gpu_instance)
			continue;
		have->type |= u->type;
		if (u->memory_why == GW_HAVE &&
		    (have->memory_why != GW_HAVE || u->memory_bytes > have->memory_bytes)) {
			have->memory_why = GW_HAVE;
			have->memory_bytes = u->memory_bytes;
		}
		return 0;
	}
	if (l->count == l->cap) {
		unsigned cap = l->cap ? 2 * l->cap : 64;
		struct usage *p = realloc(l->p, cap * sizeof(*p));

		if (!p)
			return -GW_E_NOMEM;
		l->p = p;
		l->cap = cap;
	}
	l->p[l->count++] = *u;
	return 0;
}

void usage_done(struct usage_list *l)
{
	free(l->p);
	*l = (struct usage_list){ 0 };
}

bool pci_normalise(const char *text, char out[static 16])
{
	unsigned domain, bus, device, function;
	int end = 0;

	if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &end) != 4) {
		domain = 0; /* the short form of lspci */
		if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &end) != 3)
			return false;
	}
	if (text[end])
		return false;
	/* Domains above 16 bits exist (VMD); sysfs prints as many digits as needed. */
	snprintf(out, 16, "%04x:%02x:%02x.%x", domain & 0xFFFFFFu, bus & 0xFFu, device & 0x1Fu,
		 function & 7u);
	return true;
}
