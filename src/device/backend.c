/* backend: code for all backends: their table, device slots, reports, process rows and
 * selectors. */
#include "backend.h"

#include "context.h"

#include "base/array.h"
#include "base/utf8.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PREFIX_MIN 4 /* minimum length of a UUID prefix */

const struct backend_ops *const backend_table[BACKENDS + 1] = {
#define GW_BACKEND(symbol, name, modules, help) &backend_##symbol,
#include <gpuward/backend.def>
};

/* Maximum age of the values of a tier before they are read again; the index is the bit number
 * in enum gw_tier. */
static const uint64_t cadence_ns[TIER_COUNT] = {
	UINT64_MAX,    /* STATIC: read once */
	0,             /* FAST: read every time */
	NS_PER_S,      /* SLOW: read at most once per second */
	NS_PER_S,      /* ENERGY: callers within a second share one costly reading */
	10 * NS_PER_S, /* HEALTH: read every ten seconds */
	0,             /* ON_REQUEST: read every time */
	10 * NS_PER_S, /* LIMITS: read every ten seconds */
	0,             /* PROFILE: read every time */
};

void report_init(struct report *r, enum gw_vendor vendor, enum gw_provenance provenance)
{
	memset(r, 0, sizeof(*r));
	r->vendor = vendor;
	r->provenance = provenance;
	memset(r->why, GW_ABSENT_NOT_READ, sizeof(r->why));
	memset(r->text_why, GW_ABSENT_NOT_READ, sizeof(r->text_why));
	r->margin_at_c = NAN;
}

void report_absent(struct report *r, unsigned tiers, enum gw_absence why)
{
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (tiers & gw_quantity_info(q)->tier)
			report_miss(r, q, why);
	for (unsigned t = 0; t < GW_TEXTS && (tiers & GW_TIER_STATIC); t++)
		if (r->text_why[t] == GW_ABSENT_NOT_READ)
			r->text_why[t] = (uint8_t)why;
}

void report_state(struct report *r, enum gw_device_state state, enum gw_cause cause,
		  const char *detail)
{
	const char *sentence = gw_cause_info(cause)->sentence;

	r->state = state;
	r->cause = cause;
	r->message[0] = '\0';
	if (cause == GW_CAUSE_NONE)
		return;
	if (detail && *detail)
		snprintf(r->message, sizeof(r->message), "%s (%s)", sentence, detail);
	else
		snprintf(r->message, sizeof(r->message), "%s", sentence);
}

enum gw_absence device_absence(enum gw_device_state state, enum gw_cause cause)
{
	switch (state) {
	case GW_DEVICE_OK: return GW_HAVE;
	case GW_DEVICE_ASLEEP: return GW_ABSENT_ASLEEP;
	case GW_DEVICE_LOST: return GW_ABSENT_LOST;
	case GW_DEVICE_FAULT: return GW_ABSENT_ERROR;
	case GW_DEVICE_DENIED: return GW_ABSENT_NO_PERMISSION;
	case GW_DEVICE_STALLED: return GW_ABSENT_STALLED;
	case GW_DEVICE_CLOSED: break;
	}
	return cause == GW_CAUSE_LET_GO   ? GW_ABSENT_LET_GO
	       : cause == GW_CAUSE_ASLEEP ? GW_ABSENT_ASLEEP
					  : GW_ABSENT_NO_DRIVER;
}

void report_text(struct report *r, enum gw_text t, const char *text, enum gw_absence why)
{
	if (!text || !text[strspn(text, " ")]) {
		r->text[t][0] = '\0';
		r->text_why[t] = (uint8_t)why;
		return;
	}
	utf8_clean(r->text[t], sizeof(r->text[t]), text);
	r->text_why[t] = GW_HAVE;
}

unsigned report_due(const struct report *r, unsigned tiers, uint64_t now_ns)
{
	unsigned due = 0;

	for (unsigned i = 0; i < TIER_COUNT; i++) {
		uint64_t at = r->tier_ns[i];

		if ((tiers & 1u << i) && (at == 0 || now_ns - at >= cadence_ns[i]))
			due |= 1u << i;
	}
	return due;
}

void report_stamp(struct report *r, unsigned tiers, uint64_t now_ns)
{
	for (unsigned i = 0; i < TIER_COUNT; i++)
		if (tiers & 1u << i)
			r->tier_ns[i] = now_ns;
}

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

	if (array_reserve(&b->slot, &b->cap, b->count + 1, sizeof(struct device *)) != 0)
		return NULL;
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
	if (array_reserve(&l->p, &l->cap, l->count + 1, sizeof(*l->p)) != 0)
		return -GW_E_NOMEM;
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
		domain = 0; /* the short format of lspci has no domain */
		if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &end) != 3)
			return false;
	}
	if (text[end])
		return false;
	/* A PCI domain can have more than 16 bits (Intel VMD); sysfs then prints as many digits
	 * as needed. */
	snprintf(out, 16, "%04x:%02x:%02x.%x", domain & 0xFFFFFFu, bus & 0xFFu, device & 0x1Fu,
		 function & 7u);
	return true;
}

static bool is_number(const char *s, unsigned long *ret)
{
	char *end;

	if (!isdigit((unsigned char)*s))
		return false;
	*ret = strtoul(s, &end, 10);
	return *end == '\0';
}

static bool uuid_matches(const char *uuid, const char *selector)
{
	const char *given = strncasecmp(selector, "GPU-", 4) == 0 ? selector + 4 : selector;
	const char *have = strncmp(uuid, "GPU-", 4) == 0 ? uuid + 4 : uuid;

	if (strcasecmp(uuid, selector) == 0)
		return true;
	return strlen(given) >= PREFIX_MIN && strncasecmp(have, given, strlen(given)) == 0;
}

static bool mig_matches(const struct gw_device *d, const char *selector)
{
	for (unsigned i = 0; i < d->mig_count; i++)
		if (strcasecmp(d->mig[i]->uuid, selector) == 0)
			return true;
	return false;
}

/* True if s could select a GPU on some machine, even if not on this one. */
static bool selector_plausible(const char *s)
{
	size_t n = strlen(s);

	return n >= PREFIX_MIN && strspn(s, "0123456789abcdefABCDEF-GPUMIgpumi/:.") == n;
}

static int not_a_selector(const char *selector)
{
	return context_fail(NULL, -GW_E_ARG,
			    "\"%.64s\" is not a GPU selector; use an index, a UUID, a PCI id, "
			    "cuda:N, visible or all",
			    selector);
}

int gw_device_matches(const struct gw_device *d, const char *selector)
{
	const char *uuid, *pci;
	unsigned long n;
	char id[16];

	if (!d || !selector)
		return context_fail_null(NULL, d ? "selector" : "d");
	if (!*selector)
		return not_a_selector(selector);
	uuid = gw_device_text(d, GW_T_UUID);
	pci = gw_device_text(d, GW_T_PCI);
	if (is_number(selector, &n))
		return d->index == n;
	if (strcmp(selector, "all") == 0)
		return 1;
	if (strcmp(selector, "visible") == 0)
		return d->cuda_ordinal >= 0;
	if (strncmp(selector, "cuda:", 5) == 0)
		return is_number(selector + 5, &n)
			       ? d->cuda_ordinal >= 0 && (unsigned long)d->cuda_ordinal == n
			       : not_a_selector(selector);
	if (pci_normalise(selector, id))
		return pci && strcmp(pci, id) == 0;
	if ((uuid && uuid_matches(uuid, selector)) || mig_matches(d, selector))
		return 1;
	return selector_plausible(selector) ? 0 : not_a_selector(selector);
}
