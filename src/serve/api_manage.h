/* api_manage: /api/gpu/manage, the only routes that change a GPU. */
#ifndef GW_SERVE_API_MANAGE_H
#define GW_SERVE_API_MANAGE_H

#include "http.h"

route_fn api_manage_list, api_manage_set, api_manage_restore, api_manage_clear_ecc;

#endif
