/* Any lines of a bundle: the tracker neither crashes nor reports a negative or absurd
 * energy, and events that were read are written identically. */
#include "base/buf.h"
#include "measure/window_tracker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WINDOWS 8

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_back(const struct event *e)
{
	char text[EVENT_LINE_MAX * 4], again[EVENT_LINE_MAX * 4];
	struct event back;
	struct buf b;

	buf_init_fixed(&b, text, sizeof(text));
	event_write(&b, e);
	text[b.len - 1] = '\0';
	if (event_read(text, &back) != 0)
		abort();
	buf_init_fixed(&b, again, sizeof(again));
	event_write(&b, &back);
	again[b.len - 1] = '\0';
	if (strcmp(text, again) != 0)
		abort();
}

static void check_result(struct window_tracker *t, struct tracked_window *w)
{
	struct gw_energy r = { 0 };

	window_tracker_result(t, w, &r);
	if (r.joules.low < 0 || r.joules.low > r.joules.best || r.joules.best > r.joules.high)
		abort();
	window_tracker_share(t, w, &r);
	window_tracker_forget(t, w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct energy_setup set = { .shape = SHAPE_RING,
				    .spacing_s = 0.02,
				    .window_s = 0.0135,
				    .lag_s = 0.017,
				    .look_ratio = 1,
				    .counter = true,
				    .limit_w = 700 };
	struct window_tracker *t = calloc(1, sizeof(*t));
	struct tracked_window *w = calloc(WINDOWS, sizeof(*w));
	char *text = malloc(size + 1), *rest, *line;
	unsigned open = 0;

	set.sensor.tick_s = 0.1;
	set.sensor.calibration.gain_u = 0.025;
	memcpy(text, data, size);
	text[size] = '\0';
	window_tracker_init(t, &set, 0.1);
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		struct event e;

		if (event_read(line, &e) != 0)
			continue;
		check_back(&e);
		if (e.type == EVENT_OPEN &&
		    (open == WINDOWS || window_tracker_find(t, e.u.window.id)))
			continue;
		window_tracker_feed(t, &e, e.type == EVENT_OPEN ? &w[open++] : NULL);
		if (e.type == EVENT_RESULT && window_tracker_find(t, e.u.window.id))
			check_result(t, window_tracker_find(t, e.u.window.id));
	}
	free(text);
	free(w);
	free(t);
	return 0;
}
