#include "rapl.h"

#include "host.h"

#include "base/array.h"
#include "base/number.h"

#include <ctype.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define POWERCAP  "sys/class/powercap"
#define PMU       "sys/bus/event_source/devices/power"
#define ZONES_MAX 64
#define CPUS_MAX  64 /* maximum number of CPUs in the mask of the PMU: one per package or die */

/* True if name is the folder of a zone: "intel-rapl:0" or "intel-rapl-mmio:0:1". A name without
 * a number is the controller. */
static bool is_zone(const char *name)
{
	return strstr(name, "rapl") && strchr(name, ':') && strlen(name) < 48;
}

static bool is_mmio(const char *path)
{
	return strstr(path, "-mmio:") != NULL;
}

static long read_zone_file(const struct root *root, const char *zone, const char *file,
			   char *out, size_t size)
{
	char path[160];

	root_path(path, sizeof(path), "%s/%s", zone, file);
	return root_read_line(root, path, out, size);
}

static int read_zone_u64(const struct root *root, const char *zone, const char *file,
			 uint64_t *ret)
{
	char text[32], *end;
	long n = read_zone_file(root, zone, file, text, sizeof(text));
	unsigned long long v;

	if (n < 0)
		return (int)n;
	v = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)text[0]) || *end)
		return -GW_E_PARSE;
	*ret = v;
	return 0;
}

/* Parses "package-1" or "package-1-die-0". */
static bool parse_package(const char *name, struct rapl_domain *d)
{
	return sscanf(name, "package-%d-die-%d", &d->package, &d->die) >= 1;
}

/* Finds package and die of a zone, from its own name or from the name of the enclosing zone. */
static void find_package(const struct root *root, struct rapl_domain *d)
{
	char outer[96], outer_name[32], *colon;

	if (parse_package(d->name, d))
		return;
	snprintf(outer, sizeof(outer), "%s", d->path);
	colon = strrchr(outer, ':');
	if (!colon)
		return;
	*colon = '\0';
	if (strchr(outer, ':') &&
	    read_zone_file(root, outer, "name", outer_name, sizeof(outer_name)) > 0)
		parse_package(outer_name, d);
}

static void read_zone(const struct root *root, const char *folder, struct rapl_domain *d)
{
	int err;

	*d = (struct rapl_domain){ .package = -1, .die = -1 };
	snprintf(d->path, sizeof(d->path), POWERCAP "/%s", folder);
	if (read_zone_file(root, d->path, "name", d->name, sizeof(d->name)) <= 0)
		snprintf(d->name, sizeof(d->name), "%.31s", folder);
	find_package(root, d);
	read_zone_u64(root, d->path, "max_energy_range_uj", &d->range_uj);
	err = read_zone_u64(root, d->path, "energy_uj", &d->energy_uj);
	d->why = err < 0 ? host_absence(err) : GW_HAVE;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct rapl_domain *)a)->path,
		      ((const struct rapl_domain *)b)->path);
}

/* Removes zones that exist twice. Keeps the zone that uses the model specific register, because
 * every machine has it; only some have the memory mapped zone. */
static unsigned drop_duplicates(struct rapl_domain *d, unsigned n)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < n; i++) {
		bool redundant = false;

		for (unsigned j = 0; j < n && !redundant; j++) {
			bool same = i != j && d[i].package == d[j].package &&
				    d[i].die == d[j].die && strcmp(d[i].name, d[j].name) == 0;

			/* d[j] may be the old copy of a zone that was moved to the front. This
			 * does no harm, because only memory mapped zones are removed. */
			redundant = same && is_mmio(d[i].path) && !is_mmio(d[j].path);
		}
		if (!redundant)
			d[kept++] = d[i];
	}
	return kept;
}

