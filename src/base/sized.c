#include "sized.h"

#include <string.h>

/* Returns the size that the first member contains, or 0 if this size is not possible. */
static size_t sized_size(const void *given)
{
	size_t size;

	memcpy(&size, given, sizeof(size));
	return size < sizeof(size) || size % sizeof(size) ? 0 : size;
}

bool sized_read(void *known, size_t size, const void *given)
{
	size_t theirs = given ? sized_size(given) : size;

	memset(known, 0, size);
	if (given && theirs)
		memcpy(known, given, theirs < size ? theirs : size);
	return theirs != 0;
}

bool sized_write(void *ret, const void *known, size_t size)
{
	size_t theirs = sized_size(ret);

	if (!theirs)
		return false;
	if (theirs > size)
		memset((char *)ret + size, 0, theirs - size);
	memcpy((char *)ret + sizeof(size_t), (const char *)known + sizeof(size_t),
	       (theirs < size ? theirs : size) - sizeof(size_t));
	return true;
}
