#include "secret.h"

#include "file.h"

#include <gpuward.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int secret_read(const char *path, char out[static SECRET_MAX], char *message, size_t size)
{
	struct stat st;
	ssize_t n;

	if (stat(path, &st) != 0)
		return file_failed(message, size, path, "read");
	if (st.st_mode & 077) {
		snprintf(message, size,
			 "the token file %s can be read by others (mode %03o): chmod 600 %s",
			 path, (unsigned)(st.st_mode & 0777), path);
		return -GW_E_PERM;
	}
	n = file_read(path, out, SECRET_MAX - 1, message, size);
	if (n < 0)
		return (int)n;
	out[n] = '\0';
	out[strcspn(out, "\r\n")] = '\0';
	if (strlen(out) >= SECRET_LEAST)
		return 0;
	snprintf(message, size,
		 "the token in %s is shorter than %d characters: write a longer one, such as "
		 "of \"openssl rand -hex 32\", as its first line",
		 path, SECRET_LEAST);
	return -GW_E_ARG;
}
