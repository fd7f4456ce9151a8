/* Any record of the kernel log and any event of the kernel: no crash; an Xid has a number and an
 * address. */
#include "text.h"

#include "daemon/uevent.h"
#include "guard/kernel_log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_text(data, size);
	struct kernel_log_record r = { 0 };

	if (kernel_log_parse(text, &r) == KERNEL_LOG_XID &&
	    (!memchr(r.pci, 0, sizeof(r.pci)) || !*r.pci || !kernel_log_same_pci(r.pci, r.pci)))
		abort();
	(void)kernel_log_same_pci("0000:01:00", text);
	free(text);
	text = malloc(size ? size : 1); /* without NUL */
	memcpy(text, data, size);
	if (uevent_read(text, size) > UEVENT_GONE)
		abort();
	free(text);
	return 0;
}
