/* The journal is read with the service's libraries: the program that has them does it. */
#include "guard_recover.h"
#include "serve_exec.h"

int guard_recover(struct cli *c)
{
	return serve_exec(c);
}
