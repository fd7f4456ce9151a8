/* nvsmi: the backend for NVIDIA GPUs if NVIDIA's library cannot be loaded.
 *
 * One run of nvidia-smi prints the values of all GPUs. Each device uses the output of a run at
 * most once. So a round in which every device is read needs one run. Another nvidia-smi process
 * keeps running (nvsmi_stream.c) and prints power samples and the values that are read at every
 * tick. If this process fails, each round needs one run, which is then also a power sample. */
#include "nvsmi.h"

#include "backend.h"
#include "drm.h"

#include "base/array.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/number.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef DEADLINE_NS /* timeout of one run; tests define a shorter timeout */
#define DEADLINE_NS (10 * NS_PER_S)
#endif
/* Maximum age of the output of a run. It is short, so that only the devices that are read in
 * the same round use the output. */
#define FRESH_NS (100 * NS_PER_MS)
/* Delay of the next run after a run that hung, because the next run may hang, too. */
#define RETRY_NS (60 * NS_PER_S)
/* If the output of a run is longer than this, none of it is used, because its last rows would
 * be missing. The row of a process has about 60 bytes. */
#define TEXT_SIZE (1024 * 1024)

/* The tiers that nvidia-smi supports. */
#define TIERS GW_TIERS_COMMON
/* The tiers that are read at every tick. The stream delivers them too, so while the stream
 * works, no other program is run for them. */
#define LIVE (GW_TIER_FAST | GW_TIER_SLOW)

/* The output of one run. */
struct answer {
	unsigned number;           /* The first run has number 1. 0: there was no run yet. */
	unsigned tiers;            /* the tiers whose columns were requested */
	uint64_t begin_ns, end_ns; /* before and after the run */
	int rc; /* result of child_run(); with -GW_E_SIZE, text has only the beginning */
	/* The name that was requested for each column (enum nvsmi_name). NVSMI_NONE: the column
	 * was not requested. */
	uint8_t names[NVSMI_COLUMNS];
	char text[TEXT_SIZE];
};

struct nvsmi {
	/* Guards everything below. A thread holds it while it runs the program. */
	pthread_mutex_t lock;
	unsigned program; /* index into programs[] */
	/* For each column, the name that this driver knows (enum nvsmi_name). */
	uint8_t names[NVSMI_COLUMNS];
	struct answer gpus, apps, power; /* values, process lists, power samples */
	struct nvsmi_stream stream;
	/* For each column, the name that the stream requests as a further column (enum
	 * nvsmi_name). */
	uint8_t live[NVSMI_COLUMNS];
};

#define RING_SIZE 256 /* number of samples per device: 25 s at ten samples per second */
/* The values in a line of the stream are used for this long. */
#define LIVE_NS (3 * NVSMI_INTERVAL_NS)
/* If timestamps step back by more than this, the wall clock was set. */
#define BACK_US (10 * INT64_C(1000000))
/* Each list of processes needs a run of the program. While the stream works, a list is
 * therefore used for APPS_NS. A process that starts or ends changes the memory in use; after
 * such a change, a list is used for APPS_CHANGED_NS only. */
#define APPS_NS         (10 * NS_PER_S)
#define APPS_CHANGED_NS (2 * NS_PER_S)

struct nvsmi_device {
	unsigned gpus, apps, power; /* numbers of the runs whose answers the device used last */
	struct power_sample ring[RING_SIZE];
	uint64_t samples;          /* number of samples ever stored */
	bool instant;              /* The samples are power.draw.instant, not power.draw. */
	enum gw_absence power_why; /* why the last line has no power; GW_HAVE: it has power */
	/* The values of the last line of the stream, and when it was read (0: none). Only the
	 * thread that reads the device may change its report. */
	struct report live;
	uint64_t live_ns;
	bool live_lost;   /* The last line of the stream reports that the GPU is lost. */
	double apps_used; /* memory in use when the processes were listed, in bytes */
};

static const char *const programs[] = {
	"nvidia-smi",
	"/usr/bin/nvidia-smi",
	"/usr/lib/wsl/lib/nvidia-smi",
};

/* Returns the timeout of a run. It is shorter than the caller's deadline, so that a run that
 * hangs is ended before the caller stops waiting. */
static uint64_t run_timeout_ns(const struct backend *b)
{
	uint64_t max_ns = b->env->deadline_ns / 4 * 3;

	return max_ns && max_ns < DEADLINE_NS ? max_ns : DEADLINE_NS;
}

