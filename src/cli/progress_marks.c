#include "progress_marks.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "measure/meter.h"
#include "measure/stat.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* When this time has passed after the end of a window, all its samples have arrived. */
#define SETTLED_NS (3 * NS_PER_S)

void progress_marks_init(struct progress_marks *m, struct gw_meter *meter, const char *part,
			 uint64_t begin_ns)
{
	memset(m, 0, sizeof(*m));
	m->meter = meter;
	m->part = part;
	m->begin_ns = begin_ns;
	random_init(&m->random, begin_ns);
}

static void reject_line(struct progress_marks *m, const char *line, const char *why)
{
	char text[64];

	if (m->bad++ > 0)
		return;
	utf8_clean(text, sizeof(text), line);
	snprintf(m->reason, sizeof(m->reason), "'%s' %s", text, why);
}

/* Waits for the samples of the window, copies its energy (for the reported part also that of
 * each process), and frees the window. */
static void compute_window(struct progress_marks *m, struct progress_marks_window *w,
			   uint64_t timeout_ns)
{
	unsigned n = gw_meter_device_count(m->meter);

	/* If a sample is still missing after this wait, the energy has a validity code that
	 * says so. */
	gw_window_wait(w->live, timeout_ns);
	w->energy = calloc(n ? n : 1, sizeof(*w->energy));
	for (unsigned i = 0; w->energy && i < n; i++)
		w->energy[i] = *gw_window_energy(w->live, i);
	if (m->part && strcmp(w->label, m->part) == 0)
		w->who = calloc(n ? n : 1, sizeof(*w->who));
	for (unsigned i = 0; w->who && i < n; i++)
		w->who[i] = *window_processes(w->live, i);
	gw_window_free(w->live);
	w->live = NULL;
}

static struct progress_marks_window *add_window(struct progress_marks *m)
{
	/* Allocate the maximum at once. Pages that are not used take no memory. */
	if (!m->window)
		m->window = calloc(PROGRESS_MARKS_WINDOWS, sizeof(*m->window));
	if (!m->window || m->count == PROGRESS_MARKS_WINDOWS) {
		m->refused++;
		return NULL;
	}
	return &m->window[m->count];
}

static void begin_part(struct progress_marks *m, const char *line, const char *name,
		       uint64_t t_ns)
{
	struct progress_marks_window *w;

	if (t_ns < m->begin_ns) {
		reject_line(m, line, "begins before the run");
		return;
	}
	w = add_window(m);
	if (!w)
		return;
	memset(w, 0, sizeof(*w));
	utf8_clean(w->label, sizeof(w->label), name);
	w->begin_ns = t_ns;
	w->first = m->iterations;
	w->first_tokens = m->tokens;
	if (gw_window_open(m->meter, w->label, t_ns, &w->live) == 0)
		m->count++;
	else
		reject_line(m, line, "begins in the future or too long ago");
}

static void finish_counts(const struct progress_marks *m, struct progress_marks_window *w)
{
	w->iterations = m->iterations - w->first;
	w->tokens = m->tokens - w->first_tokens;
}

static void end_part(struct progress_marks *m, const char *line, const char *name,
		     uint64_t t_ns)
{
	char label[sizeof(m->window->label)];
	struct progress_marks_window *w = NULL;

	utf8_clean(label, sizeof(label), name);
	for (unsigned i = m->count; i-- > 0 && !w;)
		if (!m->window[i].end_ns && strcmp(m->window[i].label, label) == 0)
			w = &m->window[i];
	if (!w) {
		/* Perhaps this line ends a part that was left out because of the limit. */
		if (!m->refused)
			reject_line(m, line, "ends a part that has not begun");
	} else if (t_ns < w->begin_ns || gw_window_close(w->live, t_ns) != 0) {
		reject_line(m, line, "ends before it begins, or in the future");
	} else {
		w->end_ns = t_ns > w->begin_ns ? t_ns : t_ns + 1;
		finish_counts(m, w);
	}
}

void progress_marks_update(struct progress_marks *m, uint64_t now_ns)
{
	for (unsigned i = 0; i < m->count; i++) {
		struct progress_marks_window *w = &m->window[i];

		if (w->live && w->end_ns && w->end_ns + SETTLED_NS < now_ns)
			compute_window(m, w, 0);
	}
}

void progress_marks_finish(struct progress_marks *m, uint64_t end_ns)
{
	/* All windows share one deadline, because a GPU that does not answer delays all of
	 * them. */
	uint64_t until = clock_mono_ns(clock_real()) + SETTLED_NS, now;

	for (unsigned i = 0; i < m->count; i++) {
		struct progress_marks_window *w = &m->window[i];

		if (!w->end_ns) {
			w->end_ns = end_ns > w->begin_ns ? end_ns : w->begin_ns + 1;
			w->unfinished = true;
			finish_counts(m, w);
			gw_window_close(w->live, w->end_ns);
		}
		now = clock_mono_ns(clock_real());
		if (w->live)
			compute_window(m, w, until > now ? until - now : 0);
	}
}

