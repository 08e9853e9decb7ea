/*
 * mhd.h: libmicrohttpd's functions, looked up when the server starts. A program that were linked with it
 * would load it, and GnuTLS behind it, for every command.
 */
#ifndef OUNCE_SERVER_MHD_H
#define OUNCE_SERVER_MHD_H

#include <microhttpd.h>
#include <ounce/ounce.h>

/* Those that http.c calls, without MHD_. */
#define SV_MHD_FUNCTIONS(F)          \
    F(add_response_header)           \
    F(create_response_from_buffer)   \
    F(create_response_from_callback) \
    F(destroy_response)              \
    F(get_connection_info)           \
    F(lookup_connection_value)       \
    F(queue_response)                \
    F(quiesce_daemon)                \
    F(resume_connection)             \
    F(start_daemon)                  \
    F(stop_daemon)                   \
    F(suspend_connection)

struct sv_mhd {
#define SV_MHD_FIELD(name) __typeof__(MHD_##name) *name;
    SV_MHD_FUNCTIONS(SV_MHD_FIELD)
#undef SV_MHD_FIELD
};

/* The library, opened once for the process, which keeps it. NULL: *err says what is missing. */
const struct sv_mhd *sv_mhd_open(struct oz_error *err);

#endif
