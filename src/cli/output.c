#include "output.h"

#include "cli.h"

#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_standard(const char *path)
{
	return !path || strcmp(path, "-") == 0;
}

int output_print(const char *text, size_t n)
{
	fflush(stdout);
	if (file_write_all(STDOUT_FILENO, text, n) == 0 || errno == EPIPE)
		return EXIT_OK; /* nobody reading it any more is no error */
	cli_error("cannot write the output: %s", strerror(errno));
	return EXIT_FAILED;
}

int output_save(const char *path, const char *text, size_t n)
{
	char message[512];

	if (file_replace(path, text, n, message, sizeof(message)) == 0)
		return EXIT_OK;
	cli_error("%s", message);
	return EXIT_FAILED;
}

int output_result(const char *path, bool print, const struct buf *text)
{
	bool file = path && strcmp(path, "-") != 0;
	int code = file ? output_save(path, text->p, text->len) : EXIT_OK;

	if ((print || (path && !file)) && output_print(text->p, text->len) != EXIT_OK)
		code = EXIT_FAILED;
	return code;
}

int output_possible(const char *path)
{
	char message[512];

	if (!path || strcmp(path, "-") == 0 ||
	    file_possible(path, message, sizeof(message)) == 0)
		return EXIT_OK;
	cli_error("%s", message);
	return EXIT_FAILED;
}

int output_write(const char *path, const struct buf *text)
{
	if (text->err) {
		cli_error("cannot build the output: %s", gw_strerror(text->err));
		return EXIT_FAILED;
	}
	if (is_standard(path)) {
		fwrite(text->p, 1, text->len, stdout); /* main() looks whether it went well */
		return EXIT_OK;
	}
	return output_save(path, text->p, text->len);
}

int output_spares(const char *path, char **inputs, int n)
{
	struct stat out, in;

	if (is_standard(path) || stat(path, &out) != 0)
		return EXIT_OK;
	for (int i = 0; i < 2 * n;
	     i++) { /* each, and what is read of it where it is a bundle */
		char name[4096];

		snprintf(name, sizeof(name), "%s%s", inputs[i / 2],
			 i % 2 ? "/result.json" : "");
		if (stat(name, &in) == 0 && in.st_dev == out.st_dev &&
		    in.st_ino == out.st_ino) {
			cli_error("%s is read and would be overwritten: name another file with "
				  "-o",
				  path);
			return EXIT_USAGE;
		}
	}
	return EXIT_OK;
}
