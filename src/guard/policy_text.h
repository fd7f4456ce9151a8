/* policy_text: a policy as lines, for a recording: what is decided by it is decided again.
 *
 * Made of the same lists as the struct.  What nobody decides by is left out: where tokens are, and the arguments of commands.
 * Not a part of the library. */
#ifndef GW_GUARD_POLICY_TEXT_H
#define GW_GUARD_POLICY_TEXT_H

#include "policy.h"

struct buf;

/* A name and a value a line, each with the prefix. */
void policy_text_write(struct buf *out, const char *prefix, const struct policy *p);

/* text: such lines without their prefix.  Members that have none are 0.  The caller ends *ret with policy_done(), also after
 * an error: 0, -GW_E_PARSE or -GW_E_NOMEM. */
int policy_text_read(const char *text, struct policy *ret);

#endif