static void run_program(struct backend *b, struct answer *a, const char *query,
			_Atomic(const char *) *call)
{
	struct nvsmi *n = b->priv;

	atomic_store_explicit(call, "nvidia-smi", memory_order_relaxed);
	a->begin_ns = clock_mono_ns(b->env->clock);
	for (;;) {
		const char *const argv[] = { programs[n->program], query,
					     "--format=csv,noheader,nounits", NULL };
		uint64_t deadline = clock_mono_ns(clock_real()) + run_timeout_ns(b);

		a->rc = -GW_E_NOENT;
		if (child_exists(argv[0]))
			a->rc = child_run(argv, deadline, a->text, sizeof(a->text));
		if ((a->rc != -GW_E_NOENT && a->rc != -GW_E_PERM) ||
		    n->program + 1 == COUNT(programs))
			break;
		n->program++;
	}
	a->end_ns = clock_mono_ns(b->env->clock);
	n->stream.facts.programs++;
	n->stream.facts.program_ns += a->end_ns - a->begin_ns;
	a->number++;
	atomic_store_explicit(call, NULL, memory_order_relaxed);
}

/* After the driver refused a column, switches to the column's older name or drops the column.
 * Returns false if no requested column was refused. */
static bool drop_refused(struct nvsmi *n)
{
	char field[96];

	if (!nvsmi_refused(n->gpus.text, field, sizeof(field)))
		return false;
	for (unsigned c = 0; c < nvsmi_column_count(); c++) {
		const char *name = nvsmi_column_name(c, n->names[c]);

		if (!name || strcmp(name, field) != 0)
			continue;
		n->names[c]++;
		if (!nvsmi_column_name(c, n->names[c]))
			n->names[c] = NVSMI_NONE;
		return true;
	}
	return false;
}

static void ask_gpus(struct backend *b, unsigned tiers, _Atomic(const char *) *call)
{
	struct nvsmi *n = b->priv;
	struct answer *a = &n->gpus;
	char query[2048];
	struct buf q;

	do {
		buf_init_fixed(&q, query, sizeof(query));
		buf_adds(&q, "--query-gpu=index,uuid,pci.bus_id");
		for (unsigned c = 0; c < nvsmi_column_count(); c++) {
			const char *name = nvsmi_column_name(c, n->names[c]);

			if (!name || !(nvsmi_column_tiers(c) & tiers)) {
				a->names[c] = NVSMI_NONE;
				continue;
			}
			a->names[c] = n->names[c];
			buf_addf(&q, ",%s", name);
		}
		run_program(b, a, query, call);
	} while (drop_refused(n));
	a->tiers = tiers;
}

/* True if a device may use this answer; `used` is the number of the run that it used last. */
static bool is_fresh(const struct backend *b, const struct answer *a, unsigned used)
{
	uint64_t age_ns = clock_mono_ns(b->env->clock) - a->end_ns;

	if (a->rc == -GW_E_TIMEOUT)
		return age_ns < RETRY_NS;
	return a->number != 0 && a->number != used && age_ns < FRESH_NS;
}

/* Copies the next line of *text to out and moves *text past it. Returns false at the end. A
 * last line without a newline was cut, and is ignored. */
static bool next_line(const char **text, char *out, size_t size)
{
	const char *end = strchr(*text, '\n');
	size_t n;

	if (!end)
		return false;
	n = (size_t)(end - *text);
	n = n < size - 1 ? n : size - 1;
	memcpy(out, *text, n);
	out[n] = '\0';
	*text = end + 1;
	return true;
}

static unsigned columns_of(const struct answer *a)
{
	unsigned n = NVSMI_IDS;

	for (unsigned c = 0; c < nvsmi_column_count(); c++)
		n += a->names[c] != NVSMI_NONE;
	return n;
}

/* Gets the next row about a GPU, split into fields; skips other lines and advances *text. */
static bool next_row(const struct answer *a, const char **text, char *line, size_t size,
		     char *fields[static NVSMI_FIELDS])
{
	const unsigned want = columns_of(a);

	while (next_line(text, line, size))
		if (nvsmi_split(line, fields, NVSMI_FIELDS) == want &&
		    strspn(fields[NVSMI_INDEX], "0123456789") > 0)
			return true;
	return false;
}

