/* nvsmi_stream: reads power samples from an nvidia-smi process that keeps running and prints
 * one line per GPU ten times per second. */
#include "nvsmi.h"

#include "base/number.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define INTERVAL_MS   "100"
#define SILENCE_NS    (10 * NVSMI_INTERVAL_NS)
#define TRUSTED_LINES 10 /* A process that printed this many lines is restarted soon. */
#define STAMP_LENGTH  23
#define ZONE_US       (15 * 60 * INT64_C(1000000))

/* The pipe holds one minute of lines from eight GPUs. nvidia-smi blocks when the pipe is full.
 * A larger pipe would have no use: nvidia-smi would only sample the GPUs for a longer time
 * although nobody reads the samples. */
#define PIPE_BYTES (512 * 1024)

/* The fields of a line after the ids. */
enum { STAMP = NVSMI_IDS, POWER, INSTANT, FIELDS };

void nvsmi_stream_init(struct nvsmi_stream *s)
{
	memset(s, 0, sizeof(*s));
}

const char *nvsmi_stream_query(struct nvsmi_stream *s, bool more)
{
	snprintf(s->query, sizeof(s->query),
		 "--query-gpu=index,uuid,pci.bus_id,timestamp,power.draw%s%s",
		 s->no_instant ? "" : ",power.draw.instant", more ? s->more : "");
	return s->query;
}

