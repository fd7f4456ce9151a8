/* policy_text: writes and reads a policy as lines, so that a recording is replayed with the
 * policy of the recorded guard.
 *
 * The code is generated from the same lists as the struct. Members that do not influence
 * decisions are left out: paths of tokens, and arguments of commands. */
#ifndef GW_GUARD_POLICY_TEXT_H
#define GW_GUARD_POLICY_TEXT_H

#include "policy.h"

struct buf;

/* Writes one name and value per line, with the prefix before each line. */
void policy_text_write(struct buf *out, const char *prefix, const struct policy *p);

/* Reads the lines of policy_text_write(), without their prefix. A member without a line is 0.
 * The caller must call policy_done() on *ret, also after an error. Returns 0, -GW_E_PARSE or
 * -GW_E_NOMEM. */
int policy_text_read(const char *text, struct policy *ret);

#endif