unsigned rapl_list(const struct root *root, struct rapl_domain *out, unsigned cap)
{
	struct rapl_domain zone[ZONES_MAX];
	unsigned n = 0;
	DIR *dir = root_opendir(root, POWERCAP);
	struct dirent *e;

	if (!dir)
		return 0;
	while (n < ZONES_MAX && (e = readdir(dir)))
		if (is_zone(e->d_name))
			read_zone(root, e->d_name, &zone[n++]);
	closedir(dir);
	n = drop_duplicates(zone, n);
	qsort(zone, n, sizeof(zone[0]), by_path);
	for (unsigned i = 0; i < n && i < cap; i++)
		out[i] = zone[i];
	return n;
}

static enum rapl_kind kind_of(const char *name)
{
	if (strncmp(name, "package-", 8) == 0)
		return RAPL_PACKAGE;
	if (strcmp(name, "dram") == 0)
		return RAPL_DRAM;
	if (strcmp(name, "core") == 0 || strcmp(name, "uncore") == 0)
		return RAPL_INSIDE;
	return strcmp(name, "psys") == 0 ? RAPL_PLATFORM : RAPL_OTHER;
}

/* True if two zones of one package show the same counter. In that case, a reading of the second
 * zone lies between two readings of the first one; two separate counters (microjoules since
 * boot) are never that close. Kernels that treat each chiplet as a die list the counter of the
 * package once per chiplet. */
static bool same_counter(const struct root *root, const struct rapl_domain *a,
			 const struct rapl_domain *b)
{
	uint64_t before, between, after;

	return read_zone_u64(root, a->path, "energy_uj", &before) == 0 &&
	       read_zone_u64(root, b->path, "energy_uj", &between) == 0 &&
	       read_zone_u64(root, a->path, "energy_uj", &after) == 0 && before <= between &&
	       between <= after;
}

static bool is_duplicate(const struct root *root, const struct rapl_domain *z, unsigned i)
{
	for (unsigned k = 0; k < i; k++) {
		if (z[k].package != z[i].package || kind_of(z[k].name) != kind_of(z[i].name))
			continue;
		if (kind_of(z[i].name) == RAPL_OTHER && strcmp(z[k].name, z[i].name) != 0)
			continue;
		if (z[k].die == z[i].die && strcmp(z[k].name, z[i].name) == 0)
			return true;
		if (z[k].die != z[i].die && same_counter(root, &z[k], &z[i]))
			return true;
	}
	return false;
}

static void open_zones(struct rapl *r)
{
	struct rapl_domain z[ZONES_MAX];
	unsigned n = rapl_list(r->root, z, ZONES_MAX);

	for (unsigned i = 0; i < n && i < ZONES_MAX && r->count < RAPL_COUNTERS_MAX; i++) {
		if (is_duplicate(r->root, z, i))
			continue;
		r->counter[r->count++] = (struct rapl_counter){
			.d = z[i],
			.kind = kind_of(z[i].name),
			.fd = -1,
			.joules_each = 1e-6,
			.last = z[i].energy_uj,
			.based = z[i].why == GW_HAVE,
			.why = z[i].why,
		};
	}
}

#ifndef RAPL_PERF_OPEN /* A test defines its own function. */
static int perf_open(uint32_t type, uint64_t config, int cpu)
{
	struct perf_event_attr attr = { .type = type, .size = sizeof(attr), .config = config };

	return (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}
#define RAPL_PERF_OPEN perf_open
#endif

static int read_topology(const struct root *root, int cpu, const char *file)
{
	char path[96];
	int64_t v;

	root_path(path, sizeof(path), "sys/devices/system/cpu/cpu%d/topology/%s", cpu, file);
	return root_read_i64(root, path, &v) == 0 && v >= 0 && v < 100000 ? (int)v : -1;
}

/* True if each die has its own counter, as in Intel's multi-die packages. AMD has one counter
 * per package; some kernels open it once per chiplet and so count it several times (fixed in
 * later kernels). */
static bool dies_count(const struct root *root)
{
	char text[512];

	return root_read(root, "proc/cpuinfo", text, sizeof(text)) > 0 &&
	       strstr(text, "GenuineIntel");
}

struct perf_event {
	const char *name, *file;
	enum rapl_kind kind;
};

/* Returns 0, or an error if this event cannot be counted. */
static int read_event(const struct root *root, const struct perf_event *e, uint64_t *ret_config,
		      double *ret_scale)
{
	char path[96], text[64];
	const char *end, *value;
	long n;

	n = root_read_line(root, root_path(path, sizeof(path), PMU "/events/%s", e->file), text,
			   sizeof(text));
	if (n < 0)
		return (int)n;
	value = strstr(text, "event=");
	if (!value)
		return -GW_E_PARSE;
	*ret_config = strtoull(value + 6, NULL, 16);
	n = root_read_line(root, root_path(path, sizeof(path), PMU "/events/%s.scale", e->file),
			   text, sizeof(text));
	if (n < 0)
		return (int)n;
	*ret_scale = number_parse(text, &end);
	return end != text && *ret_scale > 0 && *ret_scale < 1 ? 0 : -GW_E_PARSE;
}

static bool has_counter(const struct rapl *r, enum rapl_kind kind, int package, int die)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->counter[i].kind == kind && r->counter[i].d.package == package &&
		    r->counter[i].d.die == die)
			return true;
	return false;
}

