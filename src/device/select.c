/* select: does a word of the user's name this GPU. */
#include "backend.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PREFIX_MIN 4 /* characters of a UUID that are enough to mean it */

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

/* Words that could name a GPU on some machine, whether or not on this one. */
static bool plausible(const char *s)
{
	size_t n = strlen(s);

	return n >= PREFIX_MIN && strspn(s, "0123456789abcdefABCDEF-GPUMIgpumi/:.") == n;
}

int gw_device_matches(const struct gw_device *d, const char *selector)
{
	const char *uuid = gw_device_text(d, GW_T_UUID), *pci = gw_device_text(d, GW_T_PCI);
	unsigned long n;
	char id[16];

	if (!selector || !*selector)
		return -GW_E_ARG;
	if (is_number(selector, &n))
		return d->index == n;
	if (strcmp(selector, "visible") == 0)
		return d->cuda_ordinal >= 0;
	if (strncmp(selector, "cuda:", 5) == 0)
		return is_number(selector + 5, &n)
			       ? d->cuda_ordinal >= 0 && (unsigned long)d->cuda_ordinal == n
			       : -GW_E_ARG;
	if (pci_normalise(selector, id))
		return pci && strcmp(pci, id) == 0;
	if ((uuid && uuid_matches(uuid, selector)) || mig_matches(d, selector))
		return 1;
	return plausible(selector) ? 0 : -GW_E_ARG;
}