static void update_cpu(struct nvsmi_stream *s)
{
	struct timespec t;
	clockid_t id;

	if (clock_getcpuclockid(s->child.pid, &id) == 0 && clock_gettime(id, &t) == 0)
		s->facts.child_cpu_ns =
			s->ended_cpu_ns + (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

void nvsmi_stream_stop(struct nvsmi_stream *s)
{
	if (!s->running)
		return;
	update_cpu(s);
	child_stop(&s->child);
	s->running = false;
	s->ended_cpu_ns = s->facts.child_cpu_ns;
}

static void stop_and_delay(struct nvsmi_stream *s, uint64_t now_ns)
{
	if (s->lines >= TRUSTED_LINES)
		s->backoff_ns = 0;
	nvsmi_stream_stop(s);
	s->backoff_ns = backend_backoff_ns(s->backoff_ns);
	s->retry_ns = now_ns + s->backoff_ns;
}

bool nvsmi_stream_start(struct nvsmi_stream *s, const char *program, uint64_t now_ns,
			uint64_t first_line_timeout_ns)
{
	const char *const argv[] = { program,
				     nvsmi_stream_query(s, true),
				     "--format=csv,noheader,nounits",
				     "-lms",
				     INTERVAL_MS,
				     NULL };
	static const char *const utc[] = { "TZ=UTC", NULL };

	if (s->running || now_ns < s->retry_ns)
		return s->running;
	s->facts.starts++;
	s->lines = 0;
	s->zone_known = false;
	if (child_start(&s->child, argv, utc) != 0) {
		stop_and_delay(s, now_ns);
		return false;
	}
	/* If this fails, the pipe stays smaller, and samples may be lost. */
	fcntl(s->child.out_fd, F_SETPIPE_SZ, PIPE_BYTES);
	s->running = true;
	s->last_line_ns = now_ns;
	s->first_line_timeout_ns = first_line_timeout_ns;
	return true;
}

/* Parses a time such as "2026/11/15 06:31:36.123". */
static bool parse_stamp(const char *text, int64_t *ret_us)
{
	struct tm t = { 0 };
	int ms, end = 0;
	time_t s;

	if (sscanf(text, "%4d/%2d/%2d %2d:%2d:%2d.%3d%n", &t.tm_year, &t.tm_mon, &t.tm_mday,
		   &t.tm_hour, &t.tm_min, &t.tm_sec, &ms, &end) != 7 ||
	    end != STAMP_LENGTH || text[end] || t.tm_year < 1970 || t.tm_mon < 1 ||
	    t.tm_mon > 12 || t.tm_mday < 1 || t.tm_mday > 31 || t.tm_hour < 0 ||
	    t.tm_hour > 23 || t.tm_min < 0 || t.tm_min > 59 || t.tm_sec < 0 || t.tm_sec > 60 ||
	    ms < 0)
		return false;
	t.tm_year -= 1900;
	t.tm_mon--;
	s = timegm(&t);
	*ret_us = (int64_t)s * 1000000 + ms * 1000;
	return s >= 0;
}

static int64_t find_zone(int64_t stamp_us, uint64_t wall_us)
{
	return (int64_t)llround((double)((int64_t)wall_us - stamp_us) / (double)ZONE_US) *
	       ZONE_US;
}

static double parse_watts(const char *text, enum gw_absence *why)
{
	const char *end;
	double w;

	*why = nvsmi_absence(text);
	if (*why != GW_HAVE)
		return NAN;
	w = number_parse(text, &end);
	if (end != text && *end == '\0' && w >= 0 && w < 1e5)
		return w;
	*why = GW_ABSENT_INVALID;
	return NAN;
}

bool nvsmi_stream_parse(struct nvsmi_stream *s, const char *line, bool more, uint64_t wall_us,
			struct nvsmi_reading *ret)
{
	enum gw_absence why, instant_why = GW_ABSENT_NOT_SUPPORTED;
	unsigned own = s->no_instant ? INSTANT : FIELDS;
	char **fields = s->fields;
	int64_t stamp_us;

	if (strlen(line) >= sizeof(s->text))
		return false;
	strcpy(s->text, line);
	if (nvsmi_split(s->text, fields, NVSMI_STREAM_FIELDS) != own + (more ? s->mores : 0) ||
	    strspn(fields[NVSMI_INDEX], "0123456789") == 0 ||
	    !parse_stamp(fields[STAMP], &stamp_us))
		return false;
	if (!s->zone_known)
		s->zone_us = find_zone(stamp_us, wall_us);
	s->zone_known = true;
	if (stamp_us + s->zone_us < 0)
		return false;
	s->facts.lines++;
	*ret = (struct nvsmi_reading){ .uuid = fields[NVSMI_UUID],
				       .pci = fields[NVSMI_PCI],
				       .wall_us = (uint64_t)(stamp_us + s->zone_us),
				       .instant_w = NAN,
				       .more = more ? fields + own : NULL };
	ret->power_w = parse_watts(fields[POWER], &why);
	if (!s->no_instant)
		ret->instant_w = parse_watts(fields[INSTANT], &instant_why);
	ret->why = instant_why == GW_HAVE ? GW_HAVE : why;
	return true;
}

/* True if the program refuses the column power.draw.instant. An older program does this and
 * ends; it is then started again without the column. */
static bool refuses_instant(struct nvsmi_stream *s, const char *line)
{
	char field[96];

	return !s->no_instant && nvsmi_refused(line, field, sizeof(field)) &&
	       strcmp(field, "power.draw.instant") == 0;
}

bool nvsmi_stream_next(struct nvsmi_stream *s, uint64_t now_ns, uint64_t wall_us,
		       struct nvsmi_reading *ret)
{
	const char *line;
	int rc;

	if (!s->running)
		return false;
	while ((rc = child_line(&s->child, 0, &line)) == 1) {
		if (refuses_instant(s, line)) {
			nvsmi_stream_stop(s);
			s->no_instant = true;
			return false;
		}
		if (!nvsmi_stream_parse(s, line, true, wall_us, ret))
			continue;
		s->lines++;
		s->last_line_ns = now_ns;
		return true;
	}
	update_cpu(s);
	if (rc != -GW_E_TIMEOUT) {
		s->facts.ends++;
		stop_and_delay(s, now_ns);
	} else if (now_ns - s->last_line_ns >
		   (s->lines ? SILENCE_NS : s->first_line_timeout_ns)) {
		s->facts.stalls++;
		stop_and_delay(s, now_ns);
	}
	return false;
}