static bool matches_device(const struct device *d, const char *uuid, const char *bus_id)
{
	char pci[16];

	if (d->r.text_why[GW_T_UUID] == GW_HAVE)
		return strcmp(d->r.text[GW_T_UUID], uuid) == 0;
	return pci_normalise(bus_id, pci) && strcmp(d->r.text[GW_T_PCI], pci) == 0;
}

/* Stores the values of the columns of these tiers; returns whether the GPU is lost. */
static bool apply_columns(struct report *r, const uint8_t *names, unsigned tiers,
			  char *const *fields)
{
	unsigned field = 0;
	bool lost = false;

	for (unsigned c = 0; c < nvsmi_column_count(); c++) {
		if (names[c] == NVSMI_NONE)
			continue;
		lost |= nvsmi_absence(fields[field]) == GW_ABSENT_LOST;
		if (nvsmi_column_tiers(c) & tiers)
			nvsmi_apply(r, c, fields[field]);
		field++;
	}
	return lost;
}

static bool apply_row(struct report *r, const struct answer *a, char *const *fields)
{
	return apply_columns(r, a->names, a->tiers, fields + NVSMI_IDS);
}

static enum gw_cause cause_of(const struct answer *a)
{
	enum gw_cause from_text = nvsmi_cause(a->text);

	if (a->rc == -GW_E_NOENT || a->rc == -GW_E_PERM)
		return GW_CAUSE_NO_NVIDIA_SMI;
	if (a->rc == -GW_E_TIMEOUT)
		return GW_CAUSE_STALLED;
	if (from_text != GW_CAUSE_NONE)
		return from_text;
	return a->rc == 0 ? GW_CAUSE_NO_GPU : GW_CAUSE_DRIVER_ERROR;
}

/* Writes the detail for a message: the first line of the output or, if there is no output, how
 * the run ended. Returns out. */
static const char *detail_of(const struct answer *a, char out[static 120])
{
	const char *text = a->text + strspn(a->text, " \t\r\n");
	int n = (int)strcspn(text, "\r\n");

	if (a->rc == -GW_E_TIMEOUT)
		snprintf(out, 120, "nvidia-smi timed out");
	else if (a->rc == -GW_E_SIZE)
		snprintf(out, 120, "nvidia-smi printed more than %d KiB", TEXT_SIZE / 1024);
	else if (a->rc < 0)
		snprintf(out, 120, "nvidia-smi: %s", gw_strerror(a->rc));
	else if (n == 0)
		snprintf(out, 120, "nvidia-smi exited with %d and printed nothing", a->rc);
	else
		snprintf(out, 120, "nvidia-smi: %.*s", n < 100 ? n : 100, text);
	return out;
}

static bool ensure_priv(struct device *d)
{
	if (!d->priv)
		d->priv = calloc(1, sizeof(struct nvsmi_device));
	return d->priv != NULL;
}

static int open_row(struct backend *b, const struct answer *a, unsigned row,
		    char *const *fields)
{
	const char *uuid = fields[NVSMI_UUID];
	char pci[16] = "";
	struct device *d;

	if (nvsmi_absence(uuid) != GW_HAVE)
		uuid = NULL;
	if (!pci_normalise(fields[NVSMI_PCI], pci) && !uuid)
		return 0; /* A GPU without UUID and PCI id could not be found again later. */
	d = backend_slot(b, uuid, *pci ? pci : NULL);
	if (!d || !ensure_priv(d))
		return -GW_E_NOMEM;
	d->r.index = row;
	if (strspn(fields[NVSMI_INDEX], "0123456789") <= 4 && fields[NVSMI_INDEX][0])
		d->r.index = (unsigned)strtoul(fields[NVSMI_INDEX], NULL, 10);
	d->r.provenance = GW_FROM_TEXT;
	report_text(&d->r, GW_T_UUID, uuid, GW_ABSENT_NO_DATA);
	report_text(&d->r, GW_T_PCI, pci, GW_ABSENT_NO_DATA);
	report_text(&d->r, GW_T_PART_NUMBER, NULL, GW_ABSENT_NOT_SUPPORTED);
	report_state(&d->r, GW_DEVICE_OK, GW_CAUSE_NONE, NULL);
	report_absent(&d->r, GW_TIER_STATIC, GW_ABSENT_NOT_SUPPORTED);
	apply_row(&d->r, a, fields);
	report_stamp(&d->r, GW_TIER_STATIC, a->end_ns);
	if (d->r.text_why[GW_T_DRIVER] == GW_HAVE)
		snprintf(b->driver_version, sizeof(b->driver_version), "%.79s",
			 d->r.text[GW_T_DRIVER]);
	return 0;
}

