# Is the input one JSON document (RFC 8259)? Exit 0 when it is; else says where it stops being one.
{ text = text $0 "\n" }

function die(what) {
    printf "not JSON at byte %d: %s: %s\n", at, what, substr(text, at, 40)
    failed = 1
    exit 1
}
# Takes what the pattern matches at the current place; "" when it does not match there.
function take(pattern,   token) {
    if (!match(substr(text, at, 4096), "^(" pattern ")")) return ""
    token = substr(text, at, RLENGTH)
    at += RLENGTH
    return token
}
function blanks() {
    while (take("[ \t\r\n]+") != "") continue
}
function string(   c) {
    if (take("\"") == "") die("a string should begin")
    while ((c = substr(text, at, 1)) != "\"") {
        if (c == "\\") {
            if (take("\\\\[\"\\\\/bfnrt]|\\\\u[0-9a-fA-F][0-9a-fA-F][0-9a-fA-F][0-9a-fA-F]") == "") die("escape")
        } else if (c == "" || c < " ") die("in a string")
        else at++
    }
    at++
}
function value(   c) {
    blanks()
    c = substr(text, at, 1)
    if (c == "{") list("}", 1)
    else if (c == "[") list("]", 0)
    else if (c == "\"") string()
    else if (take("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][-+]?[0-9]+)?") == "" && take("true|false|null") == "")
        die("a value should begin")
    blanks()
}
function list(end, named) {
    at++
    blanks()
    if (substr(text, at, 1) == end) { at++; return }
    for (;;) {
        if (named) {
            blanks()
            string()
            blanks()
            if (take(":") == "") die("a colon should follow")
        }
        value()
        if (substr(text, at, 1) == end) { at++; return }
        if (take(",") == "") die("a comma or " end " should follow")
    }
}
END {
    if (failed) exit 1
    at = 1
    value()
    if (at <= length(text)) die("something follows")
}
