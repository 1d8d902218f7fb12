// SPDX-License-Identifier: MIT OR Apache-2.0
//
// declined: nothing passes. The decision's cookie is empty.

#include "flow.h"

FLOW_INIT
{
	return 0;
}

FLOW_PKT
{
	return FLOW_DECLINED;
}
