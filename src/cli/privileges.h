/* privileges: what the guard may do as this user, and what it may not for want of which right.
 *
 * Each right that is missing disables one thing.  Asks the kernel, the driver's library and the
 * companion; changes nothing. */
#ifndef GW_CLI_PRIVILEGES_H
#define GW_CLI_PRIVILEGES_H

#include "cli.h"

#include "serve/render.h"

#define PRIVILEGES 8

/* Fills row[PRIVILEGES]; how many.  0 where the machine that is looked at is not this one. */
unsigned privileges_look(const struct cli *c, struct render_privilege *row);

#endif
