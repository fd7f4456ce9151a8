#include "api_parts.h"

void api_openapi(void *arg, const struct request *q, struct reply *r)
{
	(void)arg; (void)q; (void)r;
}
