/* privileges: which features of the guard work with the permissions of this user.
 *
 * Each missing permission disables one feature.  Queries the kernel, the driver's library and
 * the companion, and changes nothing. */
#ifndef GW_CLI_PRIVILEGES_H
#define GW_CLI_PRIVILEGES_H

#include "cli.h"

#include "serve/render.h"

#define PRIVILEGES 8

/* Fills row[PRIVILEGES] and returns the number of rows; 0 if the GPUs are not those of this
 * machine. */
unsigned privileges_check(const struct cli *c, struct render_privilege *row);

#endif
