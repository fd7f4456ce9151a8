/* bundle_open: opens a bundle or a result file for reading.
 *
 * If the result.json of a bundle is missing or unreadable, the result is computed from the
 * samples.  Problems of the bundle are stored as sentences in `note`. */
#ifndef GW_CLI_BUNDLE_OPEN_H
#define GW_CLI_BUNDLE_OPEN_H

#include "result_file.h"
#include "measure/bundle.h"

#define BUNDLE_OPENED_NOTES 6
#define BUNDLE_OPENED_NOTE  5200

struct bundle_opened {
	const char *path; /* The path that was opened. The caller owns the string. */
	struct result_file result;
	bool bundle; /* True: the path is a bundle. False: it is a result file. */
	bool read;   /* The samples of the bundle could be read. `sum` describes them. */
	/* `result` was computed from the samples, because result.json is not usable. */
	bool bundle_rebuilt;
	struct bundle_summary sum;
	double interval_s; /* Time between readings of clocks and temperature. 0: unknown. */
	char file[4200];   /* Path of the result.json in the bundle. */
	char note[BUNDLE_OPENED_NOTES][BUNDLE_OPENED_NOTE];
	unsigned notes;
};

/* Returns true if window a is shorter than window b and lies inside it. Of two such windows on
 * the same GPU, a is a part of b that the command marked. */
bool bundle_is_inside(const struct gw_energy *a, const struct gw_energy *b);

/* Calls say() with a sentence for each problem of the files: not complete, changed, or with
 * lines that could not be read. */
void bundle_problems(const struct bundle_summary *s, const char *dir,
		     void (*say)(void *arg, const char *sentence), void *arg);

/* Opens a bundle or a result file.  Returns 0; then call bundle_opened_done().  On error
 * returns -1 with a sentence in message. */
int bundle_open(struct bundle_opened *e, const char *path, char *message, size_t size);
void bundle_opened_done(struct bundle_opened *e);

#endif