static void mark_absent(struct report *r, enum gw_device_state state, enum gw_cause cause,
			const char *detail, enum gw_absence why)
{
	report_state(r, state, cause, detail);
	report_absent(r, GW_TIERS_ALL, why);
	memset(r->tier_ns, 0, sizeof(r->tier_ns));
}

static int open_rows(struct backend *b)
{
	const struct answer *a = &((struct nvsmi *)b->priv)->gpus;
	char line[4096], detail[120], *fields[NVSMI_FIELDS];
	const char *text = a->text;
	unsigned rows = 0;

	/* Mark every GPU as lost. Those that are found below are marked as present again. */
	for (unsigned i = 0; i < b->count; i++) {
		mark_absent(&b->slot[i]->r, GW_DEVICE_LOST, GW_CAUSE_GPU_LOST,
			    "the driver no longer lists it", GW_ABSENT_LOST);
		if (!ensure_priv(b->slot[i]))
			return -GW_E_NOMEM;
	}
	while (a->rc >= 0 && next_row(a, &text, line, sizeof(line), fields)) {
		if (open_row(b, a, rows++, fields) != 0)
			return -GW_E_NOMEM;
	}
	b->open = rows > 0;
	if (rows)
		backend_fail(b, GW_CAUSE_NONE, NULL);
	else
		backend_fail(b, cause_of(a), "%s", detail_of(a, detail));
	return a->rc == -GW_E_NOMEM ? -GW_E_NOMEM : 0;
}

static void nvsmi_close(struct backend *b)
{
	struct nvsmi *n = b->priv;

	for (unsigned i = 0; i < b->count; i++) {
		free(b->slot[i]->priv);
		b->slot[i]->priv = NULL;
	}
	if (n) {
		nvsmi_stream_stop(&n->stream);
		pthread_mutex_destroy(&n->lock);
	}
	free(n);
	b->priv = NULL;
	b->open = false;
}

static bool nvsmi_present(struct backend *b)
{
	const char *why = "it is not in PATH, /usr/bin or /usr/lib/wsl/lib";

	if (!(b->env->flags & GW_OPEN_EXEC))
		why = "the calling program does not allow gpuward to start programs";
	else if (!b->env->root->real)
		why = "nvidia-smi is used only if the root directory is /";
	else
		for (size_t i = 0; i < COUNT(programs); i++)
			if (child_exists(programs[i]))
				return true;
	backend_fail(b, GW_CAUSE_NO_NVIDIA_SMI, "%s", why);
	return false;
}

static int nvsmi_open(struct backend *b)
{
	struct nvsmi *n;
	int err;

	if (!nvsmi_present(b))
		return 0;
	if (drm_list_suspended(b, PCI_VENDOR_NVIDIA))
		return 0;
	n = calloc(1, sizeof(*n));
	if (!n)
		return -GW_E_NOMEM;
	pthread_mutex_init(&n->lock, NULL);
	nvsmi_stream_init(&n->stream);
	b->priv = n;
	/* Also request the columns of LIVE: this shows which of them the driver knows, and the
	 * stream may use only those. */
	ask_gpus(b, GW_TIER_STATIC | LIVE, &b->call);
	/* The values of LIVE are read again when they are requested. */
	n->gpus.tiers = GW_TIER_STATIC;
	err = open_rows(b);
	if (err || !b->open)
		nvsmi_close(b);
	return err;
}

/* Returns the PCI id of one of our GPUs that is suspended and must not be woken, or NULL. */
static const char *find_suspended(const struct backend *b)
{
	if (b->env->flags & GW_OPEN_WAKE)
		return NULL;
	for (unsigned i = 0; i < b->count; i++) {
		const struct report *r = &b->slot[i]->r;

		if (r->text_why[GW_T_PCI] == GW_HAVE &&
		    drm_asleep(b->env->root, r->text[GW_T_PCI]))
			return r->text[GW_T_PCI];
	}
	return NULL;
}

/* Sets the state of a device that has no row in the answer, from the reason in the answer: the
 * call stalled, the GPU is lost, or the driver failed. */
