/* base/json_tree.h: the tree that json_parse.c builds and json.c reads. Internal to both. */
#ifndef OZ_BASE_JSON_TREE_H
#define OZ_BASE_JSON_TREE_H

#include "base/json.h"
#include "base/map.h"

/* Objects of more members are looked up through a map. */
#define OZ_JSON_FEW 8

/* Names of a large object: key to place. */
struct oz_json_names {
    struct oz_string_map map;
    struct oz_json_names *next; /* of the document, for freeing */
};

struct oz_json {
    enum oz_json_type type;
    uint32_t count;  /* of items */
    const char *key; /* members of objects; else NULL */
    union {
        int64_t integer;
        double real;
        bool boolean;
        const char *string;
        struct oz_json *items; /* [count], in the order of the text */
    };
    struct oz_json_names *names; /* NULL: few members, or no object */
};

/* A block of a document's memory; the bytes follow. */
struct oz_json_block {
    struct oz_json_block *next;
};

struct oz_json_document {
    struct oz_json root; /* first: the root's address is the document's */
    struct oz_json_block *blocks;
    struct oz_json_names *names;
};

/* Frees a document and what hangs on it. */
void oz_json_document_free(struct oz_json_document *d);

#endif