static enum gw_absence perf_absence(int e)
{
	if (e == EACCES || e == EPERM)
		return GW_ABSENT_NO_PERMISSION;
	return e == ENOENT || e == ENODEV || e == EOPNOTSUPP ? GW_ABSENT_NOT_SUPPORTED
							     : GW_ABSENT_ERROR;
}

static void open_event(struct rapl *r, const struct perf_event *e, uint32_t type, int cpu,
		       bool dies)
{
	int die = dies ? read_topology(r->root, cpu, "die_id") : -1;
	int package = read_topology(r->root, cpu, "physical_package_id");
	struct rapl_counter c = { .kind = e->kind, .d = { .package = package, .die = die } };
	uint64_t config;
	int err = read_event(r->root, e, &config, &c.joules_each);

	if (err == -GW_E_NOENT || r->count == RAPL_COUNTERS_MAX)
		return; /* The machine has no such counter, or the table is full. */
	if (has_counter(r, e->kind, package, die))
		return;
	if (e->kind == RAPL_PACKAGE)
		snprintf(c.d.name, sizeof(c.d.name), "package-%d", package);
	else
		snprintf(c.d.name, sizeof(c.d.name), "%s", e->name);
	snprintf(c.d.path, sizeof(c.d.path), PMU "/events/%s", e->file);
	c.fd = err ? -1 : RAPL_PERF_OPEN(type, config, cpu);
	c.perf = true;
	c.why = err ? host_absence(err) : c.fd < 0 ? perf_absence(errno) : GW_HAVE;
	c.based = c.fd >= 0; /* A counter of perf starts at 0 when it is opened. */
	r->counter[r->count++] = c;
}

static void open_perf(struct rapl *r)
{
	static const struct perf_event events[] = { { "package", "energy-pkg", RAPL_PACKAGE },
						    { "dram", "energy-ram", RAPL_DRAM } };
	bool dies = dies_count(r->root);
	char text[256];
	int cpu[CPUS_MAX];
	int64_t type;
	long n;

	/* Only the real root describes the counters of this machine. */
	if (!r->root->real || root_read_i64(r->root, PMU "/type", &type) != 0 ||
	    root_read_line(r->root, PMU "/cpumask", text, sizeof(text)) <= 0)
		return;
	n = host_parse_cpus(text, cpu, CPUS_MAX);
	for (unsigned e = 0; e < COUNT(events); e++)
		for (long i = 0; i < n && i < CPUS_MAX; i++)
			open_event(r, &events[e], (uint32_t)type, cpu[i], dies);
}

static bool any_package(const struct rapl *r)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->counter[i].kind == RAPL_PACKAGE && r->counter[i].based)
			return true;
	return false;
}

