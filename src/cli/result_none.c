/* result, in a build without a JSON reader: every file is refused. */
#include "result.h"

#include <stdio.h>

int result_load(struct result *ret, const char *path, char *error, size_t size)
{
	*ret = (struct result){ .path = path };
	snprintf(
		error, size,
		"%s: this gpuward was built without a JSON reader (jansson), so it cannot read "
		"results",
		path);
	return -1;
}

void result_free(struct result *r)
{
	(void)r;
}

const char *result_level(const struct result_code *code)
{
	(void)code;
	return "";
}

bool result_usable(const struct result_run *run)
{
	(void)run;
	return false;
}
