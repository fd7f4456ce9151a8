/* result, in a build without a JSON reader: every file is refused. */
#include "result.h"

#include <math.h>
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

int result_read(struct result *ret, const char *path, const char *text, size_t n, char *error,
		size_t size)
{
	(void)text;
	(void)n;
	return result_load(ret, path, error, size);
}

const char *result_text(const struct result *r, const char *path,
			char out[static RESULT_NUMBER_SIZE])
{
	(void)r;
	(void)path;
	(void)out;
	return NULL;
}

double result_number(const struct result *r, const char *path)
{
	(void)r;
	(void)path;
	return NAN;
}

size_t result_count(const struct result *r, const char *path)
{
	(void)r;
	(void)path;
	return 0;
}

bool result_holds(const struct result *r, const char *path)
{
	(void)r;
	(void)path;
	return false;
}

void result_free(struct result *r)
{
	(void)r;
}

bool result_same(const struct result *a, const struct result *b)
{
	(void)a;
	(void)b;
	return false;
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
