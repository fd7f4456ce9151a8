#include "kernel_log.h"

#include "base/text.h"

#include <gpuward.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORD_MAX 8192 /* the kernel refuses a smaller buffer */

/* Reads a hexadecimal number of `least` to `most` digits. */
static bool read_hex(const char **p, unsigned least, unsigned most, unsigned *ret)
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

static bool read_pci(const char **p, struct pci_id *ret)
{
	return read_hex(p, 4, 8, &ret->domain) && text_read_word(p, ":") &&
	       read_hex(p, 2, 2, &ret->bus) && text_read_word(p, ":") &&
	       read_hex(p, 2, 2, &ret->device);
}

bool kernel_log_same_pci(const char *pci, const char *device)
{
	struct pci_id a, b;

	return read_pci(&pci, &a) && read_pci(&device, &b) && a.domain == b.domain &&
	       a.bus == b.bus && a.device == b.device;
}

/* Reads "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS[,...];" and returns the time. */
static bool read_head(const char **p, uint64_t *ret_ns)
{
	uint64_t ignored, us;

	if (!text_read_number(p, UINT32_MAX, &ignored) || !text_read_word(p, ",") ||
	    !text_read_number(p, UINT64_MAX, &ignored) || !text_read_word(p, ",") ||
	    !text_read_number(p, UINT64_MAX / 1000, &us) || !text_read_word(p, ","))
		return false;
	*p = strchr(*p, ';');
	if (!*p)
		return false;
	++*p;
	*ret_ns = us * 1000;
	return true;
}

/* Reads "Xid (PCI:0000:01:00): 79, ..."; drivers before 2013 write it without "PCI:". */
static bool read_xid(const char **p, struct kernel_log_record *ret)
{
	struct pci_id id;
	uint64_t xid;
	unsigned function;

	if (!text_read_word(p, "Xid ("))
		return false;
	text_read_word(p, "PCI:");
	if (!read_pci(p, &id))
		return false;
	if (text_read_word(p, ".") && !read_hex(p, 1, 1, &function))
		return false;
	if (!text_read_word(p, "): ") || !text_read_number(p, UINT32_MAX, &xid))
		return false;
	ret->xid = (unsigned)xid;
	snprintf(ret->pci, sizeof(ret->pci), "%04x:%02x:%02x", id.domain, id.bus, id.device);
	return true;
}

enum kernel_log_kind kernel_log_parse(const char *line, struct kernel_log_record *ret)
{
	struct kernel_log_record r = { 0 };

	if (!read_head(&line, &r.mono_ns) || !text_read_word(&line, "NVRM: "))
		return KERNEL_LOG_OTHER;
	if (text_read_word(&line, "loading NVIDIA UNIX ")) {
		*ret = r;
		return KERNEL_LOG_LOADED;
	}
	if (!read_xid(&line, &r))
		return KERNEL_LOG_OTHER;
	*ret = r;
	return KERNEL_LOG_XID;
}

struct kernel_log {
	int fd;
	size_t used;
	bool overlong; /* the present line is longer than any record, so it is skipped */
	char text[2 * RECORD_MAX];
};

int kernel_log_open(const struct root *root, struct kernel_log **ret, char *why, size_t size)
{
	struct kernel_log *k = calloc(1, sizeof(*k));
	bool denied;
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
	denied = e == EPERM || e == EACCES;
	snprintf(why, size, "/dev/kmsg cannot be read (%s)%s", strerror(e),
		 denied ? ": give the service CAP_SYSLOG to read Xids from before its start"
			: "");
	return denied ? -GW_E_PERM : e == ENOENT ? -GW_E_NOENT : -GW_E_IO;
}

void kernel_log_close(struct kernel_log *k)
{
	if (!k)
		return;
	close(k->fd);
	free(k);
}

/* Reads a complete line: the first line of a record, or a line of its dictionary. Dictionary
 * lines begin with a blank, and the parser ignores them. */
static bool read_line(struct kernel_log *k, char *out)
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

/* Reads more text. After EPIPE (records were overwritten before they were read), the next read
 * continues with the oldest record that still exists. */
static bool fill_text(struct kernel_log *k)
{
	ssize_t n;

	if (k->used >= RECORD_MAX) { /* no record is this long, so this is not a kernel log */
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
		while (read_line(k, line)) {
			*ret_kind = kernel_log_parse(line, ret);
			if (*ret_kind != KERNEL_LOG_OTHER)
				return true;
		}
		if (!fill_text(k))
			return false;
	}
}
