/* serve_options: the options of `gpuward serve`, generated from the table of settings. */
#ifndef GW_CLI_SERVE_OPTIONS_H
#define GW_CLI_SERVE_OPTIONS_H

#include "option.h"
#include "daemon/config.h"

/* The given values.  Each setting that has an option is a string, a list or a bool here. */
#define SERVE_C_BOOL     bool
#define SERVE_C_COUNT    const char *
#define SERVE_C_NUMBER   const char *
#define SERVE_C_DURATION const char *
#define SERVE_C_BYTES    const char *
#define SERVE_C_TEXT     const char *
#define SERVE_C_CHOICE   const char *
#define SERVE_C_LIST     struct option_list
struct serve_flags {
	const char *config; /* --config FILE */
#define O(section, key, type, standard, least, most, choices, flag, help)
#define F(section, key, type, standard, least, most, choices, flag, help) \
	SERVE_C_##type section##_##key;
#include "daemon/config.def"
#undef O
};

/* Options for struct serve_flags.  The last row has no name. */
extern const struct option serve_options[];

/* Writes the given options for config_load(), at most max, and returns their number.  They
 * point into `given`. */
#define SERVE_FLAGS_MAX 128
unsigned serve_config_flags(const struct serve_flags *given, struct config_flag *out,
			    unsigned max);

#endif
