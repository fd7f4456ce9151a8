#include "mem_trim.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

struct trim {
	size_t page, bytes;
};

/* True if the dynamic linker wrote to the code of the program or library. The pages of the code
 * are then not copies of the file. */
static bool has_changed_code(const struct dl_phdr_info *o)
{
	for (unsigned i = 0; i < o->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &o->dlpi_phdr[i];
		const ElfW(Dyn) *d = (const void *)(o->dlpi_addr + p->p_vaddr);

		for (; p->p_type == PT_DYNAMIC && d->d_tag != DT_NULL; d++)
			if (d->d_tag == DT_TEXTREL ||
			    (d->d_tag == DT_FLAGS && d->d_un.d_val & DF_TEXTREL))
				return true;
	}
	return false;
}

static int trim_object(struct dl_phdr_info *o, size_t size, void *arg)
{
	struct trim *t = arg;

	(void)size;
	if (has_changed_code(o))
		return 0;
	for (unsigned i = 0; i < o->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &o->dlpi_phdr[i];
		const uintptr_t begin = o->dlpi_addr + p->p_vaddr;
		/* Only whole pages: the last page of a segment may also hold bytes of the next
		 * segment. */
		const uintptr_t from = (begin + t->page - 1) / t->page * t->page,
				to = (begin + p->p_filesz) / t->page * t->page;

		if (p->p_type != PT_LOAD || p->p_flags & PF_W || to <= from)
			continue;
		/* The kernel refuses locked pages and pages that do not belong to a file. */
		if (madvise((void *)from, to - from, MADV_DONTNEED) == 0)
			t->bytes += to - from;
	}
	return 0;
}

size_t mem_trim_code(void)
{
	struct trim t = { (size_t)sysconf(_SC_PAGESIZE), 0 };

	dl_iterate_phdr(trim_object, &t);
	return t.bytes;
}