static void miss_row(struct device *d, const struct answer *a)
{
	enum gw_cause cause = cause_of(a);
	char detail[120];

	detail_of(a, detail);
	if (cause == GW_CAUSE_STALLED) {
		mark_absent(&d->r, GW_DEVICE_STALLED, cause, detail, GW_ABSENT_STALLED);
	} else if (a->rc == 0 || cause == GW_CAUSE_GPU_LOST) {
		mark_absent(&d->r, GW_DEVICE_LOST, GW_CAUSE_GPU_LOST,
			    a->rc == 0 ? "the driver no longer lists it" : detail,
			    GW_ABSENT_LOST);
	} else {
		mark_absent(&d->r, GW_DEVICE_CLOSED, cause, detail, GW_ABSENT_NO_DRIVER);
		atomic_store(&d->backend->reopen, true);
	}
}

static void read_row(struct device *d, const struct answer *a, unsigned tiers)
{
	char line[4096], *fields[NVSMI_FIELDS];
	const char *text = a->text;

	while (a->rc >= 0 && next_row(a, &text, line, sizeof(line), fields)) {
		if (!matches_device(d, fields[NVSMI_UUID], fields[NVSMI_PCI]))
			continue;
		report_absent(&d->r, tiers, GW_ABSENT_NOT_SUPPORTED);
		if (apply_row(&d->r, a, fields)) {
			mark_absent(&d->r, GW_DEVICE_LOST, GW_CAUSE_GPU_LOST, NULL,
				    GW_ABSENT_LOST);
			return;
		}
		report_state(&d->r, GW_DEVICE_OK, GW_CAUSE_NONE, NULL);
		if (tiers & GW_TIER_FAST) {
			d->r.begin_ns = a->begin_ns;
			d->r.end_ns = a->end_ns;
		}
		report_stamp(&d->r, tiers, a->end_ns);
		return;
	}
	miss_row(d, a);
}

static void read_asleep(struct device *d, const char *suspended)
{
	const struct report *r = &d->r;
	bool itself =
		r->text_why[GW_T_PCI] == GW_HAVE && strcmp(r->text[GW_T_PCI], suspended) == 0;
	char why[96];

	snprintf(why, sizeof(why),
		 "not read, because reading it would also wake the sleeping GPU %s", suspended);
	mark_absent(&d->r, itself ? GW_DEVICE_ASLEEP : GW_DEVICE_CLOSED, GW_CAUSE_ASLEEP,
		    itself ? NULL : why, GW_ABSENT_ASLEEP);
}

static bool read_app(char *line, const char *uuid, struct usage *ret)
{
	char *fields[3];
	const char *end;
	double pid, mib;

	if (nvsmi_split(line, fields, 3) != 3 || strcmp(fields[0], uuid) != 0)
		return false;
	pid = number_parse(fields[1], &end);
	if (end == fields[1] || *end || !(pid >= 1 && pid <= 4194304))
		return false;
	*ret = (struct usage){ .pid = (int64_t)pid,
			       .type = GW_PROCESS_COMPUTE,
			       .gpu_instance = -1,
			       .memory_why = nvsmi_absence(fields[2]) };
	if (ret->memory_why != GW_HAVE)
		return true;
	mib = number_parse(fields[2], &end);
	if (end == fields[2] || *end || !(mib >= 0 && mib < 1e9))
		ret->memory_why = GW_ABSENT_INVALID;
	else
		ret->memory_bytes = (uint64_t)(mib * MIB);
	return true;
}

static int add_apps(const struct answer *a, const char *uuid, struct usage_list *l)
{
	const char *text = a->text;
	char line[1024];
	struct usage u;
	int err;

	while (next_line(&text, line, sizeof(line))) {
		if (!read_app(line, uuid, &u))
			continue;
		err = usage_add(l, &u);
		if (err)
			return err;
	}
	return 0;
}

static void store_sample(struct nvsmi_device *nd, const struct nvsmi_reading *r)
{
	const struct power_sample *last = &nd->ring[(nd->samples + RING_SIZE - 1) % RING_SIZE];
	double w;

	nd->power_why = r->why;
	if (r->why != GW_HAVE)
		return;
	/* All samples of a device must come from one column, power.draw.instant or power.draw:
	 * the first line decides. */
	if (nd->samples == 0)
		nd->instant = !isnan(r->instant_w);
	w = nd->instant ? r->instant_w : r->power_w;
	if (isnan(w) || (nd->samples > 0 && r->wall_us <= last->wall_us &&
			 last->wall_us - r->wall_us < BACK_US))
		return; /* The sample has no value, is already stored, or is too old. */
	nd->ring[nd->samples++ % RING_SIZE] = (struct power_sample){ r->wall_us, w };
}

