/* difference_things: what diff looks at in two results: where it stands, what it is called, and how far apart it may
 * be without being called different. */
#ifndef GW_CLI_DIFFERENCE_THINGS_H
#define GW_CLI_DIFFERENCE_THINGS_H

#include <stdbool.h>

/* apart: numbers that are no further apart are called equal; a share of the larger, where `share` is set. */
struct thing {
	const char *path, *title;
	double apart;
	bool share;
};

/* Each ends with a path of NULL. */
extern const struct thing difference_settings[]; /* of the document */
extern const struct thing difference_environment[];
extern const struct thing difference_gpu[];       /* of a GPU in the environment         */
extern const struct thing difference_figures[];   /* of a GPU in a run                   */
extern const struct thing difference_throttles[]; /* the same, as shares of the run's time */
extern const struct thing difference_sensor[];    /* of a GPU's sensor                   */

#endif
