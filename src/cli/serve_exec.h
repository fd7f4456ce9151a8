/* serve_exec: hands the command line over to the program that is linked with the service's
 * libraries. */
#ifndef GW_CLI_SERVE_EXEC_H
#define GW_CLI_SERVE_EXEC_H

#include "cli.h"

/* Returns only when it cannot: an exit code, having said why. */
int serve_exec(const struct cli *c);

#endif
