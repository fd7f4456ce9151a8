/* kernel_log: what the kernel wrote of Xids, from before we began and since.
 *
 * Drivers tell events only to those who listen, and never again: what happened before the start is in
 * the kernel's ring alone.  Reading /dev/kmsg may need CAP_SYSLOG (dmesg_restrict); where it cannot be
 * read, that is said and nothing else is different.  Below a root that is a copy, dev/kmsg is a file of
 * the same records. */
#ifndef GW_GUARD_KERNEL_LOG_H
#define GW_GUARD_KERNEL_LOG_H

#include "base/root.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kernel_log_kind {
	KERNEL_LOG_OTHER,
	KERNEL_LOG_XID,
	KERNEL_LOG_LOADED /* the driver was loaded: what was before is over */
};

struct kernel_log_record {
	uint64_t mono_ns; /* the kernel's stamp: time since the boot */
	char pci[16];     /* of an Xid: "0000:01:00"; the function is not told */
	unsigned xid;
};

/* What a record says ("6,1234,5678901,-;NVRM: Xid (PCI:0000:01:00): 79, ..."): the first line of it, without
 * its newline.  *ret is set for what is not OTHER. */
enum kernel_log_kind kernel_log_parse(const char *line, struct kernel_log_record *ret);

/* Is it the same GPU?  The device's id may have a function and a domain of four or eight digits. */
bool kernel_log_same_pci(const char *pci, const char *device);

struct kernel_log;

/* 0, -GW_E_NOMEM, or -GW_E_NOENT, -GW_E_PERM, -GW_E_IO with a sentence that says what would help. */
int kernel_log_open(const struct root *root, struct kernel_log **ret, char *why, size_t size);
void kernel_log_close(struct kernel_log *k);

/* The next record that is not OTHER; false: there is none now.  Does not wait. */
bool kernel_log_next(struct kernel_log *k, enum kernel_log_kind *ret_kind,
		     struct kernel_log_record *ret);

#endif
