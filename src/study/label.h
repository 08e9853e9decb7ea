/*
 * study/label.h: what a candidate is called in results and as a folder: what stands before "=", else made
 * of the request itself.
 */
#ifndef OZ_STUDY_LABEL_H
#define OZ_STUDY_LABEL_H

#include <ounce/status.h>

#define OZ_LABEL_BYTES 64

/*
 * Splits "LABEL=REQUEST"; without a label makes one of the request (a method's name, a file's or folder's
 * last part, the words of a JSON object). *request points into `text`. Labels are letters, digits, '_',
 * '-' and '.', and begin with a letter or digit. OZ_ERR_ARG: a label of something else, or nothing behind
 * it.
 */
OZ_MUST_USE enum oz_status oz_label_split(const char *text, char label[OZ_LABEL_BYTES],
                                          const char **request, struct oz_error *err);

#endif
