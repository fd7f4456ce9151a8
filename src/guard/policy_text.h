/* policy_text: a policy as lines, so that a recording is replayed with the policy that it was decided by.
 *
 * Made from the same lists as the struct.  What decides nothing is left out: paths of tokens, and arguments of commands. */
#ifndef GW_GUARD_POLICY_TEXT_H
#define GW_GUARD_POLICY_TEXT_H

#include "policy.h"

struct buf;

/* One name and value per line, each with the prefix. */
void policy_text_write(struct buf *out, const char *prefix, const struct policy *p);

/* text: such lines without their prefix.  A member without a line is 0.  The caller calls policy_done() on *ret, also after
 * an error.  0, -GW_E_PARSE or -GW_E_NOMEM. */
int policy_text_read(const char *text, struct policy *ret);

#endif