/* Stores a power value. `why` is the reason if neither power column has a value, and GW_HAVE if
 * one of them has a value. */
static void set_watts(struct report *r, unsigned q, double watts, enum gw_absence why)
{
	if (isnan(watts))
		report_miss(r, q, why == GW_HAVE ? GW_ABSENT_NOT_SUPPORTED : why);
	else
		report_set(r, q, watts);
}

/* Converts a wall time to monotonic time. A wall time more than one second ago counts as one
 * second ago. */
static uint64_t mono_of(const struct backend *b, uint64_t wall_us)
{
	uint64_t wall_now_us = clock_wall_ns(b->env->clock) / 1000;
	uint64_t age_us = wall_now_us > wall_us ? wall_now_us - wall_us : 0;

	return clock_mono_ns(b->env->clock) -
	       (age_us < NS_PER_S / 1000 ? age_us * 1000 : NS_PER_S);
}

/* Stores the values of a line until the device is read. */
static void store_live(struct backend *b, struct nvsmi_device *nd,
		       const struct nvsmi_reading *r)
{
	const struct nvsmi *n = b->priv;

	report_absent(&nd->live, LIVE, GW_ABSENT_NOT_SUPPORTED);
	nd->live_lost =
		apply_columns(&nd->live, n->live, LIVE, r->more) || r->why == GW_ABSENT_LOST;
	nd->live_ns = mono_of(b, r->wall_us);
	set_watts(&nd->live, GW_Q_POWER, r->power_w, r->why);
	set_watts(&nd->live, GW_Q_POWER_INSTANT, r->instant_w, r->why);
}

static void store_reading(struct backend *b, const struct nvsmi_reading *r)
{
	for (unsigned i = 0; i < b->count; i++)
		if (b->slot[i]->priv && matches_device(b->slot[i], r->uuid, r->pci)) {
			store_sample(b->slot[i]->priv, r);
			if (r->more)
				store_live(b, b->slot[i]->priv, r);
		}
}

static void read_stream(struct backend *b)
{
	struct nvsmi *n = b->priv;
	uint64_t now_ns = clock_mono_ns(b->env->clock);
	uint64_t wall_us = clock_wall_ns(b->env->clock) / 1000;
	struct nvsmi_reading r;

	while (nvsmi_stream_next(&n->stream, now_ns, wall_us, &r))
		store_reading(b, &r);
}

/* Chooses the further columns of the stream: all columns of LIVE that the driver knows, except
 * the two that every line has. */
static void choose_live(struct nvsmi *n)
{
	struct nvsmi_stream *s = &n->stream;
	struct buf more;

	buf_init_fixed(&more, s->more, sizeof(s->more));
	s->mores = 0;
	for (unsigned c = 0; c < nvsmi_column_count(); c++) {
		const char *name = nvsmi_column_name(c, n->names[c]);

		n->live[c] = NVSMI_NONE;
		if (!name || !(nvsmi_column_tiers(c) & LIVE) ||
		    strcmp(name, "power.draw") == 0 || strcmp(name, "power.draw.instant") == 0)
			continue;
		n->live[c] = n->names[c];
		buf_addf(&more, ",%s", name);
		s->mores++;
	}
}

/* Takes the values of the last line of the stream, if it is recent. */
static bool read_live(struct device *d, unsigned tiers)
{
	struct nvsmi *n = d->backend->priv;
	struct nvsmi_device *nd = d->priv;

	read_stream(d->backend);
	if (!n->stream.running || !nd->live_ns ||
	    clock_mono_ns(d->backend->env->clock) - nd->live_ns > LIVE_NS)
		return false;
	if (nd->live_lost) {
		mark_absent(&d->r, GW_DEVICE_LOST, GW_CAUSE_GPU_LOST, NULL, GW_ABSENT_LOST);
		return true;
	}
	for (unsigned q = 0; q < GW_QUANTITIES; q++)
		if (gw_quantity_info(q)->tier & tiers) {
			d->r.v[q] = nd->live.v[q];
			d->r.why[q] = nd->live.why[q];
		}
	report_state(&d->r, GW_DEVICE_OK, GW_CAUSE_NONE, NULL);
	if (tiers & GW_TIER_FAST)
		d->r.begin_ns = d->r.end_ns = nd->live_ns;
	report_stamp(&d->r, tiers, nd->live_ns);
	return true;
}

