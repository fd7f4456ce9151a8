#include "kernel_log.h"

#include <gpuward.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD_MAX 8192 /* the kernel refuses to give one to a smaller buffer */

/* ---- one record ---- */

static bool take(const char **p, const char *word)
{
	size_t n = strlen(word);

	if (strncmp(*p, word, n) != 0)
		return false;
	*p += n;
	return true;
}

static bool take_number(const char **p, uint64_t most, uint64_t *ret)
{
	uint64_t v = 0;

	if (!isdigit((unsigned char)**p))
		return false;
	for (; isdigit((unsigned char)**p); ++*p) {
		unsigned digit = (unsigned)(**p - '0');

		if (v > (most - digit) / 10)
			return false;
		v = 10 * v + digit;
	}
	*ret = v;
	return true;
}

/* So many digits at least and at most. */
static bool take_hex(const char **p, unsigned least, unsigned most, unsigned *ret)
{
	unsigned v = 0, n = 0;

	for (; n < most && isxdigit((unsigned char)**p); n++, ++*p) {
		int c = tolower((unsigned char)**p);

		v = v << 4 | (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	*ret = v;
	return n >= least;
}

struct pci_id {
	unsigned domain, bus, device;
};

static bool take_pci(const char **p, struct pci_id *ret)
{
	return take_hex(p, 4, 8, &ret->domain) && take(p, ":") &&
	       take_hex(p, 2, 2, &ret->bus) && take(p, ":") && take_hex(p, 2, 2, &ret->device);
}

bool kernel_log_same_pci(const char *pci, const char *device)
{
	struct pci_id a, b;

	return take_pci(&pci, &a) && take_pci(&device, &b) && a.domain == b.domain &&
	       a.bus == b.bus && a.device == b.device;
}

/* "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,...];" */
static bool take_head(const char **p, uint64_t *ret_ns)
{
	uint64_t ignored, us;

	if (!take_number(p, UINT32_MAX, &ignored) || !take(p, ",") ||
	    !take_number(p, UINT64_MAX, &ignored) || !take(p, ",") ||
	    !take_number(p, UINT64_MAX / 1000, &us) || !take(p, ","))
		return false;
	*p = strchr(*p, ';');
	if (!*p)
		return false;
	++*p;
	*ret_ns = us * 1000;
	return true;
}

/* "Xid (PCI:0000:01:00): 79, ..."; before 2013 without "PCI:". */
static bool take_xid(const char **p, struct kernel_log_record *ret)
{
	struct pci_id id;
	uint64_t xid;
	unsigned function;

	if (!take(p, "Xid ("))
		return false;
	take(p, "PCI:");
	if (!take_pci(p, &id))
		return false;
	if (take(p, ".") && !take_hex(p, 1, 1, &function))
		return false;
	if (!take(p, "): ") || !take_number(p, UINT32_MAX, &xid))
		return false;
	ret->xid = (unsigned)xid;
	snprintf(ret->pci, sizeof(ret->pci), "%04x:%02x:%02x", id.domain, id.bus, id.device);
	return true;
}

enum kernel_log_kind kernel_log_parse(const char *line, struct kernel_log_record *ret)
{
	struct kernel_log_record r = { 0 };

	if (!take_head(&line, &r.mono_ns) || !take(&line, "NVRM: "))
		return KERNEL_LOG_OTHER;
	if (take(&line, "loading NVIDIA UNIX ")) {
		*ret = r;
		return KERNEL_LOG_LOADED;
	}
	if (!take_xid(&line, &r))
		return KERNEL_LOG_OTHER;
	*ret = r;
	return KERNEL_LOG_XID;
}

/* ---- the log ---- */

struct kernel_log {
	int fd;
	size_t used;
	bool overlong; /* what is left of a line that is longer than any record */
	char text[2 * RECORD_MAX];
};

int kernel_log_open(const struct root *root, struct kernel_log **ret, char *why, size_t size)
{
	struct kernel_log *k = calloc(1, sizeof(*k));
	bool may;
	int e;

	if (!k)
		return -GW_E_NOMEM;
	k->fd = openat(root->fd, "dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (k->fd >= 0) {
		*ret = k;
		return 0;
	}
	e = errno;
	free(k);
	may = e == EPERM || e == EACCES;
	snprintf(why, size, "/dev/kmsg cannot be read (%s)%s", strerror(e),
		 may ? ": give the service CAP_SYSLOG to see Xids of before its start" : "");
	return may ? -GW_E_PERM : e == ENOENT ? -GW_E_NOENT : -GW_E_IO;
}

void kernel_log_close(struct kernel_log *k)
{
	if (!k)
		return;
	close(k->fd);
	free(k);
}

/* A line that is whole, or nothing: the record's first, or one of its dictionary, which begins with a
 * blank and says nothing to the parser. */
static bool take_line(struct kernel_log *k, char *out)
{
	char *end = memchr(k->text, '\n', k->used);
	size_t n;

	if (!end)
		return false;
	n = (size_t)(end - k->text);
	for (size_t i = 0; i < n; i++)
		out[i] = k->text[i] ? k->text[i] : ' ';
	out[k->overlong ? 0 : n] = '\0';
	k->overlong = false;
	k->used -= n + 1;
	memmove(k->text, end + 1, k->used);
	return true;
}

/* EPIPE: records were overwritten before we came to them; the next read goes on with those that are left. */
static bool fill(struct kernel_log *k)
{
	ssize_t n;

	if (k->used >= RECORD_MAX) { /* no record is as long: a file that is none of ours */
		k->overlong = true;
		k->used = 0;
	}
	do {
		n = read(k->fd, k->text + k->used, RECORD_MAX);
	} while (n < 0 && (errno == EINTR || errno == EPIPE));
	if (n <= 0)
		return false;
	k->used += (size_t)n;
	return true;
}

bool kernel_log_next(struct kernel_log *k, enum kernel_log_kind *ret_kind,
		     struct kernel_log_record *ret)
{
	char line[2 * RECORD_MAX];

	for (;;) {
		while (take_line(k, line)) {
			*ret_kind = kernel_log_parse(line, ret);
			if (*ret_kind != KERNEL_LOG_OTHER)
				return true;
		}
		if (!fill(k))
			return false;
	}
}
