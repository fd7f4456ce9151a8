#include "serve_options.h"

#include <stddef.h>

/* config_load() parses the values, because it knows types and ranges: here they are texts. */
#define OPTION_OF_BOOL     OPTION_FLAG
#define OPTION_OF_COUNT    OPTION_TEXT
#define OPTION_OF_NUMBER   OPTION_TEXT
#define OPTION_OF_DURATION OPTION_TEXT
#define OPTION_OF_BYTES    OPTION_TEXT
#define OPTION_OF_TEXT     OPTION_TEXT
#define OPTION_OF_CHOICE   OPTION_TEXT
#define OPTION_OF_LIST     OPTION_LIST

#define METAVAR_BOOL(choices)     NULL
#define METAVAR_COUNT(choices)    "N"
#define METAVAR_NUMBER(choices)   "X"
#define METAVAR_DURATION(choices) "TIME"
#define METAVAR_BYTES(choices)    "SIZE"
#define METAVAR_TEXT(choices)     "FILE"
#define METAVAR_CHOICE(choices)   choices
#define METAVAR_LIST(choices)     "ADDRESS"

const struct option serve_options[] = {
	{ "config", 'c', OPTION_TEXT, offsetof(struct serve_flags, config), "FILE",
	  "read this file instead of the files in the usual places", NULL, NULL },
#define O(section, key, type, standard, least, most, choices, flag, help)
#define F(section, key, type, standard, least, most, choices, flag, help) \
	{ flag,                                                           \
	  0,                                                              \
	  OPTION_OF_##type,                                               \
	  offsetof(struct serve_flags, section##_##key),                  \
	  METAVAR_##type(choices),                                        \
	  help,                                                           \
	  NULL,                                                           \
	  NULL },
#include "daemon/config.def"
#undef O
	{ .name = NULL },
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