const struct progress_marks_window *progress_marks_find(const struct progress_marks *m,
							const char *name, unsigned *ret_count)
{
	const struct progress_marks_window *first = NULL;

	*ret_count = 0;
	for (unsigned i = 0; i < m->count; i++) {
		const struct progress_marks_window *w = &m->window[i];

		if (!w->energy || w->unfinished || strcmp(w->label, name) != 0)
			continue;
		first = first ? first : w;
		++*ret_count;
	}
	return first;
}

static void add_iteration(struct progress_marks *m, uint64_t t_ns)
{
	double s = (double)(t_ns - m->last_ns) * 1e-9;
	bool first = m->last_ns == 0;
	uint64_t place = m->latency_count;

	m->iterations++;
	m->last_ns = t_ns;
	if (first)
		/* The time before the first iteration is not a latency, because the program was
		 * starting. */
		return;
	if (!m->latency)
		m->latency = malloc(PROGRESS_MARKS_LATENCIES * sizeof(*m->latency));
	if (!m->latency)
		return;
	m->latency_count++;
	if (m->latencies < PROGRESS_MARKS_LATENCIES)
		m->latencies++;
	else if (m->latency_count <= UINT32_MAX)
		place = random_below(&m->random, (uint32_t)m->latency_count);
	if (place < PROGRESS_MARKS_LATENCIES)
		m->latency[place] = (struct progress_marks_latency){ m->iterations, s };
}

/* Checks that iteration numbers increase by one.  A line without a number also counts as one
 * iteration.  The numbers may start again at 0 or 1. */
static void check_number(struct progress_marks *m, uint64_t number)
{
	if (m->number && number != m->number && number > 1 && !m->odd_after) {
		m->odd_before = m->number - 1;
		m->odd_after = number;
	}
	m->number = number + 1;
}

double progress_marks_latency(const struct progress_marks *m,
			      const struct progress_marks_window *w, double p)
{
	double *own = malloc((m->latencies + 1) * sizeof(*own)), v = NAN;
	size_t n = 0;

	for (size_t i = 0; own && i < m->latencies; i++) {
		uint64_t number = m->latency[i].number;

		/* Use the time only if this mark and the previous mark are in the part. */
		if (!w || (number > w->first + 1 && number <= w->first + w->iterations))
			own[n++] = m->latency[i].seconds;
	}
	if (n > 0)
		v = stat_percentile(own, n, p);
	free(own);
	return v > 0 ? v : NAN; /* 0 means that all marks arrived at the same time. */
}

static bool parse_whole(const char *word, uint64_t *ret)
{
	uint64_t v = 0;

	if (!*word || strlen(word) > 19)
		return false;
	for (; *word; word++) {
		if (*word < '0' || *word > '9')
			return false;
		v = v * 10 + (uint64_t)(*word - '0');
	}
	*ret = v;
	return true;
}

static void parse_line(struct progress_marks *m, const char *line, uint64_t now_ns)
{
	char copy[PROGRESS_MARKS_LINE], *word[4] = { 0 }, *save = NULL;
	unsigned n = 0;
	uint64_t v = now_ns;
	bool timed; /* The line is a word and a name, and perhaps a time, which is then in v. */

	snprintf(copy, sizeof(copy), "%s", line);
	for (char *w = strtok_r(copy, " \t\r", &save); w && n < 4;
	     w = strtok_r(NULL, " \t\r", &save))
		word[n++] = w;
	if (n == 0)
		return;
	timed = n == 2 || (n == 3 && parse_whole(word[2], &v));
	if (strcmp(word[0], "iteration") == 0 && n <= 2 &&
	    (n < 2 || parse_whole(word[1], &v))) {
		if (n == 2)
			check_number(m, v);
		else if (m->number)
			m->number++;
		add_iteration(m, now_ns);
	} else if (strcmp(word[0], "tokens") == 0 && n == 2 && parse_whole(word[1], &v) &&
		   v <= UINT64_MAX - m->tokens) {
		m->tokens += v;
	} else if (timed && strcmp(word[0], "begin") == 0) {
		begin_part(m, line, word[1], v);
	} else if (timed && strcmp(word[0], "end") == 0) {
		end_part(m, line, word[1], v);
	} else {
		reject_line(m, line, "is not a mark");
	}
}

static void parse_byte(struct progress_marks *m, char c, uint64_t now_ns)
{
	if (c != '\n') {
		if (m->fill + 1 < sizeof(m->line))
			m->line[m->fill++] = c ? c : '?';
		else
			m->skipping = true;
		return;
	}
	m->line[m->fill] = '\0';
	if (m->skipping)
		reject_line(m, m->line, "is too long");
	else
		parse_line(m, m->line, now_ns);
	m->fill = 0;
	m->skipping = false;
}

void progress_marks_feed(struct progress_marks *m, const char *text, size_t n, uint64_t now_ns)
{
	for (size_t i = 0; i < n; i++)
		parse_byte(m, text[i], now_ns);
}

void progress_marks_done(struct progress_marks *m)
{
	for (unsigned i = 0; i < m->count; i++) {
		gw_window_free(m->window[i].live);
		free(m->window[i].energy);
		free(m->window[i].who);
	}
	free(m->window);
	free(m->latency);
	memset(m, 0, sizeof(*m));
}
