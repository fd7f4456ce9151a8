#include "figure.h"

#include "cli.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define VALUE_COLUMN 35 /* behind the longest key */

void figure_line(const char *key, const char *fmt, ...)
{
	char text[1024], left[64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(left, sizeof(left), "  %-32s", key);
	if (VALUE_COLUMN + utf8_columns(text) <= term_width()) {
		printf("%s %s\n", left, text);
	} else { /* one that is cut in two cannot be copied */
		printf("  %s\n", key);
		term_wrap("", 4, text, term_width());
	}
}

static bool ends(const char *key, const char *tail)
{
	size_t n = strlen(key), t = strlen(tail);

	return n >= t && strcmp(key + n - t, tail) == 0;
}

void figure_number(const char *key, double v)
{
	static const struct {
		const char *tail, *unit;
		double scale;
	} units[] = {
		{ "_watts", "W", 1 },     { "_celsius", "°C", 1 }, { "_hertz", "MHz", 1e-6 },
		{ "_seconds", "s", 1 },   { "_joules", "J", 1 },   { "_ratio", "%", 100 },
		{ "_lanes", "lanes", 1 },
	};
	char size[16];

	if (ends(key, "_bytes")) {
		cli_bytes(size, v);
		figure_line(key, "%s", size);
		return;
	}
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (ends(key, units[i].tail)) {
			figure_line(key, units[i].scale > 1 ? "%.4g %s" : "%.10g %s",
				    v * units[i].scale, term_plain(units[i].unit));
			return;
		}
	figure_line(key, "%.10g", v);
}

void figure_value(const struct gw_device *d, unsigned q, bool reasons)
{
	const struct gw_quantity_info *info = gw_quantity_info(q);
	char name[128];
	double v = 0;
	enum gw_absence why = gw_device_value(d, q, &v);

	if (why != GW_HAVE) {
		if (reasons)
			figure_line(info->key, "- (%s)", gw_absence_text(why));
	} else if (info->kind == GW_KIND_FLAG) {
		figure_line(info->key, "%s", v != 0 ? "yes" : "no");
	} else if (gw_quantity_name(q, v, name, sizeof(name)) == 0) {
		figure_line(info->key, "%s", *name ? name : "none");
	} else {
		figure_number(info->key, v);
	}
}
