#include "serve_options.h"

#include <stddef.h>

/* The values stay strings here.  config_load() parses them, because it knows types and
 * ranges. */
#define ROW_OF_BOOL(flag, at, metavar, help) OPTION_ROW(FLAG, 0, flag, at, metavar, help)
#define ROW_OF_TEXT(flag, at, metavar, help) OPTION_ROW(TEXT, 0, flag, at, metavar, help)
#define ROW_OF_LIST(flag, at, metavar, help) OPTION_ROW(LIST, 0, flag, at, metavar, help)
#define ROW_OF_COUNT                         ROW_OF_TEXT
#define ROW_OF_NUMBER                        ROW_OF_TEXT
#define ROW_OF_DURATION                      ROW_OF_TEXT
#define ROW_OF_BYTES                         ROW_OF_TEXT
#define ROW_OF_CHOICE                        ROW_OF_TEXT

#define METAVAR_BOOL(choices)     NULL
#define METAVAR_COUNT(choices)    "N"
#define METAVAR_NUMBER(choices)   "X"
#define METAVAR_DURATION(choices) "TIME"
#define METAVAR_BYTES(choices)    "SIZE"
#define METAVAR_TEXT(choices)     "FILE"
#define METAVAR_CHOICE(choices)   choices
#define METAVAR_LIST(choices)     "ADDRESS"

const struct option serve_options[] = {
	OPTION_ROW(TEXT, 'c', "config", offsetof(struct serve_flags, config), "FILE",
		   "read this file instead of the files in the usual places"),
#define O(section, key, type, standard, least, most, choices, flag, help)
#define F(section, key, type, standard, least, most, choices, flag, help)  \
	ROW_OF_##type(flag, offsetof(struct serve_flags, section##_##key), \
		      METAVAR_##type(choices), help),
#include "daemon/config.def"
#undef O
	OPTION_END,
};

static unsigned add_list(const struct option *o, const struct option_list *l,
			 struct config_flag *out, unsigned max)
{
	unsigned n = 0;

	while (n < l->count && n < max) {
		out[n] = (struct config_flag){ o->name, l->item[n] };
		n++;
	}
	return n;
}

unsigned serve_config_flags(const struct serve_flags *given, struct config_flag *out,
			    unsigned max)
{
	unsigned n = 0;

	for (const struct option *o = serve_options + 1; o->name; o++) {
		const void *at = (const char *)given + o->offset;

		if (!option_given(o, given))
			continue;
		if (o->type == OPTION_LIST)
			n += add_list(o, at, out + n, max - n);
		else if (n < max)
			out[n++] = (struct config_flag){
				o->name,
				o->type == OPTION_FLAG ? "true" : *(const char *const *)at,
			};
	}
	return n;
}
