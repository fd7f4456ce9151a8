/* serve_exec: executes the program that is linked with the libraries of the service. */
#ifndef GW_CLI_SERVE_EXEC_H
#define GW_CLI_SERVE_EXEC_H

#include "cli.h"

/* Returns an exit code, after printing an error, only if that fails. */
int serve_exec(const struct cli *c);

#endif
