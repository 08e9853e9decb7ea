/* study/page.h: the frame of an HTML report: one file, inline style, light, dark and paper, readable
 * without its few lines of script. */
#ifndef OZ_STUDY_PAGE_H
#define OZ_STUDY_PAGE_H

#include "base/buf.h"

/* Up to <main>; `title` is text. */
void oz_page_begin(struct oz_buf *b, const char *title);
/* From </main> on, with `foot` as text. */
void oz_page_end(struct oz_buf *b, const char *foot);

/* A region that scrolls sideways on small screens, for a table or a grid. `name` is text. */
void oz_page_scroll_begin(struct oz_buf *b, const char *name);
void oz_page_scroll_end(struct oz_buf *b);

/* <details> with preformatted text, to copy. */
void oz_page_copy(struct oz_buf *b, const char *summary, const char *text);

#endif