/* Stores the power in the answer of a single run as a power sample, because the stream is
 * silent. */
static void sample_answer(struct device *d, const struct answer *a)
{
	struct nvsmi *n = d->backend->priv;
	struct nvsmi_device *nd = d->priv;
	const struct clock *clock = d->backend->env->clock;
	uint64_t age_ns = clock_mono_ns(clock) - a->end_ns;
	struct nvsmi_reading r = { .wall_us = (clock_wall_ns(clock) - age_ns) / 1000,
				   .power_w = NAN,
				   .instant_w = NAN,
				   .why = (enum gw_absence)d->r.why[GW_Q_POWER] };

	if (!n->stream.facts.starts || !(a->tiers & GW_TIER_FAST) || d->r.state != GW_DEVICE_OK)
		return;
	if (report_has(&d->r, GW_Q_POWER))
		r.power_w = d->r.v[GW_Q_POWER];
	if (report_has(&d->r, GW_Q_POWER_INSTANT)) {
		r.instant_w = d->r.v[GW_Q_POWER_INSTANT];
		r.why = GW_HAVE;
	}
	store_sample(nd, &r);
}

/* Runs the program for one sample of each GPU. */
static void run_for_power(struct backend *b, _Atomic(const char *) *call)
{
	struct nvsmi *n = b->priv;
	struct nvsmi_stream *s = &n->stream;
	const char *text = n->power.text;
	struct nvsmi_reading r;
	char line[512];

	run_program(b, &n->power, nvsmi_stream_query(s, false), call);
	s->facts.runs++;
	for (unsigned i = 0; i < b->count; i++)
		if (b->slot[i]->priv)
			((struct nvsmi_device *)b->slot[i]->priv)->power_why = GW_ABSENT_LOST;
	/* Compute the time zone again, because a single run is not started with TZ=UTC. */
	s->zone_known = false;
	while (n->power.rc == 0 && next_line(&text, line, sizeof(line)))
		if (nvsmi_stream_parse(s, line, false, clock_wall_ns(b->env->clock) / 1000, &r))
			store_reading(b, &r);
}

/* Gets new power samples. Starts no program that would wake a GPU. */
static int sample_power(struct device *d)
{
	struct backend *b = d->backend;
	struct nvsmi *n = b->priv;
	struct nvsmi_device *nd = d->priv;
	bool can_run = n->power.number == 0 || n->power.rc == 0;

	read_stream(b);
	if (n->stream.running)
		return 0;
	if (find_suspended(b))
		return -GW_E_NOSUPPORT;
	choose_live(n);
	/* Do not start the stream if the last single run failed: the stream would fail too. */
	if (can_run && nvsmi_stream_start(&n->stream, programs[n->program],
					  clock_mono_ns(b->env->clock), run_timeout_ns(b))) {
		nd->power = n->power.number;
		return 0;
	}
	if (!is_fresh(b, &n->power, nd->power))
		run_for_power(b, d->call);
	nd->power = n->power.number;
	return 0;
}

static void nvsmi_read(struct device *d, unsigned tiers)
{
	struct nvsmi *n = d->backend->priv;
	struct nvsmi_device *nd = d->priv;
	const char *suspended;

	if (!n || !nd)
		return;
	if (tiers & ~(unsigned)TIERS) {
		report_absent(&d->r, tiers & ~(unsigned)TIERS, GW_ABSENT_NOT_SUPPORTED);
		report_stamp(&d->r, tiers & ~(unsigned)TIERS,
			     clock_mono_ns(d->backend->env->clock));
	}
	tiers &= TIERS;
	if (!tiers)
		return;
	pthread_mutex_lock(&n->lock);
	if (tiers & LIVE && read_live(d, tiers & LIVE))
		tiers &= nd->live_lost ? 0 : ~(unsigned)LIVE;
	if (!tiers)
		goto unlock;
	if (!is_fresh(d->backend, &n->gpus, nd->gpus) || (tiers & ~n->gpus.tiers)) {
		suspended = find_suspended(d->backend);
		if (suspended) {
			read_asleep(d, suspended);
			goto unlock;
		}
		ask_gpus(d->backend, tiers, d->call);
	}
	nd->gpus = n->gpus.number;
	read_row(d, &n->gpus, tiers);
	sample_answer(d, &n->gpus);
unlock:
	pthread_mutex_unlock(&n->lock);
}

