/* diff_fields: the fields that diff compares in two results: path, title and tolerance. */
#ifndef GW_CLI_DIFF_FIELDS_H
#define GW_CLI_DIFF_FIELDS_H

#include <stdbool.h>

/* A field that is compared. */
struct diff_field {
	const char *path;  /* in the document, the environment, a device or a sensor */
	const char *title; /* NULL: this field is not compared */
	double apart;      /* values that are no further apart are equal */
	bool share;        /* apart is a part of the larger value */
};

/* Each ends with a path of NULL. */
extern const struct diff_field diff_fields_settings[]; /* of the document */
extern const struct diff_field diff_fields_environment[];
extern const struct diff_field diff_fields_gpu[]; /* of a GPU in the environment */
extern const struct diff_field
	diff_fields_figures[]; /* of a GPU in a run: energy.def and more */
extern const struct diff_field
	diff_fields_throttles[];                     /* the same, as parts of the run's time */
extern const struct diff_field diff_fields_sensor[]; /* of a GPU's sensor */

#endif
