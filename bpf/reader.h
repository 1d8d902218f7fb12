// SPDX-License-Identifier: MIT OR Apache-2.0 OR GPL-2.0
//
// Reading a frame from its front, with the check of its end that the verifier wants.

#pragma once

// A frame as far as it has been read.
struct reader {
	void *at;
	void *end;
};

// The next header, or none where the frame ends before it does.
#define TAKE(reader, type)                                                       \
	({                                                                       \
		type *_taken = (reader)->at;                                     \
		(reader)->at = _taken + 1;                                       \
		(void *)(_taken + 1) > (reader)->end ? (type *)0 : _taken;       \
	})