void rapl_open(struct rapl *r, const struct root *root)
{
	unsigned zones;

	memset(r, 0, sizeof(*r));
	r->root = root;
	open_zones(r);
	if (any_package(r))
		return;
	/* If powercap refuses access, the power PMU may allow it. If both refuse access, report
	 * the error of powercap, because it is easier to fix. */
	zones = r->count;
	r->count = 0;
	open_perf(r);
	if (any_package(r) || zones == 0)
		return;
	rapl_close(r);
	open_zones(r);
}

void rapl_close(struct rapl *r)
{
	for (unsigned i = 0; i < r->count; i++)
		if (r->counter[i].fd >= 0)
			close(r->counter[i].fd);
	r->count = 0;
}

static enum gw_absence read_raw(const struct rapl *r, const struct rapl_counter *c,
				uint64_t *ret)
{
	int err;

	if (!c->perf) {
		err = read_zone_u64(r->root, c->d.path, "energy_uj", ret);
		return err ? host_absence(err) : GW_HAVE;
	}
	return read(c->fd, ret, sizeof(*ret)) == (ssize_t)sizeof(*ret) ? GW_HAVE
								       : GW_ABSENT_ERROR;
}

static void read_counter(struct rapl *r, struct rapl_counter *c)
{
	uint64_t now = 0, range = c->d.range_uj;

	if (!c->based)
		return;
	c->why = read_raw(r, c, &now);
	if (c->why != GW_HAVE)
		return; /* The next successful reading includes this energy. */
	if (now >= c->last) {
		c->joules += (double)(now - c->last) * c->joules_each;
	} else if (range != 0 && c->last <= range) {
		c->joules += (double)(range - c->last + now) * c->joules_each;
		c->wraps++;
	} else { /* The counter decreased and its range is unknown, so the energy is unknown. */
		c->based = false;
		c->why = GW_ABSENT_INVALID;
	}
	c->last = now;
}

void rapl_read(struct rapl *r)
{
	for (unsigned i = 0; i < r->count; i++)
		read_counter(r, &r->counter[i]);
}

/* Sums the counters of one kind. Returns GW_ABSENT_NOT_PRESENT if there is no counter of this
 * kind. */
static enum gw_absence sum_kind(const struct rapl *r, enum rapl_kind kind, double *ret_j,
				const struct rapl_counter **ret_missing)
{
	enum gw_absence why = GW_ABSENT_NOT_PRESENT;

	*ret_j = 0;
	for (unsigned i = 0; i < r->count; i++) {
		const struct rapl_counter *c = &r->counter[i];

		if (c->kind != kind)
			continue;
		why = c->why;
		if (why != GW_HAVE) {
			if (!*ret_missing)
				*ret_missing = c;
			return why;
		}
		*ret_j += c->joules;
	}
	return why;
}

struct rapl_total rapl_total(const struct rapl *r)
{
	struct rapl_total t = { .joules = NAN, .remedy = "" };
	const struct rapl_counter *missing = NULL;
	double package_j, dram_j;

	t.why = sum_kind(r, RAPL_PACKAGE, &package_j, &missing);
	t.dram_why = sum_kind(r, RAPL_DRAM, &dram_j, &missing);
	/* A part that exists but cannot be read makes the total unknown; a part that the
	 * machine does not have is left out. */
	if (t.why == GW_HAVE && t.dram_why != GW_HAVE && t.dram_why != GW_ABSENT_NOT_PRESENT)
		t.why = t.dram_why;
	if (t.why == GW_HAVE)
		t.joules = package_j + (t.dram_why == GW_HAVE ? dram_j : 0);
	else if (missing)
		snprintf(t.missing, sizeof(t.missing), "/%s%s", missing->d.path,
			 missing->perf ? "" : "/energy_uj");
	if (t.why == GW_ABSENT_NO_PERMISSION) {
		t.cause = GW_CAUSE_RAPL_PERMISSION;
		t.remedy = missing->perf
				   ? "Run as root or with CAP_PERFMON, or set sysctl "
				     "kernel.perf_event_paranoid=0 as root (until reboot)."
				   : gw_cause_info(GW_CAUSE_RAPL_PERMISSION)->remedy;
	}
	return t;
}
