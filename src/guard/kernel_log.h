/* kernel_log: reads Xids from the kernel log, including Xids from before the service started.
 *
 * A driver reports an event only to programs that listen at that time. Earlier events are only
 * in the kernel's ring buffer, /dev/kmsg. Reading the buffer may need CAP_SYSLOG
 * (dmesg_restrict). In the tests, dev/kmsg below the root folder is a file with the same
 * records. */
#ifndef GW_GUARD_KERNEL_LOG_H
#define GW_GUARD_KERNEL_LOG_H

#include "base/root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kernel_log_kind {
	KERNEL_LOG_OTHER,
	KERNEL_LOG_XID,
	KERNEL_LOG_LOADED /* the driver was loaded, so earlier Xids no longer matter */
};

struct kernel_log_record {
	uint64_t mono_ns; /* the kernel's time stamp, since boot */
	char pci[16];     /* for an Xid: "0000:01:00", without the function */
	unsigned xid;
};

/* Parses the first line of a record, without its newline, such as
 * "6,1234,5678901,-;NVRM: Xid (PCI:0000:01:00): 79, ...". Sets *ret unless the result is
 * KERNEL_LOG_OTHER. */
enum kernel_log_kind kernel_log_parse(const char *line, struct kernel_log_record *ret);

/* True if both addresses name the same GPU. The address `device` may contain a function, and
 * its domain may have four or eight digits. */
bool kernel_log_same_pci(const char *pci, const char *device);

struct kernel_log;

/* Opens the kernel log. Returns 0 or -GW_E_NOMEM; or -GW_E_NOENT, -GW_E_PERM or -GW_E_IO with a
 * sentence that says what would help. */
int kernel_log_open(const struct root *root, struct kernel_log **ret, char *why, size_t size);
void kernel_log_close(struct kernel_log *k);

/* Returns the next record that is not KERNEL_LOG_OTHER; false: there is none now. Does not
 * block. */
bool kernel_log_next(struct kernel_log *k, enum kernel_log_kind *ret_kind,
		     struct kernel_log_record *ret);

#endif
