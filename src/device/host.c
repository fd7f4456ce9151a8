#include "host.h"

#include "base/array.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum gw_absence host_absence(long error)
{
	switch (error) {
	case -GW_E_NOENT: return GW_ABSENT_NOT_PRESENT;
	case -GW_E_PERM: return GW_ABSENT_NO_PERMISSION;
	case -GW_E_PARSE: return GW_ABSENT_INVALID;
	default: return GW_ABSENT_ERROR;
	}
}

static void host_set(struct host_report *r, unsigned q, double v)
{
	r->v[q] = v;
	r->why[q] = GW_HAVE;
}

static void host_miss(struct host_report *r, unsigned q, enum gw_absence why)
{
	r->why[q] = (uint8_t)why;
}

/* Parses the first line of /proc/stat: user nice system idle iowait irq softirq steal guest
 * guest_nice. `guest` is already counted in `user`, and `guest_nice` in `nice`. */
static int parse_ticks(const char *text, uint64_t *busy, uint64_t *total)
{
	unsigned long long v[8] = { 0 };
	int n = sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2],
		       &v[3], &v[4], &v[5], &v[6], &v[7]);

	if (n < 4)
		return -GW_E_PARSE;
	*total = 0;
	for (int i = 0; i < 8; i++)
		*total += v[i];
	*busy = *total - v[3] - v[4];
	return 0;
}

static int read_ticks(const struct root *root, uint64_t *busy, uint64_t *total)
{
	char text[512];
	long n = root_read(root, "proc/stat", text, sizeof(text));

	return n < 0 ? (int)n : parse_ticks(text, busy, total);
}

void host_init(struct host *h, const struct root *root)
{
	*h = (struct host){ .root = root };
	if (read_ticks(root, &h->busy, &h->total) < 0)
		h->busy = h->total = 0;
}

static void read_utilization(struct host *h, struct host_report *r)
{
	uint64_t busy = 0, total = 0;
	int err = read_ticks(h->root, &busy, &total);
	/* The sums can decrease, because iowait may decrease and cores may be removed. */
	bool comparable = err == 0 && h->total > 0 && total >= h->total && busy >= h->busy &&
			  busy - h->busy <= total - h->total;

	if (err < 0) {
		host_miss(r, GW_H_CPU_UTILIZATION, host_absence(err));
		return;
	}
	if (comparable && total - h->total < HOST_MIN_TICKS) {
		host_miss(r, GW_H_CPU_UTILIZATION, GW_ABSENT_FIRST_READING);
		return;
	}
	if (comparable)
		host_set(r, GW_H_CPU_UTILIZATION,
			 (double)(busy - h->busy) / (double)(total - h->total));
	else
		host_miss(r, GW_H_CPU_UTILIZATION, GW_ABSENT_FIRST_READING);
	h->busy = busy;
	h->total = total;
}

long host_parse_cpus(const char *text, int *cpu, unsigned room)
{
	long count = 0;

	while (*text) {
		char *end;
		unsigned long from = strtoul(text, &end, 10), to = from;

		if (end == text)
			return -GW_E_PARSE;
		if (*end == '-')
			to = strtoul(text = end + 1, &end, 10);
		if (end == text || to < from || to > 1000000 || (*end && *end != ','))
			return -GW_E_PARSE;
		for (unsigned long i = from; i <= to && (unsigned long)count + i - from < room;
		     i++)
			cpu[(unsigned long)count + i - from] = (int)i;
		count += (long)(to - from) + 1;
		text = end + (*end == ',');
	}
	return count ? count : -GW_E_PARSE;
}

static void read_cores(const struct root *root, struct host_report *r)
{
	char text[1024];
	long n = root_read_line(root, "sys/devices/system/cpu/online", text, sizeof(text));
	long count = n < 0 ? n : host_parse_cpus(text, NULL, 0);

	if (count < 0)
		host_miss(r, GW_H_CPU_COUNT, host_absence(count));
	else
		host_set(r, GW_H_CPU_COUNT, (double)count);
}

/* Reads the load. Does not use strtod(), because its decimal point depends on the locale. */
static void read_load(const struct root *root, struct host_report *r)
{
	char text[128];
	long n = root_read(root, "proc/loadavg", text, sizeof(text));
	unsigned whole, hundredths;

	if (n < 0)
		host_miss(r, GW_H_LOAD_1M, host_absence(n));
	else if (sscanf(text, "%u.%2u", &whole, &hundredths) != 2)
		host_miss(r, GW_H_LOAD_1M, GW_ABSENT_INVALID);
	else
		host_set(r, GW_H_LOAD_1M, (whole * 100.0 + hundredths) / 100);
}

static bool meminfo_bytes(const char *text, const char *key, double *ret)
{
	const char *p = strstr(text, key);
	unsigned long long kib;

	while (p && p != text && p[-1] != '\n')
		p = strstr(p + 1, key);
	if (!p || sscanf(p + strlen(key), ": %llu kB", &kib) != 1)
		return false;
	*ret = (double)kib * 1024;
	return true;
}

static void read_memory(const struct root *root, struct host_report *r)
{
	static const struct {
		unsigned q;
		const char *key;
	} row[] = {
		{ GW_H_RAM_TOTAL, "MemTotal" },
		{ GW_H_RAM_AVAILABLE, "MemAvailable" },
		{ GW_H_SWAP_TOTAL, "SwapTotal" },
		{ GW_H_SWAP_FREE, "SwapFree" },
	};
	char text[4096];
	long n = root_read(root, "proc/meminfo", text, sizeof(text));

	for (unsigned i = 0; i < COUNT(row); i++) {
		double v;

		if (meminfo_bytes(text, row[i].key, &v))
			host_set(r, row[i].q, v);
		else
			host_miss(r, row[i].q,
				  n < 0 ? host_absence(n) : GW_ABSENT_NOT_SUPPORTED);
	}
	if (r->why[GW_H_RAM_TOTAL] != GW_HAVE || r->why[GW_H_RAM_AVAILABLE] != GW_HAVE)
		host_miss(r, GW_H_RAM_USED, (enum gw_absence)r->why[GW_H_RAM_AVAILABLE]);
	else if (r->v[GW_H_RAM_AVAILABLE] > r->v[GW_H_RAM_TOTAL])
		host_miss(r, GW_H_RAM_USED, GW_ABSENT_INVALID);
	else
		host_set(r, GW_H_RAM_USED, r->v[GW_H_RAM_TOTAL] - r->v[GW_H_RAM_AVAILABLE]);
}

void host_read(struct host *h, struct host_report *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (unsigned q = 0; q < GW_HOST_QUANTITIES; q++)
		host_miss(ret, q, GW_ABSENT_NOT_READ);
	read_utilization(h, ret);
	read_cores(h->root, ret);
	read_load(h->root, ret);
	read_memory(h->root, ret);
}