static bool memory_changed(const struct nvsmi_device *nd)
{
	return report_has(&nd->live, GW_Q_MEMORY_USED) &&
	       nd->live.v[GW_Q_MEMORY_USED] != nd->apps_used;
}

/* True if the last list of processes can be used again. */
static bool list_is_recent(struct device *d)
{
	const struct nvsmi *n = d->backend->priv;
	const struct nvsmi_device *nd = d->priv;
	const uint64_t age_ns = clock_mono_ns(d->backend->env->clock) - n->apps.end_ns;

	read_stream(d->backend);
	return n->stream.running && nd->live_ns && nd->apps && n->apps.rc == 0 &&
	       age_ns < (memory_changed(nd) ? APPS_CHANGED_NS : APPS_NS);
}

static enum gw_absence nvsmi_processes(struct device *d, struct usage_list *l, int *ret_error)
{
	struct nvsmi *n = d->backend->priv;
	struct nvsmi_device *nd = d->priv;
	enum gw_absence why = GW_HAVE;

	*ret_error = 0;
	if (!n || !nd)
		return GW_ABSENT_NO_DRIVER;
	if (d->r.text_why[GW_T_UUID] != GW_HAVE)
		return GW_ABSENT_NOT_SUPPORTED;
	pthread_mutex_lock(&n->lock);
	if (!is_fresh(d->backend, &n->apps, nd->apps) && !list_is_recent(d)) {
		if (find_suspended(d->backend)) {
			why = GW_ABSENT_ASLEEP;
			goto unlock;
		}
		run_program(d->backend, &n->apps,
			    "--query-compute-apps=gpu_uuid,pid,used_gpu_memory", d->call);
	}
	if (nd->apps != n->apps.number)
		nd->apps_used = nd->live.v[GW_Q_MEMORY_USED];
	nd->apps = n->apps.number;
	if (n->apps.rc == -GW_E_TIMEOUT)
		why = GW_ABSENT_STALLED;
	else if (n->apps.rc == -GW_E_SIZE)
		why = GW_ABSENT_TOO_LONG;
	else if (n->apps.rc != 0)
		why = GW_ABSENT_ERROR;
	else
		*ret_error = add_apps(&n->apps, d->r.text[GW_T_UUID], l);
unlock:
	pthread_mutex_unlock(&n->lock);
	return why;
}

static int copy_samples(const struct nvsmi_device *nd, uint64_t since_us,
			struct power_sample *out, unsigned cap)
{
	uint64_t first = nd->samples > RING_SIZE ? nd->samples - RING_SIZE : 0;
	unsigned used = 0;

	for (uint64_t i = first; i < nd->samples && used < cap; i++)
		if (nd->ring[i % RING_SIZE].wall_us > since_us)
			out[used++] = nd->ring[i % RING_SIZE];
	if (used > 0)
		return (int)used;
	if (nd->power_why == GW_ABSENT_LOST)
		return -GW_E_LOST;
	/* If there were samples before, one line without a power value does not mean that the
	 * GPU has none. */
	return nd->samples == 0 && (nd->power_why == GW_ABSENT_NOT_SUPPORTED ||
				    nd->power_why == GW_ABSENT_NO_PERMISSION)
		       ? -GW_E_NOSUPPORT
		       : 0;
}

static int nvsmi_power_samples(struct device *d, uint64_t since_us, struct power_sample *out,
			       unsigned cap)
{
	struct nvsmi *n = d->backend->priv;
	int rc;

	if (!n || !d->priv)
		return -GW_E_LOST;
	pthread_mutex_lock(&n->lock);
	rc = sample_power(d);
	if (rc == 0)
		rc = copy_samples(d->priv, since_us, out, cap);
	pthread_mutex_unlock(&n->lock);
	return rc;
}

bool nvsmi_facts(struct backend *b, struct nvsmi_facts *ret)
{
	struct nvsmi *n = b->priv;

	if (!n || b->ops != &backend_nvsmi || pthread_mutex_trylock(&n->lock) != 0)
		return false;
	*ret = n->stream.facts;
	pthread_mutex_unlock(&n->lock);
	return true;
}

const struct backend_ops backend_nvsmi = {
	.name = "nvidia-smi",
	.vendor = GW_VENDOR_NVIDIA,
	.present = nvsmi_present,
	.open = nvsmi_open,
	.close = nvsmi_close,
	.read = nvsmi_read,
	.processes = nvsmi_processes,
	.power_samples = nvsmi_power_samples,
};
